/* Pause and resume. A pause is a list of pieces, runs of addresses whose memory was dropped; a
 * piece of the range is some handles side by side. The blocks stay as they are. */
#include <knet/pause.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cancel.h"
#include "checked.h"
#include "core/grow.h"
#include "core/poison.h"
#include "device/registry.h"
#include "pool/fault.h"
#include "pool/inspector.h"
#include "pool/pause.h"
#include "pool/pool_lock.h"
#include "pool/trim.h"

typedef struct piece {
    char *at;
    size_t bytes;
    size_t mapped; /* of a piece of the range: how many have memory, from the start */
} piece;

typedef struct kn__pause {
    struct kn__pause *next;
    unsigned tag;  /* 0: the whole pool */
    bool ranged;   /* pieces of the range, not of plain segments */
    piece *pieces; /* in order of address */
    size_t n, room;
    size_t bytes; /* of all pieces */
    char *copy;   /* their contents in turn; NULL: not kept */
    bool stays;   /* it failed, and the dropped memory did not come back */
} pause;

/* --- pieces --- */

static kn_status piece_add(pause *p, char *at, size_t bytes) {
    piece *last = p->pieces && p->n ? &p->pieces[p->n - 1] : NULL;
    KN_ASSERT(bytes && (!p->ranged || !last || last->at + last->bytes <= at));
    p->bytes += bytes;
    if (last && last->at + last->bytes == at) {
        last->bytes += bytes;
        return KN_OK;
    }
    if (!p->pieces || p->n == p->room) {
        size_t room = p->room ? 2 * p->room : 64;
        piece *grown = realloc(p->pieces, room * sizeof *grown);
        if (!grown) return KN_FAIL(KN_ERR_OOM, "kn_pool_pause: no host memory");
        p->pieces = grown;
        p->room = room;
    }
    p->pieces[p->n++] = (piece){.at = at, .bytes = bytes};
    return KN_OK;
}

/* The handles that lie in [from, end). */
static kn_status handles_add(pause *p, const kn_pool *pool, const char *from, const char *end) {
    const kn__range *range = &pool->range;
    size_t i = kn__round_up((size_t)(from - range->base), range->unit) / range->unit;
    size_t last = (size_t)(end - range->base) / range->unit;
    for (size_t span; i < last; i += span ? span : 1) {
        span = range->granules[i].span;
        if (!span || i + span > last) continue;
        KN_TRY(piece_add(p, range->base + i * range->unit, span * range->unit));
    }
    return KN_OK;
}

static bool is_tagged(const kn__block *block, unsigned tag) {
    return block->state == KN__LIVE && block->tag == tag;
}

/* What lies in a row of the pause's blocks. */
static kn_status range_add(pause *p, const kn_pool *pool) {
    const kn__block *block = pool->range.first;
    while (block) {
        bool wanted = p->tag ? is_tagged(block, p->tag) : block->state != KN__HOLE;
        const char *from = block->ptr, *end = from;
        for (; wanted && block; block = block->right) {
            if (p->tag ? !is_tagged(block, p->tag) : block->state == KN__HOLE) break;
            end = block->ptr + block->size;
        }
        if (wanted) {
            KN_TRY(handles_add(p, pool, from, end));
        } else {
            block = block->right;
        }
    }
    return KN_OK;
}

/* The pause's first piece that ends after the address; NULL: none. */
static const piece *piece_after(const pause *p, const char *at) {
    size_t low = 0, high = p->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->pieces[middle].at + p->pieces[middle].bytes <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < p->n ? &p->pieces[low] : NULL;
}

bool kn__pause_holds(const kn_pool *pool, const kn__block *block) {
    for (const pause *p = pool->pauses; p; p = p->next) {
        const piece *x = p->tag ? piece_after(p, block->ptr) : NULL;
        if (x && x->at < block->ptr + block->size) return true;
    }
    return false;
}

static int by_address(const void *a, const void *b) {
    const piece *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Memory that a tag's pause has dropped stays that one's: it has no contents to keep. */
static kn_status segments_add(pause *p, const kn_pool *pool) {
    for (const kn__segment *s = pool->segments; s; s = s->next) {
        for (const kn__block *b = s->first; b; b = b->right) {
            bool wanted = p->tag ? is_tagged(b, p->tag) : !kn__pause_holds(pool, b);
            if (wanted) KN_TRY(piece_add(p, b->ptr, b->size));
        }
    }
    if (p->n) qsort(p->pieces, p->n, sizeof *p->pieces, by_address);
    return KN_OK;
}

/* Gives back what has memory, the last handle first; stops where that fails. */
static kn_status piece_unmap(kn_pool *pool, piece *x) {
    const kn__range *range = &pool->range;
    KN_ASSERT(x->mapped <= x->bytes && x->mapped % range->unit == 0);
    for (size_t n = x->mapped / range->unit; n-- > 0;) {
        char *at = x->at + n * range->unit;
        if (!kn__granule_of(range, at)->span) continue;
        KN_TRY(kn__range_unmap(pool, at));
        x->mapped = n * range->unit;
    }
    return KN_OK;
}

static kn_status piece_map(kn_pool *pool, piece *x) {
    size_t mapped = 0;
    if (x->mapped == x->bytes) return KN_OK;
    kn_status status = kn__range_map(pool, x->at + x->mapped, x->bytes - x->mapped, &mapped);
    x->mapped += mapped;
    KN_ASSERT(x->mapped <= x->bytes && (status < 0 || x->mapped == x->bytes));
    return status;
}

static bool has_memory(const pause *p) {
    size_t i = 0;
    while (i < p->n && !p->pieces[i].mapped) i++;
    return i < p->n;
}

/* --- contents --- */

/* Free memory in it may be marked as not to be read. */
__attribute__((no_sanitize("address"))) static void words_copy(void *to, const void *from,
                                                               size_t bytes) {
    const volatile uint64_t *source = from;
    for (size_t i = 0; i < bytes / sizeof *source; i++) ((volatile uint64_t *)to)[i] = source[i];
}

static kn_status piece_copy(kn_pool *pool, const piece *x, char *host, bool back) {
    char *to = back ? x->at : host, *from = back ? host : x->at;
    if (!pool->ordered) {
        return pool->driver->copy(pool->impl, to, from, x->bytes, back, !back, NULL);
    }
    words_copy(to, from, x->bytes);
    return KN_OK;
}

static kn_status contents_copy(kn_pool *pool, pause *p, bool back) {
    size_t offset = 0;
    for (size_t i = 0; i < p->n; offset += p->pieces[i++].bytes) {
        KN_TRY(piece_copy(pool, &p->pieces[i], p->copy + offset, back));
    }
    return pool->ordered ? KN_OK : pool->driver->stream_sync(pool->impl, NULL);
}

static kn_status contents_keep(kn_pool *pool, pause *p) {
    void *copy = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        return KN_FAIL(KN_ERR_OOM, "kn_pool_pause: no host memory for %zu bytes of contents",
                       p->bytes);
    }
    KN_ASSERT(!p->copy);
    p->copy = copy;
    return contents_copy(pool, p, false);
}

static void pause_destroy(pause *p) {
    if (!p) return;
    if (p->copy) munmap(p->copy, p->bytes);
    free(p->pieces);
    free(p);
}

void kn__pauses_release(kn_pool *pool) {
    for (pause *p = pool->pauses, *next; p; p = next) {
        next = p->next;
        pause_destroy(p);
    }
    pool->pauses = NULL;
}

/* --- states of the pool --- */

/* Requests of any size get to where they are refused. */
static void state_set(kn_pool *pool, const pause *p, bool paused) {
    if (p->tag) {
        KN_ASSERT(paused || !p->ranged || pool->dropped >= p->bytes);
        if (p->ranged) pool->dropped += paused ? p->bytes : 0 - p->bytes;
        return;
    }
    KN_ASSERT(pool->paused != paused);
    pool->paused = paused;
    pool->half_paused = paused && has_memory(p);
    kn__pool_fast_set(pool);
    pool->size_max = paused ? 0 : KN__SIZE_LIMIT;
}

kn_status kn__pause_refuses(const kn_pool *pool) {
    return KN_FAIL(KN_ERR_INVALID, "pool %s is paused; kn_pool_resume brings its memory back",
                   pool->name);
}

/* --- resume --- */

/* So much less than the limit is reserved, after the pool returned its free memory. */
static kn_status limit_check(kn_pool *pool, size_t bytes) {
    if (pool->limit == SIZE_MAX) return KN_OK;
    if (bytes <= pool->limit && pool->reserved > pool->limit - bytes) {
        kn__pool_sync(pool);
        kn__trim(pool, pool->limit - bytes);
    }
    if (bytes <= pool->limit && pool->reserved <= pool->limit - bytes) return KN_OK;
    return kn__over_limit(pool, bytes);
}

/* All, or where that fails none. */
static kn_status pieces_map(kn_pool *pool, pause *p) {
    kn_status status = KN_OK;
    for (size_t i = 0; i < p->n && status == KN_OK; i++) status = piece_map(pool, &p->pieces[i]);
    if (status == KN_OK) return KN_OK;
    kn_error error = *kn_last_error();
    for (size_t i = 0; i < p->n; i++) (void)piece_unmap(pool, &p->pieces[i]);
    return kn_fail_within_at(error.file, error.line, status, "%s", error.message);
}

/* The pool's own free memory may be what the device lacks. */
static kn_status memory_back(kn_pool *pool, pause *p) {
    size_t missing = p->bytes;
    if (!p->ranged) return KN_OK;
    for (size_t i = 0; i < p->n; i++) missing -= p->pieces[i].mapped;
    KN_ASSERT(missing <= p->bytes);
    KN_TRY(limit_check(pool, missing));
    kn_status status = pieces_map(pool, p);
    if (status != KN_ERR_OOM || has_memory(p)) return status;
    kn__pool_sync(pool);
    kn__trim(pool, 0);
    return pieces_map(pool, p);
}

static kn_status bring_back(kn_pool *pool, pause *p) {
    KN_TRY(memory_back(pool, p));
    return p->copy ? contents_copy(pool, p, true) : KN_OK;
}

/* tag: 0: all pauses. */
static kn_status resume_locked(kn_pool *pool, bool all, unsigned tag, bool *found) {
    for (pause **link = (pause **)&pool->pauses, *p; (p = *link);) {
        if (!all && p->tag != tag) {
            link = &p->next;
            continue;
        }
        *found = true;
        kn_status status = bring_back(pool, p);
        if (status < 0) {
            if (!p->tag) pool->half_paused = has_memory(p);
            return status;
        }
        state_set(pool, p, false);
        *link = p->next;
        pause_destroy(p);
    }
    return KN_OK;
}

kn_status kn_pool_resume(kn_pool *pool, const char *tag) {
    unsigned id = tag ? kn__inspect_tag(tag) : 0;
    bool found = false;
    KN_TRY(kn__pool_given(pool, __func__));
    KN_TRY(kn__device_usable(pool->device, __func__));
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    kn_status status = resume_locked(pool, !tag, tag && !id ? KN__TAGS : id, &found);
    kn__pool_unlock(pool);
    if (status == KN_OK && !found) {
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_resume: nothing of pool %s is paused%s%s",
                       pool->name, tag ? " with the tag " : "", tag ? tag : "");
    }
    return status;
}

/* --- pause --- */

static kn_status device_wait(kn_pool *pool) {
    kn__pool_sync(pool);
    return pool->ordered ? KN_OK : pool->driver->device_sync(pool->impl);
}

static kn_status piece_drop(kn_pool *pool, const pause *p, piece *x) {
    if (!p->ranged) return pool->driver->segment_drop(pool->impl, x->at, x->bytes);
    KN_ASSERT(x->mapped == x->bytes);
    return piece_unmap(pool, x);
}

/* All or nothing, as far as the device plays along. */
static kn_status pieces_drop(kn_pool *pool, pause *p) {
    kn_status status = KN_OK;
    for (size_t i = 0; i < p->n; i++) p->pieces[i].mapped = p->ranged ? p->pieces[i].bytes : 0;
    for (size_t i = 0; i < p->n && status == KN_OK; i++)
        status = piece_drop(pool, p, &p->pieces[i]);
    if (status == KN_OK) return KN_OK;
    kn_error error = *kn_last_error();
    p->stays = bring_back(pool, p) < 0;
    return kn_fail_within_at(error.file, error.line, status, "%s%s", error.message,
                             p->stays ? "; it stays paused until kn_pool_resume" : "");
}

static kn_status pause_locked(kn_pool *pool, pause *p, bool keep) {
    KN_ASSERT(!p->n && !p->copy && !p->next);
    for (const pause *q = pool->pauses; q; q = q->next) {
        if (q->tag && q->tag != p->tag) continue;
        return KN_FAIL(KN_ERR_INVALID, "kn_pool_pause: pool %s%s is paused already", pool->name,
                       q->tag ? ": that tag" : "");
    }
    KN_TRY(device_wait(pool));
    if (!p->tag) kn__trim(pool, 0);
    KN_TRY(p->ranged ? range_add(p, pool) : segments_add(p, pool));
    keep |= pool->poison != KN__POISON_NONE; /* free memory has marks */
    if (keep && p->bytes) KN_TRY(contents_keep(pool, p));
    return pieces_drop(pool, p);
}

static kn_status pause_check(const kn_pool *pool, const kn_pause_options *o) {
    const kn_device_driver *driver = pool->driver;
    for (int i = 0; i < 4; i++) {
        if (o->reserved[i]) {
            return KN_FAIL(KN_ERR_INVALID, "kn_pool_pause: options.reserved[%d] must be zero", i);
        }
    }
    bool can_wait = driver->ordered || driver->device_sync;
    if (!pool->pinned && can_wait && (pool->range.base || driver->segment_drop)) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_pool_pause: pool %s has %s", pool->name,
                   pool->pinned ? "page-locked memory" : "no virtual memory");
}

kn_status kn_pool_pause(size_t *dropped_bytes, kn_pool *pool, const kn_pause_options *options) {
    static const kn_pause_options defaults = {0};
    const kn_pause_options *o = options ? options : &defaults;
    unsigned tag = o->tag ? kn__inspect_tag(o->tag) : 0;
    if (dropped_bytes) *dropped_bytes = 0;
    KN_TRY(kn__pool_given(pool, __func__));
    KN_TRY(kn__device_usable(pool->device, __func__));
    KN_TRY(pause_check(pool, o));
    if (o->tag && !tag) {
        bool full = kn__inspect_tag(KN__TAG_OTHERS_NAME) != 0;
        return KN_FAIL(
            KN_ERR_INVALID, "kn_pool_pause: no memory has the tag '%s'%s", o->tag,
            full ? "; names beyond the first 254 share the tag '" KN__TAG_OTHERS_NAME "'" : "");
    }
    pause *p = calloc(1, sizeof *p);
    if (!p) return KN_FAIL(KN_ERR_OOM, "kn_pool_pause: no host memory");
    p->tag = tag;
    p->ranged = pool->range.base != NULL;
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    kn_status status = pause_locked(pool, p, o->keep);
    bool stays = status == KN_OK || p->stays;
    if (stays) {
        p->next = pool->pauses;
        pool->pauses = p;
        state_set(pool, p, true);
        if (dropped_bytes) *dropped_bytes = p->bytes;
    }
    kn__pool_unlock(pool);
    if (!stays) pause_destroy(p);
    return status;
}

size_t kn_pool_paused_bytes(kn_pool *pool) {
    size_t bytes = 0;
    kn__pool_lock(pool);
    for (const pause *p = pool->pauses; p; p = p->next) bytes += p->bytes;
    kn__pool_unlock(pool);
    return bytes;
}
