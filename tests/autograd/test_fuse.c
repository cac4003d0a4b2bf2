/* Frames with .fuse: random graphs give the same bits as without, forward, first and second order;
 * data that is written, freed, consumed or viewed while results wait; failing allocations.
 *
 * The program's own kn_alloc stands before the library's. */
#include <dlfcn.h>
#include <knet/op_watch.h>
#include <knet/prof.h>
#include <knet/prof_heap.h>
#include <knet/prof_read.h>
#include <pthread.h>

#include "autograd_test.h"
#include "random_graph.h"

enum { ROWS = 80, COLUMNS = 56, INPUTS = GRAPH_INPUTS };

static int fail_at, n_allocs; /* fail_at 0: never */

KN_API kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    typedef kn_status (*alloc_fn)(void **, kn_pool *, size_t, kn_stream);
    static alloc_fn next;
    if (!next) {
        void *symbol = dlsym(RTLD_NEXT, "kn_alloc");
        memcpy(&next, &symbol, sizeof next);
    }
    if (++n_allocs == fail_at) return KN_FAIL(KN_ERR_OOM, "allocation %d fails", n_allocs);
    return next(out, pool, size_bytes, stream);
}

/* --- random graphs --- */

static const int64_t sizes[INPUTS][2] = {{ROWS, COLUMNS}, {1, COLUMNS}, {ROWS, 1}};

typedef struct run {
    uint32_t y, dx[INPUTS][ROWS * COLUMNS], ddx[INPUTS][ROWS * COLUMNS]; /* bits of f32 */
} run;

static kn_status copy_grads(uint32_t out[INPUTS][ROWS * COLUMNS], kn_tensor *const dx[]) {
    for (int i = 0; i < INPUTS; i++) KN_TRY(random_graph_bits(out[i], dx[i]));
    return KN_OK;
}

static kn_status run_graph(run *out, uint64_t seed, int fuse, int recompute) {
    KN_TAPE(.fuse = fuse, .recompute = recompute);
    KN_TRY(kn_check());
    kn_tensor *x[INPUTS], *dx[INPUTS], *ddx[INPUTS];
    float values[ROWS * COLUMNS];
    for (int i = 0; i < INPUTS; i++) {
        random_graph_values(values, ROWS * COLUMNS, seed + (uint64_t)i);
        x[i] = kn_watch(kn_tensor_from(values, KN_F32, KN_SHAPE(sizes[i][0], sizes[i][1])));
    }
    kn_tensor *y = random_graph(x, seed, true);
    KN_TRY(kn_gradients(dx, y, x, INPUTS, &(kn_gradients_options){.keep = 1, .again = 1}));
    kn_tensor *norm = NULL;
    for (int i = 0; i < INPUTS; i++) {
        kn_tensor *part = kn_sum(kn_mul(dx[i], kn_tanh(dx[i])), KN_ALL, false);
        norm = norm ? kn_add(norm, part) : part;
    }
    KN_TRY(kn_gradients(ddx, norm, x, INPUTS, &(kn_gradients_options){.keep = 1}));
    KN_TRY(copy_grads(out->ddx, ddx));
    KN_TRY(copy_grads(out->dx, dx));
    KN_TRY(kn_tape_check());
    KN_TRY(random_graph_bits(&out->y, y));
    return KN_OK;
}

static void random_graphs_give_the_same_bits(void **state) {
    (void)state;
    static run plain, fused;
    const uint64_t known[] = {7151095941870931865u, 7697232816754948539u, /* sums met sums */
                              8019270354096097052u};                      /* NaNs */
    for (int i = 0; i < 60; i++) {
        uint64_t seed = i < 3 ? known[i] : test_random();
        assert_ok(run_graph(&plain, seed, KN_OFF, KN_OFF));
        assert_ok(run_graph(&fused, seed, i % 3 ? 1 : KN_OFF, i % 3 == 1 ? KN_OFF : 1));
        if (memcmp(&plain, &fused, sizeof plain) != 0)
            fail_msg("graph %d, seed %llu differs", i, (unsigned long long)seed);
    }
}

static void a_failing_allocation_leaves_values_that_can_be_computed(void **state) {
    (void)state;
    static run plain, fused;
    uint64_t seed = test_random();
    assert_ok(run_graph(&plain, seed, KN_OFF, KN_OFF));
    int64_t live = (int64_t)ops_live_bytes();
    kn_status status = KN_ERR_OOM;
    for (int at = 1; status == KN_ERR_OOM; at += 1 + at / 8) {
        n_allocs = 0, fail_at = at;
        status = run_graph(&fused, seed, 1, 1);
        fail_at = 0;
        assert_int_equal((int64_t)ops_live_bytes(), live);
    }
    assert_ok(status);
    assert_memory_equal(&plain, &fused, sizeof plain);
}

/* --- one value at a time --- */

enum { N = 3000 };

static kn_tensor *ramp(void) {
    static float values[N];
    for (int i = 0; i < N; i++) values[i] = (float)i / N;
    return kn_tensor_from(values, KN_F32, KN_SHAPE(N));
}

static bool is_pending(const kn_tensor *t) { return t->state == KN_TENSOR_PENDING; }

static void a_result_is_computed_when_it_is_read(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = ramp(), *y = kn_mul(kn_affine(x, 2, 1), x);
    assert_true(is_pending(y));
    assert_close(ops_at(y, 1500), 2 * 0.5, 1e-6, 0);
    assert_false(is_pending(y));
    kn_tensor *z = kn_exp(x);
    double first;
    assert_ok(kn_item(&first, kn_sum(kn_slice(z, KN_SHAPE(0), KN_SHAPE(1)), KN_ALL, false)));
    assert_false(is_pending(z));
    assert_close(first, 1, 0, 0);
}

static void chains_make_no_memory_of_their_own(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *y = kn_tanh(kn_affine(kn_mul(ramp(), ramp()), 0.5, 0));
    n_allocs = 0;
    assert_non_null(kn_data(y));
    assert_int_equal(n_allocs, 1);
}

/* Sums, means and extremes of rows and of everything, long and short, chunked and not. */
typedef kn_tensor *(*reduction)(kn_tensor *x, kn_shape axes, bool keep_dims);
static kn_tensor *sum_of(kn_tensor *x, kn_shape axes, bool keep) { return kn_sum(x, axes, keep); }
static kn_tensor *mean_of(kn_tensor *x, kn_shape axes, bool keep) { return kn_mean(x, axes, keep); }
static kn_tensor *max_of(kn_tensor *x, kn_shape axes, bool keep) { return kn_max(x, axes, keep); }
static kn_tensor *min_of(kn_tensor *x, kn_shape axes, bool keep) { return kn_min(x, axes, keep); }
static kn_tensor *prod_of(kn_tensor *x, kn_shape axes, bool keep) { return kn_prod(x, axes, keep); }
static kn_tensor *abs_of(kn_tensor *x, kn_shape axes, bool keep) {
    return kn_sum_abs(x, axes, keep);
}
static kn_tensor *square_of(kn_tensor *x, kn_shape axes, bool keep) {
    return kn_sum_square(x, axes, keep);
}
static kn_tensor *count_of(kn_tensor *x, kn_shape axes, bool keep) {
    return kn_count_nonzero(x, axes, keep);
}

enum { REDUCED_MAX = 16384 };
typedef struct reduced {
    char bytes[REDUCED_MAX];
    size_t n;
    bool is_pending; /* the input, afterwards */
} reduced;

static void reduce_chain(reduced *out, reduction by, kn_shape shape, kn_dtype dtype, kn_shape axes,
                         int fuse) {
    KN_FRAME(.fuse = fuse, .threads = fuse == 1 ? 3 : 1);
    int64_t n = 1;
    for (int i = 0; i < shape.n_dims; i++) n *= shape.dim[i];
    kn_tensor *ramp = kn_reshape(kn_linspace(-1, 1, n), shape);
    kn_tensor *x = kn_add(kn_mul(ramp, ramp), kn_affine(ramp, 0.37, 0.6));
    if (dtype != KN_F32) x = kn_cast(x, dtype);
    kn_tensor *y = by(x, axes, false);
    out->is_pending = is_pending(x);
    assert_non_null(y);
    out->n = (size_t)y->n * kn_dtype_bytes((kn_dtype)y->dtype);
    assert_true(out->n <= sizeof out->bytes);
    assert_ok(kn_copy_out(out->bytes, out->n, y));
}

static void a_closing_reduction_reads_the_chain_by_tiles(void **state) {
    (void)state;
    static const reduction by[] = {sum_of,  mean_of, max_of,    min_of,
                                   prod_of, abs_of,  square_of, count_of};
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_BF16, KN_I32};
    const kn_shape shapes[] = {KN_SHAPE(1, 300007), KN_SHAPE(7, 1031),   KN_SHAPE(211, 3, 17),
                               KN_SHAPE(5, 2048),   KN_SHAPE(3, 100003), KN_SHAPE(5, 3, 1501)};
    static reduced plain, fused;
    for (size_t b = 0; b < sizeof by / sizeof *by; b++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            for (size_t s = 0; s < 3 * sizeof shapes / sizeof *shapes; s++) {
                kn_shape axes = s % 3 == 0 ? KN_SHAPE(-1) : s % 3 == 1 ? KN_ALL : KN_SHAPE(0, -1);
                reduce_chain(&plain, by[b], shapes[s / 3], dtypes[d], axes, KN_OFF);
                reduce_chain(&fused, by[b], shapes[s / 3], dtypes[d], axes, 1);
                assert_true(fused.is_pending);
                assert_int_equal(plain.n, fused.n);
                if (memcmp(plain.bytes, fused.bytes, plain.n) != 0)
                    fail_msg("reduction %zu of shape %zu, dtype %zu differs", b, s, d);
            }
        }
    }
}

static void a_reduction_of_columns_or_in_two_passes_computes_its_input(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = kn_affine(kn_ones(KN_SHAPE(64, 64)), 2, 1), *y = kn_affine(x, 1, 1);
    assert_close(ops_at(kn_sum(x, KN_SHAPE(0), false), 5), 64 * 3, 0, 0);
    assert_false(is_pending(x));
    assert_close(ops_at(kn_var(y, KN_ALL, false, NULL), 0), 0, 0, 0);
    assert_false(is_pending(y));
}

/* An exponential costs more than a load: it is kept for its next reader. */
static void a_reduction_keeps_what_is_dear(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *e = kn_exp(ramp()), *scaled = kn_affine(e, 2, 0);
    n_allocs = 0;
    assert_non_null(kn_sum(e, KN_ALL, false));
    assert_false(is_pending(e));
    assert_non_null(kn_sum(scaled, KN_ALL, false));
    assert_true(is_pending(scaled));
    assert_close(ops_at(scaled, 0), 2, 0, 0);
}

static void inputs_may_be_written_or_freed_before_the_result_is_read(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = ramp(), *half = kn_affine(x, 0.5, 0), *y = kn_affine(half, 2, 1);
    assert_ok(kn_fill_into(x, 7)); /* half reads x: it is computed first */
    assert_close(ops_at(y, 300), 1.1, 1e-6, 0);
    kn_tensor *z = kn_affine(x, 1, 1);
    float *data = kn_data_mut(x);
    data[0] = 100;
    assert_close(ops_at(z, 0), 8, 0, 0);
    kn_tensor *w = kn_neg(x);
    assert_ok(kn_copy_into(x, kn_data(y), N * sizeof(float)));
    assert_close(ops_at(w, 0), -100, 0, 0);
    kn_tensor *last = kn_neg(w);
    kn_drop(w);
    assert_close(ops_at(last, 0), 100, 0, 0);
}

static void a_pending_result_can_be_written(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = ramp(), *y = kn_affine(x, 1, 1), *read = kn_neg(y);
    assert_ok(kn_add_into(y, x));
    assert_close(ops_at(read, 1500), -1.5, 1e-6, 0);
    assert_close(ops_at(y, 1500), 2, 1e-6, 0);
}

static void results_live_on_with_slots_and_outer_frames(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *slot = NULL, *kept;
    {
        KN_FRAME();
        kn_tensor *x = ramp();
        assert_ok(kn_hold(&slot, kn_neg(x)));
        kept = kn_keep(kn_affine(kn_affine(x, 3, 0), 1, 1));
    }
    assert_close(ops_at(slot, 1500), -0.5, 1e-6, 0);
    assert_close(ops_at(kept, 1500), 2.5, 1e-6, 0);
    kn_unhold(&slot);
}

static void long_chains_are_cut(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *y = ramp();
    for (int i = 0; i < 1000; i++) y = kn_add(y, kn_affine(y, 0, 1));
    assert_close(ops_at(y, 0), 1000, 0, 0);
}

/* Rows and columns beside whole operands, on both sides, in tiles that end with rows and in others.
 */
static kn_tensor *wide_chain(int64_t rows, int64_t columns, kn_dtype dtype) {
    kn_tensor *x =
        kn_cast(kn_reshape(kn_linspace(-2, 2, rows * columns), KN_SHAPE(rows, columns)), dtype);
    kn_tensor *row = kn_cast(kn_linspace(0.5, 1.5, columns), dtype);
    kn_tensor *column = kn_cast(kn_reshape(kn_linspace(1, 3, rows), KN_SHAPE(rows, 1)), dtype);
    kn_tensor *y = kn_div(kn_sub(x, column), row), *z = kn_sub(row, kn_div(column, kn_exp(y)));
    kn_tensor *w = kn_where(kn_gt(z, column), row, kn_mul(z, column)), *both = kn_add(row, column);
    return kn_add(kn_sub(kn_sub(kn_affine(column, 2, 1), w), both), kn_sub(column, row));
}

static void rows_and_columns_of_any_width_give_the_same_bits(void **state) {
    (void)state;
    static const int64_t sizes_of[][2] = {{3, 2048}, {5, 700},  {40, 256}, {2, 1500},
                                          {9, 1024}, {33, 130}, {40, 1000}};
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16};
    static char bits[2][40 * 1024 * sizeof(double)];
    for (size_t i = 0; i < 3 * sizeof sizes_of / sizeof *sizes_of; i++) {
        const int64_t *size = sizes_of[i / 3];
        size_t bytes = (size_t)(size[0] * size[1]) * kn_dtype_bytes(dtypes[i % 3]);
        for (int fuse = 0; fuse < 2; fuse++) {
            KN_FRAME(.fuse = fuse ? 1 : KN_OFF, .threads = 1 + fuse);
            assert_ok(kn_copy_out(bits[fuse], bytes, wide_chain(size[0], size[1], dtypes[i % 3])));
        }
        if (memcmp(bits[0], bits[1], bytes) != 0)
            fail_msg("[%d,%d] %s differs", (int)size[0], (int)size[1],
                     kn_dtype_name(dtypes[i % 3]));
    }
}

static void count_event(void *ctx, const kn_op_event *event) {
    (void)event;
    ++*(int *)ctx;
}

static kn_tensor *in_four_dims(kn_shape repeated) {
    kn_shape shape = KN_SHAPE(2, 3, 5, 512);
    int64_t n = 1;
    for (int d = 0; d < 4; d++) n *= repeated.dim[d];
    kn_tensor *x = kn_reshape(kn_linspace(-1, 1, 2 * 3 * 5 * 512), shape);
    kn_tensor *y = kn_reshape(kn_linspace(1, 2, n), repeated);
    return kn_mul(kn_add(x, y), kn_where(kn_gt(x, y), x, y));
}

static void operands_repeat_along_dimensions_between_others(void **state) {
    (void)state;
    const kn_shape shapes[] = {KN_SHAPE(1, 3, 1, 512), KN_SHAPE(2, 1, 5, 512), KN_SHAPE(1, 3, 1, 1),
                               KN_SHAPE(2, 1, 5, 1)};
    static float bits[2][2 * 3 * 5 * 512];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int fuse = 0; fuse < 2; fuse++) {
            KN_FRAME(.fuse = fuse ? 1 : KN_OFF);
            assert_ok(kn_copy_out(bits[fuse], sizeof bits[fuse], in_four_dims(shapes[i])));
        }
        assert_memory_equal(bits[0], bits[1], sizeof bits[0]);
    }
}

static void a_result_takes_the_place_of_an_operand_that_ends(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = ramp(), *twice = kn_affine(x, 2, 0), *y = kn_neg(twice);
    kn_drop(x);
    kn_drop(twice);
    n_allocs = 0;
    assert_close(ops_at(y, 1500), -1, 0, 0);
    assert_int_equal(n_allocs, 0);
    /* z is not computed yet, and reads x too */
    x = ramp(), y = kn_neg(x);
    kn_tensor *z = kn_affine(x, 1, 1);
    kn_drop(x);
    n_allocs = 0;
    assert_close(ops_at(y, 1500), -0.5, 0, 0);
    assert_int_equal(n_allocs, 1);
    assert_close(ops_at(z, 1500), 1.5, 0, 0);
    assert_int_equal(n_allocs, 1);
}

static void a_place_is_not_taken_before_its_last_reader(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = ramp(), *y = kn_neg(x), *w = kn_mul(y, x), *view, *all;
    kn_drop(x);
    n_allocs = 0;
    assert_ok(kn_compute((kn_tensor *[]){y, w}, 2));
    assert_int_equal(n_allocs, 1);
    assert_close(ops_at(y, 1500), -0.5, 0, 0);
    assert_close(ops_at(w, 1500), -0.25, 0, 0);
    /* broadcast: elements are read again by later rows */
    x = kn_affine(kn_ones(KN_SHAPE(1, 1024)), 3, 0);
    assert_non_null(kn_data(x));
    y = kn_add(kn_zeros(KN_SHAPE(3, 1024)), x);
    w = kn_mul(y, kn_zeros(KN_SHAPE(1, 1024)));
    kn_drop(x);
    assert_close(ops_at(y, 3000), 3, 0, 0);
    /* a view reads other places than it would write */
    all = kn_reshape(kn_linspace(0, 8191, 8192), KN_SHAPE(64, 128));
    view = kn_slice(all, KN_SHAPE(0, 64), KN_SHAPE(64, 128));
    y = kn_neg(view);
    kn_drop(view);
    kn_drop(all);
    assert_close(ops_at(y, 64), -(128 + 64), 0, 0);
}

/* --- slices --- */

static void slices_are_read_where_they_lie(void **state) {
    (void)state;
    int n = 0;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = kn_reshape(kn_linspace(0, 8191, 8192), KN_SHAPE(32, 256)), *part[4];
    assert_ok(kn_prof_owners_on());
    kn_op_watch(count_event, &n);
    assert_ok(kn_chunk(part, kn_affine(x, 2, 0), 4, 1));
    kn_tensor *y = kn_sub(kn_mul(part[0], part[3]), part[1]);
    assert_true(is_pending(part[0]) && is_pending(y));
    n_allocs = 0;
    assert_close(ops_at(y, 64 + 5), 2. * (256 + 5) * 2 * (256 + 192 + 5) - 2 * (256 + 64 + 5), 0,
                 0);
    assert_int_equal(n_allocs, 1);
    assert_int_equal(n, 1);
    assert_close(ops_at(part[2], 64 + 5), 2 * (256 + 128 + 5), 0, 0);
    assert_close(ops_at(kn_slice(x, KN_SHAPE(1, 10), KN_SHAPE(31, 200)), 190), 512 + 10, 0, 0);
    kn_op_watch(NULL, NULL);
}

static void a_slice_sees_its_input_as_it_was(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = kn_affine(kn_ones(KN_SHAPE(32, 256)), 1, 0);
    assert_non_null(kn_data(x));
    kn_tensor *part = kn_slice(x, KN_SHAPE(0, 8), KN_SHAPE(32, 136)), *y = kn_neg(part);
    assert_ok(kn_fill_into(x, 7));
    assert_close(ops_at(part, 100), 1, 0, 0);
    assert_close(ops_at(y, 100), -1, 0, 0);
}

/* One cell of an LSTM on `sum`: h, and its gradient. */
static kn_status cell(int *n_forward, int *n_back, float *dx, int fuse) {
    enum { B = 24, H = 64 };
    int n = 0;
    KN_TAPE(.fuse = fuse);
    KN_TRY(kn_prof_owners_on());
    kn_tensor *x = kn_watch(kn_reshape(kn_linspace(-2, 2, B * 4 * H), KN_SHAPE(B, 4 * H)));
    kn_tensor *old = kn_reshape(kn_linspace(1, -1, B * H), KN_SHAPE(B, H)), *gate[4], *grad;
    kn_op_watch(count_event, &n);
    KN_TRY(kn_chunk(gate, kn_add(x, x), 4, 1));
    kn_tensor *c = kn_mul(kn_sigm(gate[1]), old);
    c = kn_add(c, kn_mul(kn_sigm(gate[0]), kn_tanh(gate[3])));
    kn_tensor *h = kn_mul(kn_sigm(gate[2]), kn_tanh(c));
    if (!kn_data(h)) return kn_check();
    *n_forward = n, n = 0;
    kn_status status = kn_gradients(&grad, kn_sum(h, KN_ALL, false), &x, 1, NULL);
    if (status == KN_OK) status = kn_copy_out(dx, B * 4 * H * sizeof *dx, grad);
    *n_back = n;
    kn_op_watch(NULL, NULL);
    return status;
}

static void a_cell_is_one_pass_each_way(void **state) {
    (void)state;
    static float dx[2][24 * 4 * 64];
    int n_forward, n_back;
    assert_ok(cell(&n_forward, &n_back, dx[0], KN_OFF));
    assert_int_equal(n_forward, 14);
    assert_ok(cell(&n_forward, &n_back, dx[1], 1));
    assert_int_equal(n_forward, 1);
    assert_int_equal(n_back, 5); /* the sum, its gradient, and that of x + x have their own */
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
}

static void results_that_are_kept_are_computed_in_one_pass(void **state) {
    (void)state;
    int n = 0;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = ramp(), *m = kn_affine(x, 0.5, 1), *v = kn_mul(m, x), *w = kn_add(v, m);
    n_allocs = 0;
    assert_ok(kn_prof_owners_on());
    kn_op_watch(count_event, &n);
    assert_ok(kn_compute((kn_tensor *[]){m, v, w}, 3));
    kn_op_watch(NULL, NULL);
    assert_int_equal(n, 1);
    assert_int_equal(n_allocs, 3);
    assert_false(is_pending(m) || is_pending(v) || is_pending(w));
    assert_close(ops_at(m, 1500), 1.25, 1e-6, 0);
    assert_close(ops_at(w, 1500), 1.25 + 1.25 * 0.5, 1e-6, 0);
    assert_ok(kn_compute((kn_tensor *[]){w}, 1));
    assert_int_equal(n_allocs, 3);
    assert_int_equal(kn_compute((kn_tensor *[]){w, NULL}, 2), KN_ERR_INVALID);
}

/* The states' slots are empty before: only the expressions use them. */
static void an_update_takes_the_memory_of_its_states(void **state) {
    (void)state;
    enum { MANY = 9973, STATES = 2 };
    static float got[2][STATES][MANY];
    for (int fused = 0; fused < 2; fused++) {
        KN_SLOT(m);
        KN_SLOT(w);
        {
            KN_FRAME();
            assert_ok(kn_hold(&m, kn_linspace(-1, 1, MANY)));
            assert_ok(kn_hold(&w, kn_linspace(2, 3, MANY)));
        }
        const void *place = kn_data(m);
        KN_FRAME(.fuse = fused ? 1 : KN_OFF, .threads = 3);
        kn_tensor *g = kn_linspace(1, 7, MANY), *made[STATES] = {kn_axpby(m, g, 0.9, 0.1)};
        assert_non_null(kn_data(g));
        made[1] = kn_axpby(w, kn_div(made[0], kn_affine(kn_sqrt(kn_square(g)), 1, 1e-8)), 1, -0.1);
        kn_unhold(&m), kn_unhold(&w);
        n_allocs = 0;
        assert_ok(kn_compute(made, STATES));
        assert_true(!fused || (n_allocs == 0 && kn_data(made[0]) == place));
        for (int i = 0; i < STATES; i++)
            assert_ok(kn_copy_out(got[fused][i], sizeof got[fused][i], made[i]));
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

typedef struct seen {
    int n, n_ops, n_in, n_out;
    char name[96], where[64], path[128];
    uint64_t moved_bytes;
} seen;

static void see(void *ctx, const kn_op_event *event) {
    seen *s = ctx;
    uint64_t ns = 0;
    *s = (seen){.n = s->n + 1, .n_ops = event->n_ops, .n_in = event->n_in, .n_out = event->n_out};
    s->moved_bytes = event->moved_bytes;
    snprintf(s->name, sizeof s->name, "%s", event->name);
    snprintf(s->where, sizeof s->where, "%s", event->where ? event->where : "");
    kn_prof_open_path(s->path, sizeof s->path, &ns);
    assert_true(ns > 0);
}

static void a_pass_is_one_event_with_the_names_and_places_of_its_ops(void **state) {
    (void)state;
    seen s = {.n = 0};
    char here[64];
    KN_FRAME(.fuse = 1);
    kn_tensor *x = ramp();
    assert_ok(kn_prof_owners_on());
    kn_op_watch(see, &s);
    KN_SCOPE("outer");
    kn_tensor *y = kn_tanh(kn_affine(x, 2, 0));
    y = kn_mul(y, x);
    snprintf(here, sizeof here, "test_fuse.c:%d,%d", __LINE__ - 2, __LINE__ - 1);
    assert_int_equal(s.n, 0);
    assert_non_null(kn_data(y));
    assert_int_equal(s.n, 1);
    assert_string_equal(s.name, "affine+tanh+mul");
    assert_string_equal(s.where, here);
    assert_string_equal(s.path, "outer/affine+tanh+mul");
    assert_int_equal(s.n_ops, 3);
    assert_int_equal(s.n_in, 2);
    assert_int_equal(s.n_out, 1);
    assert_int_equal(s.moved_bytes, 3 * N * sizeof(float));
    assert_non_null(kn_softmax(y, 0));
    kn_op_watch(NULL, NULL);
    assert_int_equal(s.n, 2);
    assert_string_equal(s.name, "softmax");
    assert_string_equal(s.path, "outer/softmax");
    assert_non_null(kn_neg(y));
    assert_int_equal(s.n, 2);
}

static void an_unread_metric_outlives_backward(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = kn_param(set, KN_SHAPE(N), (kn_init){KN_INIT_CONSTANT, 2, 0}, "w");
    kn_optim *optim = NULL;
    assert_ok(kn_sgd_create(&optim, set, 0.5, 0));
    {
        KN_TAPE(.fuse = 1);
        kn_tensor *y = kn_mul(w, ramp()), *decay = kn_mul(w, w);
        assert_ok(kn_backward(kn_sum(kn_mul(y, y), KN_ALL, false)));
        assert_ok(kn_optim_step(optim));
        assert_close(ops_at(decay, 5), 4, 0, 0);
        assert_true(ops_at(w, N - 1) < 1);
    }
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

static void *read_elsewhere(void *t) {
    KN_FRAME();
    kn_tensor *y = kn_neg(t);
    return !y && kn_check() == KN_ERR_INVALID ? t : NULL;
}

static void another_thread_gets_an_error_until_it_is_computed(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *y = kn_neg(ramp());
    pthread_t thread;
    void *refused = NULL;
    assert_int_equal(pthread_create(&thread, NULL, read_elsewhere, y), 0);
    assert_int_equal(pthread_join(thread, &refused), 0);
    assert_ptr_equal(refused, y);
    assert_non_null(kn_data(y));
    assert_int_equal(pthread_create(&thread, NULL, read_elsewhere, y), 0);
    assert_int_equal(pthread_join(thread, &refused), 0);
    assert_null(refused);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(random_graphs_give_the_same_bits),
        OPS_TEST(a_failing_allocation_leaves_values_that_can_be_computed),
        OPS_TEST(a_result_is_computed_when_it_is_read),
        OPS_TEST(chains_make_no_memory_of_their_own),
        OPS_TEST(a_closing_reduction_reads_the_chain_by_tiles),
        OPS_TEST(a_reduction_of_columns_or_in_two_passes_computes_its_input),
        OPS_TEST(a_reduction_keeps_what_is_dear),
        OPS_TEST(inputs_may_be_written_or_freed_before_the_result_is_read),
        OPS_TEST(a_pending_result_can_be_written),
        OPS_TEST(results_live_on_with_slots_and_outer_frames), OPS_TEST(long_chains_are_cut),
        OPS_TEST(rows_and_columns_of_any_width_give_the_same_bits),
        OPS_TEST(operands_repeat_along_dimensions_between_others),
        OPS_TEST(a_result_takes_the_place_of_an_operand_that_ends),
        OPS_TEST(a_place_is_not_taken_before_its_last_reader),
        OPS_TEST(slices_are_read_where_they_lie), OPS_TEST(a_slice_sees_its_input_as_it_was),
        OPS_TEST(a_cell_is_one_pass_each_way),
        OPS_TEST(results_that_are_kept_are_computed_in_one_pass),
        OPS_TEST(an_update_takes_the_memory_of_its_states),
        OPS_TEST(a_pass_is_one_event_with_the_names_and_places_of_its_ops),
        OPS_TEST(an_unread_metric_outlives_backward),
        OPS_TEST(another_thread_gets_an_error_until_it_is_computed));
}
