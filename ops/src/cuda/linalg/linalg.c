/* Factorisations and solvers of all but small matrices (small.h) by cuSOLVER, which is loaded when
 * one is first needed. It thinks in columns: our a is its aᵀ. Matrices of a batch come one after
 * the other. Nothing is read back: results of a matrix that it could not factor become NaN on the
 * device. (cuSOLVER's gesvd and syevd may wait for the stream by themselves.)
 */
#include <cusolverDn.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "cuda/linalg/small.h"
#include "factors.h"

/* --- the library --- */

/* clang-format off */
#define PAIRS(X) \
    X(potrf_bufferSize) X(potrf) X(getrf_bufferSize) X(getrf) X(getrs) X(geqrf_bufferSize) \
    X(geqrf) X(orgqr_bufferSize) X(orgqr) X(syevd_bufferSize) X(syevd) X(gesvd_bufferSize) X(gesvd)
/* clang-format on */

static struct {
    pthread_mutex_t mutex; /* handles carry a stream */
    void *library;
    const char *missing; /* NULL: all functions are there */
    __typeof__(&cusolverDnCreate) create;
    __typeof__(&cusolverDnSetStream) set_stream;
#define DECLARE(name)                                                                              \
    __typeof__(&cusolverDnS##name) S##name;                                                        \
    __typeof__(&cusolverDnD##name) D##name;
    PAIRS(DECLARE)
    cusolverDnHandle_t handle[KN__GPUS_MAX];
} solver = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void find(void *out, const char *name) {
    void *found = dlsym(solver.library, name);
    memcpy(out, &found, sizeof found);
    if (!found) solver.missing = name;
}

static kn_status load(void) {
    static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"};
    if (solver.library) return KN_OK;
    for (size_t i = 0; !solver.library && i < sizeof names / sizeof *names; i++)
        solver.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!solver.library) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "libcusolver.so.12 can't be loaded: %s", dlerror());
    }
    find(&solver.create, "cusolverDnCreate");
    find(&solver.set_stream, "cusolverDnSetStream");
#define FIND(name)                                                                                 \
    find(&solver.S##name, "cusolverDnS" #name);                                                    \
    find(&solver.D##name, "cusolverDnD" #name);
    PAIRS(FIND)
    return KN_OK;
}

static kn_status status_of(cusolverStatus_t error, const char *what) {
    if (error == CUSOLVER_STATUS_SUCCESS) return KN_OK;
    return KN_FAIL(error == CUSOLVER_STATUS_ALLOC_FAILED ? KN_ERR_OOM : KN_ERR_CUDA,
                   "%s: cuSOLVER's status %d", what, (int)error);
}

#define SOLVER(label, ...) status_of(KN_PROF_CALL(label, (__VA_ARGS__)), label)
/* cusolverDnS<name> or cusolverDnD<name>, by the dtype of the job. */
#define TYPED(j, name, ...)                                                                        \
    ((j)->is_double ? SOLVER("cusolverDnD" #name, solver.D##name(__VA_ARGS__))                     \
                    : SOLVER("cusolverDnS" #name, solver.S##name(__VA_ARGS__)))

/* --- a job: an op on a batch of matrices --- */

typedef struct job {
    kn_op_call *call;
    cusolverDnHandle_t handle;
    bool is_double;
    kn_dtype dtype;
    size_t bytes;
    int64_t batch;
    int m, n, k, lwork;
    char *work;   /* of the library */
    int *info;    /* [batch] */
    char *matrix; /* of one matrix, and what follows it */
} job;

static kn_status handle_of(cusolverDnHandle_t *out, const kn_op_call *call) {
    int gpu = kn__gpu_index(call->device);
    KN_TRY(load());
    if (solver.missing) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "libcusolver has no %s", solver.missing);
    }
    if (!solver.handle[gpu]) KN_TRY(SOLVER("cusolverDnCreate", solver.create(&solver.handle[gpu])));
    *out = solver.handle[gpu];
    return SOLVER("cusolverDnSetStream", solver.set_stream(*out, call->stream));
}

static kn_status job_make(job *j, kn_op_call *call) {
    const kn_tensor *a = call->in[0];
    int64_t m = a->dim[a->n_dims - 2], n = a->dim[a->n_dims - 1];
    if (m > INT32_MAX / 2 || n > INT32_MAX / 2) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s: matrices of %lld by %lld are too large",
                       kn_op_name((kn_op)call->op), (long long)m, (long long)n);
    }
    *j = (job){.call = call,
               .dtype = (kn_dtype)a->dtype,
               .is_double = a->dtype == KN_F64,
               .bytes = kn_dtype_bytes((kn_dtype)a->dtype),
               .batch = m && n ? a->n / (m * n) : 0,
               .m = (int)m,
               .n = (int)n,
               .k = (int)(m < n ? m : n)};
    return handle_of(&j->handle, call);
}

/* Work space: lwork elements, info, and `elements` more. */
static kn_status job_space(job *j, int64_t elements) {
    void *work = NULL, *info = NULL, *matrix = NULL;
    KN_TRY(kn__work(&work, j->call, (size_t)(j->lwork + 1) * j->bytes));
    KN_TRY(kn__work(&info, j->call, (size_t)(j->batch + 1) * sizeof(int)));
    if (elements) KN_TRY(kn__work(&matrix, j->call, (size_t)elements * j->bytes));
    j->work = work, j->info = info, j->matrix = matrix;
    return KN_OK;
}

static char *at(const job *j, const void *base, int64_t elements) {
    return (char *)(uintptr_t)base + (size_t)elements * j->bytes;
}

static kn_status copy(const job *j, void *to, const void *from, int64_t elements) {
    return KN__CUDA(cudaMemcpyAsync, to, from, (size_t)elements * j->bytes,
                    cudaMemcpyDeviceToDevice, j->call->stream);
}

/* to[r·to_row + c] = from[r + c·from_column] for rows × columns elements: from columns to rows. */
static kn_status to_rows(const job *j, void *to, int64_t to_row, const void *from,
                         int64_t from_column, int64_t rows, int64_t columns) {
    kn__copy p = {.element_bytes = j->bytes, .out = to, .in = from};
    p.region = (kn__operand_region){.n = rows * columns, .n_dims = 2, .dim = {rows, columns}};
    p.region.stride[0][0] = to_row, p.region.stride[0][1] = 1;
    p.region.stride[1][0] = 1, p.region.stride[1][1] = from_column;
    return KN__CUDA_NAMED("copy_kernel", kn__launch_copy(&p, j->call->stream));
}
/* The other way round. */
static kn_status to_columns(const job *j, void *to, int64_t to_column, const void *from,
                            int64_t from_row, int64_t rows, int64_t columns) {
    return to_rows(j, to, to_column, from, from_row, columns, rows);
}

static kn_status triangle(const job *j, void *a, int64_t batch, int64_t rows, int64_t columns,
                          bool upper) {
    return KN__CUDA_NAMED("tri_scale_kernel",
                          kn__launch_tri_scale(a, a, j->dtype, batch, rows, columns, upper ? 0 : 1,
                                               1, upper ? 1 : 0, j->call->stream));
}

static kn_status spoil(const job *j, int r, int64_t elements) {
    return KN__CUDA_NAMED("spoil_kernel",
                          kn__launch_spoil(j->call->out[r]->data, j->dtype, j->batch, elements,
                                           j->info, j->call->stream));
}

typedef kn_status (*body_fn)(job *j);

/* The library's handles serve one call at a time. */
static kn_status run(kn_op_call *call, body_fn body) {
    job j;
    KN__CANCEL_LATER();
    pthread_mutex_lock(&solver.mutex);
    kn_status status = job_make(&j, call);
    if (status == KN_OK) status = body(&j);
    pthread_mutex_unlock(&solver.mutex);
    return status;
}

/* --- Cholesky: by columns, so that our lower half is its lower one --- */

static kn_status transpose(const job *j, void *to, const void *from) {
    return KN__CUDA_NAMED("transpose_kernel", kn__launch_transpose(to, from, j->bytes, j->batch,
                                                                   j->n, j->n, j->call->stream));
}

static kn_status cholesky(job *j) {
    const kn_tensor *a = j->call->in[0], *l = j->call->out[0];
    int64_t size = (int64_t)j->n * j->n;
    KN_TRY(TYPED(j, potrf_bufferSize, j->handle, CUBLAS_FILL_MODE_LOWER, j->n, l->data, j->n,
                 &j->lwork));
    KN_TRY(job_space(j, a->n));
    KN_TRY(transpose(j, j->matrix, a->data));
    for (int64_t i = 0; i < j->batch; i++) {
        void *to = at(j, j->matrix, i * size), *work = j->work;
        KN_TRY(TYPED(j, potrf, j->handle, CUBLAS_FILL_MODE_LOWER, j->n, to, j->n, work, j->lwork,
                     j->info + i));
    }
    KN_TRY(transpose(j, l->data, j->matrix));
    KN_TRY(triangle(j, l->data, j->batch, j->n, j->n, false));
    return spoil(j, 0, size);
}

kn_status kn__cuda_cholesky(kn_op_call *call) {
    return kn__is_small(call) ? kn__small_cholesky(call) : run(call, cholesky);
}

/* --- LU of aᵀ --- */

typedef struct lu { /* factors.h */
    char *a;
    int *pivot;
} lu;

static int64_t factors_size(const job *j) { return ((int64_t)j->n + 1) * j->n; }

static void lu_place(lu *f, const job *j, const void *factors, int64_t i) {
    f->a = at(j, factors, i * factors_size(j));
    f->pivot = (int *)(void *)at(j, f->a, (int64_t)j->n * j->n);
}

/* Space of one matrix's factors, and for `extra` elements after them. */
static kn_status lu_make(lu *f, job *j, int64_t extra) {
    void *probe = j->call->in[0]->data;
    KN_TRY(TYPED(j, getrf_bufferSize, j->handle, j->n, j->n, probe, j->n, &j->lwork));
    KN_TRY(job_space(j, factors_size(j) + extra));
    lu_place(f, j, j->matrix, 0);
    return KN_OK;
}

static kn_status lu_run(lu *f, const job *j, int64_t i) {
    const kn_tensor *given = kn__factors_in(j->call), *kept = kn__factors_out(j->call);
    int64_t size = (int64_t)j->n * j->n;
    if (given != KN_NONE) {
        lu_place(f, j, given->data, i);
        if (!kept) return KN_OK;
        return copy(j, at(j, kept->data, i * factors_size(j)), f->a, factors_size(j));
    }
    if (kept) lu_place(f, j, kept->data, i);
    void *a = f->a, *work = j->work;
    KN_TRY(copy(j, a, at(j, j->call->in[0]->data, i * size), size));
    return TYPED(j, getrf, j->handle, j->n, j->n, a, j->n, work, f->pivot, j->info + i);
}

static kn_status solve(job *j) {
    const kn_attr_solve *attr = j->call->attr;
    const kn_tensor *b = j->call->in[1];
    int columns = (int)b->dim[b->n_dims - 1];
    int64_t size = (int64_t)j->n * columns;
    lu f;
    KN_TRY(lu_make(&f, j, size));
    void *x = at(j, j->matrix, factors_size(j));
    for (int64_t i = 0; i < j->batch; i++) {
        KN_TRY(lu_run(&f, j, i));
        if (columns == 0) continue;
        void *a = f.a;
        KN_TRY(to_columns(j, x, j->n, at(j, b->data, i * size), columns, j->n, columns));
        KN_TRY(TYPED(j, getrs, j->handle, attr->trans ? CUBLAS_OP_N : CUBLAS_OP_T, j->n, columns, a,
                     j->n, f.pivot, x, j->n, j->info + i));
        KN_TRY(to_rows(j, at(j, j->call->out[0]->data, i * size), columns, x, j->n, j->n, columns));
    }
    return KN_OK;
}

kn_status kn__cuda_solve(kn_op_call *call) {
    return kn__is_small(call) ? kn__small_solve(call) : run(call, solve);
}

/* aᵀ·x = 1 by columns: x is a⁻¹ by rows. */
static kn_status inverse(job *j) {
    const kn_tensor *y = j->call->out[0];
    lu f;
    KN_TRY(lu_make(&f, j, 0));
    KN_TRY(KN__CUDA_NAMED("identity_kernel",
                          kn__launch_identity(y->data, j->dtype, j->batch, j->n, j->call->stream)));
    for (int64_t i = 0; i < j->batch; i++) {
        void *x = at(j, y->data, i * j->n * j->n);
        KN_TRY(lu_run(&f, j, i));
        void *a = f.a;
        KN_TRY(TYPED(j, getrs, j->handle, CUBLAS_OP_N, j->n, j->n, a, j->n, f.pivot, x, j->n,
                     j->info + i));
    }
    return KN_OK;
}

kn_status kn__cuda_inverse(kn_op_call *call) {
    return kn__is_small(call) ? kn__small_inverse(call) : run(call, inverse);
}

static kn_status det_of(const lu *f, const job *j, int64_t i) {
    kn_tensor *const *out = j->call->out;
    bool logs = j->call->op == KN_OP_slogdet;
    void *first = out[0] ? at(j, out[0]->data, i) : NULL;
    void *sign = logs && out[1] ? at(j, out[1]->data, i) : NULL;
    return KN__CUDA_NAMED("lu_det_kernel",
                          kn__launch_lu_det(logs ? NULL : first, logs ? first : NULL, sign, f->a,
                                            j->dtype, 1, j->n, j->call->stream));
}

static kn_status det(job *j) {
    lu f;
    if (j->n == 0) { /* the empty product: as if factored */
        for (int r = 0; r < 2; r++) {
            if (!j->call->out[r] || (r && j->call->op != KN_OP_slogdet)) continue;
            double one = 1;
            float one_f = 1;
            uint64_t bits = 0;
            bool zero = j->call->op == KN_OP_slogdet && r == 0;
            memcpy(&bits, j->is_double ? (void *)&one : (void *)&one_f, j->bytes);
            KN_TRY(KN__CUDA_NAMED("fill_kernel",
                                  kn__launch_fill(j->call->out[r]->data, j->bytes, zero ? 0 : bits,
                                                  j->call->out[r]->n, j->call->stream)));
        }
        return KN_OK;
    }
    KN_TRY(lu_make(&f, j, 0));
    for (int64_t i = 0; i < j->batch; i++) {
        KN_TRY(lu_run(&f, j, i));
        KN_TRY(det_of(&f, j, i));
    }
    return KN_OK;
}

kn_status kn__cuda_det(kn_op_call *call) {
    return kn__is_small(call) ? kn__small_det(call) : run(call, det);
}

/* --- QR --- */

static kn_status qr_sizes(job *j) {
    int more = 0;
    void *probe = j->call->in[0]->data;
    KN_TRY(TYPED(j, geqrf_bufferSize, j->handle, j->m, j->n, probe, j->m, &j->lwork));
    KN_TRY(TYPED(j, orgqr_bufferSize, j->handle, j->m, j->k, j->k, probe, j->m, probe, &more));
    if (more > j->lwork) j->lwork = more;
    return KN_OK;
}

static kn_status qr_one(const job *j, int64_t i) {
    kn_tensor *const *out = j->call->out;
    int64_t size = (int64_t)j->m * j->n;
    void *a = j->matrix, *tau = at(j, a, size), *work = j->work;
    KN_TRY(to_columns(j, a, j->m, at(j, j->call->in[0]->data, i * size), j->n, j->m, j->n));
    KN_TRY(TYPED(j, geqrf, j->handle, j->m, j->n, a, j->m, tau, work, j->lwork, j->info + i));
    if (out[1]) {
        void *r = at(j, out[1]->data, i * j->k * j->n);
        KN_TRY(to_rows(j, r, j->n, a, j->m, j->k, j->n));
    }
    if (!out[0]) return KN_OK;
    KN_TRY(TYPED(j, orgqr, j->handle, j->m, j->k, j->k, a, j->m, tau, work, j->lwork, j->info + i));
    return to_rows(j, at(j, out[0]->data, i * j->m * j->k), j->k, a, j->m, j->m, j->k);
}

static kn_status qr(job *j) {
    KN_TRY(qr_sizes(j));
    KN_TRY(job_space(j, (int64_t)j->m * j->n + j->k));
    for (int64_t i = 0; i < j->batch; i++) KN_TRY(qr_one(j, i));
    return j->call->out[1] ? triangle(j, j->call->out[1]->data, j->batch, j->k, j->n, true) : KN_OK;
}

kn_status kn__cuda_qr(kn_op_call *call) { return run(call, qr); }

/* The two below wait for the stream by themselves, which would spoil a capture of it. */
static kn_status not_captured(const job *j, const char *name) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    KN_TRY(KN__CUDA(cudaStreamIsCapturing, j->call->stream, &status));
    if (status == cudaStreamCaptureStatusNone) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "%s: cuSOLVER waits for the stream, so it can't be captured into a graph", name);
}

/* --- eigh: vectors come as its columns, our rows --- */

static kn_status eigh(job *j) {
    kn_tensor *const *out = j->call->out;
    int64_t size = (int64_t)j->n * j->n;
    void *probe = j->call->in[0]->data;
    KN_TRY(not_captured(j, "kn_eigh"));
    KN_TRY(TYPED(j, syevd_bufferSize, j->handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER,
                 j->n, probe, j->n, probe, &j->lwork));
    KN_TRY(job_space(j, size));
    for (int64_t i = 0; i < j->batch; i++) {
        void *a = j->matrix, *work = j->work, *w = at(j, out[0]->data, i * j->n);
        KN_TRY(copy(j, a, at(j, j->call->in[0]->data, i * size), size));
        KN_TRY(TYPED(j, syevd, j->handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, j->n, a,
                     j->n, w, work, j->lwork, j->info + i));
        if (out[1]) KN_TRY(to_rows(j, at(j, out[1]->data, i * size), j->n, a, j->n, j->n, j->n));
    }
    KN_TRY(spoil(j, 0, j->n));
    return out[1] ? spoil(j, 1, size) : KN_OK;
}

kn_status kn__cuda_eigh(kn_op_call *call) { return run(call, eigh); }

/* --- svd: gesvd wants at least as many rows as columns, so a goes in as it lies (aᵀ) where it is
 * wide, else transposed --- */

static kn_status svd_one(const job *j, int64_t i, bool wide) {
    kn_tensor *const *out = j->call->out;
    int64_t size = (int64_t)j->m * j->n, u_size = (int64_t)j->m * j->k,
            v_size = (int64_t)j->k * j->n;
    void *a = j->matrix, *work = j->work;
    char *own = at(j, a, size);
    void *s = at(j, out[1]->data, i * j->k), *from = at(j, j->call->in[0]->data, i * size);
    if (!out[0]) {
        KN_TRY(wide ? copy(j, a, from, size) : to_columns(j, a, j->m, from, j->n, j->m, j->n));
        int rows = wide ? j->n : j->m, columns = wide ? j->m : j->n;
        return TYPED(j, gesvd, j->handle, 'N', 'N', rows, columns, a, rows, s, NULL, rows, NULL,
                     columns, work, j->lwork, NULL, j->info + i);
    }
    void *u = at(j, out[0]->data, i * u_size), *vt = at(j, out[2]->data, i * v_size);
    if (wide) {
        KN_TRY(copy(j, a, from, size));
        return TYPED(j, gesvd, j->handle, 'S', 'S', j->n, j->m, a, j->n, s, vt, j->n, u, j->k, work,
                     j->lwork, NULL, j->info + i);
    }
    void *u_columns = own, *vt_columns = at(j, own, u_size);
    KN_TRY(to_columns(j, a, j->m, from, j->n, j->m, j->n));
    KN_TRY(TYPED(j, gesvd, j->handle, 'S', 'S', j->m, j->n, a, j->m, s, u_columns, j->m, vt_columns,
                 j->k, work, j->lwork, NULL, j->info + i));
    KN_TRY(to_rows(j, u, j->k, u_columns, j->m, j->m, j->k));
    return to_rows(j, vt, j->n, vt_columns, j->k, j->k, j->n);
}

static kn_status svd(job *j) {
    bool wide = j->n >= j->m, vectors = j->call->out[0] != NULL;
    KN_TRY(not_captured(j, "kn_svd"));
    if (vectors != (j->call->out[2] != NULL) || !j->call->out[1]) {
        return KN_FAIL(KN_ERR_INVALID, "kn_svd: u and vt go together, and s is always made");
    }
    int64_t u_size = (int64_t)j->m * j->k, v_size = (int64_t)j->k * j->n;
    KN_TRY(
        TYPED(j, gesvd_bufferSize, j->handle, wide ? j->n : j->m, wide ? j->m : j->n, &j->lwork));
    KN_TRY(job_space(j, (int64_t)j->m * j->n + (wide ? 0 : u_size + v_size)));
    for (int64_t i = 0; i < j->batch; i++) KN_TRY(svd_one(j, i, wide));
    KN_TRY(spoil(j, 1, j->k));
    if (!vectors) return KN_OK;
    KN_TRY(spoil(j, 0, u_size));
    return spoil(j, 2, v_size);
}

kn_status kn__cuda_svd(kn_op_call *call) { return run(call, svd); }
