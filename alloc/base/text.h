/* A string that grows. */
#ifndef KN_BASE_TEXT_H
#define KN_BASE_TEXT_H

#include <knet/status.h>

/* Where its bytes are: from malloc, in pages of the system (malloc may wait for a lock that the
 * caller holds), or in a buffer of the caller's, which doesn't grow. */
typedef enum kn__text_room { KN__TEXT_HEAP, KN__TEXT_PAGES, KN__TEXT_FIXED } kn__text_room;

/* Zero-initialised, it is an empty one from malloc. Running out of room sets `failed` and drops
 * what follows; a buffer keeps what fits. */
typedef struct kn__text {
    char *data; /* ends in a zero byte once something was added */
    size_t length, size;
    kn__text_room room;
    bool failed;
} kn__text;

kn__text kn__text_in(char *buffer, size_t bytes);
void kn__text_release(kn__text *text); /* frees its own memory, empties it */

void kn__text_add(kn__text *text, const char *bytes, size_t length);
void kn__text_puts(kn__text *text, const char *string);
void kn__text_repeat(kn__text *text, const char *string, int times);
/* Numbers have a decimal point in every locale. */
void kn__text_printf(kn__text *text, const char *fmt, ...) KN_PRINTF(2, 3);

/* The string; in this and the next two a byte that is not UTF-8 becomes "\xE9", its value. */
void kn__text_utf8(kn__text *text, const char *string);
/* A string of JSON with its quotes. */
void kn__text_json(kn__text *text, const char *string);
/* The same for a string with zero bytes in it; bytes[length] is one. */
void kn__text_json_bytes(kn__text *text, const char *bytes, size_t length);
/* Text of XML: entities for & < >, and "?" for control characters, which it can't have. */
void kn__text_xml(kn__text *text, const char *string);
/* The string with '?' for control characters and invalid bytes; at most `columns` of a terminal of
 * it, and "..." where more follow. Returns the columns that it takes. */
int kn__text_shown(kn__text *text, const char *string, int columns);

enum { KN__HELP_WIDTH = 80 };

/* Adds paragraphs, a line each, wrapped at `width` columns. Every line begins in column `indent`;
 * the first one continues the text's last line, which has `column` columns. */
void kn__text_wrap(kn__text *text, const char *paragraphs, int indent, int column, int width);
/* Adds an entry of a help: "  LEFT", then the right text wrapped from column `indent` on, in lines
 * of its own where the left one is too long. */
void kn__text_entry(kn__text *text, const char *left, const char *right, int indent, int width);

#endif
