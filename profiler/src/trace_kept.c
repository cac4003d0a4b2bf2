#include "trace_kept.h"

#include <stdlib.h>
#include <string.h>

#include "budget.h"

typedef struct kn__kept_record {
    kn__record record;
    uint32_t launch;
} kept;

typedef struct name_slot {
    uint64_t key;
    char *text;
} name_slot;

static const char *keep_name(kn__hash *names, const char *text) {
    if (!text) return NULL;
    if (kn__hash_is_full(names) && !kn__budget_grow(names, sizeof(name_slot), 64)) return NULL;
    uint64_t key = kn__hash_text(0, text);
    name_slot *slot = kn__hash_find(names, sizeof *slot, key);
    while (slot->key && strcmp(slot->text, text) != 0) {
        slot = kn__hash_after(names, sizeof *slot, slot);
    }
    if (slot->key) return slot->text;
    char *copy = strdup(text);
    if (!copy) return NULL;
    kn__hash_use(names, slot, key);
    return slot->text = copy;
}

static bool make_ring(kn__kept *k) {
    if (k->ring) return true;
    if (!kn__budget_take(KN__KEPT_MAX * sizeof *k->ring)) return false;
    k->ring = malloc(KN__KEPT_MAX * sizeof *k->ring);
    if (!k->ring) kn__budget_return(KN__KEPT_MAX * sizeof *k->ring);
    return k->ring != NULL;
}

bool kn__kept_add(kn__kept *k, const kn__record *record, uint32_t launch) {
    if (!make_ring(k)) return false;
    kept *to = &k->ring[(k->first + k->n) % KN__KEPT_MAX];
    *to = (kept){*record, launch};
    to->record.name = keep_name(&k->names, record->name);
    if (k->n < KN__KEPT_MAX) {
        k->n++;
    } else {
        k->first = (k->first + 1) % KN__KEPT_MAX;
    }
    return true;
}

bool kn__kept_at(const kn__kept *k, size_t i, kn__record *record, uint32_t *launch) {
    if (i >= k->n) return false;
    const kept *at = &k->ring[(k->first + i) % KN__KEPT_MAX];
    *record = at->record;
    *launch = at->launch;
    return true;
}

void kn__kept_clear(kn__kept *k) { k->first = k->n = 0; }

void kn__kept_release(kn__kept *k) {
    for (size_t i = 0; i < k->names.n_slots; i++) {
        name_slot *slot = kn__hash_at(&k->names, sizeof *slot, i);
        if (slot->key) free(slot->text);
    }
    kn__budget_return(k->names.n_slots * sizeof(name_slot));
    kn__hash_release(&k->names);
    if (k->ring) kn__budget_return(KN__KEPT_MAX * sizeof *k->ring);
    free(k->ring);
    *k = (kn__kept){0};
}
