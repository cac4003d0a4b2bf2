#include "activity.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "busy.h"
#include "checked.h"
#include "external.h"
#include "graph.h"
#include "kernel.h"
#include "now.h"
#include "trace.h"

enum {
    SEGMENT_ENTRIES_MIN = 1 << 8, /* 4 KiB for each thread that launches */
    SEGMENT_ENTRIES_MAX = 1 << 16,
    /* Ids known: at least this many, and more while their records are still to come. */
    GENERATION_ENTRIES = 1 << 17,
    GENERATION_ENTRIES_MAX = 1 << 18,
    LAUNCHES_MIN = 1 << 10,
    LATE_MAX = 1 << 14 /* records kept because their launch isn't known yet */
};

/* What a thread tells the drain: a launch (id is the launch's own), an alias, or (no node) that the
 * launch failed. */
typedef struct entry {
    uint32_t id, launch;
    uintptr_t node; /* its address; odd: no launch, a note */
} entry;

/* Hot, all of it: each launch writes one, each record reads and changes one. */
typedef struct launch {
    uint64_t key; /* key_of(id) */
    kn__tree_node *node;
    uint32_t launch; /* the launch's id, where this id is another call's inside it */
    enum { PENDING, TIMED, UNTIMED, CANCELLED, NOTE } state;
} launch;

/* A part of a thread's ring. When it is full the thread continues in the next one, twice as large;
 * the drain frees a part that it has emptied and that has a successor. */
typedef struct segment {
    /* Hot on the launching thread. */
    struct segment *next; /* KN__STORE is the thread's last access */
    uint64_t n_entries;   /* a power of two */
    uint64_t head_seen;   /* the thread's copy of head */
    kn__count tail;
    /* The drain's, on a line of its own: its stores take no line from the thread that launches. */
    _Alignas(64) kn__count head;
    entry entries[];
} segment;

/* One producer, its thread; one consumer, the drain. Lines are apart as in a segment. */
struct kn__launch_ring {
    segment *writes;        /* hot on the launching thread */
    kn__count n_launched;   /* hot there too */
    kn__count n_lost;       /* launches that found no room */
    kn__count n_lost_other; /* other entries that found none */
    _Alignas(64) segment *reads;
};

/* Ids in the order of their launch: two of these, and when the younger one is full the older one is
 * forgotten. */
typedef struct generation {
    kn__hash launches;
    size_t n_pending;     /* launches that wait for a record */
    uint32_t first, span; /* no id is before the first, or further from it than the span */
} generation;

static pthread_mutex_t drain_lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static const kn__source *source;
static bool running;
static generation young, old;
static kn__record late[LATE_MAX];
static size_t n_late, n_late_before;
static uint64_t n_unknown;   /* launches that the tables had no room for */
static uint64_t n_forgotten; /* launches whose record had not come when the tables were full */
static uint64_t n_timed, n_untimed, n_cancelled, n_lost_found, unattributed_ns, n_unattributed;
static uint64_t n_drains, drain_ns;
static kn__cost overheads[KN__COSTS_MAX]; /* by the source's own account */
static _Atomic(kn__launch_fn) listener;

static _Atomic(uint64_t) n_without_tree; /* launches on threads whose tree could not be made */
static _Atomic(uint64_t) spent_ticks;    /* on the program's threads */

/* In place of a scope: records of such ids are ignored. */
static kn__tree_node ignored;

/* --- the launching thread --- */

static size_t segment_bytes(uint64_t n_entries) {
    return sizeof(segment) + (size_t)n_entries * sizeof(entry);
}

static segment *make_segment(uint64_t n_entries) {
    size_t size = segment_bytes(n_entries);
    if (!kn__budget_take(size)) return NULL;
    segment *s = kn__budget_alloc(size);
    if (!s) {
        kn__budget_return(size);
        return NULL;
    }
    *s = (segment){.n_entries = n_entries};
    return s;
}

static void free_segment(segment *s) {
    KN_ASSERT(s->head == s->tail && s->next); /* all was taken, and there is another one */
    kn__budget_return(segment_bytes(s->n_entries));
    free(s);
}

static struct kn__launch_ring *make_ring(kn__tree *tree) {
    segment *first = make_segment(SEGMENT_ENTRIES_MIN);
    struct kn__launch_ring *ring = first ? kn__budget_alloc(sizeof *ring) : NULL;
    if (!ring) {
        if (first) free_segment(first);
        return NULL;
    }
    *ring = (struct kn__launch_ring){.writes = first, .reads = first};
    KN__STORE(tree->ring, ring);
    return ring;
}

static struct kn__launch_ring *my_ring(kn__tree *tree) {
    if (!tree) return NULL;
    return tree->ring ? tree->ring : make_ring(tree);
}

static bool is_full(const segment *s) { return s->tail - s->head_seen == s->n_entries; }

/* Where the next entry goes; NULL: the drain is behind and there is no memory left. */
static segment *find_room(struct kn__launch_ring *ring) {
    segment *s = ring->writes;
    if (!is_full(s)) return s;
    s->head_seen = KN__LOAD(s->head);
    if (!is_full(s)) return s;
    segment *bigger =
        make_segment(s->n_entries < SEGMENT_ENTRIES_MAX ? 2 * s->n_entries : SEGMENT_ENTRIES_MAX);
    if (!bigger) return NULL;
    ring->writes = bigger;
    KN__STORE(s->next, bigger);
    return bigger;
}

/* Never waits for the drain. */
static bool push(struct kn__launch_ring *ring, entry e) {
    segment *s = find_room(ring);
    if (!s) return false;
    KN_ASSERT(!is_full(s) && !s->next);
    s->entries[s->tail & (s->n_entries - 1)] = e;
    KN__STORE(s->tail, s->tail + 1);
    return true;
}

/* Anything but a launch: without it a record may not find its launch. */
static void push_other(kn__tree *tree, entry e) {
    struct kn__launch_ring *ring = my_ring(tree);
    if (ring && !push(ring, e)) KN__STORE(ring->n_lost_other, ring->n_lost_other + 1);
}

static uintptr_t plain(kn__tree_node *node) { return (uintptr_t)node; }
static uintptr_t note(kn__tree_node *node) { return (uintptr_t)node | 1; }
static kn__tree_node *node_of(const entry *e) { return (kn__tree_node *)(e->node & ~(uintptr_t)1); }

static bool is_wanted(void) { return kn_prof_is_on_(KN_PROF_ALL_ | KN_PROF_GRAD_); }

void kn__activity_note(uint32_t id, bool ours) {
    kn__tree *tree = kn__tree_get();
    kn__tree_node *node = ours || !tree || !is_wanted() ? &ignored : tree->current;
    push_other(tree, (entry){id, id, note(node)});
}

void kn__activity_spent(uint64_t ticks) {
    atomic_fetch_add_explicit(&spent_ticks, ticks, memory_order_relaxed);
}

static bool is_traced(void) {
    return atomic_load_explicit(&kn__prof_extras, memory_order_relaxed) & KN__PROF_TRACE;
}

void kn__activity_launch(uint32_t id) {
    if (__builtin_expect(!is_wanted(), 0)) {
        kn__activity_note(id, true);
        return;
    }
    kn__tree *tree = kn__tree_get();
    struct kn__launch_ring *ring = my_ring(tree);
    if (!ring) {
        atomic_fetch_add_explicit(&n_without_tree, 1, memory_order_relaxed);
        return;
    }
    KN__STORE(ring->n_launched, ring->n_launched + 1);
    if (is_traced()) kn__trace_launch(tree, id);
    if (push(ring, (entry){id, id, plain(tree->current)})) return;
    KN__STORE(ring->n_lost, ring->n_lost + 1);
}

void kn__activity_alias(uint32_t id, uint32_t launch_id) {
    kn__tree *tree = kn__tree_get();
    kn__tree_node *node = tree && is_wanted() ? tree->current : &ignored;
    push_other(tree, (entry){id, launch_id, plain(node)});
}

void kn__activity_cancel(uint32_t launch_id) {
    struct kn__launch_ring *ring = my_ring(kn__tree_get());
    if (!ring && is_wanted()) {
        atomic_fetch_sub_explicit(&n_without_tree, 1, memory_order_relaxed);
    } else if (ring && !push(ring, (entry){launch_id, launch_id, 0})) {
        KN__STORE(ring->n_launched, ring->n_launched - 1);
    }
}

/* --- ids --- */

/* Ids come in a row: so do their slots, and a batch of them stays in the cache. An id that is not
 * there is looked for among all that are, unless it is out of their range. */
static uint64_t key_of(uint32_t id) { return (uint64_t)id + 1; }

static uint32_t id_of(const launch *l) { return (uint32_t)(l->key - 1); }

/* A call made inside a launch has another one's id, or none. */
static bool is_launch(const launch *l) { return id_of(l) == l->launch; }

static bool may_have(const generation *g, uint32_t id) {
    return g->launches.n_used > 0 && id - g->first <= g->span;
}

/* Ids may go round: the range grows at the end that the id is nearer to. */
static void widen(generation *g, uint32_t id) {
    if (g->launches.n_used == 0) {
        g->first = id;
        g->span = 0;
    }
    uint32_t at = id - g->first, after = at - g->span, before = g->first - id;
    if (at <= g->span) return;
    uint32_t more = after < before ? after : before;
    if (before <= after) g->first = id;
    g->span = more < UINT32_MAX - g->span ? g->span + more : UINT32_MAX;
}

static launch *find(uint32_t id) {
    const generation *all[] = {&young, &old};
    for (int i = 0; i < 2; i++) {
        if (!may_have(all[i], id)) continue;
        launch *l = kn__hash_find(&all[i]->launches, sizeof *l, key_of(id));
        if (l->key) return l;
    }
    return NULL;
}

static bool grow(generation *g) {
    return kn__budget_grow(&g->launches, sizeof(launch), LAUNCHES_MIN);
}

/* Launches alone: other calls made inside one, or for something else, wait for no record. */
static void count_pending(generation *of, const launch *l, int delta) {
    if (l->state != PENDING || !is_launch(l)) return;
    KN_ASSERT(delta > 0 || (of->n_pending && l->node->n_pending));
    of->n_pending += (size_t)(ptrdiff_t)delta;
    KN__STORE(l->node->n_pending, l->node->n_pending + (uint64_t)(int64_t)delta);
}

static void end_pending(const launch *l) {
    uintptr_t at = (uintptr_t)l - (uintptr_t)young.launches.slots;
    count_pending(at < young.launches.n_slots * sizeof *l ? &young : &old, l, -1);
}

/* Its record, if there is one, finds no launch any more. */
static void forget(generation *of, const launch *l) {
    if (!l->node || l->state != PENDING || !is_launch(l)) return;
    count_pending(of, l, -1);
    n_forgotten++;
}

static void forget_old(void) {
    generation empty = old;
    for (size_t i = 0; i < old.launches.n_slots; i++) {
        forget(&old, kn__hash_at(&old.launches, sizeof(launch), i));
    }
    KN_ASSERT(old.n_pending == 0);
    old = young;
    kn__hash_clear(&empty.launches, sizeof(launch));
    young = (generation){.launches = empty.launches};
}

static bool may_forget(void) {
    return young.launches.n_used >= (old.n_pending ? GENERATION_ENTRIES_MAX : GENERATION_ENTRIES);
}

static bool has_room(void) {
    return old.launches.n_slots && !may_forget() && !kn__hash_is_full(&young.launches);
}

/* Where neither may grow, generations are shorter. */
static bool make_room(void) {
    if (!old.launches.n_slots && !grow(&old)) return false;
    if (may_forget()) forget_old();
    if (kn__hash_is_full(&young.launches) && !grow(&young)) forget_old();
    return young.launches.n_slots > 0;
}

static void insert(const entry *e) {
    if (!has_room() && !make_room()) {
        n_unknown += e->id == e->launch && !(e->node & 1);
        return;
    }
    widen(&young, e->id);
    launch *l = kn__hash_put(&young.launches, sizeof *l, key_of(e->id));
    forget(&young, l); /* of an id that is used again */
    *l = (launch){l->key, node_of(e), e->launch, e->node & 1 ? NOTE : PENDING};
    count_pending(&young, l, 1);
}

static void cancel(uint32_t id) {
    launch *l = find(id);
    if (l && l->state != PENDING) return;
    if (l) {
        end_pending(l);
        l->state = CANCELLED;
    }
    n_cancelled++; /* there was no room for the launch, but it was counted */
}

static kn__told told(const entry *e) {
    if (!e->node) return KN__TOLD_FAILURE;
    if (!(e->node & 1)) return KN__TOLD_LAUNCH;
    return node_of(e) == &ignored ? KN__TOLD_OURS : KN__TOLD_NOTE;
}

static void take_entry(const entry *e) {
    e->node ? insert(e) : cancel(e->id);
    kn__launch_fn listens = atomic_load_explicit(&listener, memory_order_relaxed);
    if (listens) listens(told(e), e->id, e->launch, node_of(e));
}

/* `next` is read before `tail`: once there is a successor the tail stays. */
static void drain_ring(struct kn__launch_ring *ring) {
    for (;;) {
        segment *s = ring->reads, *next = KN__LOAD(s->next);
        uint64_t head = s->head, tail = KN__LOAD(s->tail);
        KN_ASSERT(tail - head <= s->n_entries);
        for (; head != tail; head++) take_entry(&s->entries[head & (s->n_entries - 1)]);
        KN__STORE(s->head, head);
        if (!next) return;
        ring->reads = next;
        free_segment(s);
    }
}

static void drain_rings(void) {
    for (kn__tree *tree = kn__tree_first(); tree; tree = tree->next) {
        struct kn__launch_ring *ring = KN__LOAD(tree->ring);
        if (ring) drain_ring(ring);
    }
}

/* --- records --- */

/* A launch has as many records as it likes, and is timed when one of them is. */
static void count_launch(launch *l, bool timed) {
    launch *first = is_launch(l) ? l : find(l->launch);
    if (first) l = first;
    if (l->state == NOTE) return;
    end_pending(l);
    if (timed && l->state != TIMED) {
        n_cancelled -= l->state == CANCELLED;
        n_timed++;
        n_untimed -= l->state == UNTIMED;
        l->state = TIMED;
    } else if (!timed && l->state == PENDING) {
        n_untimed++;
        l->state = UNTIMED;
    }
}

static bool has_time(const kn__record *r) { return r->end_ns > r->start_ns && r->start_ns; }

static const kn__tree_node *captured_in(const kn__record *r) {
    if (!r->graph_node) return NULL;
    const kn__tree_node *scope = kn__graph_scope(r->graph_node);
    if (scope) return scope;
    return kn__graph_lost() ? &kn__captured_lost : &kn__captured_before;
}

static void add_work(launch *l, const kn__record *r) {
    kn__gpu_work work = {r->name, captured_in(r), 0, r->bytes};
    bool timed = has_time(r);
    count_launch(l, timed);
    if (timed) {
        work.gpu_ns = r->end_ns - r->start_ns;
        kn__busy_add(r->device, r->stream, r->start_ns, r->end_ns);
        kn__trace_record(r, l->launch);
    }
    if (kn__kernel_add(l->node, &work)) return;
    unattributed_ns += work.gpu_ns;
    n_unattributed++;
}

static void add_alloc(kn__tree_node *node, const kn__record *r) {
    kn__external_alloc(r->start_ns, r->address, r->bytes);
    if (node) (void)kn__kernel_add(node, &(kn__gpu_work){"[device malloc]", NULL, 0, r->bytes});
}

static void add_overhead(const kn__record *r) {
    int i = 0;
    while (i < KN__COSTS_MAX - 1 && overheads[i].label && overheads[i].label != r->name) i++;
    overheads[i].label = r->name;
    overheads[i].n++;
    if (r->end_ns > r->start_ns) overheads[i].ns += r->end_ns - r->start_ns;
}

/* False: the launch isn't known, for now. */
static bool attribute(const kn__record *r) {
    if (r->kind == KN__RECORD_FREE) {
        kn__external_free(r->start_ns, r->address);
        return true;
    }
    if (r->kind == KN__RECORD_OVERHEAD) {
        add_overhead(r);
        return true;
    }
    launch *l = find(r->id);
    if (!l || l->node == &ignored) return l != NULL;
    r->kind == KN__RECORD_ALLOC ? add_alloc(l->node, r) : add_work(l, r);
    return true;
}

static uint64_t sum_rings(uint64_t *lost) {
    uint64_t launched = atomic_load_explicit(&n_without_tree, memory_order_relaxed);
    *lost = launched + n_unknown + n_forgotten;
    for (kn__tree *tree = kn__tree_first(); tree; tree = tree->next) {
        const struct kn__launch_ring *ring = KN__LOAD(tree->ring);
        if (!ring) continue;
        *lost += KN__LOAD(ring->n_lost);
        launched += KN__LOAD(ring->n_launched);
    }
    return launched - n_cancelled;
}

static uint64_t sum_lost_entries(void) {
    uint64_t n = n_unknown;
    for (kn__tree *tree = kn__tree_first(); tree; tree = tree->next) {
        const struct kn__launch_ring *ring = KN__LOAD(tree->ring);
        if (ring) n += KN__LOAD(ring->n_lost) + KN__LOAD(ring->n_lost_other);
    }
    return n;
}

/* Its launch is not known: it was before the start, or no ring had room for it. */
static void give_up(const kn__record *r) {
    uint64_t lost;
    if (r->kind == KN__RECORD_ALLOC) {
        add_alloc(NULL, r);
        return;
    }
    sum_rings(&lost);
    if (n_lost_found < lost) {
        n_lost_found++;
        *(has_time(r) ? &n_timed : &n_untimed) += 1;
    }
    if (has_time(r)) unattributed_ns += r->end_ns - r->start_ns;
    n_unattributed++;
}

static void join(void *sink, const kn__record *records, size_t n) {
    bool up_to_date = false;
    (void)sink;
    for (size_t i = 0; i < n; i++) {
        if (attribute(&records[i])) continue;
        if (!up_to_date) { /* launched since the rings were looked at */
            drain_rings();
            up_to_date = true;
            if (attribute(&records[i])) continue;
        }
        if (n_late < LATE_MAX) {
            late[n_late++] = records[i];
        } else {
            give_up(&records[i]);
        }
    }
}

/* Launches that came in while records were drained; those late before are late for good now. */
static void join_late(void) {
    size_t kept = 0;
    for (size_t i = 0; i < n_late; i++) {
        if (attribute(&late[i])) continue;
        if (i < n_late_before) {
            give_up(&late[i]);
        } else {
            late[kept++] = late[i];
        }
    }
    KN_ASSERT(kept <= n_late);
    n_late = n_late_before = kept;
}

static void drain_locked(void) {
    KN_ASSERT(source);
    uint64_t start_ns = kn__now_ns(CLOCK_THREAD_CPUTIME_ID);
    drain_rings();
    if (running) source->drain(source->ctx, join, NULL);
    drain_rings();
    join_late();
    kn__external_apply();
    kn__graph_sweep();
    n_drains++;
    drain_ns += kn__now_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
}

void kn__activity_drain(void) {
    pthread_mutex_lock(&drain_lock);
    if (source) drain_locked();
    pthread_mutex_unlock(&drain_lock);
}

/* --- start, stop, balance --- */

kn_status kn__activity_start(const kn__source *wanted) {
    pthread_mutex_lock(&drain_lock);
    kn_status status = KN_OK;
    if (running) {
        status = KN_FAIL(KN_ERR_INVALID, "records come from %s already", source->name);
    } else {
        status = wanted->start(wanted->ctx);
    }
    if (status >= 0) {
        source = wanted;
        running = true;
        (void)make_room(); /* before scopes take all memory */
        forget_old();      /* a source's ids are its own */
        forget_old();
    }
    pthread_mutex_unlock(&drain_lock);
    return status;
}

void kn__activity_stop(void) {
    pthread_mutex_lock(&drain_lock);
    const kn__source *stopped = running ? source : NULL;
    if (stopped) {
        stopped->stop(stopped->ctx);
        for (int i = 0; i < 2; i++) drain_locked(); /* nothing more will come: late is lost */
        running = false;
    }
    pthread_mutex_unlock(&drain_lock);
    if (stopped && stopped->end) stopped->end(stopped->ctx);
}

void kn__activity_pause(bool paused) {
    pthread_mutex_lock(&drain_lock);
    if (running && source->pause) source->pause(source->ctx, paused);
    pthread_mutex_unlock(&drain_lock);
}

void kn__activity_listen(kn__launch_fn fn) {
    atomic_store(&listener, fn); /* a source sets it as it starts, under our lock */
}

/* What all this cost, apart from the program's own rows. */
static void fill_costs(kn__balance *out) {
    uint64_t ticks = atomic_load_explicit(&spent_ticks, memory_order_relaxed);
    uint64_t calls_ns = ticks ? kn__clock_ns(ticks, kn__clock_tick_ns()) : 0;
    int n = 0;
    out->costs[n++] = (kn__cost){"joining records", drain_ns, n_drains};
    if (ticks) out->costs[n++] = (kn__cost){"callbacks at launches (sampled)", calls_ns, 0};
    for (int i = 0; i < KN__COSTS_MAX && overheads[i].label && n < KN__COSTS_MAX; i++)
        out->costs[n++] = overheads[i];
}

void kn__activity_balance(kn__balance *out) {
    pthread_mutex_lock(&drain_lock);
    *out = (kn__balance){0};
    if (source) {
        uint64_t lost;
        *out = (kn__balance){.source = source->name,
                             .launched = sum_rings(&lost),
                             .timed = n_timed,
                             .untimed = n_untimed,
                             .unattributed_ns = unattributed_ns,
                             .n_unattributed = n_unattributed};
        KN_ASSERT(n_timed + n_untimed <= out->launched);
        uint64_t open = out->launched - n_timed - n_untimed, dropped = source->dropped(source->ctx);
        out->n_lost = dropped + sum_lost_entries();
        out->dropped = dropped < open ? dropped : open;
        out->pending = open - out->dropped;
        if (source->notice) out->notice = source->notice(source->ctx);
        fill_costs(out);
        kn__external_read(&out->external);
    }
    pthread_mutex_unlock(&drain_lock);
}

void kn__activity_gpu_use(kn__gpu_use *out) {
    pthread_mutex_lock(&drain_lock);
    kn__busy_read(out);
    pthread_mutex_unlock(&drain_lock);
}
