/* The commands of `knet`. */
#ifndef KN_CMD_H
#define KN_CMD_H

#include "opts.h"

extern const kn__command kn__cmd_train, kn__cmd_eval, kn__cmd_predict, kn__cmd_models,
    kn__cmd_bench, kn__cmd_explain, kn__cmd_sample, kn__cmd_report, kn__cmd_diff, kn__cmd_run,
    kn__cmd_top, kn__cmd_replay, kn__cmd_scale, kn__cmd_info, kn__cmd_help, kn__cmd_version;

/* The i-th command, in the order of the help; NULL at the end. */
const kn__command *kn__command_at(int i);
const char *kn__command_name_at(int i);
const kn__command *kn__command_find(const char *name);

/* The list of commands; returns the exit code. */
int kn__help_print_all(void);
int kn__help_print(const kn__command *command);
int kn__version_print_line(void);

/* A reader that had enough (`knet ... | head`) and a file that may not grow are failed writes, not
 * signals. */
void kn__signals_ignore(void);
/* Restores the handlers from before kn__signals_ignore. */
void kn__signals_restore(void);

#endif
