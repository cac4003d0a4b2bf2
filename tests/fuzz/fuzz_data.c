/* Fuzzes the readers of data sets: tables, lists in pickles, PNG and JPEG, words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

#ifdef FUZZ_TABLE
static void read_bytes(uint8_t *bytes, size_t n) {
    kn_dataset *data = NULL;
    const kn_csv_options options = {.regression = n % 2, .no_target = n % 5 == 0};
    kn_status status = kn__csv_parse(&data, (char *)bytes, n, "fuzz", &options, false);
    must((status == KN_OK) == (data != NULL), "neither read nor not");
    if (data) must(kn_dataset_size(data) > 0 && kn_dataset_shape(data).dim[0] > 0, "empty");
    kn_dataset_destroy(data);
}
#elif defined(FUZZ_LISTS)
static void read_bytes(uint8_t *bytes, size_t n) {
    kn__lists lists;
    kn_status status = kn__lists_read(&lists, bytes, n, "fuzz");
    must((status == KN_OK) == (lists.offset != NULL), "neither read nor not");
    int64_t sum = 0;
    for (int64_t i = 0; i < lists.n; i++)
        for (int64_t k = lists.offset[i]; k < lists.offset[i + 1]; k++) sum ^= lists.value[k];
    must(sum == sum + 0, "sum");
    kn__lists_release(&lists);
}
#elif defined(FUZZ_PICTURE)
static void read_bytes(uint8_t *bytes, size_t n) {
    kn__picture picture = {.pixels = NULL};
    kn_status status = kn__picture_decode(&picture, bytes, n, "fuzz", n % 3 ? 0 : 3);
    must((status == KN_OK) == (picture.pixels != NULL), "neither read nor not");
    unsigned sum = 0;
    for (int64_t i = 0; picture.pixels && i < picture.channels * picture.height * picture.width;
         i++)
        sum += picture.pixels[i];
    must(sum < UINT32_MAX, "sum");
    free(picture.pixels);
}
#else
static void read_bytes(uint8_t *bytes, size_t n) {
    kn_vocab *v = NULL;
    int64_t *index = NULL, count = 0;
    const kn_vocab_options options = {.unit = n % 2 ? KN_WORDS : KN_CHARACTERS};
    must(kn_vocab_create(&v, (char *)bytes, n, &options) == KN_OK, "created");
    must(kn_vocab_encode(&index, &count, v, (char *)bytes, n) == KN_OK, "encoded");
    for (int64_t i = 0; i < count; i++)
        must(index[i] >= 2 && index[i] < kn_vocab_size(v), "a word of the text is missing");
    free(index);
    kn_vocab_destroy(v);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *bytes = malloc(size + 1); /* exact, but for the zero that files get */
    must(bytes != NULL, "malloc");
    memcpy(bytes, data, size);
    bytes[size] = 0;
    read_bytes(bytes, size);
    free(bytes);
    return 0;
}
