#include "opts.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"

/* --- suggestions --- */
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

const char *kn__opts_nearest(const char *typed, const char *const *choices) {
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

static void choices_print(FILE *out, const char *const *choices) {
    for (int i = 0; choices[i]; i++) fprintf(out, "%s%s", i ? ", " : "", choices[i]);
}

void kn__opts_unknown(const char *command, const char *what, const char *typed,
                      const char *const *choices) {
    const char *nearest = kn__opts_nearest(typed, choices);
    fprintf(stderr, "%s: unknown %s '%s'", command, what, typed);
    if (nearest) {
        fprintf(stderr, "; did you mean '%s'?\n", nearest);
        return;
    }
    fputs("; there are: ", stderr);
    choices_print(stderr, choices);
    fputc('\n', stderr);
}

/* --- values --- */
/* Each reader returns what it wanted, for the message, or NULL when it stored the value. */
static const char *count_read(const kn__opt *opt, const char *text) {
    static char wanted[64];
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    snprintf(wanted, sizeof wanted, "a whole number from 1 to %" PRId64, opt->max);
    if (errno || end == text || *end || value < 1 || value > opt->max) return wanted;
    *(int64_t *)opt->value = value;
    return NULL;
}

static const char *seed_read(uint64_t *out, const char *text) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-') return "a whole number from 0";
    *out = value;
    return NULL;
}

static const char *number_read(double *out, const char *text) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value <= 0) return "a number above 0";
    *out = value;
    return NULL;
}

static const char *bytes_read(int64_t *out, const char *text) {
    uint64_t n;
    if (!kn__read_bytes(&n, text) || n < 1 || n > INT64_MAX)
        return "a number of bytes from 1, such as 512MiB or 2GiB";
    *out = (int64_t)n;
    return NULL;
}

static const char *value_read(const kn__opt *opt, const char *text) {
    switch (opt->kind) {
        case KN__OPT_COUNT:
            return count_read(opt, text);
        case KN__OPT_SEED:
            return seed_read(opt->value, text);
        case KN__OPT_NUMBER:
            return number_read(opt->value, text);
        case KN__OPT_BYTES:
            return bytes_read(opt->value, text);
        case KN__OPT_FLAG:
            return NULL;
        case KN__OPT_TEXT:
        case KN__OPT_CHOICE:
            break;
    }
    *(const char **)opt->value = text;
    return NULL;
}

/* --- help --- */
static void help_print(const kn__command *c) {
    printf("knet %s%s%s%s\n\n%s\n\nOptions:\n", c->name, c->operand ? " " : "",
           c->operand ? c->operand : "", " [OPTION …]", c->summary);
    for (int i = 0; i < c->n_opts; i++) {
        const kn__opt *o = &c->opts[i];
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->value_name ? " " : "",
                 o->value_name ? o->value_name : "");
        printf("  %-24s %s\n", left, o->help);
    }
    printf("  %-24s %s\n", "--help", "print this");
    if (c->epilogue) printf("\n%s\n", c->epilogue);
}

/* --- parsing --- */
typedef struct parser {
    const kn__command *command;
    char title[64]; /* "knet train" */
    int argc;
    char **argv;
    int at;
    int n_operands;
} parser;

static bool usage_fail(const parser *p) {
    fprintf(stderr, "Try '%s --help'.\n", p->title);
    return false;
}

static const kn__opt *opt_find(const kn__command *c, const char *name, size_t n) {
    for (int i = 0; i < c->n_opts; i++)
        if (strlen(c->opts[i].name) == n && strncmp(c->opts[i].name, name, n) == 0)
            return &c->opts[i];
    return NULL;
}

static bool option_unknown(const parser *p, const char *word) {
    enum { OPTS_MAX = 32 };
    char typed[64];
    const char *name = word + strspn(word, "-");
    const char *names[OPTS_MAX + 2] = {"help"};
    for (int i = 0; i < p->command->n_opts && i < OPTS_MAX; i++)
        names[i + 1] = p->command->opts[i].name;
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(name, "="), name);
    const char *nearest = kn__opts_nearest(typed, names);
    fprintf(stderr, "%s: unknown option '%s'", p->title, word);
    if (nearest) fprintf(stderr, "; did you mean '--%s'?", nearest);
    fputc('\n', stderr);
    return usage_fail(p);
}

static bool choice_check(const parser *p, const char *what, const char *text,
                         const char *const *choices) {
    for (int i = 0; choices[i]; i++)
        if (strcmp(choices[i], text) == 0) return true;
    kn__opts_unknown(p->title, what, text, choices);
    return usage_fail(p);
}

/* --name value or --name=value */
static bool option_parse(parser *p) {
    const char *word = p->argv[p->at++];
    const char *name = word + 2;
    const char *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const kn__opt *opt = word[1] == '-' ? opt_find(p->command, name, n) : NULL;
    if (!opt) return option_unknown(p, word);
    if (opt->kind == KN__OPT_FLAG) {
        if (!equals) return *(bool *)opt->value = true;
        fprintf(stderr, "%s: --%s takes no value\n", p->title, opt->name);
        return usage_fail(p);
    }
    const char *text = equals ? equals + 1 : p->at < p->argc ? p->argv[p->at++] : NULL;
    if (!text) {
        fprintf(stderr, "%s: --%s needs a value: --%s %s\n", p->title, opt->name, opt->name,
                opt->value_name);
        return usage_fail(p);
    }
    if (opt->kind == KN__OPT_CHOICE && !choice_check(p, opt->name, text, opt->choices))
        return false;
    const char *wanted = value_read(opt, text);
    if (!wanted) return true;
    fprintf(stderr, "%s: --%s is '%s', but must be %s\n", p->title, opt->name, text, wanted);
    return usage_fail(p);
}

static bool operand_parse(parser *p) {
    const kn__command *c = p->command;
    const char *text = p->argv[p->at++];
    if (!c->operand || p->n_operands >= (c->operands_max ? c->operands_max : 1)) {
        fprintf(stderr, "%s: unexpected word '%s'\n", p->title, text);
        return usage_fail(p);
    }
    c->operand_at[p->n_operands++] = text;
    return !c->operand_choices || choice_check(p, "model", text, c->operand_choices);
}

bool kn__opts_parse(int *exit_code, const kn__command *command, int argc, char **argv) {
    parser p = {.command = command, .argc = argc, .argv = argv};
    snprintf(p.title, sizeof p.title, "knet %s", command->name);
    *exit_code = KN__EXIT_OK;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
        help_print(command);
        return false;
    }
    *exit_code = KN__EXIT_USAGE;
    while (p.at < argc)
        if (!(argv[p.at][0] == '-' ? option_parse(&p) : operand_parse(&p))) return false;
    if (command->operand && !*command->operand_at) {
        fprintf(stderr, "%s: %s is missing", p.title, command->operand);
        if (command->operand_choices) {
            fputs("; there are: ", stderr);
            choices_print(stderr, command->operand_choices);
        }
        fputc('\n', stderr);
        return usage_fail(&p);
    }
    return true;
}
