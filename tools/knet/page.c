/* The generated files: which there are, and who makes each. */
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "help.h"

static void add_timer(kn__text *text, const char *words) {
    kn__man_add_words(text, "KNET_TIMER", "libknet_profiler", words);
}

static void add_alloc(kn__text *text, const char *words) {
    kn__man_add_words(text, "KNET_ALLOC", "libknet_alloc", words);
}

static const struct {
    const char *name;
    void (*add)(kn__text *text);
    /* Instead of `add`: takes the text of the variable's word `help`. */
    void (*add_words)(kn__text *text, const char *words);
} pages[] = {
    {"knet.1", kn__man_add_all, NULL},     {"knet_timer.7", NULL, add_timer},
    {"knet_alloc.7", NULL, add_alloc},     {"knet.bash", kn__complete_add_bash, NULL},
    {"_knet", kn__complete_add_zsh, NULL}, {"knet.fish", kn__complete_add_fish, NULL},
};
enum { N_PAGES = sizeof pages / sizeof *pages, NAME_BYTES = 64 };

static void name_of(char out[NAME_BYTES], const kn__command *c) {
    snprintf(out, NAME_BYTES, "knet-%s.1", c->name);
}

const char *kn__page_at(int i) {
    static char name[NAME_BYTES];
    if (i < N_PAGES) return pages[i].name;
    const kn__command *c = kn__command_at(i - N_PAGES);
    if (c) name_of(name, c);
    return c ? name : NULL;
}

bool kn__page_add(kn__text *text, const char *page, const char *words) {
    char name[NAME_BYTES];
    const kn__command *c;
    for (int i = 0; i < N_PAGES; i++) {
        if (strcmp(pages[i].name, page) != 0) continue;
        pages[i].add ? pages[i].add(text) : pages[i].add_words(text, words ? words : "");
        return true;
    }
    for (int i = 0; (c = kn__command_at(i)); i++) {
        name_of(name, c);
        if (strcmp(name, page) != 0) continue;
        kn__man_add(text, c);
        return true;
    }
    return false;
}
