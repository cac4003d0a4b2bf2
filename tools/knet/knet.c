/* The `knet` command: finds the command, reads its options, runs it. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "help.h"
#include "output.h"
#include "timer_words.h"

enum { NAMES_MAX = 16 };

static void log_print(void *ctx, int level, const char *text) {
    (void)ctx;
    if (level < 2) kn__warn("%s: %s", level > 0 ? "warning" : "error", text);
}

/* A file opened later must not take the number of a closed standard stream. Read-only, so that
 * writes to it still fail and are noticed. */
static void streams_reserve(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", O_RDONLY) != fd) return;
}

/* Whether one of the words, or two in a row, are the option with this value. */
static bool has_option(int argc, char **argv, const char *name, const char *value) {
    size_t n = strlen(name);
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], name, n) != 0) continue;
        if (argv[i][n] == '=' && strcmp(argv[i] + n + 1, value) == 0) return true;
        if (!argv[i][n] && i + 1 < argc && strcmp(argv[i + 1], value) == 0) return true;
    }
    return false;
}

/* Failures are JSON and coloured as the command line asks for, even if it is wrong otherwise. */
static bool wants_json(int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return has_option(argc, argv, "--format", "json");
}

static void color_read(int argc, char **argv) {
    for (int i = 0; kn__color_words[i]; i++)
        if (has_option(argc, argv, "--color", kn__color_words[i]))
            kn__color_set(kn__color_words[i]);
}

/* For the build: prints the generated page, or the names of all. */
static int page_print(const char *page) {
    enum { WORDS_BYTES = 1 << 16 };
    static char words[WORDS_BYTES];
    kn__output out = kn__output_begin(&(kn__common){.json = false});
    out.live = false;
    for (int i = 0; !page && kn__page_at(i); i++)
        kn__text_printf(&out.text, "%s\n", kn__page_at(i));
    if (page && strstr(page, ".7")) words[fread(words, 1, sizeof words - 1, stdin)] = '\0';
    bool found = !page || kn__page_add(&out.text, page, words);
    int code = kn__output_end(&out, KN__EXIT_OK);
    return found ? code : kn__fail_usage("there is no page '%s'", page);
}

static int command_unknown(const char *typed) {
    const char *names[NAMES_MAX + 1] = {NULL};
    for (int i = 0; i < NAMES_MAX && kn__command_at(i); i++) names[i] = kn__command_at(i)->name;
    if (typed[0] == '-') return kn__fail_usage("unknown option '%s'", typed);
    return kn__choice_unknown("command", typed, names);
}

static int command_run(const kn__command *command, int argc, char **argv) {
    kn__fail_command(command->name);
    if (command->operand && command->operand->is_program) kn__timer_pass_on();
    if (kn__opts_ask_help(command, argc, argv)) return kn__help_print(command);
    kn__common *options = kn__opts_new(command, argc);
    if (!options) {
        kn__fail("no memory for the options");
        return KN__EXIT_OOM;
    }
    int code = kn__opts_parse(options, command, argc, argv);
    if (code == KN__EXIT_OK) code = kn__output_check(options);
    if (code == KN__EXIT_OK) code = command->run(options);
    free(options);
    return code;
}

/* How many words are the command's: a program that it runs has options of its own. */
static int words_count(int argc, char **argv) {
    const kn__command *command = argc > 1 ? kn__command_find(argv[1]) : NULL;
    return command ? 2 + kn__opts_count(command, argc - 2, argv + 2) : argc;
}

static int help_missing(void) {
    kn__text help = {0};
    kn__fail("COMMAND is missing");
    kn__help_add_all(&help, KN__HELP_WIDTH, kn__color_on(stderr));
    if (help.data) fputs(help.data, stderr);
    kn__text_release(&help);
    return KN__EXIT_USAGE;
}

static int words_run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2) return help_missing();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return kn__help_print_all();
    if (strcmp(name, "--version") == 0) return kn__version_print_line();
    if (strcmp(name, "--page") == 0) return page_print(argc > 2 ? argv[2] : NULL);
    const kn__command *command = kn__command_find(name);
    return command ? command_run(command, argc - 2, argv + 2) : command_unknown(name);
}

/* Whether standard output is a pipe without a reader. */
static bool reader_is_gone(void) {
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

/* A reader that had enough (`knet ... | head`) is a failed write and not our end, so that files are
 * still written; the exit code is the one that the signal would have given. */
int main(int argc, char **argv) {
    streams_reserve();
    kn__signals_ignore();
    kn_log_attach(log_print, NULL);
    int n_words = words_count(argc, argv);
    color_read(n_words, argv);
    int exit_code = words_run(argc, argv);
    bool failed = exit_code != KN__EXIT_OK && exit_code < 128;
    if (failed && wants_json(n_words, argv) && !kn__output_json_written())
        kn__output_failure(argc > 1 ? argv[1] : "", exit_code);
    if (exit_code == KN__EXIT_FAILURE && reader_is_gone()) exit_code = 128 + SIGPIPE;
    return exit_code;
}
