/* A reference: exact best fit, lowest address first, in one range of addresses that grows at its
 * end by 2 MiB and never shrinks. Streams are not told apart: memory is taken to be reusable at
 * once. */
#include "replay_policy.h"

enum { BINS = 16 * 48, NONE = 0 };
static const uintptr_t BASE = (uintptr_t)1 << 44;
static const uint64_t GRAIN = 512, UNIT = (uint64_t)2 << 20;

/* A run of addresses. Numbers of runs stand for pointers; 0 is none. */
typedef struct run {
    uint64_t at, size; /* offset from BASE */
    uint32_t left, right;
    uint32_t next, prev; /* in its bin */
    bool is_free;
} run;

typedef struct bestfit {
    uint64_t device_bytes, end;
    run *runs;
    uint32_t n_runs, room, spare, last; /* `spare` heads the records that are not in use */
    uint32_t bins[BINS];
    uint64_t full[BINS / 64]; /* a bit for each bin that is not empty */
    uint32_t *run_of;         /* by block */
    kn__counts counts;
} bestfit;

static void bestfit_destroy(void *policy) {
    bestfit *b = policy;
    if (!b) return;
    free(b->runs);
    free(b->run_of);
    free(b);
}

static kn_status bestfit_create(void **out, const kn__trace *trace) {
    bestfit *b = calloc(1, sizeof *b);
    if (b) b->run_of = calloc(trace->n_blocks, sizeof *b->run_of);
    if (!b || !b->run_of) {
        bestfit_destroy(b);
        return KN_FAIL(KN_ERR_OOM, "no memory for the policy");
    }
    *out = b;
    return KN_OK;
}

static kn_status bestfit_renew(void *policy, uint64_t device_bytes) {
    bestfit *b = policy;
    b->device_bytes = device_bytes;
    memset(b->bins, 0, sizeof b->bins);
    memset(b->full, 0, sizeof b->full);
    b->n_runs = 1;
    b->spare = b->last = NONE;
    b->end = 0;
    b->counts = (kn__counts){0};
    return KN_OK;
}

/* 16 bins per doubling of the grains. */
static unsigned bin_of(uint64_t size) {
    uint64_t grains = size / GRAIN;
    unsigned e = 63u - (unsigned)__builtin_clzll(grains);
    unsigned bin = e < 4 ? (unsigned)grains : (e - 3) * 16 + (unsigned)(grains >> (e - 4) & 15);
    return bin < BINS ? bin : BINS - 1;
}

static void bin_insert(bestfit *b, uint32_t r) {
    unsigned bin = bin_of(b->runs[r].size);
    b->runs[r].is_free = true;
    b->runs[r].prev = NONE;
    b->runs[r].next = b->bins[bin];
    if (b->bins[bin]) b->runs[b->bins[bin]].prev = r;
    b->bins[bin] = r;
    b->full[bin / 64] |= 1ull << bin % 64;
}

static void bin_remove(bestfit *b, uint32_t r) {
    unsigned bin = bin_of(b->runs[r].size);
    run *x = &b->runs[r];
    x->is_free = false;
    if (x->next) b->runs[x->next].prev = x->prev;
    if (x->prev) {
        b->runs[x->prev].next = x->next;
    } else {
        b->bins[bin] = x->next;
        if (!x->next) b->full[bin / 64] &= ~(1ull << bin % 64);
    }
}

static uint32_t best_in(const bestfit *b, unsigned bin, uint64_t size) {
    uint32_t best = NONE;
    for (uint32_t r = b->bins[bin]; r; r = b->runs[r].next) {
        const run *x = &b->runs[r], *y = &b->runs[best];
        if (x->size < size) continue;
        if (!best || x->size < y->size || (x->size == y->size && x->at < y->at)) best = r;
    }
    return best;
}

static uint32_t find(const bestfit *b, uint64_t size) {
    unsigned bin = bin_of(size);
    uint32_t best = best_in(b, bin, size);
    for (unsigned from = bin + 1; !best && from < BINS; from = (from / 64 + 1) * 64) {
        uint64_t rest = b->full[from / 64] >> from % 64;
        if (rest) best = best_in(b, from + (unsigned)__builtin_ctzll(rest), size);
    }
    return best;
}

/* A record; NONE when there is no host memory. */
static uint32_t record(bestfit *b) {
    uint32_t r = b->spare;
    if (r) {
        b->spare = b->runs[r].next;
        return r;
    }
    if (b->n_runs >= b->room) {
        uint32_t room = b->room ? 2 * b->room : 1024;
        run *runs = realloc(b->runs, room * sizeof *runs);
        if (!runs) return NONE;
        b->runs = runs;
        b->room = room;
    }
    return b->n_runs++;
}

static kn_status no_host_memory(void) { return KN_FAIL(KN_ERR_OOM, "no host memory"); }

/* The run at the end becomes free and at least `size` long. */
static kn_status grow(bestfit *b, uint64_t size, uint32_t *out) {
    bool join = b->last && b->runs[b->last].is_free;
    uint64_t have = join ? b->runs[b->last].size : 0;
    uint64_t bytes = (size - have + UNIT - 1) / UNIT * UNIT;
    if (bytes > b->device_bytes - b->end) {
        return KN_FAIL(KN_ERR_OOM,
                       "%llu bytes asked for, the range has %llu and %llu at its end are free, "
                       "the device has %llu",
                       (unsigned long long)size, (unsigned long long)b->end,
                       (unsigned long long)have, (unsigned long long)b->device_bytes);
    }
    uint32_t r = join ? b->last : record(b);
    if (!r) return no_host_memory();
    if (join) {
        bin_remove(b, r);
        b->runs[r].size += bytes;
    } else {
        b->runs[r] = (run){.at = b->end, .size = bytes, .left = b->last};
        if (b->last) b->runs[b->last].right = r;
        b->last = r;
    }
    bin_insert(b, r);
    b->end += bytes;
    b->counts.maps += bytes / UNIT;
    b->counts.device_allocs += bytes / UNIT;
    b->counts.reserved_bytes = b->counts.reserved_bytes_max = b->end;
    *out = r;
    return KN_OK;
}

static kn_status split(bestfit *b, uint32_t r, uint64_t size) {
    if (b->runs[r].size == size) return KN_OK;
    uint32_t rest = record(b);
    if (!rest) return no_host_memory();
    run *x = &b->runs[r];
    b->runs[rest] = (run){.at = x->at + size, .size = x->size - size, .left = r, .right = x->right};
    if (x->right) b->runs[x->right].left = rest;
    if (b->last == r) b->last = rest;
    x->right = rest;
    x->size = size;
    bin_insert(b, rest);
    return KN_OK;
}

static void absorb_right(bestfit *b, uint32_t r) {
    uint32_t gone = b->runs[r].right;
    bin_remove(b, gone);
    b->runs[r].size += b->runs[gone].size;
    b->runs[r].right = b->runs[gone].right;
    if (b->runs[gone].right) b->runs[b->runs[gone].right].left = r;
    if (b->last == gone) b->last = r;
    b->runs[gone].next = b->spare;
    b->spare = gone;
}

static void release(bestfit *b, uint32_t r) {
    uint32_t left = b->runs[r].left, right = b->runs[r].right;
    if (right && b->runs[right].is_free) absorb_right(b, r);
    if (left && b->runs[left].is_free) {
        bin_remove(b, left);
        bin_insert(b, r);
        absorb_right(b, left);
        r = left;
    }
    bin_insert(b, r);
}

static inline kn_status alloc_step(void *policy, void **out, const kn__step *step) {
    bestfit *b = policy;
    uint64_t size = (step->size + GRAIN - 1) / GRAIN * GRAIN;
    uint32_t r = find(b, size);
    if (!r) KN_TRY(grow(b, size, &r));
    bin_remove(b, r);
    KN_TRY(split(b, r, size));
    b->run_of[step->block] = r;
    *out = (void *)(BASE + b->runs[r].at);
    return KN_OK;
}

static inline kn_status free_step(void *policy, const kn__step *step, void *ptr) {
    bestfit *b = policy;
    (void)ptr;
    release(b, b->run_of[step->block]);
    return KN_OK;
}

static inline kn_status use_step(void *policy, const kn__step *step, void *ptr) {
    (void)policy, (void)step, (void)ptr;
    return KN_OK;
}

static kn_status bestfit_run(void *policy, const kn__step *steps, size_t from, size_t to,
                             void **slots, size_t *done) {
    return kn__run_steps(policy, steps, from, to, slots, done, alloc_step, free_step, use_step);
}

static void bestfit_free_one(void *policy, uint32_t block, void *ptr) {
    bestfit *b = policy;
    (void)ptr;
    release(b, b->run_of[block]);
}

static void bestfit_counts(void *policy, kn__counts *out) { *out = ((bestfit *)policy)->counts; }

const kn__policy kn__policy_bestfit = {.name = "bestfit",
                                       .create = bestfit_create,
                                       .destroy = bestfit_destroy,
                                       .renew = bestfit_renew,
                                       .run = bestfit_run,
                                       .free_one = bestfit_free_one,
                                       .counts = bestfit_counts};
