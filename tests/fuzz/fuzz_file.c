/* Fuzzes the readers of NPY, NPZ and safetensors files, and reads every tensor that they list. Of a
 * safetensors file the bytes are the header, up to a newline, and the data: the length is right. */
#include <knet/file.h>
#include <knet/ops.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

#ifdef FUZZ_SAFETENSORS
enum { HEAD_BYTES = 8 };
#else
enum { HEAD_BYTES = 0 };
#endif

static void read_tensors(kn_file *f) {
    for (int i = 0; i < kn_file_count(f); i++) {
        KN_FRAME();
        kn_tensor *t = kn_file_read(f, kn_file_name(f, i));
        must(t ? kn_tensor_dtype(t) == kn_file_dtype(f, i) : kn_check() < 0,
             "neither read nor not");
        if (!t) continue;
        char want[256], got[256];
        kn_shape_text(want, sizeof want, kn_file_shape(f, i));
        kn_shape_text(got, sizeof got, kn_tensor_shape(t));
        must(strcmp(want, got) == 0, "another shape");
        double sum = 0;
        if (kn_tensor_numel(t))
            must(kn_item(&sum, kn_sum(kn_cast(t, KN_F64), KN_ALL, false)) == 0, "sum");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *bytes = malloc(size + HEAD_BYTES + 1); /* exact, so that sanitizers see its end */
    must(bytes != NULL, "malloc");
    memcpy(bytes + HEAD_BYTES, data, size);
    if (HEAD_BYTES) {
        const uint8_t *line = memchr(data, '\n', size);
        uint64_t length = line ? (uint64_t)(line - data) : size;
        memcpy(bytes, &length, HEAD_BYTES);
        if (line) memmove(bytes + HEAD_BYTES + length, line + 1, size - length - 1);
        size = line ? size - 1 : size;
    }
    kn_file *f = NULL;
    if (kn_file_open_bytes(&f, bytes, size + HEAD_BYTES, "fuzz") == KN_OK) read_tensors(f);
    must(kn_check() == KN_OK, "an error is pending");
    kn_file_close(f);
    free(bytes);
    return 0;
}
