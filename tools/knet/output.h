/* What a command prints as its result: lines as they come, or all of it at the end; on standard
 * output, or in the file of --output. All of it is kept until the end: where it can't be written,
 * it goes to standard error instead of getting lost, unless the reader of a pipe has gone. */
#ifndef KN_OUTPUT_H
#define KN_OUTPUT_H

#include <errno.h>
#include <stdio.h>

#include "opts.h"
#include "terminal.h"
#include "text.h"

typedef struct kn__output {
    /* The result: lines, JSON, or what the command adds. */
    kn__text text;
    /* NULL: standard output. */
    const char *path;
    /* Lines are printed at once. */
    bool live;
    bool json;
    /* Lines may have colours. */
    bool color;
    /* The errno of the first failure of standard output, such as EPIPE: its reader is gone. */
    int error;
} kn__output;

/* Checks that the file of --output can be made, before the work. Returns the exit code. */
int kn__output_check(const kn__common *common);
/* The file of --output stays as it is: a failure goes to standard output. */
void kn__output_cancel(void);

kn__output kn__output_begin(const kn__common *common);
/* One line, with its newline; ignored where the result is JSON. */
void kn__output_line(kn__output *output, const char *fmt, ...) KN_PRINTF(2, 3);
/* The escape sequence of a style, for lines. */
const char *kn__output_style(const kn__output *output, kn__style style);
/* Writes the result and releases it. Returns the exit code, which is a failure where the result
 * could not be written. */
int kn__output_end(kn__output *output, int exit_code);

/* Results are dropped from here on: another rank prints them. */
void kn__output_mute(void);

/* Whether a result in JSON was written since the program's start. */
bool kn__output_json_written(void);
/* Prints the JSON object of a failure, with kn__fail_message(). */
void kn__output_failure(const char *command, int exit_code);

/* A JSON number; null for NaN and infinity. */
void kn__output_number(kn__text *text, double value);

/* "431,080"; returns out. */
char *kn__count_text(char *out, size_t out_bytes, int64_t count);

#endif
