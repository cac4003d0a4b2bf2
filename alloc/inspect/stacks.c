/* Call stacks of live blocks: an observer, a table of stacks and one of blocks. Memory comes from
 * the system by pages: a lock of a pool may be held where malloc would wait for that pool. */
#include "inspect/stacks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "core/meta.h"
#include "core/pool_state.h"
#include "device/observe.h"
#include "device/thread.h"
#include "hash.h"

enum { DEPTH = 24, DEPTH_MAX = 64, OWN_FRAMES = 8, TEXT_BYTES = 4096 };

typedef struct stack {
    const kn_pool *pool;
    uint32_t id;
    uint64_t live_bytes, n_live, n_allocs;
    size_t trail_bytes; /* of its source: the frames' addresses, and fn's text */
    const char *trail, *text;
} stack;

typedef struct stack_slot {
    uint64_t key;
    stack *stack;
} stack_slot;

typedef struct block_slot {
    uint64_t key;
    const kn_pool *pool;
    const void *ptr;
    uint64_t bytes;
    stack *stack;
} block_slot;

static struct {
    pthread_mutex_t lock;
    bool on;
    uint32_t n_ids;
    kn_stacks_options options;
    kn__meta meta;
    kn__hash stacks, blocks;
} the = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- a stack as text --- */

/* Frames of this library come first, but where it is a part of the program. */
static bool is_own(const Dl_info *frame) {
    static const char name[] = "libknet_alloc";
    const char *file = frame->dli_fname ? strrchr(frame->dli_fname, '/') : NULL;
    return file && strncmp(file + 1, name, sizeof name - 1) == 0;
}

static void write_frame(kn__text *text, const Dl_info *frame, const char *pc) {
    const char *name = frame->dli_sname ? frame->dli_sname : "?";
    const char *from = frame->dli_sname ? frame->dli_saddr : frame->dli_fbase;
    kn__text_printf(text, "%s+0x%zx %s\n", name, (size_t)(pc - from),
                    frame->dli_fname ? frame->dli_fname : "?");
}

/* In the call, not after it. */
static const char *call_of(void *const *pcs, int i) { return (const char *)pcs[i] - 1; }

static bool frame_of(Dl_info *out, const char *pc) {
    *out = (Dl_info){.dli_fname = NULL};
    return dladdr(pc, out) != 0;
}

/* The first frame outside this library; a sanitizer's own frames may come before ours. */
static int first_frame(void *const *pcs, int n) {
    Dl_info frame;
    int first = 0;
    while (first < n && !(frame_of(&frame, call_of(pcs, first)) && is_own(&frame))) first++;
    if (first == n) return 0;
    while (first < n && frame_of(&frame, call_of(pcs, first)) && is_own(&frame)) first++;
    return first;
}

/* fn's lines, then the native frames. */
static void write_trail(kn__text *text, void *const *pcs, int n, const char *lines, int depth) {
    if (*lines) kn__text_printf(text, "%s%s", lines, lines[strlen(lines) - 1] == '\n' ? "" : "\n");
    int first = first_frame(pcs, n);
    for (int i = first; i < n && i < first + depth; i++) {
        Dl_info frame;
        (void)frame_of(&frame, call_of(pcs, i));
        write_frame(text, &frame, call_of(pcs, i));
    }
}

/* --- the tables; under the lock --- */

static bool table_room(kn__hash *table, size_t slot_bytes) {
    if (!kn__hash_is_full(table)) return true;
    size_t n = kn__hash_next_size(table, 1024), before = table->n_slots;
    void *slots = kn__meta_alloc(&the.meta, n * slot_bytes);
    if (!slots) return false;
    void *old = kn__hash_move(table, slot_bytes, slots, n);
    kn__meta_free(&the.meta, old, before * slot_bytes);
    return true;
}

static uint64_t trail_key(const kn_pool *pool, const char *trail, size_t bytes) {
    return kn__hash_bytes((uintptr_t)pool, trail, bytes);
}

static stack *find_stack(stack_slot **slot, uint64_t key, const kn_pool *pool, const char *trail,
                         size_t bytes) {
    stack_slot *s = kn__hash_find(&the.stacks, sizeof *s, key);
    while (s->key) {
        const stack *x = s->stack;
        bool same = x->pool == pool && x->trail_bytes == bytes;
        if (same && memcmp(x->trail, trail, bytes) == 0) return s->stack;
        s = kn__hash_after(&the.stacks, sizeof *s, s);
    }
    *slot = s;
    return NULL;
}

static const char *keep(const char *bytes, size_t n) {
    char *kept = kn__meta_alloc(&the.meta, n);
    return kept ? memcpy(kept, bytes, n) : NULL;
}

static stack *add_stack(stack_slot *slot, uint64_t key, const kn_pool *pool, const char *trail,
                        size_t bytes, const char *text) {
    stack *s = kn__meta_alloc(&the.meta, sizeof *s);
    if (!s) return NULL;
    *s = (stack){.pool = pool,
                 .id = ++the.n_ids,
                 .trail_bytes = bytes,
                 .trail = keep(trail, bytes),
                 .text = keep(text, strlen(text) + 1)};
    if (!s->trail || !s->text) return NULL;
    kn__hash_use(&the.stacks, slot, key);
    slot->stack = s;
    return s;
}

static void stack_free(stack *s) {
    KN_ASSERT(!s->n_live && !s->live_bytes);
    kn__meta_free(&the.meta, (void *)(uintptr_t)s->trail, s->trail_bytes);
    kn__meta_free(&the.meta, (void *)(uintptr_t)s->text, strlen(s->text) + 1);
    kn__meta_free(&the.meta, s, sizeof *s);
}

static block_slot *find_block(const kn_pool *pool, const void *ptr) {
    if (!the.blocks.n_slots) return NULL;
    block_slot *b =
        kn__hash_find(&the.blocks, sizeof *b, kn__hash_pair((uintptr_t)pool, (uintptr_t)ptr));
    while (b->key && (b->pool != pool || b->ptr != ptr)) {
        b = kn__hash_after(&the.blocks, sizeof *b, b);
    }
    return b;
}

static void remove_block(block_slot *b) {
    b->stack->live_bytes -= b->bytes;
    b->stack->n_live--;
    kn__hash_remove(&the.blocks, sizeof *b, b);
}

static void add_block(const kn_pool *pool, const void *ptr, uint64_t bytes, stack *s) {
    if (!table_room(&the.blocks, sizeof(block_slot))) return;
    block_slot *b = find_block(pool, ptr);
    if (b->key) { /* its free was not heard of */
        remove_block(b);
        b = find_block(pool, ptr);
    }
    kn__hash_use(&the.blocks, b, kn__hash_pair((uintptr_t)pool, (uintptr_t)ptr));
    b->pool = pool;
    b->ptr = ptr;
    b->bytes = bytes;
    b->stack = s;
    s->live_bytes += bytes;
    s->n_live++;
    s->n_allocs++;
}

/* --- allocations --- */

typedef struct trail {
    size_t bytes;
    int n;                             /* of pcs */
    void *pcs[DEPTH_MAX + OWN_FRAMES]; /* then, side by side with those in use, fn's lines */
    char lines[TEXT_BYTES];
    char joined[sizeof(void *) * (DEPTH_MAX + OWN_FRAMES) + TEXT_BYTES];
} trail;

/* With no lock held. False: nothing is to be kept. */
static bool take_trail(trail *t, const kn_stacks_options *o) {
    size_t written = 0;
    t->n = o->depth > 0 ? backtrace(t->pcs, o->depth + OWN_FRAMES) : 0;
    if (o->fn) written = o->fn(o->ctx, t->lines, sizeof t->lines - 1);
    if (written > sizeof t->lines - 1) written = sizeof t->lines - 1;
    t->lines[written] = '\0';
    size_t pcs = (size_t)t->n * sizeof *t->pcs;
    memcpy(t->joined, t->pcs, pcs);
    memcpy(t->joined + pcs, t->lines, written);
    t->bytes = pcs + written;
    return t->bytes > 0;
}

/* Adds the block if its stack is known; else, with a text for it, adds both. */
static bool note_alloc(const kn_pool *pool, const void *ptr, uint64_t bytes, const trail *t,
                       const char *text) {
    bool done = true;
    uint64_t key = trail_key(pool, t->joined, t->bytes);
    pthread_mutex_lock(&the.lock);
    if (the.on && table_room(&the.stacks, sizeof(stack_slot))) {
        stack_slot *slot = NULL;
        stack *s = find_stack(&slot, key, pool, t->joined, t->bytes);
        if (!s && text) s = add_stack(slot, key, pool, t->joined, t->bytes, text);
        if (s) add_block(pool, ptr, bytes, s);
        done = s || text;
    }
    pthread_mutex_unlock(&the.lock);
    return done;
}

static bool options_now(kn_stacks_options *out) {
    pthread_mutex_lock(&the.lock);
    *out = the.options;
    bool on = the.on;
    pthread_mutex_unlock(&the.lock);
    return on;
}

static __attribute__((noinline)) void keep_stack(const kn_pool *pool, const void *ptr,
                                                 uint64_t bytes) {
    kn_stacks_options o;
    trail t;
    if (!options_now(&o) || !take_trail(&t, &o)) return;
    if (note_alloc(pool, ptr, bytes, &t, NULL)) return;
    char buffer[TEXT_BYTES];
    kn__text text = kn__text_in(buffer, sizeof buffer);
    write_trail(&text, t.pcs, t.n, t.lines, o.depth);
    (void)note_alloc(pool, ptr, bytes, &t, buffer);
}

/* --- the observer --- */

/* fn may allocate: that is kept without a stack. */
static uint32_t on_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)stream;
    kn__thread *self = kn__thread_get();
    if (self && !self->in_stack) {
        self->in_stack = true;
        keep_stack(pool, ptr, size);
        self->in_stack = false;
    }
    return 0;
}

static void on_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    (void)size, (void)owner;
    pthread_mutex_lock(&the.lock);
    block_slot *b = find_block(pool, ptr);
    if (b && b->key) remove_block(b);
    pthread_mutex_unlock(&the.lock);
}

/* Another pool may be created at its address. */
static void forget_pool(const kn_pool *pool) {
    for (size_t i = 0; i < the.blocks.n_slots;) {
        block_slot *b = kn__hash_at(&the.blocks, sizeof *b, i);
        if (b->key && b->pool == pool) {
            remove_block(b);
        } else {
            i++;
        }
    }
    for (size_t i = 0; i < the.stacks.n_slots;) {
        stack_slot *s = kn__hash_at(&the.stacks, sizeof *s, i);
        if (s->key && s->stack->pool == pool) {
            stack_free(s->stack);
            kn__hash_remove(&the.stacks, sizeof *s, s);
        } else {
            i++;
        }
    }
}

static void on_pool_destroy(kn_pool *pool) {
    pthread_mutex_lock(&the.lock);
    forget_pool(pool);
    pthread_mutex_unlock(&the.lock);
}

static const kn_observer stacks = {
    .on_alloc = on_alloc, .on_free = on_free, .on_pool_destroy = on_pool_destroy};

/* --- begin and end --- */

static kn_status check_options(const kn_stacks_options *o) {
    if (o->depth < -1 || o->depth > DEPTH_MAX) {
        return KN_FAIL(KN_ERR_INVALID, "kn_stacks_begin: depth is %d, not in [-1, %d]", o->depth,
                       DEPTH_MAX);
    }
    if (o->depth < 0 && !o->fn) {
        return KN_FAIL(KN_ERR_INVALID, "kn_stacks_begin: depth is -1 and fn is NULL: no frames");
    }
    for (int i = 0; i < 4; i++) {
        if (!o->reserved[i]) continue;
        return KN_FAIL(KN_ERR_INVALID, "kn_stacks_begin: options.reserved[%d] must be zero", i);
    }
    return KN_OK;
}

kn_status kn_stacks_begin(const kn_stacks_options *options) {
    static const kn_stacks_options defaults = {0};
    if (!options) options = &defaults;
    void *warm_up[1];
    KN_TRY(check_options(options));
    if (options->depth >= 0 && backtrace(warm_up, 1) == 0) { /* the first one loads a library */
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_stacks_begin: this system can't walk a stack");
    }
    pthread_mutex_lock(&the.lock);
    bool was_on = the.on;
    if (!was_on) {
        the.options = *options;
        if (!the.options.depth) the.options.depth = DEPTH;
        the.on = true;
    }
    pthread_mutex_unlock(&the.lock);
    if (was_on) return KN_FAIL(KN_ERR_INVALID, "kn_stacks_begin: stacks are kept already");
    kn__observer_set(KN__LAYER_STACKS, &stacks);
    return KN_OK;
}

static void forget_all(void) {
    the.on = false;
    the.n_ids = 0;
    the.stacks = the.blocks = (kn__hash){0};
    kn__meta_release(&the.meta);
}

void kn_stacks_end(void) {
    kn__observer_set(KN__LAYER_STACKS, NULL);
    pthread_mutex_lock(&the.lock);
    forget_all();
    pthread_mutex_unlock(&the.lock);
}

/* Another thread may have been changing the tables. */
static void fork_child(void) {
    the.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (!the.on) return;
    the.meta = (kn__meta){0};
    forget_all();
    kn__observer_set(KN__LAYER_STACKS, NULL);
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, fork_child);
}

/* --- reading --- */

static const stack *stack_of(const kn_pool *pool, const void *ptr) {
    const block_slot *b = find_block(pool, ptr);
    return b && b->key ? b->stack : NULL;
}

uint32_t kn__stack_of(const kn_pool *pool, const void *ptr) {
    pthread_mutex_lock(&the.lock);
    const stack *s = stack_of(pool, ptr);
    uint32_t id = s ? s->id : 0;
    pthread_mutex_unlock(&the.lock);
    return id;
}

size_t kn_block_stack(char *out, size_t out_bytes, kn_pool *pool, const void *ptr) {
    pthread_mutex_lock(&the.lock);
    const stack *s = stack_of(pool, ptr);
    const char *text = s ? s->text : "";
    size_t length = strlen(text);
    if (out_bytes) snprintf(out, out_bytes, "%s", text);
    pthread_mutex_unlock(&the.lock);
    return length;
}

/* Into the first n, the largest first. */
static void insert(kn_stack_use *out, size_t n, size_t found, const stack *s) {
    size_t i = found < n ? found : n;
    while (i > 0 && out[i - 1].live_bytes < s->live_bytes) {
        if (i < n) out[i] = out[i - 1];
        i--;
    }
    if (i == n) return;
    out[i] = (kn_stack_use){
        .live_bytes = s->live_bytes, .n_live = s->n_live, .n_allocs = s->n_allocs, .text = s->text};
}

static size_t largest(kn_stack_use *out, size_t n, const kn_pool *pool) {
    size_t found = 0;
    for (size_t i = 0; i < the.stacks.n_slots; i++) {
        const stack_slot *slot = kn__hash_at(&the.stacks, sizeof *slot, i);
        if (!slot->key || slot->stack->pool != pool || !slot->stack->n_live) continue;
        insert(out, n, found++, slot->stack);
    }
    return found;
}

size_t kn_pool_stacks(kn_stack_use *out, size_t n, kn_pool *pool) {
    pthread_mutex_lock(&the.lock);
    size_t found = largest(out, n, pool);
    pthread_mutex_unlock(&the.lock);
    return found;
}

size_t kn__stacks_copy(kn__stack_copy out[KN__STACKS_COPIED], const kn_pool *pool) {
    kn_stack_use uses[KN__STACKS_COPIED];
    pthread_mutex_lock(&the.lock);
    size_t n = largest(uses, KN__STACKS_COPIED, pool);
    if (n > KN__STACKS_COPIED) n = KN__STACKS_COPIED;
    for (size_t i = 0; i < n; i++) {
        out[i].bytes = uses[i].live_bytes;
        out[i].n_live = uses[i].n_live;
        snprintf(out[i].text, sizeof out[i].text, "%s", uses[i].text);
    }
    pthread_mutex_unlock(&the.lock);
    return n;
}

/* "function file:line"; the line is a number, or the file is all of it. */
static void frame_write(kn__writer *w, const char *frame) {
    const char *space = strchr(frame, ' '), *file = space ? space + 1 : "";
    const char *colon = strrchr(file, ':');
    bool numbered = colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
    char name[256], path[512];
    snprintf(name, sizeof name, "%.*s", space ? (int)(space - frame) : (int)strlen(frame), frame);
    snprintf(path, sizeof path, "%.*s", numbered ? (int)(colon - file) : (int)strlen(file), file);
    kn__open(w, NULL, "{");
    kn__add_text(w, "name", 0, name);
    kn__add_text(w, "filename", 0, path);
    kn__add(w, "line", KN__COUNT, numbered ? strtoull(colon + 1, NULL, 10) : 0);
    kn__close(w, "}");
}

void kn__stack_frames_write(kn__writer *w, const char *text) {
    char frame[1024];
    kn__open(w, "frames", "[");
    while (*text) {
        size_t length = strcspn(text, "\n");
        snprintf(frame, sizeof frame, "%.*s", (int)length, text);
        if (length) frame_write(w, frame);
        text += length + (text[length] == '\n');
    }
    kn__close(w, "]");
}

static void stack_write(kn__writer *w, const stack *s) {
    kn__open(w, NULL, "\n{");
    kn__add(w, "id", KN__COUNT, s->id);
    kn__add(w, "live_bytes", KN__BYTES, s->live_bytes);
    kn__add(w, "live", KN__COUNT, s->n_live);
    kn__add(w, "allocations", KN__COUNT, s->n_allocs);
    kn__stack_frames_write(w, s->text);
    kn__close(w, "}");
}

void kn__stacks_write(kn__writer *w, const kn_pool *pool) {
    pthread_mutex_lock(&the.lock);
    if (the.on) kn__open(w, "stacks", "[");
    for (size_t i = 0; i < the.stacks.n_slots; i++) {
        const stack_slot *slot = kn__hash_at(&the.stacks, sizeof *slot, i);
        if (slot->key && slot->stack->pool == pool && slot->stack->n_live) {
            stack_write(w, slot->stack);
        }
    }
    if (the.on) kn__close(w, "]");
    pthread_mutex_unlock(&the.lock);
}
