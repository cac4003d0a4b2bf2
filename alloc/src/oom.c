/* Out of memory: what the pool remembers of it, for people and as JSON. */
#include <stdio.h>
#include <string.h>

#include "census.h"
#include "config.h"
#include "observe.h"

void kn__oom_fill(kn__oom *out, kn_pool *pool) {
    kn__census census;
    kn__census_take(&census, pool);
    kn__pool_stats(&out->stats, pool);
    out->limit_bytes = pool->limit;
    out->soft_limit_bytes = pool->soft_limit;
    out->largest_free_bytes = census.largest_free_bytes;
    out->graph_bytes = census.graph_bytes;
    size_t n_tags = kn__tags_read(out->tags, KN__OWNERS_SHOWN, pool);
    out->n_tags = (int)(n_tags < KN__OWNERS_SHOWN ? n_tags : KN__OWNERS_SHOWN);
    out->n_holders = census.n_owners < KN__OWNERS_SHOWN ? census.n_owners : KN__OWNERS_SHOWN;
    for (int i = 0; i < out->n_holders; i++) {
        kn__oom_holder *holder = &out->holders[i];
        holder->bytes = census.owners[i].bytes;
        holder->n_blocks = census.owners[i].n_blocks;
        kn__owner_name(census.owners[i].owner, holder->name, sizeof holder->name);
    }
}

/* ---- for people ---- */

static void add(kn__writer *w, const char *before, uint64_t bytes, const char *after) {
    kn__write_text(w, before);
    kn__write_bytes(w, bytes);
    kn__write_text(w, after);
}

static uint64_t cached_bytes(const kn_pool_stats *s) {
    return s->reserved_bytes > s->live_bytes ? s->reserved_bytes - s->live_bytes : 0;
}

static void write_oom(kn__writer *w, const kn__oom *oom) {
    const kn_pool_stats *s = &oom->stats;
    add(w, "", oom->requested_bytes, " asked for");
    if (oom->slab) add(w, " (a slab of ", oom->needed_bytes, ")");
    if (oom->capturing) kn__write_text(w, " on a stream that is being captured");
    add(w, "; live ", s->live_bytes, "");
    add(w, ", cached ", cached_bytes(s), "");
    add(w, " (largest free block ", oom->largest_free_bytes, "");
    add(w, ", waiting for other streams ", s->waiting_bytes, ")");
    add(w, ", reserved ", s->reserved_bytes, "");
    if (oom->limit_bytes == SIZE_MAX) {
        kn__write_text(w, ", no limit");
    } else {
        add(w, " of a limit of ", oom->limit_bytes, "");
    }
    if (oom->graph_bytes) add(w, ", for graphs ", oom->graph_bytes, "");
    for (int i = 0; i < oom->n_holders; i++) {
        kn__write(w, i ? ", %s" : "; held by %s", oom->holders[i].name);
        add(w, " ", oom->holders[i].bytes, "");
    }
    for (int i = 0; i < oom->n_tags && oom->tags[i].live_bytes; i++) {
        kn__write(w, i ? ", %s" : "; tagged %s", oom->tags[i].name);
        add(w, " ", oom->tags[i].live_bytes, "");
    }
    if (oom->device_said[0]) kn__write(w, "; the device: %s", oom->device_said);
}

kn_status kn__oom_fail(const kn_pool *pool, const kn__oom *oom) {
    char text[1536];
    kn__writer w = kn__writer_of(text, sizeof text);
    write_oom(&w, oom);
    return KN_FAIL(oom->status, "pool %s: out of memory: %s", pool->name, text);
}

/* ---- as JSON ---- */

static void number(kn__writer *w, const char *name, uint64_t value) {
    kn__write(w, "\"%s\":%llu,", name, (unsigned long long)value);
}

static void number_or_null(kn__writer *w, const char *name, uint64_t value) {
    if (value == SIZE_MAX) {
        kn__write(w, "\"%s\":null,", name);
    } else {
        number(w, name, value);
    }
}

static void write_holders(kn__writer *w, const kn__oom *oom) {
    kn__write_text(w, "\"held_by\":[");
    for (int i = 0; i < oom->n_holders; i++) {
        const kn__oom_holder *holder = &oom->holders[i];
        kn__write_text(w, i ? ",{\"name\":" : "{\"name\":");
        kn__write_json_string(w, holder->name);
        kn__write(w, ",\"bytes\":%llu,\"blocks\":%llu}", (unsigned long long)holder->bytes,
                  (unsigned long long)holder->n_blocks);
    }
    kn__write_text(w, "],");
    kn__tags_write_json(w, oom->tags, oom->n_tags);
    kn__write_text(w, ",");
}

void kn__oom_write_json(kn__writer *w, const kn_pool *pool, const kn__oom *oom) {
    kn__write_text(w, "{");
    kn__pool_write_json_head(w, pool);
    number(w, "requested_bytes", oom->requested_bytes);
    number(w, "needed_bytes", oom->needed_bytes);
    number(w, "align", oom->align);
    kn__write(w, "\"slab\":%s,\"capturing\":%s,", oom->slab ? "true" : "false",
              oom->capturing ? "true" : "false");
    number(w, "stream", (uintptr_t)oom->stream);
    number(w, "cached_bytes", cached_bytes(&oom->stats));
    number(w, "largest_free_bytes", oom->largest_free_bytes);
    number(w, "graph_bytes", oom->graph_bytes);
    number_or_null(w, "limit_bytes", oom->limit_bytes);
    number_or_null(w, "soft_limit_bytes", oom->soft_limit_bytes);
    write_holders(w, oom);
    kn__write_text(w, "\"device_said\":");
    kn__write_json_string(w, oom->device_said);
    kn__write_text(w, ",\"stats\":{");
    kn__stats_write_json(w, &oom->stats);
    kn__write_text(w, "},");
    kn__ladder_write_json(w, pool);
    kn__write_text(w, "}");
}

kn_status kn_pool_oom_json(kn_pool *pool, const char *path) {
    static const char function[] = "kn_pool_oom_json";
    char buffer[KN__WRITER_BYTES];
    kn__writer w;
    kn__pool_lock(pool);
    kn__oom oom = pool->last_oom ? *pool->last_oom : (kn__oom){.status = KN_OK};
    kn__pool_unlock(pool);
    if (oom.status == KN_OK) {
        return KN_FAIL(KN_ERR_INVALID, "%s: pool %s never ran out of memory", function, pool->name);
    }
    KN_TRY(kn__writer_open(&w, path, false, function, buffer, sizeof buffer));
    kn__oom_write_json(&w, pool, &oom);
    kn__write_text(&w, "\n");
    return kn__writer_close(&w, path, function);
}
