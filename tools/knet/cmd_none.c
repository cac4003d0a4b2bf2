/* In place of the readers of profiles, where this was built without cJSON. */
#include <stdio.h>

#include "cmd.h"
#include "opts.h"

static int tell(const char *command) {
    fprintf(stderr,
            "knet %s: this program was built without cJSON (Debian: libcjson-dev), which reads "
            "profiles\n",
            command);
    return KN__EXIT_FAILURE;
}

int kn__cmd_report(int argc, char **argv) {
    (void)argc, (void)argv;
    return tell("report");
}

int kn__cmd_diff(int argc, char **argv) {
    (void)argc, (void)argv;
    return tell("diff");
}
