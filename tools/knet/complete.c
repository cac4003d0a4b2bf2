/* Completions of bash, zsh and fish. */
#include <string.h>

#include "cmd.h"
#include "help.h"

static bool is_path(const kn__opt *opt) {
    return opt->kind == KN__OPT_FILE || opt->kind == KN__OPT_FOLDER;
}

/* Words with a separator between them. */
static void add_choices(kn__text *text, const char *const *choices, const char *separator) {
    for (int i = 0; choices[i]; i++) kn__text_printf(text, "%s%s", i ? separator : "", choices[i]);
}

static void add_operands(kn__text *text, const kn__operand *operand, const char *separator) {
    for (int i = 0; operand->choice_at && operand->choice_at(i); i++)
        kn__text_printf(text, "%s%s", i ? separator : "", operand->choice_at(i));
}

static void add_commands(kn__text *text) {
    for (int i = 0; kn__command_at(i); i++)
        kn__text_printf(text, "%s%s", i ? " " : "", kn__command_at(i)->name);
}

/* Text between single quotes of a shell, with '\\' before some characters. */
static void add_quoted(kn__text *text, const char *s, const char *escaped) {
    for (; *s; s++) {
        char letter[2] = {*s, '\0'};
        if (*s == '\'') {
            kn__text_puts(text, "'\\''");
        } else {
            if (strchr(escaped, *s)) kn__text_puts(text, "\\");
            kn__text_puts(text, letter);
        }
    }
}

/* --- bash --- */
/* What may follow an option, as a case of the shell. */
static void add_bash_value(kn__text *text, const kn__command *c, const kn__opt *opt) {
    if (opt->kind == KN__OPT_FLAG) return;
    kn__text_printf(text, "    %s:--%s) ", c->name, opt->name);
    if (opt->choices) {
        kn__text_puts(text, "words='");
        add_choices(text, opt->choices, " ");
        kn__text_puts(text, "' ;;\n");
    } else {
        kn__text_puts(text, opt->kind == KN__OPT_FOLDER ? "kind=-d ;;\n"
                            : is_path(opt)              ? "kind=-f ;;\n"
                                                        : "return ;;\n");
    }
}

static void add_bash_command(kn__text *text, const kn__command *c) {
    const kn__opt *opt;
    kn__text_printf(text, "    %s) case $typed in -*) words='", c->name);
    for (int i = 0; (opt = kn__opt_at(c, i)); i++) kn__text_printf(text, "--%s ", opt->name);
    kn__text_puts(text, "--help' ;; *) ");
    if (c->operand && c->operand->choice_at) {
        kn__text_puts(text, "words='");
        add_operands(text, c->operand, " ");
        kn__text_puts(text, "' ");
    } else if (c->operand && c->operand->is_file) {
        kn__text_puts(text, "kind=-f ");
    } else if (c->operand && c->operand->is_program) {
        kn__text_puts(text, "kind=-c ");
    }
    kn__text_puts(text, ";; esac ;;\n");
}

/* Words after another program's name belong to that program; bash-completion completes them. */
static void add_bash_program(kn__text *text, const kn__command *c) {
    const kn__opt *opt;
    kn__text_printf(text, "  if [ \"${COMP_WORDS[1]}\" = %s ]; then\n", c->name);
    kn__text_puts(text,
                  "    while [ $at -lt $COMP_CWORD ]; do\n"
                  "      case ${COMP_WORDS[at]} in\n"
                  "      ");
    for (int i = 0; (opt = kn__opt_at(c, i)); i++)
        if (opt->kind != KN__OPT_FLAG) kn__text_printf(text, "--%s|", opt->name);
    kn__text_puts(
        text,
        "=) at=$((at + 1)) ;;\n"
        "      -*) ;;\n"
        "      *) break ;;\n"
        "      esac\n"
        "      [ \"${COMP_WORDS[at]}\" = '=' ] || at=$((at + 1))\n"
        "    done\n"
        "    if [ $at -lt $COMP_CWORD ]; then\n"
        "      if declare -F _command_offset >/dev/null; then _command_offset $at; return; "
        "fi\n"
        "      kind=-f\n"
        "    fi\n"
        "  fi\n");
}

void kn__complete_add_bash(kn__text *text) {
    const kn__command *c;
    const kn__opt *opt;
    kn__text_puts(text,
                  "# Completions of knet for bash. Made from its option tables.\n"
                  "_knet() {\n"
                  "  local typed=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
                  "  local words='' kind='' one at=2\n"
                  "  COMPREPLY=()\n"
                  "  if [ \"$typed\" = '=' ]; then typed=''; elif [ \"$before\" = '=' ]; then\n"
                  "    before=${COMP_WORDS[COMP_CWORD-2]}\n"
                  "  fi\n");
    for (int k = 0; (c = kn__command_at(k)); k++)
        if (c->operand && c->operand->is_program) add_bash_program(text, c);
    kn__text_puts(text, "  [ -n \"$kind\" ] || case ${COMP_WORDS[1]}:$before in\n");
    for (int k = 0; (c = kn__command_at(k)); k++)
        for (int i = 0; (opt = kn__opt_at(c, i)); i++) add_bash_value(text, c, opt);
    kn__text_puts(text, "    *) case $COMP_CWORD:${COMP_WORDS[1]} in\n    1:*) words='");
    add_commands(text);
    kn__text_puts(text, " --help --version' ;;\n    *:*) case ${COMP_WORDS[1]} in\n");
    for (int k = 0; (c = kn__command_at(k)); k++) add_bash_command(text, c);
    kn__text_puts(text,
                  "    esac ;; esac ;;\n"
                  "  esac\n"
                  "  if [ -n \"$kind\" ]; then\n"
                  "    compopt -o filenames 2>/dev/null\n"
                  "    while IFS= read -r one; do COMPREPLY+=(\"$one\"); done < <(compgen $kind -- "
                  "\"$typed\")\n"
                  "  else\n"
                  "    COMPREPLY=($(compgen -W \"$words\" -- \"$typed\"))\n"
                  "  fi\n"
                  "}\n"
                  "complete -F _knet knet\n");
}

/* --- zsh --- */
static void add_zsh_option(kn__text *text, const kn__opt *opt) {
    kn__text_printf(text, "        '--%s%s[", opt->name, opt->kind == KN__OPT_FLAG ? "" : "=");
    add_quoted(text, opt->help, "[]:\\");
    kn__text_puts(text, "]");
    if (opt->kind != KN__OPT_FLAG) {
        kn__text_printf(text, ":%s:", opt->value_name);
        if (opt->choices) {
            kn__text_puts(text, "(");
            add_choices(text, opt->choices, " ");
            kn__text_puts(text, ")");
        } else if (is_path(opt)) {
            kn__text_puts(text, opt->kind == KN__OPT_FOLDER ? "_files -/" : "_files");
        }
    }
    kn__text_puts(text, "' \\\n");
}

static void add_zsh_command(kn__text *text, const kn__command *c) {
    const kn__opt *opt;
    kn__text_printf(text, "      (%s) _arguments \\\n", c->name);
    for (int i = 0; (opt = kn__opt_at(c, i)); i++) add_zsh_option(text, opt);
    if (c->operand && c->operand->is_program) {
        kn__text_puts(text, "        '(-)1:program:_command_names -e' '*::word:_normal' \\\n");
    } else if (c->operand) {
        kn__text_printf(text, "        '*:%s:", c->operand->name);
        if (c->operand->choice_at) {
            kn__text_puts(text, "(");
            add_operands(text, c->operand, " ");
            kn__text_puts(text, ")' \\\n");
        } else {
            kn__text_puts(text, "_files' \\\n");
        }
    }
    kn__text_puts(text, "        '--help[print a summary]' ;;\n");
}

void kn__complete_add_zsh(kn__text *text) {
    const kn__command *c;
    kn__text_puts(text,
                  "#compdef knet\n"
                  "# Completions of knet for zsh. Made from its option tables.\n"
                  "_knet() {\n"
                  "  local context state line\n"
                  "  local -a commands\n"
                  "  commands=(\n");
    for (int i = 0; (c = kn__command_at(i)); i++) {
        kn__text_printf(text, "    '%s:", c->name);
        add_quoted(text, c->summary, ":\\");
        kn__text_puts(text, "'\n");
    }
    kn__text_puts(text,
                  "  )\n"
                  "  _arguments -C '1:command:->command' '*::argument:->argument'\n"
                  "  case $state in\n"
                  "    (command) _describe command commands ;;\n"
                  "    (argument) case $line[1] in\n");
    for (int i = 0; (c = kn__command_at(i)); i++) add_zsh_command(text, c);
    kn__text_puts(text,
                  "    esac ;;\n"
                  "  esac\n"
                  "}\n"
                  "_knet \"$@\"\n");
}

/* --- fish --- */
static void add_fish_quoted(kn__text *text, const char *s) {
    for (; *s; s++) kn__text_printf(text, "%s%c", *s == '\'' || *s == '\\' ? "\\" : "", *s);
}

static void add_fish_option(kn__text *text, const kn__command *c, const kn__opt *opt) {
    kn__text_printf(text, "complete -c knet -n '__fish_seen_subcommand_from %s' -l %s", c->name,
                    opt->name);
    if (opt->choices) {
        kn__text_puts(text, " -x -a '");
        add_choices(text, opt->choices, " ");
        kn__text_puts(text, "'");
    } else if (opt->kind != KN__OPT_FLAG) {
        kn__text_puts(text, is_path(opt) ? " -r -F" : " -x");
    }
    kn__text_puts(text, " -d '");
    add_fish_quoted(text, opt->help);
    kn__text_puts(text, "'\n");
}

static void add_fish_command(kn__text *text, const kn__command *c) {
    const kn__opt *opt;
    kn__text_printf(text, "complete -c knet -n __fish_use_subcommand -a %s -d '", c->name);
    add_fish_quoted(text, c->summary);
    kn__text_puts(text, "'\n");
    for (int i = 0; (opt = kn__opt_at(c, i)); i++) add_fish_option(text, c, opt);
    kn__text_printf(text, "complete -c knet -n '__fish_seen_subcommand_from %s' -l help", c->name);
    kn__text_puts(text, " -d 'print a summary'\n");
    if (!c->operand) return;
    kn__text_printf(text, "complete -c knet -n '__fish_seen_subcommand_from %s' ", c->name);
    if (c->operand->choice_at) {
        kn__text_puts(text, "-a '");
        add_operands(text, c->operand, " ");
        kn__text_puts(text, "'\n");
    } else if (c->operand->is_program) {
        kn__text_puts(text, "-x -a '(__fish_complete_subcommand --fcs-skip=2)'\n");
    } else {
        kn__text_puts(text, "-F\n");
    }
}

void kn__complete_add_fish(kn__text *text) {
    const kn__command *c;
    kn__text_puts(text,
                  "# Completions of knet for fish. Made from its option tables.\n"
                  "complete -c knet -f\n"
                  "complete -c knet -n __fish_use_subcommand -l help -d 'print the commands'\n"
                  "complete -c knet -n __fish_use_subcommand -l version -d 'print the version'\n");
    for (int i = 0; (c = kn__command_at(i)); i++) add_fish_command(text, c);
}
