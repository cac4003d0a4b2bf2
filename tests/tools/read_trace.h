/* Traces written to a directory of the test's own, and read back. */
#ifndef TEST_READ_TRACE_H
#define TEST_READ_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#include "replay.h"

/* The one read last. */
extern kn__trace trace;

void traces_begin(void);
void traces_end(void);
const char *traces_dir(void);

/* Of a file in the directory; valid until the next call. */
const char *path_of(const char *name);
/* Writes a file, and reads it as a trace. */
kn_status read_bytes(const char *name, const void *data, size_t n, bool partial);
void assert_step(size_t i, kn__step_kind kind, uint32_t block, uint64_t size, uint16_t stream);

#endif
