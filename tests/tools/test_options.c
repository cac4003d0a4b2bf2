/* The option tables, and the texts made from them. */
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "help.h"
#include "test.h"

enum { NAME_BYTES = 64 };

typedef void (*option_fn)(const kn__command *command, const kn__opt *opt, void *ctx);

static void for_each_option(option_fn fn, void *ctx) {
    const kn__command *c;
    const kn__opt *opt;
    for (int i = 0; (c = kn__command_at(i)); i++)
        for (int k = 0; (opt = kn__opt_at(c, k)); k++) fn(c, opt, ctx);
}

/* The generated file; released by the caller. */
static kn__text page_of(const char *name) {
    kn__text text = {0};
    assert_true(kn__page_add(&text, name, NULL));
    assert_false(text.failed);
    return text;
}

static kn__text man_of(const kn__command *c) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "knet-%s.1", c->name);
    return page_of(name);
}

/* Whether the text has the line; `line` begins and ends with a line break. */
static void assert_has(const kn__text *text, const char *what, const char *command,
                       const char *option) {
    if (!strstr(text->data, what)) fail_msg("%s --%s: no \"%s\"", command, option, what);
}

static void check_help(const kn__command *c, const kn__opt *opt, void *ctx) {
    (void)ctx;
    char shown[NAME_BYTES];
    kn__text help = {0};
    assert_non_null(opt->help);
    assert_true(strlen(opt->help) > 4);
    assert_false(opt->help[strlen(opt->help) - 1] == '.');
    assert_true((opt->kind == KN__OPT_FLAG) == !opt->value_name);
    kn__help_add(&help, c, KN__HELP_WIDTH, false);
    snprintf(shown, sizeof shown, "\n  --%s%s%s", opt->name, opt->value_name ? " " : "",
             opt->value_name ? opt->value_name : "");
    assert_has(&help, shown, c->name, opt->name);
    kn__text_release(&help);
}

static void check_values_shown(const kn__command *c, const kn__opt *opt, void *ctx) {
    (void)ctx;
    char shown[2 * NAME_BYTES];
    kn__text help = {0};
    kn__help_add_option(&help, opt);
    for (int i = 0; opt->choices && opt->choices[i]; i++)
        assert_has(&help, opt->choices[i], c->name, opt->name);
    const char *initial = opt->initial ? opt->initial : opt->initial_shown;
    snprintf(shown, sizeof shown, " [%s]", initial ? initial : "");
    if (initial) assert_has(&help, shown, c->name, opt->name);
    kn__text_release(&help);
}

static void help_shows_choices_and_initial_values(void **state) {
    (void)state;
    for_each_option(check_values_shown, NULL);
}

static void every_option_has_a_help(void **state) {
    (void)state;
    for_each_option(check_help, NULL);
}

/* Writes '-' as the page does. */
static void escape(char *out, const char *s) {
    for (; *s; s++) {
        if (*s == '-') *out++ = '\\';
        *out++ = *s;
    }
    *out = '\0';
}

static void check_man(const kn__command *c, const kn__opt *opt, void *ctx) {
    (void)ctx;
    char name[NAME_BYTES], shown[2 * NAME_BYTES];
    kn__text page = man_of(c);
    escape(name, opt->name);
    snprintf(shown, sizeof shown, "\n\\fB\\-\\-%s\\fR", name);
    assert_has(&page, shown, c->name, opt->name);
    kn__text_release(&page);
}

static void every_option_is_in_its_man_page(void **state) {
    (void)state;
    for_each_option(check_man, NULL);
}

static void a_page_has_each_exit_code_once(void **state) {
    (void)state;
    kn__text page = man_of(&kn__cmd_diff);
    const char *worse = strstr(page.data, "\n\\fB1\\fR\nsome row is worse, or with");
    assert_non_null(worse);
    assert_null(strstr(worse + 1, "\n\\fB1\\fR\n"));
    assert_non_null(strstr(worse, "\n\\fB130\\fR\ninterrupted"));
    kn__text_release(&page);
}

/* The part of a file that completes one command. */
static char *part_of(const kn__text *page, const char *from, const char *to) {
    const char *begin = strstr(page->data, from);
    assert_non_null(begin);
    const char *end = strstr(begin + strlen(from), to);
    return strndup(begin, end ? (size_t)(end - begin) : strlen(begin));
}

static void check_completions(const kn__command *c, const kn__opt *opt, void *ctx) {
    const kn__text *pages = ctx;
    char from[NAME_BYTES], shown[2 * NAME_BYTES];
    snprintf(from, sizeof from, "    %s) case", c->name);
    char *bash = part_of(&pages[0], from, "\n");
    snprintf(shown, sizeof shown, "--%s ", opt->name);
    if (!strstr(bash, shown)) fail_msg("bash: no %s of %s", shown, c->name);
    snprintf(from, sizeof from, "(%s) _arguments", c->name);
    char *zsh = part_of(&pages[1], from, ";;");
    snprintf(shown, sizeof shown, "'--%s%s[", opt->name, opt->kind == KN__OPT_FLAG ? "" : "=");
    if (!strstr(zsh, shown)) fail_msg("zsh: no %s of %s", shown, c->name);
    snprintf(shown, sizeof shown, "subcommand_from %s' -l %s ", c->name, opt->name);
    assert_has(&pages[2], shown, c->name, opt->name);
    free(bash);
    free(zsh);
}

static void every_option_is_completed_in_three_shells(void **state) {
    (void)state;
    kn__text pages[] = {page_of("knet.bash"), page_of("_knet"), page_of("knet.fish")};
    for_each_option(check_completions, pages);
    for (int i = 0; i < 3; i++) kn__text_release(&pages[i]);
}

static void every_command_has_a_summary_and_a_page(void **state) {
    (void)state;
    const kn__command *c;
    kn__text all = {0}, main_page = page_of("knet.1");
    kn__help_add_all(&all, KN__HELP_WIDTH, false);
    for (int i = 0; (c = kn__command_at(i)); i++) {
        char shown[NAME_BYTES];
        kn__text page = man_of(c);
        assert_non_null(strstr(all.data, c->summary));
        snprintf(shown, sizeof shown, "\\fBknet\\-%s\\fR(1)", c->name);
        assert_has(&main_page, shown, c->name, "");
        assert_has(&page, ".SH EXIT STATUS", c->name, "");
        assert_ptr_equal(kn__command_find(c->name), c);
        kn__text_release(&page);
    }
    kn__text_release(&main_page);
    kn__text_release(&all);
    assert_null(kn__command_find("nothing"));
}

static void check_width(const kn__text *text, int width) {
    for (const char *at = text->data; at && *at;) {
        size_t n = strcspn(at, "\n");
        bool one_word = memchr(at + strspn(at, " "), ' ', n - strspn(at, " ")) == NULL;
        if ((int)n > width && !one_word) fail_msg("%d columns: %.*s", width, (int)n, at);
        at += n + (at[n] != '\0');
    }
}

/* Lines of examples are for copying: whole, whatever the width. */
static void help_fits_into_the_terminal(void **state) {
    (void)state;
    const kn__command *c;
    for (int width = KN__HELP_WIDTH_MIN; width <= KN__HELP_WIDTH; width += 8) {
        kn__text all = {0};
        kn__help_add_all(&all, width, false);
        check_width(&all, width);
        kn__text_release(&all);
        for (int i = 0; (c = kn__command_at(i)); i++) {
            kn__text help = {0};
            kn__help_add(&help, c, width, false);
            char *examples = strstr(help.data, "\nExamples:");
            if (examples && width < KN__HELP_WIDTH) *examples = '\0';
            check_width(&help, width);
            kn__text_release(&help);
        }
    }
}

static const kn__opt *option_of(const kn__command *c, const char *name, size_t n) {
    const kn__opt *opt;
    for (int i = 0; (opt = kn__opt_at(c, i)); i++)
        if (strlen(opt->name) == n && memcmp(opt->name, name, n) == 0) return opt;
    return NULL;
}

static void check_condition(const kn__command *c, const char *condition) {
    size_t name_n = strcspn(condition, "= ");
    const kn__opt *other = option_of(c, condition, name_n);
    if (!other) fail_msg("%s: condition \"%s\" names no option", c->name, condition);
    for (const char *at = condition + name_n; *at == '=' || *at == ',';) {
        char value[NAME_BYTES];
        size_t n = strcspn(++at, ", ");
        snprintf(value, sizeof value, "%.*s", (int)n, at);
        assert_int_equal(other->kind, KN__OPT_CHOICE);
        if (kn__choice_find(value, other->choices) < 0)
            fail_msg("--%s has no %s", other->name, value);
        at += n;
    }
}

static void check_conditions(const kn__command *c, const kn__opt *opt, void *ctx) {
    (void)ctx;
    if (opt->only_with) check_condition(c, opt->only_with);
    for (const char *at = opt->not_with; at && *at; at += strspn(at, " ")) {
        check_condition(c, at);
        at += strcspn(at, " ");
    }
}

static void conditions_name_options_and_their_values(void **state) {
    (void)state;
    for_each_option(check_conditions, NULL);
}

static void check_unique(const kn__command *c, const kn__opt *opt, void *ctx) {
    (void)ctx;
    if (option_of(c, opt->name, strlen(opt->name)) != opt) fail_msg("two --%s", opt->name);
    if (opt->kind == KN__OPT_CHOICE) assert_non_null(opt->choices);
    if (opt->kind == KN__OPT_COUNT) assert_true(opt->max > 0);
}

static void options_of_a_command_have_different_names(void **state) {
    (void)state;
    for_each_option(check_unique, NULL);
}

/* Parses the fewest words that are right, then those given; *options: for free(). */
static int parse(kn__common **options, const kn__command *c, int argc, char **argv) {
    char *words[8] = {NULL};
    int n = 0;
    for (; c->operand && n < c->operand->min; n++)
        words[n] = (char *)(c->operand->choice_at ? c->operand->choice_at(0) : "a");
    for (int i = 0; i < argc; i++) words[n + i] = argv[i];
    *options = kn__opts_new(c, n + argc);
    assert_non_null(*options);
    return kn__opts_parse(*options, c, n + argc, words);
}

static void every_command_starts_with_its_initial_values(void **state) {
    (void)state;
    const kn__command *c;
    for (int i = 0; (c = kn__command_at(i)); i++) {
        kn__common *options;
        assert_int_equal(parse(&options, c, 0, NULL), KN__EXIT_OK);
        assert_string_equal(options->color, "auto");
        assert_false(options->json);
        assert_null(options->output);
        free(options);
    }
}

static int parse_report(int argc, char **argv) {
    kn__common *options;
    int code = parse(&options, &kn__cmd_report, argc, argv);
    free(options);
    return code;
}
#define REPORT(...)                                                                                \
    parse_report((int)(sizeof(char *[]){__VA_ARGS__} / sizeof(char *)), (char *[]){__VA_ARGS__})

static void options_that_cannot_apply_are_errors(void **state) {
    (void)state;
    assert_int_equal(REPORT("--weight", "gpu"), KN__EXIT_USAGE);
    assert_int_equal(REPORT("--weight", "gpu", "--format", "flame"), KN__EXIT_OK);
    assert_int_equal(REPORT("--format=folded", "--weight=gpu"), KN__EXIT_OK);
    assert_int_equal(REPORT("--weight", "gpu", "--format", "csv"), KN__EXIT_USAGE);
    assert_int_equal(REPORT("--depth", "2"), KN__EXIT_OK);
    assert_int_equal(REPORT("--depth", "2", "--json"), KN__EXIT_USAGE);
    assert_int_equal(REPORT("--depth", "2", "--memory"), KN__EXIT_USAGE);
    assert_int_equal(REPORT("--depth", "2", "--format", "csv"), KN__EXIT_USAGE);
    assert_int_equal(REPORT("--format", "table", "--json"), KN__EXIT_USAGE);
    assert_int_equal(REPORT("--memory", "--width", "60", "--ascii"), KN__EXIT_OK);
    assert_int_equal(REPORT("--memory", "--sort", "name"), KN__EXIT_USAGE);
}

static const char **files_of(void *options, const kn__command *c) {
    return (const char **)(void *)((char *)options + c->operand->offset);
}

static void words_after_two_dashes_are_operands(void **state) {
    (void)state;
    void *options = kn__opts_new(&kn__cmd_diff, 4);
    char *two[] = {"--ascii", "--", "--odd.json", "-"};
    assert_int_equal(kn__opts_parse(options, &kn__cmd_diff, 4, two), KN__EXIT_OK);
    const char **files = files_of(options, &kn__cmd_diff);
    assert_string_equal(files[0], "--odd.json");
    assert_string_equal(files[1], "-");
    assert_null(files[2]);
    free(options);
    assert_true(kn__opts_ask_help(&kn__cmd_diff, 2, (char *[]){"a", "-h"}));
    assert_false(kn__opts_ask_help(&kn__cmd_diff, 3, (char *[]){"a", "--", "--help"}));
}

static void words_of_a_program_are_no_options(void **state) {
    (void)state;
    const kn__command *run = &kn__cmd_run;
    assert_int_equal(kn__opts_count(run, 3, (char *[]){"--timer", "1", "a"}), 2);
    assert_int_equal(kn__opts_count(run, 3, (char *[]){"--timer=1", "a", "--help"}), 1);
    assert_int_equal(kn__opts_count(run, 3, (char *[]){"--malloc", "a", "--help"}), 1);
    assert_int_equal(kn__opts_count(run, 2, (char *[]){"--malloc", "--"}), 1);
    assert_int_equal(kn__opts_count(run, 1, (char *[]){"--timer"}), 1);
    assert_int_equal(kn__opts_count(&kn__cmd_diff, 3, (char *[]){"a", "b", "--help"}), 3);
    assert_true(kn__opts_ask_help(run, 3, (char *[]){"--timer", "1", "-h"}));
    assert_false(kn__opts_ask_help(run, 2, (char *[]){"a", "-h"}));
}

static void standard_input_is_read_only_once(void **state) {
    (void)state;
    void *options = kn__opts_new(&kn__cmd_diff, 2);
    assert_int_equal(kn__opts_parse(options, &kn__cmd_diff, 2, (char *[]){"-", "-"}),
                     KN__EXIT_USAGE);
    free(options);
}

static void a_list_of_files_takes_any_number(void **state) {
    (void)state;
    enum { N_WORDS = 1000 };
    const kn__command *const commands[] = {&kn__cmd_report, &kn__cmd_diff, &kn__cmd_replay};
    char *words[N_WORDS + 1] = {NULL};
    for (int i = 0; i < N_WORDS; i++) words[i] = i % 2 ? "a" : "b";
    for (int i = 0; i < 3; i++) {
        void *options = kn__opts_new(commands[i], N_WORDS);
        assert_int_equal(kn__opts_parse(options, commands[i], N_WORDS, words), KN__EXIT_OK);
        const char **files = files_of(options, commands[i]);
        for (int at = 0; at < N_WORDS; at++) assert_ptr_equal(files[at], words[at]);
        assert_null(files[N_WORDS]);
        free(options);
    }
}

static void pages_of_variables_have_each_word(void **state) {
    (void)state;
    kn__text page = {0};
    assert_true(kn__page_add(&page, "knet_timer.7",
                             "NAME is a list, such as\n  KNET_TIMER=1\nThe words:\n"
                             "  depth=N    levels; 0 is all\n  out=FILE  .where - or \\\n"
                             "  long=A|B\n            two\n            lines\nThe end.\n"));
    assert_non_null(strstr(page.data, "\n.TP\n\\fBdepth=N\\fR\nlevels; 0 is all\n"));
    assert_non_null(strstr(page.data, "\n.TP\n\\fBout=FILE\\fR\n\\&.where \\- or \\e\n"));
    assert_non_null(strstr(page.data, "\n.TP\n\\fBlong=A|B\\fR\ntwo\nlines\n"));
    assert_non_null(strstr(page.data, "\n.nf\nKNET_TIMER=1\n.fi\n"));
    assert_non_null(strstr(page.data, "\n.PP\nThe end.\n"));
    kn__text_release(&page);
    assert_false(kn__page_add(&page, "knet.2", NULL));
}

int main(void) {
    return RUN_TESTS(
        TEST(every_option_has_a_help), TEST(help_shows_choices_and_initial_values),
        TEST(every_option_is_in_its_man_page), TEST(every_option_is_completed_in_three_shells),
        TEST(a_page_has_each_exit_code_once), TEST(every_command_has_a_summary_and_a_page),
        TEST(help_fits_into_the_terminal), TEST(conditions_name_options_and_their_values),
        TEST(options_of_a_command_have_different_names),
        TEST(every_command_starts_with_its_initial_values),
        TEST(options_that_cannot_apply_are_errors), TEST(words_after_two_dashes_are_operands),
        TEST(words_of_a_program_are_no_options), TEST(standard_input_is_read_only_once),
        TEST(a_list_of_files_takes_any_number), TEST(pages_of_variables_have_each_word));
}
