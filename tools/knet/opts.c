#include "opts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "terminal.h"
#include "units.h"

enum { OPTS_MAX = 64, CHOICES_MAX = 64, CONDITION_BYTES = 64 };

/* --- options that all commands have --- */
#define AT(member) offsetof(kn__common, member)
static const kn__opt common[] = {
    {"color", KN__OPT_CHOICE, AT(color), .value_name = "WHEN", .choices = kn__color_words,
     .initial = "auto", .help = "use colours",
     .remark = "auto: on a terminal, unless NO_COLOR is set"},
    {"json", KN__OPT_FLAG, AT(json), .help = "print the result as JSON",
     .remark = "a failure is a JSON object too"},
    {"output", KN__OPT_FILE, AT(output), .value_name = "FILE",
     .help = "write the result to FILE, which is replaced once the result is complete",
     .remark = "in its name %p is the process id, %r the rank, %% is %"},
};
#undef AT
enum { N_COMMON = sizeof common / sizeof *common, N_WITHOUT_RESULT = 1 };

const kn__opt *kn__opt_at(const kn__command *c, int i) {
    if (i < c->n_opts) return &c->opts[i];
    i -= c->n_opts;
    return i < (c->has_result ? N_COMMON : N_WITHOUT_RESULT) ? &common[i] : NULL;
}

/* --- values --- */
static void *value_at(void *options, const kn__opt *opt) { return (char *)options + opt->offset; }

static bool number_read(double *out, const char *text, bool may_be_zero) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0) return false;
    if (value <= 0 && !may_be_zero) return false;
    *out = value;
    return true;
}

static bool time_read(double *out_seconds, const char *text) {
    uint64_t ns;
    if (!kn__read_duration(&ns, text)) return false;
    *out_seconds = 1e-9 * (double)ns;
    return ns > 0;
}

static bool whole_read(int64_t *out, const char *text, int64_t max,
                       bool (*read_fn)(uint64_t *, const char *)) {
    uint64_t n;
    if (!read_fn(&n, text) || n < 1 || n > (uint64_t)max) return false;
    *out = (int64_t)n;
    return true;
}

/* Stores the value; false: the text isn't one of the option's values. */
static bool value_read(void *at, const kn__opt *opt, const char *text) {
    switch (opt->kind) {
        case KN__OPT_FLAG:
            return *(bool *)at = true;
        case KN__OPT_COUNT:
            return whole_read(at, text, opt->max, kn__read_count);
        case KN__OPT_SEED:
            return kn__read_count(at, text);
        case KN__OPT_NUMBER:
            return number_read(at, text, opt->may_be_zero);
        case KN__OPT_PERCENT:
            return kn__read_percent(at, text);
        case KN__OPT_BYTES:
            if (opt->word && strcmp(text, opt->word) == 0) {
                *(int64_t *)at = -1;
                return true;
            }
            return whole_read(at, text, INT64_MAX, kn__read_bytes);
        case KN__OPT_TIME:
            if (!opt->may_be_zero || strcmp(text, "0") != 0) return time_read(at, text);
            *(double *)at = 0;
            return true;
        case KN__OPT_FILE:
        case KN__OPT_FOLDER:
            *(const char **)at = text;
            return *text;
        case KN__OPT_TEXT:
        case KN__OPT_CHOICE:
            break;
    }
    *(const char **)at = text;
    return true;
}

static const char *wanted(char *out, size_t out_bytes, const kn__opt *opt) {
    switch (opt->kind) {
        case KN__OPT_COUNT:
            snprintf(out, out_bytes, "a whole number from 1 to %" PRId64, opt->max);
            return out;
        case KN__OPT_SEED:
            snprintf(out, out_bytes, "a whole number from 0 to %" PRIu64, UINT64_MAX);
            return out;
        case KN__OPT_NUMBER:
            return opt->may_be_zero ? "0 or a number above it" : "a number above 0";
        case KN__OPT_PERCENT:
            return "a number from 0 to 100";
        case KN__OPT_BYTES:
            snprintf(out, out_bytes,
                     "a number of bytes from 1, whole or with a unit, such as 512MiB or 1.5GiB%s%s",
                     opt->word ? ", or " : "", opt->word ? opt->word : "");
            return out;
        case KN__OPT_TIME:
            return opt->may_be_zero ? "0, or a number with " KN__DURATION_UNITS
                                    : "a number above 0 with " KN__DURATION_UNITS;
        case KN__OPT_FLAG:
        case KN__OPT_TEXT:
        case KN__OPT_FILE:
        case KN__OPT_FOLDER:
        case KN__OPT_CHOICE:
            break;
    }
    return "the name of a file";
}

/* --- parsing --- */
typedef struct parser {
    const kn__command *command;
    void *options;
    int argc;
    char **argv;
    int at;
    int n_operands;
    /* Of each option: whether the command line has it. */
    bool given[OPTS_MAX];
} parser;

/* The index of the option; -1: no option has this name. */
static int opt_find(const kn__command *c, const char *name, size_t n) {
    const kn__opt *opt;
    for (int i = 0; (opt = kn__opt_at(c, i)); i++)
        if (strlen(opt->name) == n && strncmp(opt->name, name, n) == 0) return i;
    return -1;
}

static int option_unknown(const parser *p, const char *word) {
    char typed[CONDITION_BYTES];
    const char *name = word + strspn(word, "-");
    const char *names[OPTS_MAX + 2] = {"help"};
    const kn__opt *opt;
    for (int i = 0; i < OPTS_MAX && (opt = kn__opt_at(p->command, i)); i++)
        names[i + 1] = opt->name;
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(name, "="), name);
    const char *nearest = kn__choice_nearest(typed, names);
    if (nearest) return kn__fail_usage("unknown option '%s'; did you mean '--%s'?", word, nearest);
    return kn__fail_usage("unknown option '%s'", word);
}

/* --name value or --name=value */
static int option_parse(parser *p) {
    const char *word = p->argv[p->at++];
    const char *name = word + 2;
    const char *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    int i = word[1] == '-' ? opt_find(p->command, name, n) : -1;
    if (i < 0) return option_unknown(p, word);
    const kn__opt *opt = kn__opt_at(p->command, i);
    bool is_flag = opt->kind == KN__OPT_FLAG;
    if (is_flag && equals) return kn__fail_usage("--%s takes no value", opt->name);
    const char *text = is_flag           ? ""
                       : equals          ? equals + 1
                       : p->at < p->argc ? p->argv[p->at++]
                                         : NULL;
    if (!text)
        return kn__fail_usage("--%s needs a value: --%s %s", opt->name, opt->name, opt->value_name);
    p->given[i] = true;
    if (opt->kind == KN__OPT_CHOICE && kn__choice_find(text, opt->choices) < 0)
        return kn__choice_unknown(opt->name, text, opt->choices);
    char room[96];
    if (value_read(value_at(p->options, opt), opt, text)) return KN__EXIT_OK;
    return kn__fail_usage("--%s is '%s', but must be %s", opt->name, text,
                          wanted(room, sizeof room, opt));
}

/* The choices as a list that ends in NULL. */
static void choices_list(const char *out[CHOICES_MAX + 1], const kn__operand *operand) {
    int n = 0;
    while (n < CHOICES_MAX && operand->choice_at(n)) {
        out[n] = operand->choice_at(n);
        n++;
    }
    out[n] = NULL;
}

/* The operand's name for messages: in lower case, "model". */
static const char *operand_word(char out[CONDITION_BYTES], const kn__operand *operand) {
    size_t n = 0;
    for (const char *from = operand->name; *from && n + 1 < CONDITION_BYTES; from++)
        if (*from != '[' && *from != ']') out[n++] = (char)(*from | 0x20);
    out[n] = '\0';
    return out;
}

static int operand_parse(parser *p) {
    const kn__operand *operand = p->command->operand;
    const char *text = p->argv[p->at++];
    const char *choices[CHOICES_MAX + 1];
    char what[CONDITION_BYTES];
    if (!operand) return kn__fail_usage("unexpected word '%s'", text);
    const char **words = (const char **)(void *)((char *)p->options + operand->offset);
    if (operand->max && p->n_operands >= operand->max)
        return kn__fail_usage("unexpected word '%s': %s is '%s' already", text, operand->name,
                              words[0]);
    for (int i = 0; operand->is_file && i < p->n_operands; i++)
        if (strcmp(text, "-") == 0 && strcmp(words[i], "-") == 0)
            return kn__fail_usage("standard input (-) can be read only once");
    words[p->n_operands++] = text;
    if (operand->is_file && !*text)
        return kn__fail_usage("%.*s is ''", (int)strcspn(operand->name, " ."), operand->name);
    if (!operand->choice_at) return KN__EXIT_OK;
    choices_list(choices, operand);
    if (kn__choice_find(text, choices) >= 0) return KN__EXIT_OK;
    return kn__choice_unknown(operand_word(what, operand), text, choices);
}

/* Names the first operand that is missing. */
static int operands_check(const parser *p) {
    const kn__operand *operand = p->command->operand;
    if (!operand || p->n_operands >= operand->min) return KN__EXIT_OK;
    const char *name = operand->name;
    for (int i = 0; i < p->n_operands; i++) name += strcspn(name, " ") + 1;
    int n = (int)strcspn(name, " .");
    if (!operand->choice_at) return kn__fail_usage("%.*s is missing", n, name);
    kn__text list = {0};
    for (int i = 0; operand->choice_at(i); i++)
        kn__text_printf(&list, "%s%s", i ? ", " : "", operand->choice_at(i));
    kn__fail_usage("%.*s is missing; there are: %s", n, name, list.data ? list.data : "");
    kn__text_release(&list);
    return KN__EXIT_USAGE;
}

/* --- options that apply together --- */
void kn__opt_condition_add(kn__text *text, const char *condition, size_t n) {
    kn__text_puts(text, "--");
    for (size_t i = 0; i < n; i++) {
        char letter[2] = {condition[i], '\0'};
        kn__text_puts(text, *letter == '=' ? " " : *letter == ',' ? " or " : letter);
    }
}

/* Whether the condition of n bytes holds: "NAME", or "NAME=A,B". */
static bool condition_holds(const parser *p, const char *condition, size_t n) {
    size_t name_n = strcspn(condition, "= ");
    int i = opt_find(p->command, condition, name_n);
    if (i < 0) return false;
    if (name_n >= n) return p->given[i];
    const char *value = *(const char **)value_at(p->options, kn__opt_at(p->command, i));
    for (const char *at = condition + name_n; at < condition + n; at += strcspn(at, ", ")) {
        at++;
        size_t length = strcspn(at, ", ");
        if (value && strlen(value) == length && strncmp(value, at, length) == 0) return true;
    }
    return false;
}

/* A condition that isn't met, or must not be. */
static int condition_fail(const kn__opt *opt, const char *how, const char *condition, size_t n) {
    char room[CONDITION_BYTES];
    kn__text text = kn__text_in(room, sizeof room);
    kn__opt_condition_add(&text, condition, n);
    return kn__fail_usage("--%s %s %s", opt->name, how, room);
}

static int conditions_check(const parser *p, const kn__opt *opt) {
    const char *only = opt->only_with;
    if (only && !condition_holds(p, only, strlen(only)))
        return condition_fail(opt, "applies only with", only, strlen(only));
    for (const char *at = opt->not_with; at && *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (condition_holds(p, at, n)) return condition_fail(opt, "does not apply with", at, n);
        at += n;
    }
    return KN__EXIT_OK;
}

/* --- all of it --- */
/* "--" before any word ends the options alone. */
static void note_split(const parser *p) {
    const kn__operand *operand = p->command->operand;
    if (operand && operand->split)
        *(int *)(void *)((char *)p->options + operand->split) = p->n_operands;
}

static bool is_option(const char *word) { return word[0] == '-' && word[1]; }

static bool is_program(const kn__command *c) { return c->operand && c->operand->is_program; }

static int words_parse(parser *p) {
    bool only_operands = false;
    while (p->at < p->argc) {
        const char *word = p->argv[p->at];
        if (!only_operands && strcmp(word, "--") == 0) {
            only_operands = true;
            p->at++;
            note_split(p);
            continue;
        }
        bool is_operand = only_operands || !is_option(word);
        if (is_operand && is_program(p->command)) {
            size_t offset = p->command->operand->offset;
            *(char ***)(void *)((char *)p->options + offset) = p->argv + p->at;
            return KN__EXIT_OK;
        }
        int code = is_operand ? operand_parse(p) : option_parse(p);
        if (code != KN__EXIT_OK) return code;
    }
    return operands_check(p);
}

void *kn__opts_new(const kn__command *command, int argc) {
    return calloc(1, command->options_bytes + ((size_t)argc + 1) * sizeof(char *));
}

int kn__opts_parse(void *options, const kn__command *command, int argc, char **argv) {
    parser p = {.command = command, .options = options, .argc = argc, .argv = argv};
    const kn__opt *opt;
    for (int i = 0; (opt = kn__opt_at(command, i)); i++) {
        KN_ASSERT(i < OPTS_MAX);
        if (opt->initial && !value_read(value_at(options, opt), opt, opt->initial))
            return kn__fail_usage("the initial value of --%s is wrong", opt->name);
    }
    int code = words_parse(&p);
    for (int i = 0; code == KN__EXIT_OK && (opt = kn__opt_at(command, i)); i++)
        if (p.given[i]) code = conditions_check(&p, opt);
    return code;
}

/* Whether the next word is the option's value. */
static bool has_value(const kn__command *c, const char *word) {
    int i = strncmp(word, "--", 2) == 0 ? opt_find(c, word + 2, strlen(word + 2)) : -1;
    return i >= 0 && kn__opt_at(c, i)->kind != KN__OPT_FLAG;
}

int kn__opts_count(const kn__command *c, int argc, char **argv) {
    int at = 0;
    while (at < argc && strcmp(argv[at], "--") != 0) {
        if (is_program(c) && !is_option(argv[at])) return at;
        at += is_program(c) && has_value(c, argv[at]) ? 2 : 1;
    }
    return at < argc ? at : argc;
}

bool kn__opts_ask_help(const kn__command *c, int argc, char **argv) {
    int n = kn__opts_count(c, argc, argv);
    for (int i = 0; i < n; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}
