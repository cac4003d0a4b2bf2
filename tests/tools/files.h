/* Directories of generated idx files, good and bad. */
#ifndef TEST_FILES_H
#define TEST_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FILES_PATH_MAX = 512 };

/* A fresh directory below TMPDIR or /tmp; files_remove deletes it with the files in it. */
char *files_dir_make(char out[FILES_PATH_MAX]);
void files_remove(const char *dir);

/* Writes DIR/NAME; as gzip when the name ends in .gz and `plain` is false. */
void files_write(const char *dir, const char *name, const void *data, size_t size_bytes,
                 bool plain);
/* An idx header and its elements in one buffer (malloc'd); element i is i % 251. */
uint8_t *files_idx(size_t *size_bytes, uint32_t magic, int n_dims, const uint32_t dim[]);
/* A good data set: n train and n/2 test images of 28x28; image i's pixels are all i % 256, its
 * label is i % 10. */
void files_dataset(const char *dir, uint32_t n, bool gzip);

/* Sets a category of the locale to one of glibc's sources, as "en_US", compiled for it in UTF-8.
 * False where localedef or the source is missing. */
bool files_locale_set(int category, const char *name);

#endif
