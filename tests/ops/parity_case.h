/* What the files of the parity table share: operands, and adding a case. */
#ifndef KNET_PARITY_CASE_H
#define KNET_PARITY_CASE_H

#include <stdlib.h>
#include <string.h>

#include <knet/op_act.h>

#include "parity.h"
#include "test.h"

#define DIMS(...)                                                                                  \
    { {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) }
#define OPERAND(kind, ...)                                                                         \
    (parity_operand) { .fill = FILL_##kind, .shape = DIMS(__VA_ARGS__) }
#define INDEX(type, most, ...)                                                                     \
    (parity_operand) {                                                                             \
        .fill = FILL_INDEX, .dtype = (type), .limit = (most), .shape = DIMS(__VA_ARGS__)           \
    }
#define SCALAR(kind)                                                                               \
    (parity_operand) { .fill = FILL_##kind }
#define STATE                                                                                      \
    (parity_operand) { .fill = FILL_STATE, .dtype = KN_I64, .shape = DIMS(2) }
#define NONE                                                                                       \
    (parity_operand) { .fill = FILL_ABSENT }

#define PERM(...)                                                                                  \
    (kn_attr_transpose) {                                                                          \
        { __VA_ARGS__ }                                                                            \
    }
#define U(...) OPERAND(UNIFORM, __VA_ARGS__)

/* Adds a case of op, named after it and its number. */
parity_case *parity_add(kn_op op, parity_compare compare);
/* The case that was added last, and how many there are. */
parity_case *parity_last(void);
int parity_count(void);
/* The last n cases again, in f16 and in bf16. */
void parity_halves_of(int n);
/* Calls body(shape) for shapes of pointwise ops. */
void parity_each_shape(void (*body)(kn_op op, parity_operand shape), kn_op op);
/* The cases of pointwise rows: parity_rows.c. */
void parity_row_cases(void);
/* Those of parts, padding and indices: parity_move.c. */
void parity_move_cases(void);
/* Of reductions, scans and sorts: parity_reduce.c. */
void parity_reduce_cases(void);
/* Linear algebra, dropout, and random numbers but uniform and normal ones: parity_linalg.c. */
void parity_linalg_cases(void);
void parity_random_cases(void);
/* Of normalization: parity_norm.c. */
void parity_norm_cases(void);
/* Recurrent networks and attention: parity_sequence.c. */
void parity_sequence_cases(void);
/* Images: parity_image.c. */
void parity_image_cases(void);
/* Those of optimisers: parity_optim.c. */
void parity_optim_cases(void);

static inline void set_attr(parity_case *c, const void *attr, size_t bytes) {
    assert_true(bytes <= sizeof c->attr);
    memcpy(c->attr, attr, bytes);
    c->attr_bytes = bytes;
}
#define ATTR(c, type, ...) set_attr((c), &(type){__VA_ARGS__}, sizeof(type))

static inline parity_operand like(parity_operand o, parity_fill fill) {
    o.fill = fill;
    return o;
}

static inline parity_operand of_dtype(parity_operand o, kn_dtype dtype) {
    o.dtype = dtype;
    return o;
}

#endif
