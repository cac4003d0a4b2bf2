/* mutate CORPUS_DIR: replaces libFuzzer where it is missing: runs every file of the corpus, then
 * mutations of them. KNET_FUZZ_RUNS is their number, KNET_TEST_SEED their seed. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEEDS_MAX = 256, BYTES_MAX = 4096, RUNS = 5000 };

typedef struct input {
    size_t n;
    uint8_t bytes[BYTES_MAX];
} input;

static input seeds[SEEDS_MAX];
static int n_seeds;
static uint64_t state;

static uint64_t below(uint64_t n) { /* splitmix64 */
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % n;
}

static void load(const char *dir, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *in = fopen(path, "rb");
    if (!in || n_seeds == SEEDS_MAX) return;
    seeds[n_seeds].n = fread(seeds[n_seeds].bytes, 1, BYTES_MAX, in);
    n_seeds++;
    fclose(in);
}

/* The same order on every machine. */
static void load_all(const char *dir) {
    struct dirent **files = NULL;
    int n = scandir(dir, &files, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (files[i]->d_name[0] != '.') load(dir, files[i]->d_name);
        free(files[i]);
    }
    free(files);
}

static void change_byte(input *x) {
    static const uint8_t special[] = {0, 1, 0x7f, 0x80, 0xff, ',', '\n', '0', '-', '(', '.', 'u'};
    size_t at = below(x->n);
    switch (below(3)) {
        case 0:
            x->bytes[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            x->bytes[at] = special[below(sizeof special)];
            break;
        default:
            x->bytes[at] = (uint8_t)below(256);
    }
}

/* A piece of another seed, put in or put over. */
static void splice(input *x) {
    const input *from = &seeds[below((uint64_t)n_seeds)];
    if (from->n == 0) return;
    size_t start = below(from->n), n = 1 + below(from->n - start), at = below(x->n + 1);
    if (n > BYTES_MAX - x->n) n = BYTES_MAX - x->n;
    memmove(x->bytes + at + n, x->bytes + at, x->n - at);
    memcpy(x->bytes + at, from->bytes + start, n);
    x->n += n;
}

static void cut(input *x) {
    size_t at = below(x->n), n = 1 + below(x->n - at);
    memmove(x->bytes + at, x->bytes + at + n, x->n - at - n);
    x->n -= n;
}

static void mutate(input *x) {
    for (uint64_t i = 1 + below(6); i > 0 && x->n > 0; i--) {
        uint64_t how = below(10);
        if (how < 7) {
            change_byte(x);
        } else if (how < 9) {
            splice(x);
        } else {
            cut(x);
        }
    }
}

int main(int argc, char **argv) {
    const char *runs = getenv("KNET_FUZZ_RUNS"), *seed = getenv("KNET_TEST_SEED");
    long n = runs ? atol(runs) : RUNS;
    state = seed ? strtoull(seed, NULL, 10) : 1;
    if (argc == 2) load_all(argv[1]);
    if (n_seeds == 0) {
        fprintf(stderr, "no corpus in %s\n", argc == 2 ? argv[1] : "(none given)");
        return 1;
    }
    printf("KNET_TEST_SEED=%llu, %d files, %ld runs\n", (unsigned long long)state, n_seeds, n);
    for (int i = 0; i < n_seeds; i++) LLVMFuzzerTestOneInput(seeds[i].bytes, seeds[i].n);
    for (long i = 0; i < n; i++) {
        input x = seeds[below((uint64_t)n_seeds)];
        mutate(&x);
        LLVMFuzzerTestOneInput(x.bytes, x.n);
    }
    return 0;
}
