/* Words of a list, and the one that was meant. */
#include <string.h>

#include "opts.h"

enum { WORD_MAX = 31 };

static int min3(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edits (insert, delete, replace) between two words; long words are never close. */
static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    int row[WORD_MAX + 1];
    if (n > WORD_MAX || m > WORD_MAX) return WORD_MAX;
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[m];
}

int kn__choice_find(const char *word, const char *const *choices) {
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], word) == 0) return i;
    }
    return -1;
}

const char *kn__choice_nearest(const char *typed, const char *const *choices) {
    const char *best = NULL;
    int best_edits = 1 + (int)strlen(typed) / 3; /* more than a third of it wrong: no suggestion */
    for (; *choices; choices++) {
        int edits = distance(typed, *choices);
        if (edits <= best_edits && (!best || edits < best_edits)) {
            best = *choices;
            best_edits = edits;
        }
    }
    return best;
}

int kn__choice_unknown(const char *what, const char *typed, const char *const *choices) {
    const char *nearest = kn__choice_nearest(typed, choices);
    if (nearest) return kn__fail_usage("unknown %s '%s'; did you mean '%s'?", what, typed, nearest);
    kn__text list = {0};
    for (int i = 0; choices[i]; i++) kn__text_printf(&list, "%s%s", i ? ", " : "", choices[i]);
    kn__fail_usage("unknown %s '%s'; there are: %s", what, typed, list.data ? list.data : "");
    kn__text_release(&list);
    return KN__EXIT_USAGE;
}
