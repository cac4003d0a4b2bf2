/* Where the command prints: colours, width and characters of the terminal. */
#ifndef KN_TERMINAL_H
#define KN_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

typedef enum kn__style {
    KN__STYLE_PLAIN, /* ends another style */
    KN__STYLE_BOLD,
    KN__STYLE_DIM,
    KN__STYLE_RED,
    KN__STYLE_GREEN,
    KN__STYLE_YELLOW,
} kn__style;

/* The words of --color; the list ends in NULL. */
extern const char *const kn__color_words[];

/* Sets when to colour, as --color says. A word that isn't one of the list changes nothing. */
void kn__color_set(const char *when);
/* Whether output to this stream has colours; NULL is a file that isn't open yet. "auto": on a
 * terminal that isn't dumb, and without NO_COLOR. */
bool kn__color_on(FILE *out);
/* The escape sequence of the style, "" without colour. */
const char *kn__style_text(kn__style style, bool color);

/* Columns of the terminal at standard output; 0: it isn't one. */
int kn__terminal_width(void);
/* Whether another job of the shell has the terminal at fd: reading it or changing its modes would
 * stop this process. */
bool kn__terminal_in_background(int fd);

#endif
