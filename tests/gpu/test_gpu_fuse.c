/* Frames with .fuse on the card: random chains and their gradients have the bits of the single ops,
 * while their kernels are compiled and after. */
#include <knet/tape.h>

#include "gpu.h"

enum { ROWS = 96, COLUMNS = 260, INPUTS = 3, STEPS = 12, GRAPHS = 24, BYTES = 1 << 20 };

static kn_device *gpu;
static uint64_t choice;

static int pick(int n) {
    choice = choice * 6364136223846793005u + 1442695040888963407u;
    return (int)((choice >> 33) % (uint64_t)n);
}

static kn_tensor *unary(kn_tensor *x) {
    switch (pick(9)) {
        case 0:
            return kn_gelu(x);
        case 1:
            return kn_exp(kn_tanh(x));
        case 2:
            return kn_affine(x, 0.75, -0.1);
        case 3:
            return kn_sigm(kn_mul(x, x));
        case 4:
            return kn_cast(kn_silu(kn_cast(x, KN_F16)), KN_F32);
        case 5:
            return kn_cast(kn_affine(kn_cast(x, KN_BF16), 0.5, 1), KN_F32);
        case 6:
            return kn_cast(kn_sin(kn_cast(x, KN_F64)), KN_F32);
        case 7:
            return kn_log(kn_affine(kn_mul(x, x), 1, 0.5));
        default:
            return kn_relu(x);
    }
}

static kn_tensor *binary(kn_tensor *x, kn_tensor *y) {
    switch (pick(5)) {
        case 0:
            return kn_add(x, kn_mul(x, y)); /* what a contraction would change */
        case 1:
            return kn_sub(kn_mul(x, y), y);
        case 2:
            return kn_where(kn_gt(x, y), x, y);
        case 3:
            return kn_div(x, kn_affine(kn_mul(y, y), 1, 1));
        default:
            return kn_maximum(x, y);
    }
}

/* Columns as the gates of a recurrent cell are. */
static kn_tensor *cell(kn_tensor *x) {
    kn_tensor *gate[4], *sum = kn_add(x, kn_affine(x, 0.5, 0));
    if (kn_chunk(gate, sum, 4, 1) < 0) return kn_error_defer(kn_last_error()->status);
    kn_tensor *c = kn_add(kn_mul(kn_sigm(gate[1]), gate[0]), kn_mul(gate[2], kn_tanh(gate[3])));
    kn_tensor *h = kn_mul(kn_sigm(gate[2]), kn_tanh(c));
    return kn_concat((kn_tensor *[]){c, h, kn_neg(c), kn_mul(h, h)}, 4, 1);
}

static kn_tensor *graph(kn_tensor *const x[]) {
    kn_tensor *v[INPUTS + STEPS];
    memcpy(v, x, INPUTS * sizeof *v);
    for (int n = INPUTS; n < INPUTS + STEPS; n++) {
        kn_tensor *a = v[pick(n)], *b = v[pick(n)];
        v[n] = pick(2) ? unary(a) : binary(a, b);
        v[n] = kn_tanh(v[n]);
    }
    kn_tensor *y = kn_add(kn_mul(v[INPUTS + STEPS - 1], x[0]), kn_add(x[1], x[2]));
    return kn_add(y, cell(y));
}

/* The result's bytes, then the gradients'. */
static void run(char *out, uint64_t seed, int fuse) {
    static const int64_t size[INPUTS][2] = {{ROWS, COLUMNS}, {1, COLUMNS}, {ROWS, 1}};
    KN_TAPE(.device = gpu, .fuse = fuse);
    kn_tensor *x[INPUTS], *dx[INPUTS];
    float values[ROWS * COLUMNS];
    choice = seed;
    for (int i = 0; i < INPUTS; i++) {
        for (int j = 0; j < ROWS * COLUMNS; j++) values[j] = (float)(pick(4000) - 2000) / 1000;
        x[i] = kn_watch(kn_tensor_from(values, KN_F32, KN_SHAPE(size[i][0], size[i][1])));
    }
    kn_tensor *y = graph(x);
    assert_non_null(y);
    size_t bytes = ROWS * COLUMNS * sizeof(float);
    assert_ok(kn_copy_out(out, bytes, y));
    assert_ok(kn_gradients(dx, kn_sum(y, KN_ALL, false), x, INPUTS, false));
    for (int i = 0; i < INPUTS; i++) {
        out += bytes;
        bytes = (size_t)(size[i][0] * size[i][1]) * sizeof(float);
        assert_ok(kn_copy_out(out, bytes, dx[i]));
    }
}

static void chains_have_the_bits_of_single_ops(void **state) {
    (void)state;
    char *want = calloc(2, BYTES), *got = want + BYTES;
    assert_non_null(want);
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        run(want, seed, KN_OFF);
        for (int round = 0; round < 2; round++) {
            memset(got, 1, BYTES);
            run(got, seed, 1);
            kn_fuse_wait();
            size_t bytes = (size_t)(2 * ROWS * COLUMNS + COLUMNS + ROWS) * sizeof(float);
            if (memcmp(got, want, bytes) != 0)
                fail_msg("seed %d differs, %s", (int)seed, round ? "compiled" : "one by one");
        }
    }
    free(want);
}

int main(void) {
    gpu = gpu_get();
    return RUN_TESTS(TEST(chains_have_the_bits_of_single_ops));
}
