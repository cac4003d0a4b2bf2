#include "recorder.h"

#include <errno.h>
#include <string.h>

#include "cells.h"
#include "checked.h"
#include "file.h"
#include "kept_file.h"

enum { NAMES_MAX = 4096, PATH_BYTES = 4096, OUT_BYTES = 1 << 16 };

/* The bytes are kept here, not by stdio: exit() of a forked child would write them again. */
static struct {
    bool on;
    kn__kept_file file;
    int error; /* errno of the first write that failed */
    size_t n_out;
    char out[OUT_BYTES];
    uint64_t n_bytes;
    kn__record_sizes sizes;
    const char *names[NAMES_MAX]; /* addresses that were written */
    int n_names;
} recorder;

static void write_out(const void *bytes, size_t n) {
    if (!recorder.error) recorder.error = kn__kept_file_write(&recorder.file, bytes, n);
}

static void flush_out(void) {
    write_out(recorder.out, recorder.n_out);
    recorder.n_out = 0;
}

static void put(const void *bytes, size_t n) {
    KN_ASSERT(recorder.n_out <= OUT_BYTES);
    if (n > OUT_BYTES - recorder.n_out) flush_out();
    if (n > OUT_BYTES) {
        write_out(bytes, n);
    } else {
        memcpy(recorder.out + recorder.n_out, bytes, n);
        recorder.n_out += n;
    }
}

/* An item of two parts; beyond the bound there are no more. */
static void put_item(uint32_t kind, const void *a, size_t n_a, const void *b, size_t n_b) {
    kn__recording_item head = {kind, (uint32_t)(n_a + n_b)};
    if (recorder.n_bytes + sizeof head + head.bytes > KN__RECORDING_BYTES_MAX) return;
    recorder.n_bytes += sizeof head + head.bytes;
    put(&head, sizeof head);
    put(a, n_a);
    if (n_b) put(b, n_b);
}

kn_status kn__recorder_start(const char *name, uint32_t version) {
    char path[KN__PATH_EXPANDED_BYTES];
    if (!kn__path_expand(path, sizeof path, name)) {
        return KN_FAIL(KN_ERR_IO, "recording: the path %.64s... is too long", name);
    }
    recorder.file = kn__kept_file_of(kn__open_output(path));
    recorder.on = recorder.file.fd >= 0;
    if (!recorder.on) {
        return KN_FAIL(KN_ERR_IO, "recording: %s: %s", path, kn__output_error(errno));
    }
    recorder.error = 0;
    recorder.n_bytes = recorder.n_out = 0;
    recorder.n_names = 0;
    recorder.sizes = (kn__record_sizes){{0}};
    put(KN__RECORDING_MAGIC, strlen(KN__RECORDING_MAGIC));
    put(&version, sizeof version);
    return KN_OK;
}

static void put_sizes(const kn__record_sizes *seen) {
    kn__record_sizes merged = recorder.sizes;
    for (int i = 0; i < KN__KINDS_MAX; i++) {
        if (seen->of[i]) merged.of[i] = seen->of[i];
    }
    if (memcmp(&merged, &recorder.sizes, sizeof merged) == 0) return;
    recorder.sizes = merged;
    put_item(KN__RECORDING_SIZES, &merged, sizeof merged, NULL, 0);
}

static void put_name(const char *name) {
    for (int i = 0; i < recorder.n_names; i++) {
        if (recorder.names[i] == name) return;
    }
    if (recorder.n_names == NAMES_MAX) return;
    recorder.names[recorder.n_names++] = name;
    uint64_t address = (uint64_t)(uintptr_t)name;
    put_item(KN__RECORDING_NAME, &address, sizeof address, name, strlen(name) + 1);
}

void kn__recorder_buffer(void *bytes, size_t used, const kn__record_sizes *seen) {
    if (!recorder.on) return;
    put_sizes(seen);
    for (void *at = NULL; (at = kn__cupti_next(bytes, used, at, &recorder.sizes));) {
        const char **name = kn__cupti_name(at);
        if (name && *name) put_name(*name);
    }
    put_item(KN__RECORDING_BUFFER, bytes, used, NULL, 0);
}

static size_t add_labels(char *out, const kn__tree_node *node) {
    if (!node || !node->parent) return 0;
    size_t at = add_labels(out, node->parent), n = strlen(node->label);
    if (at + n + 2 > PATH_BYTES) return at;
    memcpy(out + at, node->label, n);
    out[at + n] = KN__RECORDING_SEPARATOR;
    return at + n + 1;
}

void kn__recorder_launch(kn__told what, uint32_t id, uint32_t launch_id,
                         const kn__tree_node *node) {
    char path[PATH_BYTES];
    kn__recording_launch head = {id, launch_id, (uint32_t)what};
    if (recorder.on)
        put_item(KN__RECORDING_LAUNCH, &head, sizeof head, path, add_labels(path, node));
}

kn_status kn__recorder_finish(void) {
    if (!recorder.on) return KN_OK;
    flush_out();
    int closed = kn__kept_file_close(&recorder.file);
    if (!recorder.error) recorder.error = closed;
    recorder.on = false;
    if (!recorder.error) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "recording: the file is not complete: %s", strerror(recorder.error));
}
