#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "terminal.h"

static struct {
    const char *command;
    char rank[24]; /* "rank 1: " */
    char message[4096];
} told;

void kn__fail_command(const char *command) { told.command = command; }
void kn__fail_rank(int rank) { snprintf(told.rank, sizeof told.rank, "rank %d: ", rank); }
const char *kn__fail_message(void) { return told.message; }

/* Messages quote command lines and files: no control character of these reaches the terminal. */
static void clean(char *message) {
    for (; *message; message++)
        if (((unsigned char)*message < 0x20 && *message != '\n') || *message == 0x7f)
            *message = '?';
}

static void print(kn__style style, char *message) {
    bool color = kn__color_on(stderr);
    clean(message);
    fprintf(stderr, "%sknet%s%s:%s %s%s\n", kn__style_text(style, color), told.command ? " " : "",
            told.command ? told.command : "", kn__style_text(KN__STYLE_PLAIN, color), told.rank,
            message);
}

static void fail(const char *fmt, va_list args) {
    char message[sizeof told.message];
    vsnprintf(message, sizeof message, fmt, args);
    print(KN__STYLE_RED, message);
    if (!told.message[0]) memcpy(told.message, message, sizeof message);
}

void kn__fail(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail(fmt, args);
    va_end(args);
}

int kn__fail_usage(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail(fmt, args);
    va_end(args);
    fprintf(stderr, "Try 'knet%s%s --help'.\n", told.command ? " " : "",
            told.command ? told.command : "");
    return KN__EXIT_USAGE;
}

void kn__fail_last(void) { kn__fail("%s", kn_last_error()->message); }

void kn__warn(const char *fmt, ...) {
    char message[sizeof told.message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    print(KN__STYLE_YELLOW, message);
}
