/* The memory of a timeline: blocks that were allocated and freed become levels, and columns of the
 * rows that were open then. */
#include <stdlib.h>

#include "timeline.h"

enum { DEVICES_MAX = 32, BLOCKS_MIN = 256 };
static const int64_t bytes_most = (int64_t)1 << 56; /* a damaged file may tell any number */

static kn_status no_memory(void) { return KN_FAIL(KN_ERR_OOM, "no memory for the trace"); }

static int compare_changes(const void *a_of, const void *b_of) {
    const kn__block_change *a = a_of, *b = b_of;
    if (a->at.at_ns != b->at.at_ns) return a->at.at_ns < b->at.at_ns ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

void kn__timeline_changes_sort(kn__timeline *line) {
    if (line->changes.n > 1)
        qsort(line->changes.at, line->changes.n, sizeof(kn__block_change), compare_changes);
}

/* --- levels --- */

typedef struct device {
    uint64_t id;
    int64_t bytes;
} device;

typedef struct devices {
    device all[DEVICES_MAX];
    int n;
} devices;

static int64_t bounded(int64_t bytes) {
    return bytes < 0 ? 0 : bytes > bytes_most ? bytes_most : bytes;
}

/* A device's bytes before its first change are known where the trace tells those after it. */
static device *device_of(devices *d, const kn__block_change *c) {
    for (int i = 0; i < d->n; i++) {
        if (d->all[i].id == c->device) return &d->all[i];
    }
    if (d->n == DEVICES_MAX) return &d->all[DEVICES_MAX - 1];
    int64_t before = c->total < 0 ? 0 : bounded(c->total - c->bytes);
    d->all[d->n] = (device){c->device, before};
    return &d->all[d->n++];
}

static uint64_t sum_of(const devices *d) {
    uint64_t sum = 0;
    for (int i = 0; i < d->n; i++) sum += (uint64_t)d->all[i].bytes;
    return sum;
}

kn_status kn__timeline_count(kn__timeline *line) {
    devices all = {.n = 0};
    kn__block_change *changes = line->changes.at;
    kn__timeline_changes_sort(line);
    for (size_t i = 0; i < line->changes.n; i++) (void)device_of(&all, &changes[i]);
    line->live_before = sum_of(&all);
    for (size_t i = 0; i < line->changes.n; i++) {
        kn__block_change *c = &changes[i];
        device *of = device_of(&all, c);
        of->bytes = bounded(c->total >= 0 ? c->total : of->bytes + c->bytes);
        c->live = sum_of(&all);
        KN_TRY(kn__timeline_level(line, c->at.at_ns, c->live));
    }
    return KN_OK;
}

/* --- marks: the most that was live while a span was open --- */

/* The most of any two neighbours, of any two of these, and so on: leaves from n on. */
static uint64_t *make_marks(const kn__block_change *changes, size_t n) {
    uint64_t *marks = malloc(2 * n * sizeof *marks);
    if (!marks) return NULL;
    marks[0] = 0;
    for (size_t i = 0; i < n; i++) marks[n + i] = changes[i].live;
    for (size_t i = n; i-- > 1;) marks[i] = kn__max_u64(marks[2 * i], marks[2 * i + 1]);
    return marks;
}

static uint64_t most_of(const uint64_t *marks, size_t n, size_t from, size_t to) {
    uint64_t most = 0;
    for (from += n, to += n; from < to; from /= 2, to /= 2) {
        if (from % 2) most = kn__max_u64(most, marks[from++]);
        if (to % 2) most = kn__max_u64(most, marks[--to]);
    }
    return most;
}

/* How many changes came before the moment. */
static size_t count_before(const kn__block_change *changes, size_t n, uint64_t at_ns) {
    size_t from = 0, to = n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (changes[middle].at.at_ns < at_ns) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

static void mark_spans(const kn__timeline *line, const uint64_t *marks) {
    const kn__block_change *changes = line->changes.at;
    const kn__span *spans = line->spans.at;
    size_t n = line->changes.n;
    for (size_t i = 0; i < line->spans.n; i++) {
        kn__row *row = spans[i].row;
        size_t from = count_before(changes, n, spans[i].start_ns);
        size_t to = count_before(changes, n, spans[i].end_ns + 1);
        uint64_t before = from ? changes[from - 1].live : line->live_before;
        int64_t most = (int64_t)kn__max_u64(before, most_of(marks, n, from, to));
        if (!row) continue;
        row->peak = kn__max_i64(row->peak, most);
        row->rise = kn__max_i64(row->rise, most - (int64_t)before);
    }
}

/* --- owners --- */

typedef struct block {
    uint64_t key, address, device;
    kn__row *owner;
    uint64_t bytes;
} block;

static block *find_block(const kn__hash *blocks, const kn__block_change *c) {
    block *b = kn__hash_find(blocks, sizeof *b, kn__hash_pair(c->device, c->at.id));
    while (b->key && (b->address != c->at.id || b->device != c->device))
        b = kn__hash_after(blocks, sizeof *b, b);
    return b;
}

static void hold(kn__row *row, uint64_t more) { row->held = (int64_t)((uint64_t)row->held + more); }

static kn_status add_change(kn__hash *blocks, const kn__block_change *c) {
    if (kn__hash_is_full(blocks) && !kn__hash_grow(blocks, sizeof(block), BLOCKS_MIN))
        return no_memory();
    block *b = find_block(blocks, c);
    if (b->key) {
        hold(b->owner, -b->bytes);
        kn__hash_remove(blocks, sizeof *b, b);
    }
    if (c->bytes < 0) {
        c->at.row->freed_bytes += (uint64_t)-c->bytes;
        return KN_OK;
    }
    c->at.row->alloc_bytes += (uint64_t)c->bytes;
    c->at.row->n_allocs++;
    hold(c->at.row, (uint64_t)c->bytes);
    b = find_block(blocks, c);
    kn__hash_use(blocks, b, kn__hash_pair(c->device, c->at.id));
    *b = (block){b->key, c->at.id, c->device, c->at.row, (uint64_t)c->bytes};
    return KN_OK;
}

/* The first change after which as much was live as at any time. */
static size_t top_of(const kn__block_change *changes, size_t n) {
    size_t top = 0;
    for (size_t i = 1; i < n; i++) {
        if (changes[i].live > changes[top].live) top = i;
    }
    return top;
}

static kn_status add_owners(kn__timeline *line) {
    kn__block_change *changes = line->changes.at;
    size_t n = line->changes.n, top = top_of(changes, n);
    kn__hash blocks = {0};
    kn_status status = KN_OK;
    for (size_t i = 0; i < n; i++) {
        if (!changes[i].at.row) changes[i].at.row = &line->report->outside;
    }
    for (size_t i = 0; i < n && status >= 0; i++) {
        status = add_change(&blocks, &changes[i]);
        for (size_t k = 0; i == top && k <= i; k++)
            changes[k].at.row->held_at_peak = changes[k].at.row->held;
    }
    kn__hash_release(&blocks);
    return status;
}

kn_status kn__timeline_add_memory(kn__timeline *line) {
    size_t n = line->changes.n;
    if (!n) return KN_OK;
    kn__timeline_changes_sort(line);
    uint64_t *marks = make_marks(line->changes.at, n);
    if (!marks) return no_memory();
    mark_spans(line, marks);
    free(marks);
    line->report->has_memory = true;
    return add_owners(line);
}
