/* A folder for each test, and the checkpoint in it. */
#ifndef KNET_CHECKPOINT_DIR_H
#define KNET_CHECKPOINT_DIR_H

#include <stdio.h>

#include "files.h"

static char dir[FILES_PATH_MAX], path[FILES_PATH_MAX + 32];

static int dir_make(void **state) {
    (void)state;
    files_dir_make(dir);
    snprintf(path, sizeof path, "%s/run.safetensors", dir);
    return 0;
}
static int dir_remove(void **state) {
    (void)state;
    files_remove(dir);
    return 0;
}

#endif
