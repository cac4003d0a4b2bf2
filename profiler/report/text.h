/* A growing string, and the numbers of the table as text. */
#ifndef KNET_TEXT_H
#define KNET_TEXT_H

#include <knet/status.h>

/* Zero-initialise; release frees. Running out of memory sets `failed` and drops what follows. */
typedef struct kn__text {
    char *data; /* ends in a zero byte once something was added */
    size_t length, size;
    bool failed;
} kn__text;

void kn__text_release(kn__text *text);
void kn__text_add(kn__text *text, const char *bytes, size_t length);
void kn__text_puts(kn__text *text, const char *string);
void kn__text_repeat(kn__text *text, const char *string, int times);
void kn__text_printf(kn__text *text, const char *fmt, ...) KN_PRINTF(2, 3);

/* Columns that a string takes on a terminal: its characters. Invalid UTF-8 counts a byte each. */
int kn__text_width(const char *string);
/* Adds at most `width` columns of the label, "..." at its end when it is cut (nothing when width is
 * 3 or less), then spaces up to `padded`. Control characters and invalid bytes become '?'. */
void kn__text_label(kn__text *text, const char *label, int width, int padded);
/* The string with spaces at its left, right, or both sides. */
void kn__text_right(kn__text *text, const char *string, int width);
void kn__text_left(kn__text *text, const char *string, int width);
void kn__text_center(kn__text *text, const char *string, int width);

/* Paths of scopes are written from the end: starts one in a buffer, puts a label before what is
 * there (false: it doesn't fit), and moves the whole to the front. */
size_t kn__path_start(char *out, size_t out_bytes);
bool kn__path_prepend(char *out, size_t *at, const char *label);
void kn__path_finish(char *out, size_t out_bytes, size_t at);

/* Three significant digits and a unit, as the tables of TimerOutputs have them. */
typedef struct kn__cell {
    char text[24];
} kn__cell;
kn__cell kn__cell_time(double ns, bool ascii); /* "1.23μs" */
kn__cell kn__cell_bytes(double bytes);         /* "4.56MiB": the unit changes at powers of 1000 */
kn__cell kn__cell_count(double n);             /* "12", "1.23k" */
kn__cell kn__cell_percent(double part, double of); /* "32.0%", " - %" for 0 / 0 */

/* The path with the process id for each "%p" and the rank of the process in its job (0 without
 * one) for each "%r"; false: it has no room, and `out` holds its begin. */
bool kn__path_expand(char *out, size_t out_bytes, const char *path);

enum { KN__PATH_EXPANDED_BYTES = 4096 };

/* Writes all of it to a file: "-" is stderr, "%p" in the path the process id. A file that exists is
 * replaced once the new one is complete. A path that can't be written: the text goes to stderr with
 * the reason. Errors: IO, naming the path. */
kn_status kn__text_write(const kn__text *text, const char *path);

#endif
