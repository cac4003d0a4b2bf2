/* Cells and labels of tables. */
#ifndef KN_REPORT_CELLS_H
#define KN_REPORT_CELLS_H

#include "text.h"
#include "units.h"

/* Columns that a string takes on a terminal. Invalid UTF-8 counts a byte each. */
int kn__text_width(const char *string);
/* Adds at most `width` columns of the label, "..." at its end when it is cut (nothing when width is
 * 3 or less), then spaces up to `padded`. Control characters and invalid bytes become '?'. */
void kn__text_label(kn__text *text, const char *label, int width, int padded);
/* At most `columns` of a path (0: all), "..." at its front when it is cut: there paths are alike.
 * Characters as above. */
void kn__text_end(kn__text *text, const char *path, int columns);
/* Adds lines that begin with a space and ends them: broken between words where they are longer than
 * `width` (0: no limit), and than 20, as a terminal would break them anywhere. */
void kn__text_wrapped(kn__text *text, kn__text *lines, int width);
/* The string with spaces at its left, right, or both sides. */
void kn__text_right(kn__text *text, const char *string, int width);
void kn__text_left(kn__text *text, const char *string, int width);
void kn__text_center(kn__text *text, const char *string, int width);

/* Paths of scopes are written from the end: starts one in a buffer, puts a label before what is
 * there, with a slash between them (false: it doesn't fit), and moves the whole to the front. */
size_t kn__path_start(char *out, size_t out_bytes);
bool kn__path_prepend(char *out, size_t *at, const char *label, bool is_last);
void kn__path_finish(char *out, size_t out_bytes, size_t at);

/* Three significant digits and a unit, as the tables of TimerOutputs have them; bytes: units.h. */
kn__quantity kn__count_cell(double n);                 /* "12", "1.23k" */
kn__quantity kn__rate_cell(double per_s);              /* "12", "1.23G", "4.56T" */
kn__quantity kn__percent_cell(double part, double of); /* "32.0%", " - %": no share */

/* Writes all of it to a file: "-" is stderr; paths and files as in file.h. A path that can't be
 * written: the text goes to stderr with the reason. Errors: IO, naming the path. */
kn_status kn__text_write(const kn__text *text, const char *path);
/* The same, but nothing goes to stderr in place of a file. */
kn_status kn__text_write_only(const kn__text *text, const char *path);

#endif
