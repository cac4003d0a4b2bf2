#include "files.h"

#include <dirent.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* Fails the test if it can't write its files. */
static void demand(bool ok, const char *what) {
    if (ok) return;
    perror(what);
    exit(1);
}

char *files_dir_make(char out[FILES_PATH_MAX]) {
    const char *tmp = getenv("TMPDIR");
    snprintf(out, FILES_PATH_MAX, "%.400s/knet-test-XXXXXX", tmp ? tmp : "/tmp");
    demand(mkdtemp(out) != NULL, out);
    return out;
}

void files_remove(const char *dir) {
    char path[2 * FILES_PATH_MAX];
    DIR *d = opendir(dir);
    demand(d != NULL, dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    closedir(d);
    rmdir(dir);
}

void files_write(const char *dir, const char *name, const void *data, size_t size_bytes,
                 bool plain) {
    char path[2 * FILES_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    size_t n = strlen(name);
    if (!plain && n > 3 && strcmp(name + n - 3, ".gz") == 0) {
        gzFile file = gzopen(path, "wb1");
        demand(file != NULL, path);
        demand(size_bytes == 0 || gzwrite(file, data, (unsigned)size_bytes) > 0, path);
        demand(gzclose(file) == Z_OK, path);
        return;
    }
    FILE *file = fopen(path, "wb");
    demand(file != NULL, path);
    demand(fwrite(data, 1, size_bytes, file) == size_bytes, path);
    demand(fclose(file) == 0, path);
}

static void put_big_endian(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

uint8_t *files_idx(size_t *size_bytes, uint32_t magic, int n_dims, const uint32_t dim[]) {
    size_t n = 1, head = 4 + 4 * (size_t)n_dims;
    for (int i = 0; i < n_dims; i++) n *= dim[i];
    uint8_t *out = malloc(head + n);
    demand(out != NULL, "malloc");
    put_big_endian(out, magic);
    for (int i = 0; i < n_dims; i++) put_big_endian(out + 4 + 4 * i, dim[i]);
    for (size_t i = 0; i < n; i++) out[head + i] = (uint8_t)(i % 251);
    *size_bytes = head + n;
    return out;
}

static void split_write(const char *dir, const char *prefix, uint32_t n, bool gzip) {
    char name[64];
    size_t size_bytes = 0;
    uint8_t *images = files_idx(&size_bytes, 0x803, 3, (uint32_t[]){n, 28, 28});
    for (uint32_t i = 0; i < n * 784; i++) images[16 + i] = (uint8_t)(i / 784);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte%s", prefix, gzip ? ".gz" : "");
    files_write(dir, name, images, size_bytes, false);
    free(images);
    uint8_t *labels = files_idx(&size_bytes, 0x801, 1, &n);
    for (uint32_t i = 0; i < n; i++) labels[8 + i] = (uint8_t)(i % 10);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte%s", prefix, gzip ? ".gz" : "");
    files_write(dir, name, labels, size_bytes, false);
    free(labels);
}

void files_dataset(const char *dir, uint32_t n, bool gzip) {
    split_write(dir, "train", n, gzip);
    split_write(dir, "t10k", n / 2, gzip);
}

bool files_locale_set(int category, const char *name) {
    char dir[FILES_PATH_MAX], command[4 * FILES_PATH_MAX];
    snprintf(command, sizeof command, "localedef -i '%.32s' -f UTF-8 '%s/%.32s' 2>/dev/null", name,
             files_dir_make(dir), name);
    bool is_set =
        system(command) >= 0 && setenv("LOCPATH", dir, 1) == 0 && setlocale(category, name) != NULL;
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    demand(system(command) == 0, command);
    return is_set;
}
