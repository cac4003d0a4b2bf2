/* Frames with .fuse: steps that hand vectors on in registers give the bits of single ops. */
#include "autograd_test.h"

/* Every formula that goes by links, after and before others, with its derivatives: whole arrays,
 * rows and single elements as either input, of a size that leaves a rest. */
enum { LINK_ROWS = 5, LINK_COLUMNS = 331, LINKED = 11 };

static kn_tensor *linked(int i, kn_tensor *x, kn_tensor *y) {
    kn_tensor *in = kn_affine(x, 0.5, 0.1);
    switch (i) {
        case 0:
            return kn_add(kn_sqrt(in), kn_neg(in));
        case 1:
            return kn_mul(kn_rsqrt(in), in);
        case 2:
            return kn_sub(y, kn_reciprocal(in));
        case 3:
            return kn_div(in, y);
        case 4:
            return kn_div(y, in);
        case 5:
            return kn_sub(in, y);
        case 6:
            return kn_axpby(y, kn_square(in), 0.3, -2);
        case 7:
            return kn_axpby(in, y, 1.5, 0.7);
        case 8:
            return kn_mul(kn_mul(in, in), kn_mul(y, in));
        case 9:
            return kn_add(kn_neg(kn_exp(in)), kn_tanh(kn_mul(in, y)));
        default:
            return kn_add(y, kn_square(kn_sigm(in)));
    }
}

static kn_status run_linked(void *out, int i, kn_shape shape, kn_dtype dtype, int fuse) {
    KN_TAPE(.fuse = fuse);
    int64_t n = shape.dim[0] * shape.dim[1];
    kn_tensor *in[2] = {kn_linspace(0.5, 2, LINK_ROWS * LINK_COLUMNS), kn_linspace(1, 3, n)};
    in[0] = kn_watch(kn_cast(kn_reshape(in[0], KN_SHAPE(LINK_ROWS, LINK_COLUMNS)), dtype));
    in[1] = kn_watch(kn_cast(kn_reshape(in[1], shape), dtype));
    kn_tensor *z = kn_affine(linked(i, in[0], in[1]), 1.25, -1), *d[2];
    size_t one = kn_dtype_bytes(dtype), bytes = LINK_ROWS * LINK_COLUMNS * one;
    KN_TRY(kn_copy_out(out, bytes, z));
    KN_TRY(kn_gradients(d, kn_sum(kn_mul(z, z), KN_ALL, false), in, 2, NULL));
    KN_TRY(kn_copy_out((char *)out + bytes, bytes, d[0]));
    return d[1] ? kn_copy_out((char *)out + 2 * bytes, (size_t)n * one, d[1]) : KN_OK;
}

static void links_give_the_bits_of_single_ops(void **state) {
    (void)state;
    static char bits[2][3 * LINK_ROWS * LINK_COLUMNS * sizeof(double)];
    const kn_shape shapes[] = {KN_SHAPE(LINK_ROWS, LINK_COLUMNS), KN_SHAPE(1, LINK_COLUMNS),
                               KN_SHAPE(LINK_ROWS, 1), KN_SHAPE(1, 1)};
    for (int i = 0; i < LINKED * 8; i++) {
        kn_dtype dtype = i % 2 ? KN_F64 : KN_F32;
        memset(bits, 0, sizeof bits);
        assert_ok(run_linked(bits[0], i / 8, shapes[i / 2 % 4], dtype, KN_OFF));
        assert_ok(run_linked(bits[1], i / 8, shapes[i / 2 % 4], dtype, 1));
        if (memcmp(bits[0], bits[1], sizeof bits[0]) != 0)
            fail_msg("formula %d, %s, shape %d differs", i / 8, kn_dtype_name(dtype), i / 2 % 4);
    }
}

int main(void) { return RUN_TESTS(OPS_TEST(links_give_the_bits_of_single_ops)); }
