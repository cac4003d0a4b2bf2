/* Chains of pointwise rows, a tile at a time: each step's results stay in the first cache until the
 * next step reads them. Rows run by the loops that run them alone, so the bits are the same. */
#ifndef KN_FUSED_H
#define KN_FUSED_H

#include "host/base/walk.h"
#include "host/pointwise/links.h"
#include "host/pointwise/rows.h"
#include "reduce.h"

enum { KN__ROW_OPERANDS = 7, KN__ROW_RESULTS = 3 };
enum { KN__ROW_BLOCK = 1024 };               /* elements of a tile */
enum { KN__ROW_VV, KN__ROW_VS, KN__ROW_SV }; /* two inputs: vectors, or one of them an element */

/* One call of a row, or of one of its derivatives. */
typedef struct kn__row_job {
    const kn_op_call *call; /* rows.c's alone */
    const kn__row_loops *row;
    int n_in, n_out;
    int order; /* 0 forward, 1 back, 2 back2 */
    int form;  /* of two inputs */
    unsigned accumulate;
    kn_dtype dtype; /* T */
    bool is_half;   /* T is f16 or bf16: computed as f32 */
    bool half_out;
    double p, q;
    int64_t n, grain;
    size_t in_bytes[KN__ROW_OPERANDS], out_bytes; /* of one element; 0: a form's single one */
    const char *in[KN__ROW_OPERANDS];
    char *out[KN__ROW_RESULTS];
    bool half_in[KN__ROW_OPERANDS];
    bool same[KN__ROW_OPERANDS]; /* its elements lie like the result's */
    /* Forms: the first one, of both inputs; blocks: one an input. */
    kn__walk walk[KN__ROW_OPERANDS];
} kn__row_job;

/* A tile: vectors lie within cache lines. */
typedef union kn__tile {
    _Alignas(64) char bytes[KN__ROW_BLOCK * sizeof(double)];
    float f32[KN__ROW_BLOCK];
} kn__tile;

/* Elements from … from + n - 1, at most a tile. in: where element `from` of a whole operand lies,
 * and the first element of others; to: element `from` of the results. NULL where absent. */
void kn__row_block(const kn__row_job *j, const void *const in[], void *const to[], int64_t from,
                   int64_t n);
/* Elements that are worth waking a thread for. */
int64_t kn__row_grain(kn_op op, kn_dtype dtype, int order);
static inline bool kn__row_is_cheap(kn_op op, kn_dtype dtype, int order) {
    return kn__row_grain(op, dtype, order) >= 32768;
}
/* Operand k as its loop wants it: in place, or gathered in `buffer`. */
const void *kn__row_operand(const kn__row_job *j, int k, const void *x, int64_t from, int64_t n,
                            kn__tile *buffer);
/* Where the elements of a broadcast operand lie, if one row has them all; else NULL. */
const char *kn__row_place(const kn__row_job *j, int k, const char *x, int64_t from, int64_t n);
void kn__cast_block(void *y, kn_dtype to, const void *x, kn_dtype from, int64_t n);

/* --- a chain ---
 *
 * Cheap steps go by links where they follow each other. A chain may reduce its rows: then a tile is
 * whole rows, and some steps have one element for each of them, which others repeat along it. */

enum { KN__FUSED_STEPS = 32 };
enum { KN__HAND_EMPTY = 2 };

typedef struct kn__fused_step {
    kn__row_job job;
    bool is_cast; /* of job.dtype to `to` */
    kn_dtype to;
    int8_t r;                      /* the one result */
    int8_t tile;                   /* of the result; -1: job.out */
    int8_t from[KN__ROW_OPERANDS]; /* a tile; -1: job.in */
    uint8_t run;                   /* steps from here on that go by links (links.h); 0: none */
    uint8_t hand;                  /* which of link_in the hand is; HAND_EMPTY: none */
    bool is_held;                  /* only the next link reads the result */
    bool sums;                     /* the last of a run: it reduces the hand by a sum */
    int16_t link;
    int16_t link_in[2]; /* operands; -1: there is no second one */
    bool reduces;       /* rows of its operand, by the recipe */
    bool by_rows;       /* one element a row */
    int64_t row;        /* of the chain */
    kn__recipe recipe;
    char *part;    /* the result is written there, by rows; NULL: it is not */
    kn__walk rows; /* of that part */
} kn__fused_step;

typedef struct kn__fused {
    int n_steps, threads;
    int64_t n, grain;
    int64_t
        row; /* tiles end where rows of so many elements do: operands are broadcast to them; 0 */
    int64_t whole_row; /* tiles are whole rows of so many elements, which steps reduce; 0: any */
    bool is_free;      /* one run, whose results are held or stored: it needs no tiles */
    kn__fused_step step[KN__FUSED_STEPS];
} kn__fused;

/* Rows of a tile: a long one is alone, so that one element for each is one for all. */
static inline int64_t kn__fused_rows(int64_t row) {
    return row >= KN__ROW_BLOCK / 8 ? 1 : KN__ROW_BLOCK / row;
}
void kn__fused_run(const kn__fused *f);
/* KN__FUSED_STEPS tiles, which the calling thread keeps until it ends: 256 KiB, more than the whole
 * stack of some threads. NULL: no memory; then use the stack. */
kn__tile *kn__fused_tiles(void);
/* The runs of a pass as links: those of step i from link[KN__STEP_LINKS · i] on. */
enum { KN__STEP_LINKS = KN__LINKS_MAX / KN__FUSED_STEPS };
typedef struct kn__fused_links {
    uint8_t n[KN__FUSED_STEPS]; /* of the run that begins there */
    /* Operands of its steps whose place is not the same distance from each tile's: from
     * walked[2 · i] on, with the links' base from KN__BASE_WALKED on. */
    uint8_t n_walked[KN__FUSED_STEPS];
    struct {
        uint8_t step, in;
    } walked[2 * KN__FUSED_STEPS];
    kn__link link[KN__FUSED_STEPS * KN__STEP_LINKS];
} kn__fused_links;
void kn__fused_links_make(kn__fused_links *l, const kn__fused *f);

/* Elements from … from + n - 1, at most a tile. Returns where the last step's are: in `tiles`
 * (KN__FUSED_STEPS of them), or in its result. */
const void *kn__fused_block(const kn__fused *f, const kn__fused_links *l, kn__tile tiles[],
                            int64_t from, int64_t n);

#endif
