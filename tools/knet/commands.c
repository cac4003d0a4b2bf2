/* The list of commands. */
#include <string.h>

#include "cmd.h"

static const kn__command *const commands[] = {
    &kn__cmd_train, &kn__cmd_eval,    &kn__cmd_predict, &kn__cmd_models,
    &kn__cmd_bench, &kn__cmd_explain, &kn__cmd_sample,  &kn__cmd_report,
    &kn__cmd_diff,  &kn__cmd_run,     &kn__cmd_top,     &kn__cmd_replay,
    &kn__cmd_scale, &kn__cmd_info,    &kn__cmd_help,    &kn__cmd_version,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

const kn__command *kn__command_at(int i) { return i < N_COMMANDS ? commands[i] : NULL; }
const char *kn__command_name_at(int i) { return i < N_COMMANDS ? commands[i]->name : NULL; }

const kn__command *kn__command_find(const char *name) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}
