#include "read_trace.h"

#include <stdio.h>

#include "files.h"
#include "test.h"

kn__trace trace;
static char dir[FILES_PATH_MAX];

void traces_begin(void) { files_dir_make(dir); }

void traces_end(void) {
    kn__trace_release(&trace);
    files_remove(dir);
}

const char *traces_dir(void) { return dir; }

const char *path_of(const char *name) {
    static char path[FILES_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

kn_status read_bytes(const char *name, const void *data, size_t n, bool partial) {
    kn__trace_release(&trace);
    files_write(dir, name, data, n, false);
    return kn__trace_read(&trace, path_of(name), partial);
}

void assert_step(size_t i, kn__step_kind kind, uint32_t block, uint64_t size, uint16_t stream) {
    assert_true(i < trace.n_steps);
    assert_int_equal(trace.steps[i].kind, kind);
    assert_int_equal(trace.steps[i].block, block);
    assert_int_equal(trace.steps[i].size, size);
    assert_int_equal(trace.steps[i].stream, stream);
}
