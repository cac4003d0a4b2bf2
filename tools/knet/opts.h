/* The option tables. Each command has one, and everything about its options is made from it: the
 * parser, the help, the man page and the completions of shells.
 *
 *     typedef struct options {
 *         kn__common common; // the first member
 *         int64_t epochs;
 *     } options;
 *     static const kn__opt table[] = {
 *         {"epochs", KN__OPT_COUNT, offsetof(options, epochs), .value_name = "N", .max = 1000,
 *          .help = "times through the images", .initial = "3"},
 *     };
 */
#ifndef KN_OPTS_H
#define KN_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fail.h"
#include "text.h"

typedef enum kn__opt_kind {
    KN__OPT_FLAG,    /* bool */
    KN__OPT_COUNT,   /* int64_t, 1 to max */
    KN__OPT_SEED,    /* uint64_t */
    KN__OPT_NUMBER,  /* double, above 0 */
    KN__OPT_PERCENT, /* double, 0 to 100 */
    KN__OPT_BYTES,   /* int64_t, 1 or more; units as in units.h */
    KN__OPT_TIME,    /* double, seconds, above 0; units likewise */
    KN__OPT_TEXT,    /* const char * */
    KN__OPT_FILE,    /* const char *, a path */
    KN__OPT_FOLDER,  /* const char *, a path */
    KN__OPT_CHOICE,  /* const char *, one of choices */
} kn__opt_kind;

typedef struct kn__opt {
    /* Without the dashes. */
    const char *name;
    kn__opt_kind kind;
    /* Of the value in the command's options. */
    size_t offset;
    /* In the help, such as "N"; NULL for flags. */
    const char *value_name;
    /* Begins in lower case, has no full stop. The choices come after it, then the remark, the
     * conditions and the initial value. */
    const char *help, *remark;
    /* The value of a command line without the option; NULL: the value stays zero. */
    const char *initial;
    /* What the help shows as the initial value where `initial` is NULL. */
    const char *initial_shown;
    /* Ends in NULL. */
    const char *const *choices;
    int64_t max;
    /* Of KN__OPT_BYTES: a word instead of a number; its value is -1. */
    const char *word;
    /* Of KN__OPT_NUMBER and KN__OPT_TIME: "0" is a value too. */
    bool may_be_zero;
    /* Conditions, "NAME" (that option is given) or "NAME=A,B" (its value is one of these). The
     * option is an error without the first, and an error with any of the second, which spaces
     * separate. */
    const char *only_with, *not_with;
    /* For the help: the command checks it, and says what for. */
    bool is_needed;
} kn__opt;

/* The words of a command line that are no options. */
typedef struct kn__operand {
    /* Such as "BEFORE AFTER": a word each; with "..." any number of the last. */
    const char *name;
    /* max 0: any number. */
    int min, max;
    /* Of a const char *[max + 1] in the command's options, or of a const char *[] at their end; the
     * list ends in NULL. */
    size_t offset;
    /* Of the i-th choice; NULL at the end. NULL: any word fits. */
    const char *(*choice_at)(int i);
    /* A path, or - for standard input. */
    bool is_file;
    /* The first of them and all words after it are another program's, options too: `offset` is of a
     * char **, the rest of argv. */
    bool is_program;
    /* Of an int: how many of them are before a "--" that separates two lists; 0: none. */
    size_t split;
} kn__operand;

typedef struct kn__pair {
    const char *left, *right;
} kn__pair;

typedef struct kn__command {
    const char *name;
    /* For lists of commands: begins in lower case, has no full stop. */
    const char *summary;
    /* Paragraphs, a line each; lines are wrapped where they are printed. */
    const char *description, *notes;
    /* NULL: the command takes none. */
    const kn__operand *operand;
    const kn__opt *opts;
    int n_opts;
    /* It prints a result: takes --json and --output too. */
    bool has_result;
    /* Exit codes and their meanings beyond the usual ones, and command lines with their effects.
     * Both end in a pair of NULLs. */
    const kn__pair *exits, *examples;
    size_t options_bytes;
    /* Takes the options, zeroed and filled by the parser; returns the exit code. */
    int (*run)(void *options);
} kn__command;

/* What every command's options begin with. */
typedef struct kn__common {
    bool json;
    /* NULL: standard output. */
    const char *output;
    const char *color;
} kn__common;

/* The i-th option of the command, its own before the common ones; NULL at the end. */
const kn__opt *kn__opt_at(const kn__command *command, int i);

/* Adds a condition of n bytes as it is typed: "format=a,b" is "--format a or b". */
void kn__opt_condition_add(kn__text *text, const char *condition, size_t n);

/* Zeroed options of the command, with room for so many words; free() takes them. NULL: no memory.
 */
void *kn__opts_new(const kn__command *command, int argc);
/* Reads argv[0 ... argc-1], the words after the command's name, into new options; argv[argc] is
 * NULL. Returns KN__EXIT_OK or KN__EXIT_USAGE after a message. */
int kn__opts_parse(void *options, const kn__command *command, int argc, char **argv);
/* How many of these words may be options: those before "--" and before a program. */
int kn__opts_count(const kn__command *command, int argc, char **argv);
/* Whether --help or -h is among the words that may be options. */
bool kn__opts_ask_help(const kn__command *command, int argc, char **argv);

/* The place of the word in the list, which ends in NULL; -1: it isn't there. */
int kn__choice_find(const char *word, const char *const *choices);
/* The choice closest to the typed word, NULL if no choice is close. */
const char *kn__choice_nearest(const char *typed, const char *const *choices);
/* "unknown WHAT 'TYPED'; did you mean 'NEAREST'?", or the list of choices. Returns
 * KN__EXIT_USAGE. */
int kn__choice_unknown(const char *what, const char *typed, const char *const *choices);

#endif
