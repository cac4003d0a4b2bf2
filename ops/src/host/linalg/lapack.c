/* Singular values and eigenvalues by LAPACK, loaded when they are first needed: few programs want
 * them, and which LAPACK is there (reference, OpenBLAS, MKL) is the system's choice. Each call runs
 * on one thread; matrices are spread over threads. LAPACK thinks in columns: our a is its aᵀ. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include <knet/prof_call.h>

#include "host/base/slots.h"
#include "host/product/gemm.h"

/* Fortran passes addresses, and the lengths of strings at the end. */
typedef void (*gesdd_fn)(const char *job, const int *m, const int *n, void *a, const int *lda,
                         void *s, void *u, const int *ldu, void *vt, const int *ldvt, void *work,
                         const int *lwork, int *iwork, int *info, size_t job_bytes);
typedef void (*syevd_fn)(const char *job, const char *half, const int *n, void *a, const int *lda,
                         void *w, void *work, const int *lwork, int *iwork, const int *liwork,
                         int *info, size_t job_bytes, size_t half_bytes);

static struct {
    pthread_once_t once;
    void *library;
    char why[256];
    gesdd_fn gesdd[2]; /* f32, f64 */
    syevd_fn syevd[2];
    int (*threads_get)(void); /* OpenBLAS with threads of its own; NULL elsewhere */
    void (*threads_set)(int n);
} lapack = {.once = PTHREAD_ONCE_INIT};

static void find(void *out, const char *name) {
    void *found = dlsym(lapack.library, name);
    memcpy(out, &found, sizeof found); /* ISO C has no cast from data to functions */
    if (!found && !lapack.why[0]) strncpy(lapack.why, name, sizeof lapack.why - 1);
}

static void load(void) {
    static const char *const names[] = {"liblapack.so.3", "libopenblas.so.0", "liblapack.so"};
    for (size_t i = 0; !lapack.library && i < sizeof names / sizeof *names; i++)
        lapack.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lapack.library) {
        strncpy(lapack.why, "liblapack.so.3 is not there", sizeof lapack.why - 1);
        return;
    }
    find(&lapack.gesdd[0], "sgesdd_"), find(&lapack.gesdd[1], "dgesdd_");
    find(&lapack.syevd[0], "ssyevd_"), find(&lapack.syevd[1], "dsyevd_");
    void *set = dlsym(lapack.library, "openblas_set_num_threads");
    void *get = dlsym(lapack.library, "openblas_get_num_threads");
    if (set && get) {
        memcpy(&lapack.threads_set, &set, sizeof set);
        memcpy(&lapack.threads_get, &get, sizeof get);
    }
}

static kn_status lapack_load(const char *op) {
    pthread_once(&lapack.once, load);
    if (!lapack.why[0]) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "kn_%s: needs LAPACK (%s); on Debian: apt-get install liblapack3, or faster "
                   "libopenblas0-openmp",
                   op, lapack.why);
}

/* --- one matrix each --- */

typedef struct factor factor;
struct factor {
    kn_op_call *call;
    void (*run)(factor *f, int64_t i, char *space);
    int64_t n_matrices;
    int m, n, k, lwork; /* rows, columns, the smaller one */
    bool is_double;
    size_t bytes, space_bytes, iwork_at, work_at;
    kn__slots slots;
};

static void *part(const kn_tensor *t, int64_t i, int64_t elements) {
    return t ? (char *)t->data + (size_t)(i * elements) * kn_dtype_bytes((kn_dtype)t->dtype) : NULL;
}

static void one(void *ctx, int64_t i) {
    factor *f = ctx;
    char *slot = kn__slot_take(&f->slots);
    f->run(f, i, slot);
    kn__slot_give(&f->slots, slot);
}

static kn_status run_all(factor *f, const char *label, int64_t iwork) {
    f->iwork_at = ((size_t)f->m * (size_t)f->n * f->bytes + 63) / 64 * 64;
    f->work_at = f->iwork_at + ((size_t)iwork * sizeof(int) + 63) / 64 * 64;
    f->space_bytes = f->work_at + (size_t)f->lwork * f->bytes;
    KN_TRY(kn__slots_create(&f->slots, f->call, f->n_matrices, f->space_bytes));
    int threads = lapack.threads_set ? lapack.threads_get() : 0;
    if (threads > 1) lapack.threads_set(1);
    kn_scope scope = kn_scope_begin_static(label);
    kn__library_for(f->slots.n, f->n_matrices, one, f);
    kn_scope_end(&scope);
    if (threads > 1) lapack.threads_set(threads);
    return KN_OK;
}

static kn_status factor_make(factor *f, kn_op_call *call) {
    const kn_tensor *a = call->in[0];
    KN_TRY(lapack_load(kn_op_name((kn_op)call->op)));
    int64_t m = a->dim[a->n_dims - 2], n = a->dim[a->n_dims - 1];
    if (m > 20000 || n > 20000) { /* work space is counted in 32 bits */
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s: a matrix of %lld by %lld; the limit is 20000",
                       kn_op_name((kn_op)call->op), (long long)m, (long long)n);
    }
    *f = (factor){.call = call,
                  .n_matrices = a->n / (m * n),
                  .m = (int)m,
                  .n = (int)n,
                  .k = (int)(m < n ? m : n),
                  .is_double = a->dtype == KN_F64,
                  .bytes = kn_dtype_bytes((kn_dtype)a->dtype)};
    return KN_OK;
}

/* A query's answer; f32 may have rounded it down. */
static int asked_size(const factor *f, const char room[8]) {
    double d;
    float s;
    memcpy(&d, room, sizeof d);
    memcpy(&s, room, sizeof s);
    double size = f->is_double ? d : (double)s * (1 + 0x1p-20);
    return (int)size + 1;
}

static void fill_nan(void *to, int64_t n, bool is_double) {
    for (int64_t i = 0; to && i < n; i++) {
        if (is_double)
            ((double *)to)[i] = __builtin_nan("");
        else
            ((float *)to)[i] = __builtin_nanf("");
    }
}

/* Of the matrix, or of its lower half: LAPACK hangs on infinities, or ends the process, and solves
 * some matrices as if a NaN were a number. */
static bool is_finite(const factor *f, const void *a, bool lower) {
    for (int64_t r = 0; r < f->m; r++) {
        const int64_t first = r * f->n, n = lower ? r + 1 : f->n;
        for (int64_t i = first; i < first + n; i++)
            if (f->is_double ? !isfinite(((const double *)a)[i]) : !isfinite(((const float *)a)[i]))
                return false;
    }
    return true;
}

/* --- svd: aᵀ = V·s·Uᵀ: its left vectors are our Vt row by row, its right ones our U --- */

static void svd_one(factor *f, int64_t i, char *space) {
    const kn_tensor *a = f->call->in[0];
    int info = 0;
    int64_t m = f->m, n = f->n, k = f->k;
    memcpy(space, part(a, i, m * n), (size_t)(m * n) * f->bytes);
    void *u = part(f->call->out[0], i, m * k), *s = part(f->call->out[1], i, k);
    void *vt = part(f->call->out[2], i, k * n);
    bool finite = is_finite(f, space, false);
    if (finite) {
        lapack.gesdd[f->is_double](u ? "S" : "N", &f->n, &f->m, space, &f->n, s, vt, &f->n, u,
                                   &f->k, space + f->work_at, &f->lwork,
                                   (int *)(void *)(space + f->iwork_at), &info, 1);
    }
    if (finite && !info) return;
    fill_nan(u, m * k, f->is_double); /* it did not converge, or was not called */
    fill_nan(s, k, f->is_double), fill_nan(vt, k * n, f->is_double);
}

kn_status kn__host_svd(kn_op_call *call) {
    factor f;
    bool vectors = call->out[0] != NULL;
    if (vectors != (call->out[2] != NULL) || !call->out[1]) {
        return KN_FAIL(KN_ERR_INVALID, "kn_svd: u and vt go together, and s is always made");
    }
    KN_TRY(factor_make(&f, call));
    char room[8];
    int info = 0, ask = -1, unused = 0;
    f.run = svd_one;
    const char *label = f.is_double ? "dgesdd" : "sgesdd";
    KN_PROF_DO(label,
               lapack.gesdd[f.is_double](vectors ? "S" : "N", &f.n, &f.m, room, &f.n, room, room,
                                         &f.n, room, &f.k, room, &ask, &unused, &info, 1));
    f.lwork = asked_size(&f, room);
    return run_all(&f, label, 8 * (int64_t)f.k);
}

/* --- eigh: our lower half is its upper one; its vectors are rows of ours --- */

static void transpose_in_place(char *a, int64_t n, size_t bytes) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) {
            char room[8], *p = a + (size_t)(i * n + j) * bytes,
                          *q = a + (size_t)(j * n + i) * bytes;
            memcpy(room, p, bytes);
            memcpy(p, q, bytes);
            memcpy(q, room, bytes);
        }
}

static void eigh_one(factor *f, int64_t i, char *space) {
    int64_t n = f->n;
    int info = 0, liwork = 5 * f->n + 3;
    char *v = f->call->out[1] ? part(f->call->out[1], i, n * n) : space;
    void *w = part(f->call->out[0], i, n);
    memcpy(v, part(f->call->in[0], i, n * n), (size_t)(n * n) * f->bytes);
    bool finite = is_finite(f, v, true);
    if (finite) {
        lapack.syevd[f->is_double](f->call->out[1] ? "V" : "N", "U", &f->n, v, &f->n, w,
                                   space + f->work_at, &f->lwork,
                                   (int *)(void *)(space + f->iwork_at), &liwork, &info, 1, 1);
    }
    if (!finite || info) fill_nan(v, n * n, f->is_double), fill_nan(w, n, f->is_double);
    if (f->call->out[1]) transpose_in_place(v, n, f->bytes);
}

kn_status kn__host_eigh(kn_op_call *call) {
    factor f;
    KN_TRY(factor_make(&f, call));
    f.run = eigh_one;
    f.lwork = 1 + 6 * f.n + 2 * f.n * f.n; /* the documented least is enough for its speed */
    return run_all(&f, f.is_double ? "dsyevd" : "ssyevd", 5 * (int64_t)f.n + 3);
}
