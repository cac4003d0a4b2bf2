/* Parity: one table of calls over all ops. Each call runs with the same bytes on two devices, or in
 * two dtypes on the host, and everything it may have written is compared: the results, every
 * input, and the guards on both sides of each buffer.
 *
 * A case describes a kn_op_call: what the tensors look like, not what comes out of it.
 */
#ifndef KNET_PARITY_H
#define KNET_PARITY_H

#include <knet/op.h>

enum {
    PARITY_OPERANDS = 8,
    PARITY_OUT = PARITY_OPERANDS,
    PARITY_RESULTS = 4,
    PARITY_BUFFERS = PARITY_OUT + PARITY_RESULTS
};

typedef enum parity_fill {
    FILL_ABSENT = 0, /* KN_NONE, or a result that is not wanted */
    FILL_GUARD,      /* a result: nothing of it may be left */
    FILL_UNIFORM,    /* -1 … 1 */
    FILL_POSITIVE,   /* 0.25 … 2 */
    FILL_UNIT,       /* -0.9 … 0.9 */
    FILL_FRACTION,   /* 0.1 … 0.9 */
    FILL_ABOVE_ONE,  /* 1.25 … 3 */
    FILL_TIES,       /* few values, zero among them */
    FILL_SPECIAL,    /* the same, with NaN and infinities */
    FILL_WIDE,       /* up to 1e10 in size, NaN and infinities too: for casts and overflows */
    FILL_RISING, /* lines of the last axis in order, equal neighbours among them; floats end with
                  * an infinity and a NaN */
    FILL_LARGE,  /* up to 65000 in size, near the largest f16 */
    FILL_OFFSET, /* a million and up to two: the maximum is far larger than the differences */
    FILL_ZERO,
    FILL_DEFINITE, /* matrices: symmetric, positive definite, well conditioned */
    FILL_ROTATED,  /* the same without symmetry; solving it exchanges each row with the next */
    FILL_INDEX,    /* 0 … limit - 1: labels, offsets in windows, bools */
    FILL_NEGATIVE, /* the same, or that minus the limit: indices from the end */
    FILL_BEYOND,   /* the same, one of them out of range */
    FILL_OFFSETS,  /* of maxima in their windows, inside x: for the case's kn_attr_pool */
    FILL_STATE,    /* of a random generator: {seed, offset} */
    FILL_HYPER,    /* of an optimiser: {0.01, 3, 0.5, 0} */
    FILL_HYPER_INF /* {0.01, 3, ∞, 0}: infinite gradients */
} parity_fill;

typedef struct parity_operand {
    parity_fill fill;
    kn_dtype dtype; /* 0: the float dtype of the run */
    kn_shape shape;
    int64_t limit;
} parity_operand;

typedef enum parity_compare {
    COMPARE_CLOSE, /* normalised mean squared error; NaNs and infinities in the same places */
    COMPARE_EXACT
} parity_compare;

enum { PARITY_NAME = 96, PARITY_ATTR = 256 };

typedef struct parity_case {
    char name[PARITY_NAME];
    kn_op op;
    int n_in;    /* of the call */
    int n_extra; /* more operands: the weights of an optimiser step, after the inputs */
    parity_operand in[PARITY_OPERANDS], out[PARITY_RESULTS];
    int out_is; /* 1 + the operand that serves as the result; 0: none */
    parity_compare compare;
    uint8_t accumulate; /* a bit a result */
    bool one_dtype;     /* depends on the dtype of the run: no use in comparing f32 with f64 */
    bool host_only;     /* an operand is in a form of the host's own */
    unsigned char attr[PARITY_ATTR];
    size_t attr_bytes;
} parity_case;

typedef struct parity_table {
    parity_case *cases;
    int n, n_room;
} parity_table;

/* The whole table. */
void parity_table_make(parity_table *table);
void parity_table_free(parity_table *table);

typedef struct parity_mode {
    kn_device *device;
    kn_dtype dtype; /* of the float operands */
    kn_dtype data;  /* values are rounded to this first, so that f64 can check f32 */
    int guard;      /* elements before and behind each buffer: odd ones make odd addresses */
    /* Runs the call; NULL: kn_op_run. */
    kn_status (*run)(void *ctx, kn_op_call *call);
    void *ctx;
} parity_mode;

typedef struct parity_result { /* of one run: what every buffer holds afterwards */
    void *data[PARITY_BUFFERS];
    kn_dtype dtype[PARITY_BUFFERS];
    int64_t n[PARITY_BUFFERS];
} parity_result;

/* Runs a case. On failure says why through CMocka's print_error and returns false. */
bool parity_run(parity_result *out, const parity_case *c, const parity_mode *mode);
/* Whether both runs left the same; says where not. `nmse`: most that COMPARE_CLOSE allows. */
bool parity_same(const parity_case *c, const parity_result *got, const parity_result *want,
                 double nmse);
void parity_result_free(parity_result *result);

#endif
