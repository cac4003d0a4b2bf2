/* Tests that have a folder of their own each: `dir`. */
#ifndef FILES_DIR_H
#define FILES_DIR_H

#include "files.h"
#include "test.h"

static char dir[FILES_PATH_MAX];

static int dir_setup(void **state) {
    (void)state;
    files_dir_make(dir);
    return 0;
}

static int dir_teardown(void **state) {
    (void)state;
    files_remove(dir);
    return 0;
}

#define IN_DIR(fn) TEST_WITH(fn, dir_setup, dir_teardown)

#endif
