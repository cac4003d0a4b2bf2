#include "html_timeline.h"

#include "html_counters.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTHS = 64, GRAINS_PER_WALL = 1 << 16 };

/* An event, or several that were joined. */
typedef struct block {
    uint64_t start, end, longest; /* ns */
    const char *label;            /* of the longest */
    uint64_t lane;                /* of threads: its number; of GPUs: device and stream */
    uint32_t depth, n;
    bool is_gpu;
} block;

/* Blocks in the order of lanes and starts. */
typedef struct blocks {
    block *at;
    size_t n;
    size_t n_cut; /* events deeper than DEPTHS */
} blocks;

static int by_lane(const void *a_of, const void *b_of) {
    const block *a = a_of, *b = b_of;
    if (a->is_gpu != b->is_gpu) return a->is_gpu ? 1 : -1;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->end < b->end) - (a->end > b->end);
}

static bool is_same_lane(const block *a, const block *b) {
    return a->is_gpu == b->is_gpu && a->lane == b->lane;
}

static void collect(blocks *out, const kn__timeline *line) {
    const kn__span *spans = line->spans.at;
    const kn__work_record *works = line->works.at;
    for (size_t i = 0; i < line->spans.n; i++) {
        const kn__span *s = &spans[i];
        out->at[out->n++] = (block){.start = s->start_ns - line->from_ns,
                                    .end = s->end_ns - line->from_ns,
                                    .longest = s->end_ns - s->start_ns,
                                    .label = s->name->label,
                                    .lane = s->thread,
                                    .n = 1};
    }
    for (size_t i = 0; i < line->works.n; i++) {
        const kn__record *r = &works[i].record;
        if (r->kind != KN__RECORD_WORK || r->end_ns < r->start_ns) continue;
        out->at[out->n++] = (block){.start = r->start_ns - line->from_ns,
                                    .end = r->end_ns - line->from_ns,
                                    .longest = r->end_ns - r->start_ns,
                                    .label = r->name ? r->name : "GPU work",
                                    .lane = (uint64_t)r->device << 32 | r->stream,
                                    .n = 1,
                                    .is_gpu = true};
    }
}

/* The depth of a block is the number of blocks that are open when it starts; blocks deeper than the
 * page shows are skipped. Work that runs at once on a stream (nodes of a graph) is drawn like that.
 */
static void find_depths(blocks *all) {
    uint64_t ends[DEPTHS];
    uint32_t depth = 0;
    size_t kept = 0;
    for (size_t i = 0; i < all->n; i++) {
        block *b = &all->at[i];
        if (kept && !is_same_lane(&all->at[kept - 1], b)) depth = 0;
        while (depth && ends[depth - 1] <= b->start) depth--;
        if (depth == DEPTHS) continue;
        b->depth = depth;
        ends[depth++] = b->end;
        all->at[kept++] = *b;
    }
    all->n_cut = all->n - kept;
    all->n = kept;
}

static bool is_joined(const block *to, const block *b, uint64_t grain) {
    if (!is_same_lane(to, b) || b->longest >= grain || to->longest >= grain) return false;
    return to->start / grain == b->start / grain;
}

/* Joins events below `grain` that start in one grain of time, side by side. Returns how many blocks
 * there are now. */
static size_t join(block *out, const block *all, size_t n, uint64_t grain) {
    size_t kept = 0, last[DEPTHS];
    for (int i = 0; i < DEPTHS; i++) last[i] = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const block *b = &all[i];
        size_t *at = &last[b->depth];
        if (*at != SIZE_MAX && is_joined(&out[*at], b, grain)) {
            block *to = &out[*at];
            if (b->longest > to->longest) {
                to->longest = b->longest;
                to->label = b->label;
            }
            if (b->end > to->end) to->end = b->end;
            to->n += b->n;
            continue;
        }
        *at = kept;
        out[kept++] = *b;
    }
    return kept;
}

/* Joins as little as it takes. Returns the grain; 0: nothing was joined. */
static uint64_t bound(blocks *all, uint64_t wall) {
    if (all->n <= KN__HTML_BLOCKS_MAX) return 0;
    block *joined = malloc(all->n * sizeof *joined);
    uint64_t grain = wall / GRAINS_PER_WALL + 1;
    size_t n = all->n;
    while (joined && n > KN__HTML_BLOCKS_MAX && grain / 2 <= wall) {
        n = join(joined, all->at, all->n, grain);
        grain *= 2;
    }
    if (n > KN__HTML_BLOCKS_MAX) n = KN__HTML_BLOCKS_MAX; /* so many lanes and depths */
    if (joined) {
        free(all->at);
        all->at = joined;
    }
    all->n = n;
    return grain / 2;
}

static const kn__timeline_thread *thread_at(const kn__timeline *line, uint64_t number) {
    for (size_t i = 0; i < line->threads.n_slots; i++) {
        const kn__timeline_thread *t = kn__hash_at(&line->threads, sizeof *t, i);
        if (t->key && t->number == number) return t;
    }
    return NULL;
}

static void start_lane(kn__page *p, const kn__timeline *line, const block *b) {
    kn__text name = {0};
    const kn__timeline_thread *t = b->is_gpu ? NULL : thread_at(line, b->lane);
    if (b->is_gpu) {
        kn__text_printf(&name, "GPU %" PRIu64 ", stream %" PRIu64, b->lane >> 32,
                        b->lane & UINT32_MAX);
    } else {
        kn__text_printf(&name, "%s %" PRId64, t && t->name && *t->name ? t->name : "thread",
                        t ? t->tid : 0);
    }
    kn__text_puts(p->text, p->first ? "\n[" : ",\n[");
    p->first = false;
    kn__page_string(p->text, name.data ? name.data : "");
    kn__text_puts(p->text, b->is_gpu ? ",1,[" : ",0,[");
    p->text->failed |= name.failed;
    kn__text_release(&name);
}

static void add_block(kn__page *p, const block *b, uint64_t from) {
    uint64_t label = b->is_gpu ? kn__page_kernel(p, b->label) : kn__page_label(p, b->label);
    uint64_t values[] = {b->start - from, b->end - b->start, label, b->depth, b->n};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (i) kn__text_add(p->text, ",", 1);
        kn__page_number(p->text, values[i]);
    }
}

static void add_lanes(kn__page *p, const kn__timeline *line, const blocks *all) {
    p->first = true;
    for (size_t i = 0; i < all->n; i++) {
        const block *b = &all->at[i];
        bool is_new = !i || !is_same_lane(b - 1, b);
        if (is_new && i) kn__text_puts(p->text, "]]");
        is_new ? start_lane(p, line, b) : kn__text_add(p->text, ",", 1);
        add_block(p, b, is_new ? 0 : b[-1].start);
    }
    if (all->n) kn__text_puts(p->text, "]]");
}

void kn__html_timeline_add(kn__page *p, const kn__timeline *line) {
    size_t room = line->spans.n + line->works.n;
    if ((!room && !line->samples.n) || line->until_ns < line->from_ns) return;
    blocks all = {.at = malloc((room ? room : 1) * sizeof *all.at)};
    if (!all.at) {
        p->text->failed = true;
        return;
    }
    uint64_t wall = line->until_ns - line->from_ns;
    collect(&all, line);
    if (all.n) qsort(all.at, all.n, sizeof *all.at, by_lane);
    find_depths(&all);
    uint64_t grain = bound(&all, wall);
    kn__text_printf(p->text,
                    ",\n\"timeline\":{\"wall\":%" PRIu64 ",\"grain\":%" PRIu64
                    ",\"events\":%zu,\"cut\":%zu,\"before\":%" PRIu64 ",\"lanes\":[",
                    wall, grain, room, all.n_cut, line->n_before);
    add_lanes(p, line, &all);
    kn__text_puts(p->text, "]");
    kn__html_samples_add(p, line);
    kn__text_puts(p->text, "}");
    free(all.at);
}
