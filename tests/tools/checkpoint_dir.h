/* A folder for each test, and the checkpoint in it. */
#ifndef KNET_CHECKPOINT_DIR_H
#define KNET_CHECKPOINT_DIR_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files.h"
#include "test.h"

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

/* Changes the first text in the file that is `from` to `to`, of the same length. */
static inline void file_change(const char *from, const char *to) {
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    char *bytes = malloc((size_t)file.st_size);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, (size_t)file.st_size, f), file.st_size);
    char *at = memmem(bytes, (size_t)file.st_size, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(fseek(f, at - bytes, SEEK_SET), 0);
    assert_int_equal(fwrite(to, 1, strlen(to), f), strlen(to));
    assert_int_equal(fclose(f), 0);
    free(bytes);
}

#endif
