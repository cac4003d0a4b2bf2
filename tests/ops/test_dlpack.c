/* DLPack between two sides in one program; tests/ops/test_neighbours.py tries it with NumPy. */
#include <knet/dlpack.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "ops_test.h"

/* The interface, as dlpack.h has it. */
typedef struct DLTensor {
    void *data;
    int32_t device_type, device_id, n_dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
struct DLManagedTensor {
    DLTensor tensor;
    void *ctx;
    void (*deleter)(struct DLManagedTensor *self);
};
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor tensor;
};

static int n_deleted;
static void count_delete(struct DLManagedTensor *self) {
    (void)self;
    n_deleted++;
}
static void count_delete_versioned(struct DLManagedTensorVersioned *self) {
    (void)self;
    n_deleted++;
}

static float six[] = {0, 1, 2, 3, 4, 5};
static int64_t two_three[] = {2, 3}, transposed[] = {1, 2};

static struct DLManagedTensor managed_of(void *data) {
    n_deleted = 0;
    return (struct DLManagedTensor){
        {data, 1, 0, 2, 2, 32, 1, two_three, NULL, 0}, NULL, count_delete};
}

static void exported_data_outlives_the_frame(void **state) {
    (void)state;
    struct DLManagedTensor *m = NULL;
    {
        KN_FRAME();
        assert_ok(kn_dlpack_export(&m, F32(KN_SHAPE(2, 3), 0, 1, 2, 3, 4, 5)));
    }
    assert_int_equal(m->tensor.device_type, 1);
    assert_int_equal(m->tensor.n_dims, 2);
    assert_int_equal(m->tensor.shape[1], 3);
    assert_int_equal(m->tensor.strides[0], 3);
    assert_int_equal(m->tensor.code, 2);
    assert_memory_equal(m->tensor.data, six, sizeof six);
    m->deleter(m);
}

/* Both, whether weights were kept before they were exported or would be after it. */
static void convolutions_see_the_other_sides_writes(void **state) {
    (void)state;
    KN_FRAME(.layout = 2);
    kn_tensor *x = kn_ones(KN_SHAPE(1, 16, 8, 8));
    for (int is_late = 0; is_late < 2; is_late++) {
        kn_tensor *w = kn_ones(KN_SHAPE(16, 16, 3, 3));
        struct DLManagedTensor *m = NULL;
        if (is_late) assert_ok(kn_compute((kn_tensor *[]){kn_conv(x, w, KN_NONE, NULL)}, 1));
        assert_ok(kn_dlpack_export(&m, w));
        assert_true(ops_at(kn_sum_abs(kn_conv(x, w, KN_NONE, NULL), KN_ALL, false), 0) > 0);
        memset(m->tensor.data, 0, sizeof(float) * 16 * 16 * 9);
        assert_close(ops_at(kn_sum_abs(kn_conv(x, w, KN_NONE, NULL), KN_ALL, false), 0), 0, 0, 0);
        m->deleter(m);
    }
}

typedef struct layer_run {
    kn_tensor *x, *w, *y;
    atomic_bool begun;
} layer_run;

static void *layer_run_body(void *ctx) {
    layer_run *run = ctx;
    kn_conv_options same = {.padding = {1, 1}};
    KN_FRAME(.layout = 2, .threads = 1);
    atomic_store(&run->begun, true);
    assert_ok(kn_hold(&run->y, kn_conv(run->x, run->w, KN_NONE, &same)));
    return NULL;
}

/* The bytes that are free now, of all sizes up to 4 MiB. */
static void write_over_free_bytes(void) {
    for (int64_t n = 1 << 14; n <= 1 << 20; n += 1 << 13) {
        KN_FRAME();
        assert_non_null(kn_data(kn_full(KN_SHAPE(n), 1e6)));
    }
}

/* What the convolution made of its weights, and reads, lives until it ends. */
static void weights_are_exported_while_a_thread_convolves(void **state) {
    (void)state;
    KN_FRAME();
    KN_SLOT(x);
    KN_SLOT(w);
    assert_ok(kn_hold(&x, kn_ones(KN_SHAPE(32, 64, 56, 56))));
    for (int i = 0; i < 4; i++) {
        assert_ok(kn_hold(&w, kn_ones(KN_SHAPE(64, 64, 3, 3))));
        layer_run want = {x, w, NULL, false}, got = {x, w, NULL, false};
        struct DLManagedTensor *m = NULL;
        pthread_t thread;
        layer_run_body(&want);
        assert_int_equal(pthread_create(&thread, NULL, layer_run_body, &got), 0);
        while (!atomic_load(&got.begun)) usleep(10);
        usleep(4000);
        assert_ok(kn_dlpack_export(&m, w));
        write_over_free_bytes();
        pthread_join(thread, NULL);
        kn_tensor *error = kn_max(kn_abs(kn_sub(got.y, want.y)), KN_ALL, false);
        assert_true(ops_at(error, 0) == 0);
        m->deleter(m);
        kn_unhold(&want.y);
        kn_unhold(&got.y);
    }
    kn_unhold(&x);
    kn_unhold(&w);
}

static void imported_data_is_shared_and_deleted_once(void **state) {
    (void)state;
    float data[6];
    memcpy(data, six, sizeof data);
    struct DLManagedTensor m = managed_of(data);
    KN_SLOT(kept);
    {
        KN_FRAME();
        kn_tensor *t = kn_dlpack_import(&m);
        assert_shape(t, KN_SHAPE(2, 3));
        data[0] = 7;
        assert_values(kn_reshape(t, KN_SHAPE(6)), 7, 1, 2, 3, 4, 5);
        ((float *)kn_data_mut(t))[1] = 8;
        assert_close(data[1], 8, 0, 0);
        assert_ok(kn_hold(&kept, kn_flatten(t))); /* a view */
    }
    assert_int_equal(n_deleted, 0);
    kn_unhold(&kept);
    assert_int_equal(n_deleted, 1);
}

static void strides_and_read_only_data_are_copied(void **state) {
    (void)state;
    struct DLManagedTensor m = managed_of(six);
    m.tensor.strides = transposed;
    struct DLManagedTensorVersioned v = {1, 0, NULL, count_delete_versioned, 1, m.tensor};
    KN_FRAME();
    assert_values(kn_dlpack_import(&m), 0, 2, 4, 1, 3, 5);
    assert_int_equal(n_deleted, 1);
    v.tensor.strides = NULL;
    kn_tensor *t = kn_dlpack_import_versioned(&v);
    assert_int_equal(n_deleted, 2);
    ((float *)kn_data_mut(t))[0] = 9;
    assert_close(six[0], 0, 0, 0);
}

static void a_round_trip_keeps_the_dtype(void **state) {
    (void)state;
    static const struct {
        uint8_t code, bits; /* of DLDataTypeCode */
    } types[] = {[KN_F32] = {2, 32}, [KN_F64] = {2, 64}, [KN_F16] = {2, 16}, [KN_BF16] = {4, 16},
                 [KN_I64] = {0, 64}, [KN_I32] = {0, 32}, [KN_U8] = {1, 8},   [KN_BOOL] = {6, 8}};
    KN_FRAME();
    for (kn_dtype dtype = KN_F32; dtype <= KN_BOOL; dtype++) {
        struct DLManagedTensorVersioned *m = NULL;
        kn_tensor *x = kn_cast(F32(KN_SHAPE(2), 0, 1), dtype);
        assert_ok(kn_dlpack_export_versioned(&m, x));
        assert_int_equal(m->major, 1);
        assert_int_equal(m->tensor.code, types[dtype].code);
        assert_int_equal(m->tensor.bits, types[dtype].bits);
        assert_int_equal(m->tensor.lanes, 1);
        kn_tensor *y = kn_dlpack_import_versioned(m);
        assert_int_equal(kn_tensor_dtype(y), dtype);
        assert_ptr_equal(kn_data(y), kn_data(x));
        assert_values(kn_cast(y, KN_F32), 0, 1);
    }
}

static void wrong_fields_fail_and_leave_the_data_to_the_caller(void **state) {
    (void)state;
    struct DLManagedTensor m = managed_of(six);
    int64_t negative[] = {2, -3};
    KN_FRAME();
    m.tensor.lanes = 4;
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_DTYPE, "32 bits and 4 lanes");
    m = managed_of(six);
    m.tensor.code = 5; /* complex */
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_DTYPE, "code 5");
    m = managed_of(six);
    m.tensor.device_type = 8;
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_UNSUPPORTED, "device type 8");
    m = managed_of(six);
    m.tensor.n_dims = 9;
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_FORMAT, "9 dimensions");
    m = managed_of(six);
    m.tensor.shape = negative;
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_SHAPE, "[2,-3] is negative");
    static const int64_t far[][2] = {{INT64_MAX, 1},
                                     {INT64_MIN, 1},
                                     {INT64_MAX / 2, 1},
                                     {1, INT64_MAX / 3},
                                     {3ll << 60, 3ll << 60}};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        int64_t strides[] = {far[i][0], far[i][1]};
        m = managed_of(six);
        m.tensor.strides = strides;
        assert_op_fails(kn_dlpack_import(&m), KN_ERR_FORMAT, "reaches beyond all memory");
    }
    m = managed_of(NULL);
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_FORMAT, "data is NULL");
    assert_op_fails(kn_dlpack_import(NULL), KN_ERR_INVALID, "managed is NULL");
    struct DLManagedTensorVersioned v = {.major = 2};
    assert_op_fails(kn_dlpack_import_versioned(&v), KN_ERR_UNSUPPORTED,
                    "kn_dlpack_import_versioned: version 2.0");
    assert_int_equal(n_deleted, 0);
    struct DLManagedTensor *out = NULL;
    assert_fails(kn_dlpack_export(&out, KN_NONE), KN_ERR_INVALID, "KN_NONE");
    assert_null(out);
    kn_tensor *x = F32(KN_SHAPE(1), 1);
    assert_fails(kn_dlpack_export(NULL, x), KN_ERR_INVALID, "kn_dlpack_export: out is NULL");
    assert_fails(kn_dlpack_export_versioned(NULL, x), KN_ERR_INVALID,
                 "kn_dlpack_export_versioned: out is NULL");
}

/* Where elements are not aligned, they are copied. The stride of one element has no meaning. */
static void data_at_any_place_are_imported(void **state) {
    (void)state;
    float data[7] = {9, 0, 1, 2, 3, 4, 5};
    _Alignas(4) char bytes[28];
    int64_t row[] = {1, 6}, strides[] = {99, 1};
    memcpy(bytes + 1, six, sizeof six);
    struct DLManagedTensor later = managed_of(data), wide = managed_of(six),
                           odd = managed_of(bytes + 1), pinned = managed_of(six);
    later.tensor.byte_offset = 4;
    wide.tensor.shape = row;
    wide.tensor.strides = strides;
    pinned.tensor.device_type = 3;
    KN_FRAME();
    assert_ptr_equal(kn_data(kn_dlpack_import(&later)), data + 1);
    assert_ptr_equal(kn_data(kn_dlpack_import(&wide)), six);
    assert_ptr_equal(kn_data(kn_dlpack_import(&pinned)), six);
    assert_int_equal(n_deleted, 0);
    assert_values(kn_dlpack_import(&odd), 0, 1, 2, 3, 4, 5);
    assert_int_equal(n_deleted, 1);
}

static void a_deleter_may_be_absent(void **state) {
    (void)state;
    struct DLManagedTensor m = managed_of(six);
    m.deleter = NULL;
    struct DLManagedTensorVersioned v = {.major = 1, .flags = 2, .tensor = m.tensor}; /* copied */
    KN_FRAME();
    assert_ptr_equal(kn_data(kn_dlpack_import(&m)), six);
    assert_ptr_equal(kn_data(kn_dlpack_import_versioned(&v)), six);
}

static void tensors_of_no_elements_cross_both_ways(void **state) {
    (void)state;
    int64_t none[] = {0, 3}, far[] = {INT64_MIN, 1};
    struct DLManagedTensor m = managed_of(NULL), *out = NULL;
    m.tensor.shape = none;
    m.tensor.strides = far;
    KN_FRAME();
    assert_shape(kn_dlpack_import(&m), KN_SHAPE(0, 3));
    assert_ok(kn_dlpack_export(&out, kn_zeros(KN_SHAPE(2, 0, 3))));
    assert_int_equal(out->tensor.strides[0], 3);
    assert_int_equal(out->tensor.strides[1], 3);
    assert_int_equal(out->tensor.strides[2], 1);
    out->deleter(out);
}

/* Far elements before the first one do not make up for those after it. */
static void impossible_shapes_are_refused(void **state) {
    (void)state;
    int64_t twos[] = {2, 2, 2}, far[] = {3ll << 59, -(3ll << 59), 3ll << 59};
    struct DLManagedTensor m = managed_of(six);
    KN_FRAME();
    m.tensor.n_dims = -1;
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_FORMAT, "-1 dimensions");
    m.tensor.n_dims = 3;
    m.tensor.shape = twos;
    m.tensor.strides = far;
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_FORMAT, "dimension 2 of 2 with stride");
    m.tensor.shape = NULL;
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_FORMAT, "3 dimensions without a shape");
    assert_int_equal(n_deleted, 0);
}

static void an_earlier_error_is_kept(void **state) {
    (void)state;
    struct DLManagedTensor m = managed_of(six), *out = NULL;
    m.tensor.lanes = 4;
    KN_FRAME();
    assert_null(kn_reshape(kn_ones(KN_SHAPE(2)), KN_SHAPE(3)));
    assert_op_fails(kn_dlpack_import(&m), KN_ERR_SHAPE, "kn_reshape");
    kn_tensor *failed = kn_reshape(kn_ones(KN_SHAPE(2)), KN_SHAPE(3));
    assert_fails(kn_dlpack_export(&out, failed), KN_ERR_SHAPE, "kn_reshape");
    assert_null(out);
}

static void a_simulated_device_has_no_number_in_dlpack(void **state) {
    (void)state;
    kn_device *sim = NULL;
    struct DLManagedTensor *out = NULL;
    assert_ok(kn_device_find(&sim, "sim"));
    KN_FRAME(.device = sim);
    assert_fails(kn_dlpack_export(&out, kn_zeros(KN_SHAPE(2))), KN_ERR_UNSUPPORTED, "like sim");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(exported_data_outlives_the_frame),
        OPS_TEST(convolutions_see_the_other_sides_writes),
        OPS_TEST(weights_are_exported_while_a_thread_convolves),
        OPS_TEST(imported_data_is_shared_and_deleted_once),
        OPS_TEST(strides_and_read_only_data_are_copied), OPS_TEST(a_round_trip_keeps_the_dtype),
        OPS_TEST(wrong_fields_fail_and_leave_the_data_to_the_caller),
        OPS_TEST(data_at_any_place_are_imported), OPS_TEST(a_deleter_may_be_absent),
        OPS_TEST(tensors_of_no_elements_cross_both_ways), OPS_TEST(impossible_shapes_are_refused),
        OPS_TEST(an_earlier_error_is_kept), OPS_TEST(a_simulated_device_has_no_number_in_dlpack));
}
