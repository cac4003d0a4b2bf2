/* Fuzzes the readers of traces, one program for each. The input is PREFIX, which selects the
 * reader, followed by the fuzzer's bytes. FUZZ_GZIP: a compressed CSV; the fuzzer's first four
 * bytes say which byte of the compressed file is changed, and where the file is cut. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef FUZZ_GZIP
#include <string.h>
#include <zlib.h>
#endif

#include "replay.h"

#ifdef FUZZ_KNTRACE
#include <knet/trace.h>
static const kn_trace_header PREFIX = {.magic = KN_TRACE_MAGIC,
                                       .version = KN_TRACE_VERSION,
                                       .record_bytes = sizeof(kn_trace_record),
                                       .byte_order = 0x01020304};
#define PREFIX_BYTES sizeof PREFIX
#define PREFIX_AT &PREFIX
#elif defined FUZZ_PICKLE
#define PREFIX_BYTES 2
#define PREFIX_AT "\x80\x04"
#else
static const char PREFIX[] = "Thread,Time,Action,Pointer,Size,Stream\n";
#define PREFIX_BYTES (sizeof PREFIX - 1)
#define PREFIX_AT PREFIX
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what) {
    if (ok) return;
    perror(what);
    abort();
}

/* Checks that a trace that a reader accepted is consistent. */
static void check(const kn__trace *trace) {
    uint8_t *live = calloc(trace->n_blocks, 1);
    must(live != NULL, "calloc");
    for (size_t i = 0; i < trace->n_steps; i++) {
        const kn__step *step = &trace->steps[i];
        bool ok = step->block < trace->n_blocks && step->stream < trace->n_streams;
        ok = ok && live[step->block] == (step->kind != KN__STEP_ALLOC);
        ok = ok && (step->kind != KN__STEP_ALLOC || step->size > 0);
        must(ok, "a step that fits no block");
        live[step->block] = step->kind != KN__STEP_FREE;
    }
    free(live);
}

#ifdef FUZZ_GZIP
/* Compresses the bytes after the first four, then damages the result as those say; zeros leave it
 * whole. */
static void write_file(int fd, const uint8_t *data, size_t size) {
    static uint8_t text[1 << 16], packed[1 << 17];
    if (size < 4 || PREFIX_BYTES + size > sizeof text) return;
    memcpy(text, PREFIX_AT, PREFIX_BYTES);
    memcpy(text + PREFIX_BYTES, data + 4, size - 4);
    z_stream z = {.next_in = text, .avail_in = (uInt)(PREFIX_BYTES + size - 4)};
    z.next_out = packed;
    z.avail_out = sizeof packed;
    must(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2");
    must(deflate(&z, Z_FINISH) == Z_STREAM_END, "deflate");
    size_t n = z.total_out, at = (size_t)(data[2] | data[3] << 8) % n;
    deflateEnd(&z);
    packed[at] ^= data[0];
    if (data[1]) n -= n * data[1] / 256;
    must(pwrite(fd, packed, n, 0) == (ssize_t)n, "pwrite");
}
#else
static void write_file(int fd, const uint8_t *data, size_t size) {
    must(pwrite(fd, PREFIX_AT, PREFIX_BYTES, 0) == (ssize_t)PREFIX_BYTES, "pwrite");
    must(pwrite(fd, data, size, (off_t)PREFIX_BYTES) == (ssize_t)size, "pwrite");
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    char path[32];
    if (fd < 0) fd = memfd_create("trace", 0);
    must(ftruncate(fd, 0) == 0, "ftruncate");
    write_file(fd, data, size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int partial = 0; partial < 2; partial++) {
        kn__trace trace;
        if (kn__trace_read(&trace, path, partial) < 0) continue;
        check(&trace);
        kn__trace_release(&trace);
    }
    return 0;
}
