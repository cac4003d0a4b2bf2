/* Checks of the collectives that any transport must pass: on threads and under mpirun. */
#ifndef COLLECTIVE_CASES_H
#define COLLECTIVE_CASES_H

#include <knet/ops.h>

#include "ranks_test.h"

/* A value of element i on a rank; sums of them are exact in f32. */
static double value_at(int rank, int64_t i) { return (double)((i * 7 + rank * 13) % 61 - 30); }

static double combined_at(int size, int64_t i, kn_comm_op op) {
    double sum = value_at(0, i);
    for (int r = 1; r < size; r++) {
        double v = value_at(r, i);
        if (op == KN_COMM_MAX)
            sum = v > sum ? v : sum;
        else if (op == KN_COMM_MIN)
            sum = v < sum ? v : sum;
        else
            sum += v;
    }
    return op == KN_COMM_MEAN ? sum / size : sum;
}

static double read_at(const void *data, kn_dtype dtype, int64_t i) {
    switch (dtype) {
        case KN_F32:
            return (double)((const float *)data)[i];
        case KN_F64:
            return ((const double *)data)[i];
        case KN_I64:
            return (double)((const int64_t *)data)[i];
        case KN_I32:
            return ((const int32_t *)data)[i];
        default:
            return ((const uint8_t *)data)[i];
    }
}

static void write_at(void *data, kn_dtype dtype, int64_t i, double x) {
    switch (dtype) {
        case KN_F32:
            ((float *)data)[i] = (float)x;
            break;
        case KN_F64:
            ((double *)data)[i] = x;
            break;
        case KN_I64:
            ((int64_t *)data)[i] = (int64_t)x;
            break;
        case KN_I32:
            ((int32_t *)data)[i] = (int32_t)x;
            break;
        default:
            ((uint8_t *)data)[i] = (uint8_t)x;
    }
}

static kn_tensor *filled(kn_comm *comm, kn_dtype dtype, kn_shape shape) {
    kn_tensor *t = kn_cast(kn_zeros(shape), dtype);
    void *data = t && kn_tensor_numel(t) ? kn_data_mut(t) : NULL;
    for (int64_t i = 0; data && i < kn_tensor_numel(t); i++)
        write_at(data, dtype, i, value_at(kn_comm_rank(comm), i) + (dtype == KN_U8 ? 30 : 0));
    return t;
}

static const int64_t sizes[] = {0, 1, 17, 1023, 4096, 4099, 70001, 300007};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static const char *all_reduce_case(kn_comm *comm, kn_dtype dtype, kn_comm_op op, int64_t n) {
    KN_FRAME();
    kn_tensor *t = filled(comm, dtype, KN_SHAPE(n));
    int size = kn_comm_size(comm);
    RANK_OK(kn_comm_all_reduce(comm, t, op));
    const void *data = n ? kn_data(t) : NULL;
    double shift = dtype != KN_U8 ? 0 : op == KN_COMM_SUM ? 30.0 * size : 30;
    for (int64_t i = 0; i < n; i++) {
        double want = combined_at(size, i, op) + shift;
        if (dtype == KN_U8) want = (double)(uint8_t)(int)want;
        double got = read_at(data, dtype, i);
        RANK_CHECK(op == KN_COMM_MEAN ? got - want < 1e-4 && want - got < 1e-4 : got == want);
    }
    return NULL;
}

static const char *check_all_reduce(kn_comm *comm, void *ctx) {
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_I64, KN_I32, KN_U8};
    (void)ctx;
    for (int d = 0; d < 5; d++)
        for (int op = KN_COMM_SUM; op <= KN_COMM_MIN; op++)
            for (int s = 0; s < N_SIZES; s++) {
                if (op == KN_COMM_MEAN && d > 1) continue;
                if (s > 5 && d > 1) continue; /* the large ones once a width */
                const char *found = all_reduce_case(comm, dtypes[d], (kn_comm_op)op, sizes[s]);
                if (found) return found;
            }
    return NULL;
}

static const char *check_broadcast(kn_comm *comm, void *ctx) {
    (void)ctx;
    for (int root = 0; root < kn_comm_size(comm); root++)
        for (int s = 0; s < N_SIZES; s++) {
            KN_FRAME();
            kn_tensor *t = filled(comm, KN_F64, KN_SHAPE(sizes[s]));
            RANK_OK(kn_comm_broadcast(comm, t, root));
            const double *data = sizes[s] ? kn_data(t) : NULL;
            for (int64_t i = 0; i < sizes[s]; i++) RANK_CHECK(data[i] == value_at(root, i));
        }
    return NULL;
}

static const char *check_gather_and_scatter(kn_comm *comm, void *ctx) {
    int size = kn_comm_size(comm), rank = kn_comm_rank(comm);
    (void)ctx;
    for (int s = 0; s < N_SIZES; s++) {
        KN_FRAME();
        int64_t n = sizes[s];
        kn_tensor *part = filled(comm, KN_F32, KN_SHAPE(n)), *whole = kn_zeros(KN_SHAPE(size, n));
        RANK_OK(kn_comm_all_gather(comm, whole, part));
        const float *all = n ? kn_data(whole) : NULL;
        for (int64_t i = 0; i < n * size; i++)
            RANK_CHECK((double)all[i] == value_at((int)(i / n), i % n));
        kn_tensor *sum = filled(comm, KN_F32, KN_SHAPE(size, n)), *mine = kn_zeros(KN_SHAPE(n));
        RANK_OK(kn_comm_reduce_scatter(comm, mine, sum, KN_COMM_SUM));
        const float *got = n ? kn_data(mine) : NULL, *kept = n ? kn_data(sum) : NULL;
        for (int64_t i = 0; i < n; i++)
            RANK_CHECK((double)got[i] == combined_at(size, rank * n + i, KN_COMM_SUM));
        for (int64_t i = 0; i < n * size; i++) RANK_CHECK((double)kept[i] == value_at(rank, i));
    }
    return NULL;
}

/* To the right, from the left, twice: even ranks send first. */
static const char *check_messages(kn_comm *comm, void *ctx) {
    int size = kn_comm_size(comm), rank = kn_comm_rank(comm);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    (void)ctx;
    for (int64_t n = 1; n < 200000 && size > 1; n = n * 5 + 1) {
        KN_FRAME();
        kn_tensor *out = filled(comm, KN_F32, KN_SHAPE(n)), *in = kn_zeros(KN_SHAPE(n));
        for (int half = 0; half < 2; half++) {
            if (rank % 2 == half) RANK_OK(kn_comm_send(comm, out, right));
            if (left % 2 == half) RANK_OK(kn_comm_receive(comm, in, left));
        }
        const float *data = kn_data(in);
        for (int64_t i = 0; i < n; i++) RANK_CHECK((double)data[i] == value_at(left, i));
    }
    return NULL;
}

static const char *check_values(kn_comm *comm, void *ctx) {
    int size = kn_comm_size(comm), rank = kn_comm_rank(comm);
    double v[3] = {rank, -rank, 0.5};
    (void)ctx;
    RANK_OK(kn_comm_values(comm, v, 3, KN_COMM_SUM));
    RANK_CHECK(v[0] == size * (size - 1) / 2 && v[1] == -v[0] && v[2] == 0.5 * size);
    v[0] = rank;
    RANK_OK(kn_comm_values(comm, v, 1, KN_COMM_MAX));
    RANK_CHECK(v[0] == size - 1);
    RANK_OK(kn_comm_barrier(comm));
    return NULL;
}

#endif
