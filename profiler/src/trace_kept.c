#include "trace_kept.h"

#include <stdlib.h>
#include <string.h>

#include "budget.h"

typedef struct kept {
    kn__record record;
    uint32_t launch;
} kept;

typedef struct name_slot {
    uint64_t key;
    char *text;
} name_slot;

static kept *ring;
static size_t first, n_kept;
static kn__hash names;

/* Records borrow their names for a moment alone. */
static const char *keep_name(const char *text) {
    if (!text) return NULL;
    if (kn__hash_is_full(&names) && !kn__budget_grow(&names, sizeof(name_slot), 64)) return NULL;
    uint64_t key = kn__hash_text(0, text);
    name_slot *slot = kn__hash_find(&names, sizeof *slot, key);
    while (slot->key && strcmp(slot->text, text) != 0) {
        slot = kn__hash_after(&names, sizeof *slot, slot);
    }
    if (slot->key) return slot->text;
    char *copy = strdup(text);
    if (!copy) return NULL;
    kn__hash_use(&names, slot, key);
    return slot->text = copy;
}

static bool make_ring(void) {
    if (ring) return true;
    if (!kn__budget_take(KN__KEPT_MAX * sizeof *ring)) return false;
    ring = malloc(KN__KEPT_MAX * sizeof *ring);
    if (!ring) kn__budget_return(KN__KEPT_MAX * sizeof *ring);
    return ring != NULL;
}

bool kn__kept_add(const kn__record *record, uint32_t launch) {
    if (!make_ring()) return false;
    kept *to = &ring[(first + n_kept) % KN__KEPT_MAX];
    *to = (kept){*record, launch};
    to->record.name = keep_name(record->name);
    if (n_kept < KN__KEPT_MAX) {
        n_kept++;
    } else {
        first = (first + 1) % KN__KEPT_MAX;
    }
    return true;
}

void kn__kept_take(uint64_t from_ns, void (*fn)(const kn__record *record, uint32_t launch)) {
    for (size_t i = 0; i < n_kept; i++) {
        const kept *k = &ring[(first + i) % KN__KEPT_MAX];
        if (k->record.end_ns >= from_ns) fn(&k->record, k->launch);
    }
    first = n_kept = 0;
}

void kn__kept_release(void) {
    for (size_t i = 0; i < names.n_slots; i++) {
        name_slot *slot = kn__hash_at(&names, sizeof *slot, i);
        if (slot->key) free(slot->text);
    }
    kn__hash_release(&names);
    if (ring) kn__budget_return(KN__KEPT_MAX * sizeof *ring);
    free(ring);
    ring = NULL;
    first = n_kept = 0;
}
