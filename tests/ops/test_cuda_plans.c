/* Convolution plans for GPUs that are not here, from their descriptions (argv[1]: a JSON file):
 * every convolution of the table gets an engine of full precision. Each case runs in a child
 * process, for a library that crashes on one must not hide the others. */
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/conv/conv_plan.h"
#include "test.h"

static char json[4096];
static int has_tf32 = -1; /* of the GPU described; -1: unknown */

typedef struct plan_case {
    const char *name;
    int n_spatial;
    int64_t batch, in, out, size, window, stride, padding, dilation, groups;
    int flip;
    int64_t padding_extra; /* at the ends */
} plan_case;

static const plan_case cases[] = {
    {"LeNet 1", 2, 100, 1, 20, 28, 5, 1, 0, 1, 1, 0, 0},
    {"LeNet 2", 2, 100, 20, 50, 12, 5, 1, 0, 1, 1, 0, 0},
    {"3x3, 64 channels", 2, 32, 64, 64, 56, 3, 1, 1, 1, 1, 0, 0},
    {"ResNet stem", 2, 16, 3, 64, 224, 7, 2, 3, 1, 1, 0, 0},
    {"1x1", 2, 8, 256, 64, 14, 1, 1, 0, 1, 1, 0, 0},
    {"true convolution", 2, 4, 3, 8, 17, 3, 1, 1, 1, 1, 1, 0},
    {"groups", 2, 8, 16, 16, 15, 3, 2, 1, 1, 4, 0, 0},
    {"depthwise", 2, 4, 32, 32, 16, 3, 1, 1, 1, 32, 0, 0},
    {"dilation", 2, 2, 3, 4, 19, 3, 1, 2, 2, 1, 0, 0},
    {"stride that leaves a rest", 2, 3, 5, 7, 8, 3, 3, 0, 1, 1, 0, 0},
    {"one of everything", 2, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0},
    {"one dimension", 1, 4, 6, 8, 50, 5, 2, 2, 1, 1, 0, 0},
    {"three dimensions", 3, 2, 3, 4, 10, 3, 1, 1, 1, 1, 0, 0},
    {"three dimensions, groups, flip", 3, 2, 4, 4, 7, 2, 1, 0, 2, 2, 1, 0},
    {"more padding at the end", 2, 4, 16, 8, 28, 3, 2, 0, 1, 1, 0, 1},
    {"less padding at the end", 2, 3, 4, 6, 9, 2, 1, 1, 1, 2, 0, -1},
    {"one dimension, uneven", 1, 2, 3, 4, 20, 4, 1, 1, 2, 1, 1, 2},
    {"three dimensions, uneven", 3, 1, 2, 4, 6, 2, 1, 0, 1, 1, 0, 1},
};

static kn__conv_key key_of(const plan_case *c, kn__conv_kind kind, kn_dtype dtype) {
    kn__conv_key key;
    memset(&key, 0, sizeof key);
    key.kind = (int32_t)kind, key.dtype = dtype;
    key.n_spatial = c->n_spatial == 1 ? 2 : c->n_spatial;
    key.accumulate = kind == KN__CONV_WEIGHT;
    key.flip = c->flip;
    key.alignment_bytes = dtype == KN_F64 ? 8 : 4; /* the least: views may begin anywhere */
    key.x[0] = key.y[0] = c->batch;
    key.x[1] = c->in, key.y[1] = key.w[0] = c->out, key.w[1] = c->in / c->groups;
    for (int d = 0; d < key.n_spatial; d++) {
        bool unused = c->n_spatial == 1 && d == 0;
        key.stride[d] = unused ? 1 : c->stride;
        key.padding[d] = unused ? 0 : c->padding;
        key.padding_end[d] = unused ? 0 : c->padding + c->padding_extra;
        key.dilation[d] = unused ? 1 : c->dilation;
        key.x[2 + d] = unused ? 1 : c->size;
        key.w[2 + d] = unused ? 1 : c->window;
        int64_t span = key.dilation[d] * (key.w[2 + d] - 1) + 1;
        key.y[2 + d] =
            (key.x[2 + d] + key.padding[d] + key.padding_end[d] - span) / key.stride[d] + 1;
    }
    return key;
}

/* In the child: 0 when all plans of the case could be made. */
static int make_plans(const plan_case *c) {
    cudnnBackendDescriptor_t device = NULL;
    kn_status status = kn__conv_device_of_json(&device, json);
    for (int kind = KN__CONV_FORWARD; kind <= KN__CONV_WEIGHT && status == KN_OK; kind++) {
        for (int dtype = KN_F32; dtype <= KN_F64 && status == KN_OK; dtype++) {
            kn__conv_key key = key_of(c, (kn__conv_kind)kind, (kn_dtype)dtype);
            kn__conv_plan *plan = NULL;
            status = kn__conv_plan_create(&plan, &key, device);
            kn__conv_plan_destroy(plan);
        }
    }
    if (status < 0) print_error("%s: %s\n", c->name, kn_last_error()->message);
    return status < 0;
}

static void every_convolution_finds_an_engine(void **state) {
    (void)state;
    int n_failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(make_plans(&cases[i]));
        int result = 0;
        assert_int_equal(waitpid(child, &result, 0), child);
        if (result) print_error("%s: failed, %d\n", cases[i].name, result);
        n_failed += result != 0;
    }
    assert_int_equal(n_failed, 0);
}

/* In the child: how many kinds of the case's convolution have an engine of 16 bits; those that have
 * none must be refused as such, for f32's engine takes their place. -1: another error. */
static int count_halves(const plan_case *c, kn_dtype dtype) {
    cudnnBackendDescriptor_t device = NULL;
    int n = 0;
    kn_status status = kn__conv_device_of_json(&device, json);
    if (status < 0) return -1;
    for (int kind = KN__CONV_FORWARD; kind <= KN__CONV_WEIGHT; kind++) {
        kn__conv_key key = key_of(c, (kn__conv_kind)kind, dtype);
        kn__conv_plan *plan = NULL;
        key.alignment_bytes = 16;
        status = kn__conv_plan_create(&plan, &key, device);
        if (status < 0 && status != KN_ERR_UNSUPPORTED) return -1;
        n += status == KN_OK;
        kn__conv_plan_destroy(plan);
    }
    return n;
}

static void convolutions_of_16_bits_have_engines_or_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int dtype = KN_F16; dtype <= KN_BF16; dtype++) {
            fflush(NULL);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) _exit(count_halves(&cases[i], (kn_dtype)dtype));
            int result = 0;
            assert_int_equal(waitpid(child, &result, 0), child);
            int n = WIFEXITED(result) ? (int8_t)WEXITSTATUS(result) : -1;
            if (has_tf32 < 0)
                assert_true(n >= 0);
            else
                assert_int_equal(n, dtype == KN_F16 || has_tf32 ? 3 : 0);
        }
}

/* In the child: how many of the four things that may follow the case's convolution beside a bias
 * have an engine. -1: an error that does not say so. */
static int count_wholes(const plan_case *c, kn_dtype dtype) {
    cudnnBackendDescriptor_t device = NULL;
    int n = 0;
    kn_status status = kn__conv_device_of_json(&device, json);
    if (status < 0) return -1;
    for (int others = 0; others < 4; others++) {
        kn__conv_key key = key_of(c, KN__CONV_FORWARD, dtype);
        kn__conv_plan *plan = NULL;
        key.alignment_bytes = kn_dtype_bytes(dtype) < 4 ? 16 : key.alignment_bytes;
        key.after =
            KN__CONV_BIAS | (others & 1 ? KN__CONV_RESIDUAL : 0) | (others & 2 ? KN__CONV_RELU : 0);
        status = kn__conv_plan_create(&plan, &key, device);
        if (status < 0 && status != KN_ERR_UNSUPPORTED) return -1;
        n += status == KN_OK;
        kn__conv_plan_destroy(plan);
    }
    return n;
}

static void a_bias_and_what_follows_it_have_an_engine(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int dtype = KN_F32; dtype <= KN_BF16; dtype++) {
            fflush(NULL);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) _exit(count_wholes(&cases[i], (kn_dtype)dtype));
            int result = 0;
            assert_int_equal(waitpid(child, &result, 0), child);
            int n = WIFEXITED(result) ? (int8_t)WEXITSTATUS(result) : -1;
            bool known = dtype != KN_BF16 || has_tf32 >= 0;
            if (!known ? n < 0 : n != (dtype != KN_BF16 || has_tf32 ? 4 : 0))
                fail_msg("%s, %s: %d of 4", cases[i].name, kn_dtype_name((kn_dtype)dtype), n);
        }
}

/* In the child: makes plans of LeNet's second layer for N batch sizes after one that loads what all
 * share; 0 when each keeps less than the limit. */
static int weigh_plans(void) {
    enum { N = 20, BYTES_MOST = 128 << 10 };
    cudnnBackendDescriptor_t device = NULL;
    kn__conv_plan *plan[3 * (N + 1)] = {NULL};
    size_t before = 0;
    int n = 0;
    kn_status status = kn__conv_device_of_json(&device, json);
    for (int batch = 1; batch <= N + 1 && status == KN_OK; batch++) {
        if (batch == 2) before = mallinfo2().uordblks;
        for (int kind = KN__CONV_FORWARD; kind <= KN__CONV_WEIGHT && status == KN_OK; kind++) {
            plan_case c = cases[1];
            c.batch = batch;
            kn__conv_key key = key_of(&c, (kn__conv_kind)kind, KN_F32);
            status = kn__conv_plan_create(&plan[n++], &key, device);
        }
    }
    size_t each = (mallinfo2().uordblks - before) / (3 * N);
    while (n) kn__conv_plan_destroy(plan[--n]);
    print_message("%zu bytes a plan\n", each);
    return status < 0 || each > BYTES_MOST;
}

static void a_plan_keeps_less_than_128_kib(void **state) {
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int result = weigh_plans();
        fflush(NULL);
        _exit(result);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

/* In the child: how many kinds of gradients of the case's convolution take TF32 in this mode. */
static int count_tf32(const plan_case *c, kn_math_mode math, kn_dtype dtype) {
    cudnnBackendDescriptor_t device = NULL;
    int n = 0;
    kn_status status = kn__conv_device_of_json(&device, json);
    for (int kind = KN__CONV_FORWARD; kind <= KN__CONV_WEIGHT && status == KN_OK; kind++) {
        kn__conv_key key = key_of(c, (kn__conv_kind)kind, dtype);
        kn__conv_plan *plan = NULL;
        key.math = math, key.alignment_bytes = 16;
        status = kn__conv_plan_create(&plan, &key, device);
        if (status == KN_OK) n += plan->tf32;
        if (status == KN_OK && dtype == KN_F32)
            print_message("%s, kind %d, %s: engine %lld, notes %x\n", c->name, kind,
                          kn_math_mode_name(math), (long long)plan->engine, plan->notes);
        kn__conv_plan_destroy(plan);
    }
    return status < 0 ? 99 : n;
}

static int tf32_in_child(const plan_case *c, kn_math_mode math, kn_dtype dtype) {
    int result = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int n = count_tf32(c, math, dtype);
        fflush(NULL);
        _exit(n);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 99;
}

static void strict_and_f64_plans_round_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tf32_in_child(&cases[i], KN_MATH_STRICT, KN_F32), 0);
        assert_int_equal(tf32_in_child(&cases[i], KN_MATH_TF32, KN_F64), 0);
    }
}

/* argv[2] says what the GPU has. */
static void tf32_plans_use_tensor_cores_where_there_are_any(void **state) {
    (void)state;
    int n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int found = tf32_in_child(&cases[i], KN_MATH_TF32, KN_F32);
        print_message("%s: %d of 3 plans in TF32\n", cases[i].name, found);
        assert_true(found <= 3);
        n += found;
    }
    if (has_tf32 >= 0) assert_int_equal(n > 0, has_tf32);
}

static void a_malformed_description_is_an_error(void **state) {
    (void)state;
    cudnnBackendDescriptor_t device = NULL;
    assert_fails(kn__conv_device_of_json(&device, "{\"deviceVer\": 900}"), KN_ERR_CUDA, "cudnn");
}

static void an_impossible_convolution_is_an_error(void **state) {
    (void)state;
    cudnnBackendDescriptor_t device = NULL;
    kn__conv_plan *plan = NULL;
    kn__conv_key key = key_of(&cases[0], KN__CONV_FORWARD, KN_F32);
    key.y[1]++;
    assert_ok(kn__conv_device_of_json(&device, json));
    assert_int_not_equal(kn__conv_plan_create(&plan, &key, device), KN_OK);
    assert_null(plan);
    assert_true(strlen(kn_last_error()->message) > 10);
}

/* name, dimensions; batch, in, out, size, window; stride, padding, dilation, groups. Windows that
 * don't fit have results of no elements or less, which kn_conv refuses. */
static const plan_case absurd[] = {
    {"padding of 1000", 2, 2, 3, 4, 4, 3, 1, 1000, 1, 1, 0, 0},
    {"padding beyond the window", 2, 2, 3, 4, 6, 1, 1, 5, 1, 1, 0, 0},
    {"padding of 2^31 - 1", 2, 2, 3, 4, 4, 3, INT32_MAX, INT32_MAX, 1, 1, 0, 0},
    {"stride beyond the input", 2, 2, 3, 4, 8, 3, 100, 1, 1, 1, 0, 0},
    {"stride of 2^31 - 1", 2, 2, 3, 4, 8, 3, INT32_MAX, 1, 1, 1, 0, 0},
    {"window beyond the input", 2, 2, 3, 4, 3, 7, 1, 3, 1, 1, 0, 0},
    {"window that doesn't fit", 2, 2, 3, 4, 3, 7, 1, 0, 1, 1, 0, 0},
    {"window that nearly fits", 2, 2, 3, 4, 3, 4, 1, 0, 1, 1, 0, 0},
    {"dilation of 2^31 - 1", 2, 2, 3, 4, 4, 2, 1, 0, INT32_MAX, 1, 0, 0},
    {"no images", 2, 0, 3, 4, 8, 3, 1, 1, 1, 1, 0, 0},
    {"no outputs", 2, 2, 3, 0, 8, 3, 1, 1, 1, 1, 0, 0},
    {"groups that don't divide", 2, 2, 3, 4, 8, 3, 1, 1, 1, 2, 0, 0},
    {"as many images as int32 has", 2, INT32_MAX, 1, 1, 8, 3, 1, 1, 1, 1, 0, 0},
    {"three dimensions, padding of 1000", 3, 1, 2, 2, 3, 2, 1, 1000, 1, 1, 0, 0},
};

static bool fits(const plan_case *c) {
    kn__conv_key key = key_of(c, KN__CONV_FORWARD, KN_F32);
    return c->batch && c->out && c->in % c->groups == 0 && key.y[2] > 0;
}

/* In the child: 0 if each kind of the convolution gets a plan, where it fits, or an error with a
 * message. */
static int ask_for_absurd(const plan_case *c) {
    cudnnBackendDescriptor_t device = NULL;
    int n = 0, n_bad = kn__conv_device_of_json(&device, json) < 0;
    for (int kind = KN__CONV_FORWARD; kind <= KN__CONV_WEIGHT; kind++) {
        for (int dtype = KN_F32; dtype <= KN_BF16; dtype++) {
            kn__conv_key key = key_of(c, (kn__conv_kind)kind, (kn_dtype)dtype);
            kn__conv_plan *plan = NULL;
            kn_status status = kn__conv_plan_create(&plan, &key, device);
            n += status == KN_OK;
            n_bad += status == KN_OK ? !plan || !fits(c)
                                     : plan || strlen(kn_last_error()->message) <= 10;
            kn__conv_plan_destroy(plan);
        }
    }
    print_message("%s: %d plans; %s\n", c->name, n, kn_last_error()->message);
    return n_bad;
}

static void absurd_convolutions_get_a_plan_or_a_message(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        int result = 0;
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            int n_bad = ask_for_absurd(&absurd[i]);
            fflush(NULL);
            _exit(n_bad);
        }
        assert_int_equal(waitpid(child, &result, 0), child);
        if (result) fail_msg("%s: failed, %d", absurd[i].name, result);
    }
}

/* In a child: the driver, once begun, is of no use to the children of the cases. */
static int describe_this_gpu(int to) {
    cudnnBackendDescriptor_t device = NULL;
    if (kn_device_cuda_count() == 0) return 77;
    if (kn__conv_device_of_gpu(&device, 0) < 0 ||
        kn__conv_device_json(json, sizeof json, device) < 0) {
        print_error("%s\n", kn_last_error()->message);
        return 1;
    }
    return write(to, json, strlen(json)) < 1;
}

static int ask_gpu(void) {
    int ends[2], result = 0;
    if (pipe(ends) < 0) return 1;
    pid_t child = fork();
    if (child == 0) _exit(describe_this_gpu(ends[1]));
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], json + n, sizeof json - 1 - n)) > 0;) n += (size_t)got;
    waitpid(child, &result, 0);
    print_message("%s\n", json);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 1;
}

static int read_description(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    size_t n = fread(json, 1, sizeof json - 1, file);
    fclose(file);
    return n ? 0 : -1;
}

/* The library loads its parts, which takes longer than a plan: once for all children. */
static void load_parts(void) {
    cudnnBackendDescriptor_t device = NULL;
    kn__conv_plan *plan = NULL;
    kn__conv_key key = key_of(&cases[0], KN__CONV_FORWARD, KN_F32);
    if (kn__conv_device_of_json(&device, json) < 0 || kn__conv_plan_create(&plan, &key, device) < 0)
        print_error("%s\n", kn_last_error()->message); /* its case says so too */
    kn__conv_plan_destroy(plan);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (strcmp(argv[1], "gpu") == 0) {
        int asked = ask_gpu();
        if (asked) return asked;
    } else if (read_description(argv[1]) < 0) {
        return 2;
    } else {
        load_parts();
    }
    if (argc > 2) has_tf32 = strcmp(argv[2], "tf32") == 0;
    return RUN_TESTS(
        TEST(every_convolution_finds_an_engine),
        TEST(convolutions_of_16_bits_have_engines_or_are_refused),
        TEST(a_bias_and_what_follows_it_have_an_engine), TEST(strict_and_f64_plans_round_nothing),
        TEST(absurd_convolutions_get_a_plan_or_a_message),
        TEST(tf32_plans_use_tensor_cores_where_there_are_any), TEST(a_plan_keeps_less_than_128_kib),
        TEST(a_malformed_description_is_an_error), TEST(an_impossible_convolution_is_an_error));
}
