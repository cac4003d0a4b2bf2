/* Out of memory: the pool keeps the last failed request, as it was and as the pool was then. */
#include <string.h>

#include "core/pool_state.h"
#include "inspect/census.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"
#include "units.h"

static uint64_t unused_bytes(const kn_pool_stats *s) {
    return s->reserved_bytes > s->live_bytes ? s->reserved_bytes - s->live_bytes : 0;
}

static void add(kn__writer *w, const char *before, uint64_t bytes) {
    kn__write(w, "%s %s", before, kn__bytes_text((double)bytes).text);
}

static void write_text(kn__writer *w, const kn__oom *oom) {
    const kn__figures *r = &oom->figures;
    kn__write(w, "%s asked for", kn__bytes_text((double)oom->request.requested_bytes).text);
    if (oom->request.slab) {
        kn__write(w, " (a slab of %s)", kn__bytes_text((double)oom->request.needed_bytes).text);
    }
    if (oom->request.capturing) kn__write_text(w, " on a stream that is being captured");
    add(w, "; live", r->stats.live_bytes);
    add(w, ", unused", unused_bytes(&r->stats));
    add(w, " (in threads' caches", r->stats.cached_bytes);
    add(w, ", largest free block", r->census.largest_free_bytes);
    add(w, ", waiting for other streams", r->stats.waiting_bytes);
    add(w, "), reserved", r->stats.reserved_bytes);
    if (r->limit_bytes == SIZE_MAX) {
        kn__write_text(w, ", no limit");
    } else {
        add(w, " of a limit of", r->limit_bytes);
    }
    if (r->census.graph_bytes) add(w, ", for graphs", r->census.graph_bytes);
    if (oom->request.device_said[0]) kn__write(w, "; the device: %s", oom->request.device_said);
    for (int i = 0; i < r->census.n_owners; i++) {
        kn__write_text(w, i ? ", " : "; held by ");
        add(w, r->owners[i], r->census.owners[i].bytes);
    }
    for (size_t i = 0; i < r->n_tags && r->tags[i].live_bytes; i++) {
        kn__write_text(w, i ? ", " : "; tagged ");
        add(w, r->tags[i].name, r->tags[i].live_bytes);
    }
    for (size_t i = 0; i < oom->n_stacks; i++) {
        const char *frame = oom->stacks[i].text;
        kn__write(w, "%s %s at %.*s", i ? "," : "; allocated",
                  kn__bytes_text((double)oom->stacks[i].bytes).text, (int)strcspn(frame, "\n"),
                  frame);
    }
}

_Thread_local bool kn__oom_due __attribute__((tls_model("initial-exec")));

kn_status kn__inspect_create(kn_pool *pool) {
    pool->last_oom = kn__meta_alloc(&pool->meta, sizeof *pool->last_oom);
    return pool->last_oom ? KN_OK : KN_FAIL(KN_ERR_OOM, "kn_pool_create: no host memory");
}

kn_status kn__inspect_oom(kn_pool *pool, const kn__oom_request *request) {
    kn__oom *oom = pool->last_oom;
    kn__figures *f = &oom->figures;
    oom->request = *request;
    kn__figures_take(f, pool);
    oom->n_stacks = kn__stacks_copy(oom->stacks, pool);
    if (f->n_tags > KN__OWNERS_SHOWN) f->n_tags = KN__OWNERS_SHOWN;
    if (f->census.n_owners > KN__OWNERS_SHOWN) f->census.n_owners = KN__OWNERS_SHOWN;
    char text[1920];
    kn__writer w = kn__writer_of(text, sizeof text);
    write_text(&w, oom);
    kn__oom_due = true;
    return KN_FAIL(request->status, "pool %s: out of memory: %s", pool->name, text);
}

void kn__oom_write(kn__writer *w, const char *name, const kn_pool *pool, const kn__oom *oom) {
    kn__open(w, name, "{");
    kn__figures_write(w, "stats", pool, &oom->figures);
    kn__add(w, "requested_bytes", KN__BYTES, oom->request.requested_bytes);
    kn__add(w, "needed_bytes", KN__BYTES, oom->request.needed_bytes);
    kn__add(w, "align", KN__BYTES, oom->request.align);
    kn__add_flag(w, "slab", oom->request.slab);
    kn__add_flag(w, "capturing", oom->request.capturing);
    kn__add(w, "stream", KN__HANDLE, (uintptr_t)oom->request.stream);
    kn__add(w, "unused_bytes", KN__BYTES, unused_bytes(&oom->figures.stats));
    kn__add_text(w, "device_said", 0, oom->request.device_said);
    if (oom->n_stacks) kn__open(w, "stacks", "[");
    for (size_t i = 0; i < oom->n_stacks; i++) {
        kn__open(w, NULL, "{");
        kn__add(w, "live_bytes", KN__BYTES, oom->stacks[i].bytes);
        kn__add(w, "live", KN__COUNT, oom->stacks[i].n_live);
        kn__stack_frames_write(w, oom->stacks[i].text);
        kn__close(w, "}");
    }
    if (oom->n_stacks) kn__close(w, "]");
    kn__close(w, name ? "}" : "}\n");
}

void kn__oom_read(kn__oom *out, kn_pool *pool) {
    kn__pool_lock(pool);
    *out = *pool->last_oom;
    kn__pool_unlock(pool);
}

kn_status kn_pool_oom_json(kn_pool *pool, const char *path) {
    static const char function[] = "kn_pool_oom_json";
    kn__oom oom;
    KN_TRY(kn__pool_given(pool, __func__));
    kn__oom_read(&oom, pool);
    if (oom.request.status == KN_OK) {
        return KN_FAIL(KN_ERR_INVALID, "%s: pool %s never ran out of memory", function, pool->name);
    }
    kn__writer w = kn__writer_paged(true);
    kn__oom_write(&w, NULL, pool, &oom);
    return kn__writer_save(&w, path, false, function);
}
