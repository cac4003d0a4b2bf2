#include "pool/steal.h"

#include "core/arena.h"

/* Neighbours that are free or waiting, of any streams, may be large enough together. The search
 * starts at the largest free blocks and at the youngest waiting ones. */
enum { SEEDS = 32, PIECES = 64, SEED_SHARE = 8 };

typedef struct wanted {
    size_t size, align;
} wanted;

typedef struct stretch {
    kn__block *head;   /* the first block that might join it when it is freed … */
    kn__block *before; /* … and the rest of that, which stays; NULL: the segment starts there */
    char *begin, *end;
} stretch;

static bool joinable(const kn__block *block) {
    if (!block || block->stream->graph) return false;
    return block->state == KN__FREE || block->state == KN__WAITING;
}

static bool fits(const wanted *r, const stretch *run) {
    kn__block whole = {.ptr = run->begin, .size = (size_t)(run->end - run->begin)};
    return kn__block_fits(&whole, r->size, r->align);
}

/* The run that contains the seed, extended to its right first, no longer than needed; false: it is
 * too short. */
static bool measure(stretch *out, const wanted *r, kn__block *seed) {
    stretch run = {.head = seed, .begin = seed->ptr, .end = seed->ptr + seed->size};
    int n = 0;
    for (kn__block *b = seed->right; !fits(r, &run) && joinable(b) && n < PIECES; n++) {
        run.end = b->ptr + b->size;
        b = b->right;
    }
    for (; joinable(run.head->left) && n < 2 * PIECES; n++) {
        run.head = run.head->left;
        if (!fits(r, &run)) run.begin = run.head->ptr;
    }
    run.before = run.head->left;
    *out = run;
    return fits(r, &run) && !joinable(run.before);
}

/* The run's first piece; `waiting`: its first that is not free yet. */
static kn__block *piece(const stretch *run, bool waiting) {
    kn__block *block = run->before ? run->before->right : run->head;
    while (block->ptr + block->size <= run->begin) block = block->right;
    while (waiting && block && block->ptr < run->end && block->state == KN__FREE) {
        block = block->right;
    }
    return block && block->ptr < run->end ? block : NULL;
}

/* The shortest of the runs. */
static void choose(stretch *best, const wanted *r, kn__block *seed) {
    stretch run;
    if (!measure(&run, r, seed)) return;
    if (!best->head || run.end - run.begin < best->end - best->begin) *best = run;
}

typedef struct choice {
    stretch best;
    const wanted *r;
    int n;
} choice;

static bool choose_next(void *ctx, kn__block *seed) {
    choice *c = ctx;
    if (c->n++ == SEEDS || seed->size < c->r->size / SEED_SHARE) return true;
    choose(&c->best, c->r, seed);
    return false;
}

static void choose_of_stream(choice *c, const kn__stream *stream) {
    c->n = 0;
    (void)kn__bins_visit_down(&stream->bins, choose_next, c);
}

static stretch find_run(const kn_pool *pool, const wanted *r) {
    choice c = {.r = r};
    kn__waiter *waiter = pool->waiters;
    for (int i = 0; waiter && i < SEEDS; i++, waiter = waiter->next) {
        if (waiter->block && joinable(waiter->block)) choose(&c.best, r, waiter->block);
    }
    choose_of_stream(&c, pool->idle);
    for (uint32_t i = 0; i < pool->n_streams; i++) {
        if (!pool->streams[i]->graph) choose_of_stream(&c, pool->streams[i]);
    }
    return c.best;
}

static kn__block *take_run(kn_pool *pool, kn__stream *by, const stretch *run) {
    for (kn__block *b; (b = piece(run, true));) {
        if (kn__waiter_take(pool, b->waiter, by) < 0) return NULL;
    }
    kn__block *first = piece(run, false);
    KN_ASSERT(first); /* a run has a piece */
    for (kn__block *b = first; b && b->ptr < run->end; b = b->right) {
        if (kn__epoch_wait(pool, by, b->stream, b->epoch) < 0) return NULL;
    }
    kn__bins_remove(&first->stream->bins, first);
    while (first->ptr + first->size < run->end) {
        kn__bins_remove(&first->right->stream->bins, first->right);
        kn__block_absorb_right(&pool->records, first);
    }
    return kn__arena_put(pool, first, by, by->epoch);
}

kn__block *kn__steal_run(kn_pool *pool, kn__stream *by, size_t size, size_t align) {
    wanted r = {.size = size, .align = align};
    stretch run = find_run(pool, &r);
    return run.head ? take_run(pool, by, &run) : NULL;
}
