/* Man pages, as troff. */
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "help.h"

/* Text of a page: no character of it is a request or an escape. */
static void add_escaped(kn__text *text, const char *s, size_t n) {
    bool at_start = true;
    for (size_t i = 0; i < n; i++) {
        char letter[2] = {s[i], '\0'};
        if (at_start && (s[i] == '.' || s[i] == '\'')) kn__text_puts(text, "\\&");
        at_start = s[i] == '\n';
        kn__text_puts(text, s[i] == '\\' ? "\\e" : s[i] == '-' ? "\\-" : letter);
    }
}

static void add_plain(kn__text *text, const char *s) { add_escaped(text, s, strlen(s)); }

static void add_line(kn__text *text, const char *before, const char *s, const char *after) {
    kn__text_puts(text, before);
    add_plain(text, s);
    kn__text_puts(text, after);
}

static void add_title(kn__text *text, const char *page, int section, const char *summary) {
    kn__text_printf(text, ".TH \"%s\" %d \"\" \"Knet.c %s\" \"%s\"\n.SH NAME\n", page, section,
                    KNET_VERSION, section == 1 ? "User commands" : "Miscellaneous");
    add_plain(text, page);
    add_line(text, " \\- ", summary, "\n");
}

static void add_paragraphs(kn__text *text, const char *paragraphs) {
    for (const char *at = paragraphs; at && *at;) {
        size_t n = strcspn(at, "\n");
        if (at != paragraphs) kn__text_puts(text, ".PP\n");
        add_escaped(text, at, n);
        kn__text_puts(text, "\n");
        at += n + (at[n] != '\0');
    }
}

static void add_pairs(kn__text *text, const kn__pair *pairs) {
    for (; pairs && pairs->left; pairs++) {
        add_line(text, ".TP\n\\fB", pairs->left, "\\fR\n");
        add_line(text, "", pairs->right, "\n");
    }
}

static void add_option(kn__text *text, const kn__opt *opt) {
    kn__text help = {0};
    add_line(text, ".TP\n\\fB\\-\\-", opt->name, "\\fR");
    if (opt->value_name) add_line(text, " \\fI", opt->value_name, "\\fR");
    kn__text_puts(text, "\n");
    kn__help_add_option(&help, opt);
    if (help.data) add_line(text, "", help.data, ".\n");
    kn__text_release(&help);
}

static void add_see_also(kn__text *text, const kn__command *self) {
    const kn__command *c;
    const char *separator = "";
    kn__text_puts(text, ".SH SEE ALSO\n");
    if (self) kn__text_puts(text, "\\fBknet\\fR(1), ");
    for (int i = 0; (c = kn__command_at(i)); i++) {
        if (c == self) continue;
        kn__text_printf(text, "%s\\fBknet\\-%s\\fR(1)", separator, c->name);
        separator = ", ";
    }
    kn__text_puts(text, ", \\fBknet_timer\\fR(7), \\fBknet_alloc\\fR(7)\n");
}

/* All exit codes, with the meanings that the command has for some. */
static void add_exits(kn__text *text, const kn__pair *own) {
    kn__text_puts(text, ".SH EXIT STATUS\n");
    for (const kn__pair *p = kn__help_exits; p->left; p++) {
        const kn__pair *same = own;
        while (same && same->left && strcmp(same->left, p->left) != 0) same++;
        add_pairs(text, (const kn__pair[]){same && same->left ? *same : *p, {NULL, NULL}});
    }
}

void kn__man_add(kn__text *text, const kn__command *c) {
    const kn__opt *opt;
    char page[64];
    snprintf(page, sizeof page, "knet-%s", c->name);
    add_title(text, page, 1, c->summary);
    const char *options = " [\\fIOPTION\\fR]...";
    bool is_program = c->operand && c->operand->is_program;
    kn__text_printf(text, ".SH SYNOPSIS\n\\fBknet %s\\fR%s", c->name, is_program ? options : "");
    if (c->operand) {
        kn__text_puts(text, c->operand->min ? " " : " [");
        add_line(text, "\\fI", c->operand->name, "\\fR");
        if (!c->operand->min) kn__text_puts(text, "]");
    }
    for (int i = 0; (opt = kn__opt_at(c, i)); i++) {
        if (!opt->is_needed) continue;
        add_line(text, " \\fB\\-\\-", opt->name, "\\fR");
        add_line(text, " \\fI", opt->value_name, "\\fR");
    }
    kn__text_printf(text, "%s\n.SH DESCRIPTION\n", is_program ? "" : options);
    add_paragraphs(text, c->description);
    kn__text_puts(text, ".SH OPTIONS\n");
    for (int i = 0; (opt = kn__opt_at(c, i)); i++) add_option(text, opt);
    kn__text_puts(text, ".TP\n\\fB\\-\\-help\\fR\nprint a summary of this page.\n");
    if (c->notes) {
        kn__text_puts(text, ".SH NOTES\n");
        add_paragraphs(text, c->notes);
    }
    add_exits(text, c->exits);
    if (c->examples) kn__text_puts(text, ".SH EXAMPLES\n");
    add_pairs(text, c->examples);
    add_see_also(text, c);
}

void kn__man_add_all(kn__text *text) {
    static const kn__pair variables[] = {
        {"KNET_TIMER", "measures time and memory; knet_timer(7) lists its words"},
        {"KNET_ALLOC", "limits and reports of the memory pools; knet_alloc(7) lists its words"},
        {"KNET_FUSE", "1: chains of pointwise ops are one pass; 0: never"},
        {"KNET_RECOMPUTE", "1: the tape forgets results that are cheap to compute again; 0: never"},
        {"KNET_ISA", "v2, v3 or v4: the most that is used of the processor's instructions"},
        {"KNET_CONV_ROUTE", "table, measure, ours, onednn or winograd: who convolves"},
        {"KNET_COMM", "timeout=DURATION: how long ranks wait for each other"},
        {"OMP_NUM_THREADS", "threads of the host's ops; --threads comes first"},
        {"XDG_CACHE_HOME", "where machine code of fused GPU kernels is kept, else ~/.cache"},
        {"NO_COLOR", "where it is set, --color=auto means never"},
        {"LC_ALL, LC_CTYPE, LANG",
         "tables have ASCII characters alone unless the locale has UTF-8"},
        {NULL, NULL},
    };
    const kn__command *c;
    add_title(text, "knet", 1, "train models, and read what the timer and the allocator recorded");
    kn__text_puts(text,
                  ".SH SYNOPSIS\n\\fBknet\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]...\n"
                  ".SH COMMANDS\n");
    for (int i = 0; (c = kn__command_at(i)); i++) {
        kn__text_printf(text, ".TP\n\\fBknet\\-%s\\fR(1)\n", c->name);
        add_line(text, "", c->summary, "\n");
    }
    kn__text_puts(text, ".SH ENVIRONMENT\n");
    add_pairs(text, variables);
    add_exits(text, NULL);
    add_see_also(text, NULL);
}

/* --- pages of variables --- */
/* A line "  WORD=VALUES  help" of the text is an entry, which lines with more spaces continue;
 * other lines are text. */
static void add_word(kn__text *text, const char *line, size_t n) {
    size_t left = 0;
    while (left < n && !(line[left] == ' ' && line[left + 1] == ' ')) left++;
    kn__text_puts(text, ".TP\n\\fB");
    add_escaped(text, line, left);
    kn__text_puts(text, "\\fR\n");
    while (left < n && line[left] == ' ') left++;
    if (left == n) return;
    add_escaped(text, line + left, n - left);
    kn__text_puts(text, "\n");
}

void kn__man_add_words(kn__text *text, const char *variable, const char *library,
                       const char *words) {
    char page[64], summary[128];
    snprintf(page, sizeof page, "%s", variable);
    for (char *c = page; *c; c++) *c |= *c >= 'A' && *c <= 'Z' ? 0x20 : 0;
    snprintf(summary, sizeof summary, "the words of the variable %s", variable);
    add_title(text, page, 7, summary);
    kn__text_puts(text, ".SH DESCRIPTION\n");
    add_line(text, "Every program that is linked with \\fB", library,
             "\\fR reads this variable.\n");
    bool after_word = false;
    for (const char *at = words; *at;) {
        size_t n = strcspn(at, "\n");
        bool is_indented = n > 2 && at[0] == ' ' && at[1] == ' ';
        bool is_word = is_indented && strncmp(at + 2, "KNET_", 5) != 0;
        if (is_indented && at[2] == ' ') { /* continues the previous word */
            size_t spaces = strspn(at, " ");
            add_escaped(text, at + spaces, n - spaces);
            kn__text_puts(text, "\n");
        } else if (is_word) {
            add_word(text, at + 2, n - 2);
        } else {
            bool is_example = at[0] == ' ';
            kn__text_puts(text, is_example ? ".RS\n.nf\n" : after_word ? ".PP\n" : "");
            add_escaped(text, at + (is_example ? 2 : 0), n - (is_example ? 2 : 0));
            kn__text_puts(text, is_example ? "\n.fi\n.RE\n" : "\n");
        }
        after_word = is_word;
        at += n + (at[n] != '\0');
    }
    kn__text_puts(text, ".SH SEE ALSO\n\\fBknet\\fR(1)\n");
}
