/* Texts made from the option tables: help, man pages, completions of shells. */
#ifndef KN_HELP_H
#define KN_HELP_H

#include "opts.h"
#include "text.h"

enum { KN__HELP_WIDTH_MIN = 40 };

/* Adds the help of a command, or of `knet` itself, at most `width` columns wide. */
void kn__help_add(kn__text *text, const kn__command *command, int width, bool color);
void kn__help_add_all(kn__text *text, int width, bool color);

/* "knet train MODEL [OPTION]..." */
void kn__help_add_usage(kn__text *text, const kn__command *command);
/* The option's help with its choices, initial value and conditions. */
void kn__help_add_option(kn__text *text, const kn__opt *opt);

/* The exit codes of all commands. */
extern const kn__pair kn__help_exits[];

/* Generated files: a man page, "knet.1", "knet-train.1", "knet_timer.7", "knet_alloc.7", or a
 * shell's completions, "knet.bash", "_knet", "knet.fish". The pages of section 7 are made from the
 * text that the variable's word `help` prints; the others take NULL. */
const char *kn__page_at(int i);
/* False: there is no such page. */
bool kn__page_add(kn__text *text, const char *page, const char *words);

void kn__man_add(kn__text *text, const kn__command *command);
void kn__man_add_all(kn__text *text);
/* The page of a variable from the text of its word `help`. */
void kn__man_add_words(kn__text *text, const char *variable, const char *library,
                       const char *words);

void kn__complete_add_bash(kn__text *text);
void kn__complete_add_zsh(kn__text *text);
void kn__complete_add_fish(kn__text *text);

#endif
