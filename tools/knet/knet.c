/* The `knet` command. */
#include <fcntl.h>
#include <knet/status.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "opts.h"

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"train", "train a model and report loss, accuracy and memory", kn__cmd_train},
    {"report", "show a profile: where time and memory went", kn__cmd_report},
    {"diff", "compare two profiles: what became slower or larger", kn__cmd_diff},
    {"replay", "play allocation traces against the pool and other policies", kn__cmd_replay},
    {"info", "devices, library versions, and what is missing", kn__cmd_info},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int help_print(FILE *out, int exit_code) {
    fputs("knet COMMAND [OPTION …]\n\nCommands:\n", out);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fputs(
        "\n`knet COMMAND --help` says more. `knet --version` prints the version.\n"
        "KNET_TIMER=1 prints at exit where time and memory went; KNET_TIMER=help its words.\n"
        "Exit codes: 0 success, 1 failure, 2 wrong usage or no such device, 3 out of memory,\n"
        "130 interrupted, 143 terminated, 129 hung up, 141 the reader of the output has gone.\n",
        out);
    return exit_code;
}

static int command_unknown(const char *typed) {
    const char *names[N_COMMANDS + 1] = {NULL};
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    kn__opts_unknown("knet", "command", typed, names);
    fputs("Try 'knet --help'.\n", stderr);
    return KN__EXIT_USAGE;
}

static void log_print(void *ctx, int level, const char *text) {
    static const char *const names[] = {"error", "warning"};
    (void)ctx;
    if (level < 2) fprintf(stderr, "knet: %s: %s\n", names[level > 0], text);
}

/* A file opened later must not take the number of a closed standard stream. Read-only, so that
 * what is written there still fails and is noticed. */
static void streams_reserve(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", O_RDONLY) != fd) return;
}

static int command_run(int argc, char **argv) {
    if (argc < 2) return help_print(stderr, KN__EXIT_USAGE);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help_print(stdout, KN__EXIT_OK);
    if (strcmp(argv[1], "--version") == 0) {
        printf("knet %s\n", KNET_VERSION);
        return KN__EXIT_OK;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
    return command_unknown(argv[1]);
}

/* Whether standard output is a pipe that nobody reads any more. */
static bool reader_is_gone(void) {
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

/* A reader that had enough (`knet … | head`) is a failed write and not our end, so that files are
 * still written; the exit code is the one that the signal would have given. */
int main(int argc, char **argv) {
    streams_reserve();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow: the same */
    kn_log_attach(log_print, NULL);
    int exit_code = command_run(argc, argv);
    if (exit_code == KN__EXIT_FAILURE && reader_is_gone()) exit_code = 128 + SIGPIPE;
    return exit_code;
}
