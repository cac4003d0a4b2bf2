/* Command lines of the `knet` commands: a table of options per command, checked values, a
 * suggestion for what is misspelt, and the help text from the same table. */
#ifndef KN_OPTS_H
#define KN_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KN__EXIT_OK = 0, KN__EXIT_FAILURE = 1, KN__EXIT_USAGE = 2, KN__EXIT_OOM = 3 };

typedef enum kn__opt_kind {
    KN__OPT_FLAG,   /* bool */
    KN__OPT_COUNT,  /* int64_t, 1 … max */
    KN__OPT_SEED,   /* uint64_t */
    KN__OPT_NUMBER, /* double, above 0 */
    KN__OPT_BYTES,  /* int64_t, 1 or more; units as in units.h */
    KN__OPT_TEXT,   /* const char * */
    KN__OPT_CHOICE, /* const char *, one of choices */
} kn__opt_kind;

typedef struct kn__opt {
    const char *name; /* without the dashes */
    kn__opt_kind kind;
    void *value;            /* of the kind's type; untouched when the option isn't given */
    const char *value_name; /* in the help, NULL for flags */
    const char *help;
    const char *const *choices; /* ends in NULL */
    int64_t max;                /* of a count */
} kn__opt;

typedef struct kn__command {
    const char *name;                   /* "train" */
    const char *summary;                /* one line */
    const char *operand;                /* "MODEL" or NULL: the command takes none */
    const char **operand_at;            /* where it goes */
    const char *const *operand_choices; /* ends in NULL */
    int operands_max;                   /* where there may be several: room at operand_at */
    const kn__opt *opts;
    int n_opts;
    const char *epilogue; /* after the options in the help; may be NULL */
} kn__command;

/* Reads argv[0 … argc-1], the words after the command's name. True: go on. False: the command ends
 * with *exit_code, after --help or a message on stderr. */
bool kn__opts_parse(int *exit_code, const kn__command *command, int argc, char **argv);

/* The choice (list ends in NULL) closest to what was typed, NULL when none is close. */
const char *kn__opts_nearest(const char *typed, const char *const *choices);
/* "unknown WHAT 'TYPED'; did you mean 'NEAREST'?", or the list of choices, on stderr. */
void kn__opts_unknown(const char *command, const char *what, const char *typed,
                      const char *const *choices);

#endif
