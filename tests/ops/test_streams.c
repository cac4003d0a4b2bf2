/* Tensors of a GPU on several streams: writes come after reads on other streams, on the device. The
 * fake driver's memory is the host's; a stream that is held does nothing until it is released. */
#include <knet/frame.h>
#include <string.h>

#include "fake_cuda.h"
#include "ops_test.h"

enum { N = 256, BYTES = N * sizeof(float) };

static kn_device *gpu;
static kn_stream a, b;
static float ones[N], twos[N];

static int begin(void **state) {
    (void)state;
    fake_cuda_reset();
    return kn_stream_create(&a, gpu) < 0 || kn_stream_create(&b, gpu) < 0;
}

static int end(void **state) {
    (void)state;
    if (fake_cuda_count().n_violations) print_error("violation: %s\n", fake_cuda_violation());
    kn_stream_destroy(gpu, a);
    kn_stream_destroy(gpu, b);
    return fake_cuda_count().n_violations != 0;
}

/* Of stream a; every element is 1. */
static kn_tensor *make_x(void) {
    KN_FRAME(.device = gpu, .stream = a);
    return kn_keep(kn_tensor_from(ones, KN_F32, KN_SHAPE(N)));
}

/* A kernel of stream b, which is held, that copies x to the result. */
static kn_tensor *read_late(kn_tensor *x) {
    KN_FRAME(.device = gpu, .stream = b);
    kn_tensor *y = kn_keep(kn_tensor_from(twos, KN_F32, KN_SHAPE(N)));
    void *to = kn_data_mut(y);
    const void *from = kn_data(x);
    assert_non_null(to);
    assert_non_null(from);
    fake_cuda_hold((cu_stream)b);
    fake_cuda_copy((cu_stream)b, to, from, BYTES);
    return y;
}

static void assert_read(kn_tensor *y, float want) {
    float got[N];
    fake_cuda_release((cu_stream)b);
    assert_ok(kn_copy_out(got, sizeof got, y));
    for (int i = 0; i < N; i++) assert_true(got[i] == want);
}

static void a_copy_into_a_tensor_waits_for_readers(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .stream = a);
    kn_tensor *x = make_x(), *y = read_late(x);
    assert_ok(kn_copy_into(x, twos, BYTES));
    assert_read(y, 1);
    assert_read(x, 2);
}

static void a_writer_of_the_data_waits_for_readers(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .stream = a);
    kn_tensor *x = make_x(), *y = read_late(x);
    void *data = kn_data_mut(x);
    assert_non_null(data);
    fake_cuda_fill((cu_stream)a, data, 0, BYTES);
    assert_read(y, 1);
    assert_read(x, 0);
}

/* The block is a's, b writes it, a reads it late, and b writes it again. */
static void a_writer_waits_for_readers_on_the_blocks_own_stream(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .stream = b);
    kn_tensor *x = make_x(), *y = kn_tensor_from(twos, KN_F32, KN_SHAPE(N));
    void *to = kn_data_mut(y), *data = kn_data_mut(x);
    fake_cuda_copy((cu_stream)b, data, to, BYTES);
    {
        KN_FRAME(.stream = a);
        const void *from = kn_data(x);
        to = kn_data_mut(y);
        fake_cuda_hold((cu_stream)a);
        fake_cuda_copy((cu_stream)a, to, from, BYTES);
    }
    data = kn_data_mut(x);
    fake_cuda_fill((cu_stream)b, data, 0, BYTES);
    fake_cuda_release((cu_stream)a);
    assert_read(y, 2);
    assert_read(x, 0);
}

/* Reads that a writer has waited for cost later ones nothing, nor do reads on the same stream. */
static void a_writer_waits_once_for_a_read(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .stream = a);
    kn_tensor *x = make_x(), *y = read_late(x);
    assert_ok(kn_copy_into(x, twos, BYTES));
    assert_read(y, 1);
    uint64_t waits = fake_cuda_calls("cuStreamWaitEvent");
    uint64_t records = fake_cuda_calls("cuEventRecord");
    for (int i = 0; i < 3; i++) {
        assert_non_null(kn_data(x));
        assert_ok(kn_copy_into(x, twos, BYTES));
        assert_non_null(kn_data_mut(x));
    }
    assert_int_equal(fake_cuda_calls("cuStreamWaitEvent"), waits);
    assert_int_equal(fake_cuda_calls("cuEventRecord"), records);
}

static void an_op_in_place_waits_for_readers(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .stream = a);
    kn_tensor *x = make_x(), *y = read_late(x), *z = kn_tensor_from(ones, KN_F32, KN_SHAPE(N));
    uint64_t waits = fake_cuda_calls("cuStreamWaitEvent");
    assert_ok(kn_axpy_into(x, 1, z));
    assert_true(fake_cuda_calls("cuStreamWaitEvent") > waits);
    fake_cuda_release((cu_stream)b);
    (void)y;
}

int main(void) {
    for (int i = 0; i < N; i++) {
        ones[i] = 1;
        twos[i] = 2;
    }
    if (kn_device_find(&gpu, "cuda:0") < 0) return 1;
    return RUN_TESTS(TEST_WITH(a_copy_into_a_tensor_waits_for_readers, begin, end),
                     TEST_WITH(a_writer_of_the_data_waits_for_readers, begin, end),
                     TEST_WITH(a_writer_waits_for_readers_on_the_blocks_own_stream, begin, end),
                     TEST_WITH(a_writer_waits_once_for_a_read, begin, end),
                     TEST_WITH(an_op_in_place_waits_for_readers, begin, end));
}
