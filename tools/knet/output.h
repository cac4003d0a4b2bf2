/* What a command prints on standard output: lines as they come, or one JSON object at the end.
 * Everything printed is kept until the end; when standard output can't be written, the result goes
 * to standard error instead of getting lost, unless it is a pipe whose reader had enough. */
#ifndef KN_OUTPUT_H
#define KN_OUTPUT_H

#include <knet/status.h>
#include <stdio.h>

typedef struct kn__output {
    FILE *kept; /* what was printed; JSON is written here */
    char *text;
    size_t text_bytes;
    bool live;        /* lines go to standard output at once */
    bool reader_gone; /* standard output is a pipe that nobody reads any more */
} kn__output;

kn_status kn__output_begin(kn__output *report, bool live);
/* One line, with its newline; nothing under JSON's !live. */
void kn__output_line(kn__output *report, const char *fmt, ...) KN_PRINTF(2, 3);
/* Finishes standard output and releases the report. False: it couldn't be written; said on standard
 * error, with the result, unless the reader is gone. */
bool kn__output_end(kn__output *report, const char *command);

/* JSON values: null for what is not finite; a quoted string. */
void kn__json_number(FILE *out, double value);
void kn__json_string(FILE *out, const char *string);

/* "431,080"; returns out. */
char *kn__count_text(char *out, size_t out_bytes, int64_t count);

#endif
