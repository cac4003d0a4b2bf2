/* knet help: the list of commands, or the options of one. */
#include "cmd.h"
#include "help.h"
#include "output.h"

typedef struct options {
    kn__common common;
    const char *command[2];
} options;

static const kn__operand operand = {"COMMAND", 0, 1, offsetof(options, command),
                                    .choice_at = kn__command_name_at};

static int width(void) {
    int columns = kn__terminal_width();
    if (columns == 0 || columns > KN__HELP_WIDTH) return KN__HELP_WIDTH;
    return columns < KN__HELP_WIDTH_MIN ? KN__HELP_WIDTH_MIN : columns;
}

int kn__help_print(const kn__command *command) {
    kn__output out = kn__output_begin(&(kn__common){.json = false});
    out.live = false;
    kn__help_add(&out.text, command, width(), out.color);
    return kn__output_end(&out, KN__EXIT_OK);
}

int kn__help_print_all(void) {
    kn__output out = kn__output_begin(&(kn__common){.json = false});
    out.live = false;
    kn__help_add_all(&out.text, width(), out.color);
    return kn__output_end(&out, KN__EXIT_OK);
}

static int run(void *options_of) {
    const options *o = options_of;
    return o->command[0] ? kn__help_print(kn__command_find(o->command[0])) : kn__help_print_all();
}

const kn__command kn__cmd_help = {
    .name = "help",
    .summary = "show the commands, or the options of one",
    .description = "Shows the commands, or the options of one command.",
    .operand = &operand,
    .options_bytes = sizeof(options),
    .run = run,
};
