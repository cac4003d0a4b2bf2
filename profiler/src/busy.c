#include "busy.h"

#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "checked.h"

enum { INTERVALS = 1024 };

typedef struct interval {
    uint64_t start, end;
} interval;

typedef struct gpu {
    kn__gpu_device use; /* busy_ns: of the intervals summed up */
    uint64_t summed_to;
    size_t n;
    interval all[INTERVALS]; /* apart from one another, in order of time */
} gpu;

static gpu *gpus[KN__GPUS_MAX];
static int n_gpus;

static gpu *gpu_of(uint32_t device) {
    for (int i = 0; i < n_gpus; i++) {
        if (gpus[i]->use.device == device) return gpus[i];
    }
    if (n_gpus == KN__GPUS_MAX || !kn__budget_take(sizeof(gpu))) return NULL;
    gpu *g = calloc(1, sizeof *g);
    if (!g) {
        kn__budget_return(sizeof(gpu));
        return NULL;
    }
    g->use = (kn__gpu_device){.device = device, .first_ns = UINT64_MAX};
    return gpus[n_gpus++] = g;
}

static void add_to_stream(kn__gpu_device *use, uint32_t stream, uint64_t ns) {
    int i = 0;
    while (i < use->n_streams && use->streams[i].stream != stream) i++;
    if (i == KN__STREAMS_MAX) i--; /* the last one has those that there is no room for */
    if (i == use->n_streams) use->streams[use->n_streams++].stream = stream;
    use->streams[i].busy_ns += ns;
    use->streams[i].n++;
}

static uint64_t sum(const interval *all, size_t n) {
    uint64_t ns = 0;
    for (size_t i = 0; i < n; i++) ns += all[i].end - all[i].start;
    return ns;
}

static void sum_up_older_half(gpu *g) {
    size_t half = INTERVALS / 2;
    g->use.busy_ns += sum(g->all, half);
    g->summed_to = g->all[half - 1].end;
    g->n -= half;
    memmove(g->all, g->all + half, g->n * sizeof *g->all);
}

/* The first interval that ends at `start` or later. */
static size_t first_at(const gpu *g, uint64_t start) {
    size_t low = 0, high = g->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (g->all[mid].end < start) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static void insert(gpu *g, interval in) {
    size_t from = first_at(g, in.start), to = from;
    for (; to < g->n && g->all[to].start <= in.end; to++) {
        if (g->all[to].start < in.start) in.start = g->all[to].start;
        if (g->all[to].end > in.end) in.end = g->all[to].end;
    }
    memmove(g->all + from + 1, g->all + to, (g->n - to) * sizeof *g->all);
    g->all[from] = in;
    g->n = g->n + 1 - (to - from);
    KN_ASSERT(g->n <= INTERVALS);
    if (g->n == INTERVALS) sum_up_older_half(g);
}

void kn__busy_add(uint32_t device, uint32_t stream, uint64_t start_ns, uint64_t end_ns) {
    gpu *g = gpu_of(device);
    if (!g) return;
    add_to_stream(&g->use, stream, end_ns - start_ns);
    if (start_ns < g->use.first_ns) g->use.first_ns = start_ns;
    if (end_ns > g->use.last_ns) g->use.last_ns = end_ns;
    if (start_ns < g->summed_to) start_ns = g->summed_to;
    if (start_ns < end_ns) insert(g, (interval){start_ns, end_ns});
}

void kn__busy_read(kn__gpu_use *out) {
    *out = (kn__gpu_use){.n = n_gpus};
    for (int i = 0; i < n_gpus; i++) {
        kn__gpu_device *use = &out->devices[i];
        *use = gpus[i]->use;
        use->busy_ns += sum(gpus[i]->all, gpus[i]->n);
        uint64_t span = use->last_ns - use->first_ns;
        use->idle_ns = span - (use->busy_ns < span ? use->busy_ns : span);
    }
}

void kn__busy_reset(void) {
    for (int i = 0; i < n_gpus; i++) {
        kn__budget_return(sizeof(gpu));
        free(gpus[i]);
    }
    n_gpus = 0;
}
