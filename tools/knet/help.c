#include "help.h"

#include <string.h>

#include "cmd.h"
#include "terminal.h"

/* Columns of options, and of commands and exit codes; terminals below NARROW have the text in lines
 * of its own. */
enum { LEFT = 26, LEFT_SHORT = 12, NARROW = 64, INDENT_NARROW = 4 };

const kn__pair kn__help_exits[] = {
    {"0", "success"},
    {"1", "failure"},
    {"2", "wrong usage, or there is no such device"},
    {"3", "out of memory"},
    {"4", "another rank failed"},
    {"130", "interrupted (Ctrl-C)"},
    {"129, 143", "ended by SIGHUP or SIGTERM"},
    {"138", "ended by SIGUSR1, which train --checkpoint saves after"},
    {"141", "the reader of the output is gone"},
    {NULL, NULL},
};

/* --- options --- */
static void add_choices(kn__text *text, const char *const *choices) {
    for (int i = 0; choices[i]; i++) {
        kn__text_puts(text, i == 0 ? ": " : choices[i + 1] ? ", " : " or ");
        kn__text_puts(text, choices[i]);
    }
}

static void add_conditions(kn__text *text, const kn__opt *opt) {
    if (opt->is_needed) kn__text_puts(text, "; needed");
    if (opt->only_with) {
        kn__text_puts(text, "; only with ");
        kn__opt_condition_add(text, opt->only_with, strlen(opt->only_with));
    }
    const char *separator = "; not with ";
    for (const char *at = opt->not_with; at && *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        kn__text_puts(text, separator);
        kn__opt_condition_add(text, at, n);
        separator = ", ";
        at += n;
    }
}

void kn__help_add_option(kn__text *text, const kn__opt *opt) {
    const char *initial = opt->initial ? opt->initial : opt->initial_shown;
    kn__text_puts(text, opt->help);
    if (opt->choices) add_choices(text, opt->choices);
    if (opt->remark) kn__text_printf(text, "; %s", opt->remark);
    add_conditions(text, opt);
    if (initial) kn__text_printf(text, " [%s]", initial);
}

static void add_left(kn__text *text, const char *left, const char *right, int indent, int width) {
    kn__text_entry(text, left, right, width < NARROW ? INDENT_NARROW : indent, width);
}

static void add_option(kn__text *text, const kn__opt *opt, int width) {
    char left_room[64];
    kn__text left = kn__text_in(left_room, sizeof left_room), right = {0};
    kn__text_printf(&left, "--%s", opt->name);
    if (opt->value_name) kn__text_printf(&left, " %s", opt->value_name);
    kn__help_add_option(&right, opt);
    if (right.data) add_left(text, left_room, right.data, LEFT, width);
    kn__text_release(&right);
}

/* --- the help --- */
static void add_heading(kn__text *text, const char *heading, bool color) {
    kn__text_printf(text, "\n%s%s%s\n", kn__style_text(KN__STYLE_BOLD, color), heading,
                    kn__style_text(KN__STYLE_PLAIN, color));
}

static void add_pairs(kn__text *text, const kn__pair *pairs, int width) {
    for (; pairs && pairs->left; pairs++)
        add_left(text, pairs->left, pairs->right, LEFT_SHORT, width);
}

void kn__help_add_usage(kn__text *text, const kn__command *c) {
    const kn__opt *opt;
    kn__text_printf(text, "knet %s", c->name);
    const kn__operand *o = c->operand;
    const char *options = " [OPTION]...";
    if (o && o->is_program) kn__text_puts(text, options);
    if (o) kn__text_printf(text, o->min ? " %s" : " [%s]", o->name);
    for (int i = 0; (opt = kn__opt_at(c, i)); i++)
        if (opt->is_needed) kn__text_printf(text, " --%s %s", opt->name, opt->value_name);
    if (!o || !o->is_program) kn__text_puts(text, options);
}

void kn__help_add(kn__text *text, const kn__command *c, int width, bool color) {
    const kn__opt *opt;
    kn__text_puts(text, kn__style_text(KN__STYLE_BOLD, color));
    kn__text usage = {0};
    kn__help_add_usage(&usage, c);
    kn__text_wrap(text, usage.data ? usage.data : "", 0, 0, width);
    kn__text_release(&usage);
    kn__text_printf(text, "%s\n", kn__style_text(KN__STYLE_PLAIN, color));
    kn__text_wrap(text, c->description, 0, 0, width);
    add_heading(text, "Options:", color);
    for (int i = 0; (opt = kn__opt_at(c, i)); i++) add_option(text, opt, width);
    add_left(text, "--help", "print this text", LEFT, width);
    if (c->notes) {
        kn__text_puts(text, "\n");
        kn__text_wrap(text, c->notes, 0, 0, width);
    }
    if (c->exits) {
        add_heading(text, "Exit codes (the others: 'knet help'):", color);
        add_pairs(text, c->exits, width);
    }
    if (!c->examples) return;
    add_heading(text, "Examples:", color);
    for (const kn__pair *e = c->examples; e->left; e++) {
        kn__text_printf(text, "  %s\n", e->left);
        kn__text_wrap(text, e->right, 6, 0, width);
    }
}

void kn__help_add_all(kn__text *text, int width, bool color) {
    const kn__command *c;
    kn__text_printf(text, "%sknet COMMAND [OPTION]...%s\n", kn__style_text(KN__STYLE_BOLD, color),
                    kn__style_text(KN__STYLE_PLAIN, color));
    add_heading(text, "Commands:", color);
    for (int i = 0; (c = kn__command_at(i)); i++)
        add_left(text, c->name, c->summary, LEFT_SHORT, width);
    kn__text_puts(text, "\n");
    kn__text_wrap(text,
                  "'knet help COMMAND' shows the options of a command.\n"
                  "KNET_TIMER=1 prints at exit where time and memory went; KNET_TIMER=help and "
                  "KNET_ALLOC=help list the words of these variables.",
                  0, 0, width);
    add_heading(text, "Exit codes:", color);
    add_pairs(text, kn__help_exits, width);
}
