/* Loads one library after the other, as Python's extensions do, and calls its functions.
 * usage: late_program (LIBRARY ALLOC FREE)... */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*alloc_fn)(void **out, size_t bytes);
typedef int (*free_fn)(void *ptr);

/* As a call of the function by its name: libknet_cudart's, which is preloaded. */
static void find(void *out_fn, const char *name) {
    void *symbol = dlsym(RTLD_DEFAULT, name);
    memcpy(out_fn, &symbol, sizeof symbol);
}

static int use(char **words) {
    alloc_fn alloc;
    free_fn release;
    void *block = NULL;
    find(&alloc, words[1]);
    find(&release, words[2]);
    if (!alloc || !release) return 3;
    int before = alloc(&block, 1000);
    if (!dlopen(words[0], RTLD_NOW | RTLD_LOCAL)) return 4;
    int error = alloc(&block, 1000), error_of_free = release(block);
    printf("%s: %d before, then %d, %d\n", words[1], before, error, error_of_free);
    return 0;
}

int main(int argc, char **argv) {
    for (int i = 1; i + 2 < argc; i += 3) {
        int code = use(argv + i);
        if (code) return code;
    }
    return 0;
}
