#include "host/base/short_rows.h"

#include <string.h>

#include "host/base/walk.h"

#define INLINE static inline __attribute__((always_inline))

/* A row of `half` to 2·half bytes is two moves of `half` bytes, which overlap. */
INLINE void copy_rows(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                      int64_t rows, size_t size, const size_t half) {
    struct {
        char bytes[64];
    } first, last;
    size_t rest = size - half;
    for (int64_t r = 0; r < rows; r++, to += to_stride, from += from_stride) {
        memcpy(&first, from, half);
        memcpy(&last, from + rest, half);
        memcpy(to, &first, half);
        memcpy(to + rest, &last, half);
    }
}

/* Asks for a row elsewhere before it is read: processors foresee the lines of the row that they are
 * in alone. */
static void next_row(const char *row, size_t size) {
    enum { LINE = 64, PAGE = 4096 };
    for (size_t at = 0; at < size && at < PAGE; at += LINE) __builtin_prefetch(row + at);
}

void kn__rows_copy(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,
                   size_t size) {
#define UP_TO(half)                                                                                \
    if (size <= 2 * (half)) {                                                                      \
        copy_rows(to, to_stride, from, from_stride, rows, size, half);                             \
        return;                                                                                    \
    }
    if (size == 0) return;
    UP_TO(1)
    UP_TO(2)
    UP_TO(4)
    UP_TO(8)
    UP_TO(16)
    UP_TO(32)
    UP_TO(64)
#undef UP_TO
    for (int64_t r = 0; r < rows; r++, from += from_stride) {
        if (from_stride != (int64_t)size) next_row(from + from_stride, size);
        memcpy(to + r * to_stride, from, size);
    }
}

/* The same of one element; `half` is a whole number of elements. */
INLINE void fill_rows(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                      int64_t rows, size_t size, const size_t bytes, const size_t half) {
    const uint64_t ones = bytes == 1   ? UINT64_C(0x0101010101010101)
                          : bytes == 2 ? UINT64_C(0x0001000100010001)
                          : bytes == 4 ? UINT64_C(0x0000000100000001)
                                       : 1;
    const size_t words = (half + 7) / 8;
    size_t rest = size - half;
    for (int64_t r = 0; r < rows; r++, to += to_stride, from += from_stride) {
        uint64_t line[8], v = 0;
        memcpy(&v, from, bytes);
        for (size_t i = 0; i < words; i++) line[i] = v * ones;
        memcpy(to, line, half);
        memcpy(to + rest, line, half);
    }
}

#define FILL_UP_TO(half, bytes)                                                                    \
    if ((half) >= (bytes) && size <= 2 * (half)) {                                                 \
        fill_rows(to, to_stride, from, from_stride, rows, size, bytes, half);                      \
        return;                                                                                    \
    }
#define FILL(bytes)                                                                                \
    static void fill_##bytes(char *to, int64_t to_stride, const char *from, int64_t from_stride,   \
                             int64_t rows, size_t size) {                                          \
        FILL_UP_TO(1, bytes)                                                                       \
        FILL_UP_TO(2, bytes)                                                                       \
        FILL_UP_TO(4, bytes)                                                                       \
        FILL_UP_TO(8, bytes)                                                                       \
        FILL_UP_TO(16, bytes)                                                                      \
        FILL_UP_TO(32, bytes)                                                                      \
        FILL_UP_TO(64, bytes)                                                                      \
        for (int64_t r = 0; r < rows; r++)                                                         \
            kn__walk_repeat(to + r * to_stride, from + r * from_stride, bytes,                     \
                            (int64_t)size / (bytes));                                              \
    }
FILL(1)
FILL(2)
FILL(4)
FILL(8)

void kn__rows_fill(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,
                   size_t bytes, int64_t n) {
    size_t size = (size_t)n * bytes;
    if (n == 0) return;
    switch (bytes) {
        case 1:
            fill_1(to, to_stride, from, from_stride, rows, size);
            return;
        case 2:
            fill_2(to, to_stride, from, from_stride, rows, size);
            return;
        case 4:
            fill_4(to, to_stride, from, from_stride, rows, size);
            return;
        default:
            fill_8(to, to_stride, from, from_stride, rows, size);
    }
}
