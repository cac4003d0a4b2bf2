/* Kernels of random chains against the kernels of their single ops, bit by bit: the generated
 * sources are built as C++ here, by the compiler named on the command line, and both sides run as
 * fibers (emulate.h).
 *
 * usage: test_… COMPILER FLAG... */
#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

#include "cuda/base/module.h"
#include "cuda/pointwise/chain_kernel.h"
#include "emulate_order.h"
#include "random_chain.h"
#include "test.h"

enum { CHAINS = 48, DIMS = 3 };
static const int64_t dims[DIMS] = {3, 5, 23};
enum { N = 3 * 5 * 23 }; /* no multiple of a pack */

static char **build_args;
static int n_build_args;
static kn__chain chains[CHAINS];
static void *library;

cudaError_t emulate_memset(void *p, int byte, size_t n, cudaStream_t stream);
cudaError_t emulate_memset(void *p, int byte, size_t n, cudaStream_t stream) {
    (void)stream;
    memset(p, byte, n);
    return cudaSuccess;
}
cudaError_t emulate_memcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                           cudaStream_t stream);
cudaError_t emulate_memcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                           cudaStream_t stream) {
    (void)kind, (void)stream;
    memcpy(to, from, n);
    return cudaSuccess;
}
kn_status kn__cuda_status(cudaError_t error, const char *what) {
    return error == cudaSuccess ? KN_OK : KN_FAIL(KN_ERR_CUDA, "%s: %d", what, (int)error);
}

static kn_status kernel(kn_op_call *call) {
    int order = kn_op_table[call->op].order;
    if (call->op == KN_OP_cast) return kn__cuda_cast(call);
    return order == 0   ? kn__cuda_row(call)
           : order == 1 ? kn__cuda_row_back(call)
                        : kn__cuda_row_back2(call);
}

/* --- building the chains --- */

static void write_sources(kn__text *out) {
    kn__text_puts(out, "#include \"cuda/base/device.cuh\"\n");
    for (int i = 0; i < CHAINS; i++) {
        char name[16];
        snprintf(name, sizeof name, "chain%d", i);
        kn__chain_source(out, &chains[i], name);
        kn__text_printf(out,
                        "extern \"C\" __attribute__((visibility(\"default\"))) void run%d(unsigned "
                        "blocks, kn__chain_args a) {\n"
                        "    KN_LAUNCH(chain%d, blocks, 256, 0, a);\n}\n",
                        i, i);
    }
}

static int build(void) {
    char folder[] = "/tmp/knet_chains_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    kn__text source = {0}, command = {0};
    write_sources(&source);
    snprintf(path, sizeof path, "%s/chains.cpp", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(source.data, 1, source.length, f), source.length);
    fclose(f);
    for (int i = 0; i < n_build_args; i++) kn__text_printf(&command, "'%s' ", build_args[i]);
    kn__text_printf(&command, "-shared -fPIC -o %s/chains.so %s", folder, path);
    int status = system(command.data);
    snprintf(path, sizeof path, "%s/chains.so", folder);
    if (status == 0 && !(library = dlopen(path, RTLD_NOW | RTLD_LOCAL))) puts(dlerror());
    kn__text_release(&source);
    kn__text_release(&command);
    snprintf(path, sizeof path, "rm -r %s", folder);
    return system(path) || status;
}

/* --- running both sides --- */

typedef struct run {
    kn_tensor in[KN__CHAIN_OPERANDS], out[KN__CHAIN_STEPS];
    double p[KN__CHAIN_STEPS], q[KN__CHAIN_STEPS];
    void *got[KN__CHAIN_STEPS];
    int shift; /* elements by which all data is misaligned */
} run;

static void *memory_of(kn_dtype dtype, int64_t n, int shift) {
    size_t bytes = kn_dtype_bytes(dtype);
    char *data = aligned_alloc(64, ((size_t)(n + shift) * bytes + 127) / 64 * 64);
    return data + (size_t)shift * bytes;
}

static void memory_free(void *data, kn_dtype dtype, int shift) {
    if (data) free((char *)data - (size_t)shift * kn_dtype_bytes(dtype));
}

static void fill(kn_tensor *t) {
    for (int64_t i = 0; i < t->n; i++) {
        double x = test_random_uniform(-2, 2);
        if (test_random_below(16) == 0) x = (double)test_random_below(3) - 1; /* ties and zeros */
        float f = (float)x;
        switch ((kn_dtype)t->dtype) {
            case KN_F32:
                ((float *)t->data)[i] = f;
                break;
            case KN_F64:
                ((double *)t->data)[i] = x;
                break;
            case KN_F16:
                ((uint16_t *)t->data)[i] = (uint16_t)(0x3000 + test_random_below(0x1400));
                break;
            case KN_BF16:
                memcpy((uint16_t *)t->data + i, (char *)&f + 2, 2);
                break;
            case KN_I64:
                ((int64_t *)t->data)[i] = (int64_t)(x * 50);
                break;
            case KN_I32:
                ((int32_t *)t->data)[i] = (int32_t)(x * 50);
                break;
            case KN_U8:
                ((uint8_t *)t->data)[i] = (uint8_t)(x * 50);
                break;
            case KN_BOOL:
                ((uint8_t *)t->data)[i] = x > 0;
        }
    }
}

static void shape(kn_tensor *t, unsigned dtype, int kind, int k) {
    memset(t, 0, sizeof *t);
    t->dtype = (uint8_t)dtype, t->n_dims = DIMS, t->n = 1;
    for (int d = 0; d < DIMS; d++) {
        bool kept = kind == KN__CHAIN_DENSE || (kind == KN__CHAIN_STRIDED && (k + d) % DIMS);
        t->dim[d] = kept ? dims[d] : 1;
        t->n *= t->dim[d];
    }
}

static void run_make(run *r, const kn__chain *c, int shift) {
    memset(r, 0, sizeof *r);
    r->shift = shift;
    for (int k = 0; k < c->n_operands; k++) {
        shape(&r->in[k], c->dtype[k], c->kind[k], k);
        r->in[k].data = memory_of((kn_dtype)c->dtype[k], r->in[k].n, shift);
        fill(&r->in[k]);
    }
    for (int i = 0; i < c->n_steps; i++) {
        shape(&r->out[i], c->step[i].to, KN__CHAIN_DENSE, 0);
        r->out[i].data = memory_of((kn_dtype)c->step[i].to, N, shift);
        r->got[i] = memory_of((kn_dtype)c->step[i].to, N, shift);
        r->p[i] = 0.5 * (double)(1 + test_random_below(4));
        r->q[i] = r->p[i] + 1;
    }
}

static void run_end(run *r, const kn__chain *c) {
    for (int k = 0; k < c->n_operands; k++)
        memory_free(r->in[k].data, (kn_dtype)c->dtype[k], r->shift);
    for (int i = 0; i < c->n_steps; i++) {
        memory_free(r->out[i].data, (kn_dtype)c->step[i].to, r->shift);
        memory_free(r->got[i], (kn_dtype)c->step[i].to, r->shift);
    }
}

static void one_by_one(run *r, const kn__chain *c) {
    for (int i = 0; i < c->n_steps; i++) {
        const kn__chain_step *s = &c->step[i];
        kn_tensor *in[KN__CHAIN_INPUTS];
        kn_attr_scalars scalars = {r->p[i], r->q[i]};
        kn_op_call call;
        for (int k = 0; k < s->n_in; k++) {
            bool step = s->in[k] < KN__CHAIN_STEPS;
            in[k] = step ? &r->out[s->in[k]] : &r->in[s->in[k] - KN__CHAIN_STEPS];
        }
        kn_op_call_init(&call, (kn_op)s->op, &scalars, in, s->n_in);
        memset(call.out, 0, sizeof call.out);
        call.n_out = kn_op_table[s->op].n_out;
        call.out[s->r] = &r->out[i];
        call.dtype = s->dtype;
        call.device = kn_device_host();
        call.stream = NULL;
        assert_ok(kernel(&call));
    }
}

/* Of a part: the first dimension lies closest. */
static void part_strides(int64_t stride[]) {
    int64_t step = 1;
    for (int d = 0; d < DIMS; d++) {
        stride[d] = step;
        step *= dims[d];
    }
}

/* Where the step's result has element i. */
static size_t place_of(const kn__chain_step *s, size_t i) {
    int64_t stride[DIMS], rest = (int64_t)i, at = 0;
    if (!s->part) return i;
    part_strides(stride);
    for (int d = DIMS - 1; d >= 0; d--) {
        at += rest % dims[d] * stride[d];
        rest /= dims[d];
    }
    return (size_t)at;
}

static void as_a_chain(run *r, const kn__chain *c, int number, unsigned blocks) {
    kn__chain_args a = {.n = N, .wide = r->shift == 0};
    for (int k = 0; k < c->n_operands; k++) {
        a.in[k] = r->in[k].data;
        kn__region_strides(a.stride[k], &r->in[k], &r->out[0]);
    }
    for (int d = 0; d < DIMS; d++) a.dim[d] = (uint32_t)dims[d];
    for (int i = 0; i < c->n_steps; i++) {
        if (c->step[i].part) part_strides(a.part_stride[c->step[i].part - 1]);
        kn_dtype dtype = (kn_dtype)c->step[i].dtype;
        a.out[i] = c->step[i].stored ? r->got[i] : NULL;
        a.p[i].real = r->p[i], a.q[i].real = r->q[i];
        if (!(KN_CLASS_INDEX >> dtype & 1)) continue;
        a.p[i].integer = kn__integer_of(r->p[i], dtype);
        a.q[i].integer = kn__integer_of(r->q[i], dtype);
    }
    char name[16];
    snprintf(name, sizeof name, "run%d", number);
    void (*launch)(unsigned, kn__chain_args) = NULL;
    void *symbol = dlsym(library, name);
    memcpy(&launch, &symbol, sizeof launch);
    assert_non_null(launch);
    launch(blocks, a);
}

/* The sign and the payload of a NaN are the host's compiler's. */
static bool is_nan(const void *x, kn_dtype dtype) {
    float f = 0;
    uint16_t half;
    memcpy(&half, x, dtype == KN_F16 || dtype == KN_BF16 ? 2 : 0);
    switch (dtype) {
        case KN_F32:
            memcpy(&f, x, sizeof f);
            return isnan(f);
        case KN_F64: {
            double d;
            memcpy(&d, x, sizeof d);
            return isnan(d);
        }
        case KN_F16:
            return (half & 0x7FFF) > 0x7C00;
        case KN_BF16:
            return (half & 0x7FFF) > 0x7F80;
        default:
            return false;
    }
}

static int differing(const run *r, const kn__chain *c) {
    int n = 0;
    for (int i = 0; i < c->n_steps; i++) {
        if (!c->step[i].stored) continue;
        kn_dtype dtype = (kn_dtype)c->step[i].to;
        size_t bytes = kn_dtype_bytes(dtype);
        for (size_t at = 0; at < N * bytes; at += bytes) {
            const char *got = (char *)r->got[i] + place_of(&c->step[i], at / bytes) * bytes,
                       *want = (char *)r->out[i].data + at;
            if (memcmp(got, want, bytes) == 0) continue;
            if (is_nan(got, dtype) && is_nan(want, dtype)) continue;
            if (!n++)
                print_error("step %d, %s of %s, element %zu\n", i, kn_op_name((kn_op)c->step[i].op),
                            kn_dtype_name(dtype), at / bytes);
        }
    }
    return n;
}

static void all_equal(int shift, unsigned blocks) {
    int n_failed = 0;
    for (int i = 0; i < CHAINS; i++) {
        run r;
        run_make(&r, &chains[i], shift);
        one_by_one(&r, &chains[i]);
        as_a_chain(&r, &chains[i], i, blocks);
        int n = differing(&r, &chains[i]);
        if (n) print_error("chain %d: %d elements differ\n", i, n);
        n_failed += n != 0;
        run_end(&r, &chains[i]);
    }
    assert_int_equal(n_failed, 0);
}

static void chains_equal_single_ops(void **state) {
    (void)state;
    all_equal(0, 2);
}
static void chains_on_unaligned_operands_equal_single_ops(void **state) {
    (void)state;
    all_equal(1, 2);
}
static void one_block_does_the_work_of_all(void **state) {
    (void)state;
    kn_emulate_order.threads_reversed = 1;
    all_equal(0, 1);
}

int main(int argc, char **argv) {
    build_args = argv + 1, n_build_args = argc - 1;
    for (int i = 0; i < CHAINS; i++) chains[i] = chain_random(2 + i % 15, i % 3 ? 0 : DIMS);
    for (kn_dtype t = KN_I64; t <= KN_U8; t++) { /* the one row of integers with scalars */
        kn__chain *c = &chains[t - KN_I64];
        memset(c, 0, sizeof *c);
        assert_true(chain_add(c, KN_OP_neg, t, 0, true));
        assert_true(chain_add(c, KN_OP_clamp, t, 0, true));
    }
    if (argc < 2 || build() || !library) {
        fputs("the chains' sources can't be built\n", stderr);
        return 1;
    }
    return RUN_TESTS(TEST(chains_equal_single_ops),
                     TEST(chains_on_unaligned_operands_equal_single_ops),
                     TEST(one_block_does_the_work_of_all));
}
