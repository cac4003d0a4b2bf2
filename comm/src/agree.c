/* Finds ranks that don't make the same calls. The tags of a call's messages are a hash of all calls
 * that the two ranks have made together, so data of one call is never taken for that of another:
 * ranks whose calls differ wait. A rank that has waited for a while sends the name of its call
 * to those for which it waits, and they compare. Calls that don't wait send nothing for this. */
#include <inttypes.h>
#include <knet/prof_metric.h>
#include <stdio.h>
#include <string.h>

#include "mix.h"
#include "now.h"
#include "ranks.h"
#include "units.h"

_Static_assert(sizeof(kn__news) <= NOTICE_BYTES, "it arrives as a notice");

static bool is_message(const kn__says *says) {
    return strcmp(says->name, "send") == 0 || strcmp(says->name, "receive") == 0;
}

/* "all_reduce of 500 f32 (sum)", "broadcast of 12 i64 from rank 1", "barrier" */
static const char *says_text(char *out, size_t bytes, const kn__says *says) {
    static const char *const op[] = {"sum", "mean", "max", "min"};
    char what[64] = "", how[32] = "";
    if (says->n >= 0)
        snprintf(what, sizeof what, " of %" PRId64 " %s", says->n,
                 kn_dtype_name((kn_dtype)says->dtype));
    if (strstr(says->name, "reduce") && (unsigned)says->op < 4)
        snprintf(how, sizeof how, " (%s)", op[says->op]);
    if (strcmp(says->name, "broadcast") == 0)
        snprintf(how, sizeof how, " from rank %d", says->root);
    snprintf(out, bytes, "%.15s%s%s", says->name, what, how);
    return out;
}

/* Equal for a send and its receive. */
static uint64_t hash_of(const kn__says *says) {
    uint64_t name[2] = {0};
    if (!is_message(says)) memcpy(name, says->name, sizeof name);
    uint64_t hash = kn__mix(name[0] ^ kn__mix(name[1] + 1));
    hash = kn__mix(hash ^ (uint64_t)says->n);
    return kn__mix(hash ^ (uint64_t)says->dtype ^ (uint64_t)says->op << 8 ^
                   (uint64_t)says->root << 16);
}

static bool is_same(const kn__says *a, const kn__says *b) {
    bool meets = is_message(a) ? is_message(b) : strcmp(a->name, b->name) == 0;
    return meets && a->n == b->n && a->dtype == b->dtype && a->op == b->op && a->root == b->root;
}

/* --- this rank's calls --- */

void kn__comm_note(kn_comm *comm, const kn__call *call, int peer, bool is_gpu) {
    kn__says says = {
        .n = call->n, .dtype = (int32_t)call->dtype, .op = (int32_t)call->op, .root = call->root};
    snprintf(says.name, sizeof says.name, "%s", call->name);
    uint64_t hash = hash_of(&says);
    KN_ASSERT(peer < comm->size && peer != comm->rank && call->number > 0);
    pthread_mutex_lock(&comm->lock);
    comm->past[comm->n_past++ % KN__PAST] = (kn__past){says, call->number, peer, is_gpu};
    if (peer < 0)
        comm->n_all[is_gpu]++;
    else
        comm->with[peer].n[is_gpu]++;
    pthread_mutex_unlock(&comm->lock);
    if (is_gpu) return;
    if (peer < 0)
        comm->chain = kn__mix(comm->chain ^ hash);
    else
        comm->with[peer].chain = kn__mix(comm->with[peer].chain ^ hash ^ comm->chain);
}

int kn__comm_tag(const kn_comm *comm, int peer, int kind) {
    uint64_t hash = kn__mix(comm->chain ^ kn__mix(comm->with[peer].chain));
    KN_ASSERT(peer >= 0 && peer < comm->size && kind > 0 && kind < 1 << KN__TAG_KIND_BITS);
    return (int)(hash >> 36) << KN__TAG_KIND_BITS | kind;
}

/* Walks from the latest call to earlier ones; under the lock. */
typedef struct walk {
    unsigned next;
    uint64_t order; /* of the call at hand, among those with the same rank */
    const kn__past *call;
} walk;

static walk walk_from_latest(const kn_comm *comm, int r, bool is_gpu) {
    return (walk){comm->n_past, comm->n_all[is_gpu] + comm->with[r].n[is_gpu] + 1, NULL};
}

static bool walk_back(walk *w, const kn_comm *comm, int r, bool is_gpu) {
    while (w->next > 0 && comm->n_past - w->next < KN__PAST) {
        w->call = &comm->past[--w->next % KN__PAST];
        if (w->call->is_gpu != is_gpu || (w->call->peer >= 0 && w->call->peer != r)) continue;
        KN_ASSERT(w->order > 0);
        w->order--;
        return true;
    }
    return false;
}

kn_status kn__comm_call(kn_comm *comm, kn__call call) {
    if (kn__comm_is_forked(comm)) return kn__comm_fail_forked(comm, call.name);
    if (atomic_load(&comm->broken)) return kn__comm_fail_broken(comm);
    KN_ASSERT(call.name && strlen(call.name) < sizeof((kn__says){0}.name));
    comm->now = call;
    comm->now.number = atomic_fetch_add(&comm->n_calls, 1) + 1;
    comm->now.bytes = call.n > 0 ? (uint64_t)call.n * kn_dtype_bytes(call.dtype) : 0;
    kn_prof_metric(0, comm->now.bytes);
    return KN_OK;
}

static kn_status note_now(kn_comm *comm, int peer) {
    if (!comm->transport) return KN_OK;
    kn__comm_note(comm, &comm->now, peer, false);
    return kn__comm_glance(comm);
}

kn_status kn__comm_together(kn_comm *comm, kn__call call) {
    KN_TRY(kn__comm_call(comm, call));
    return note_now(comm, -1);
}

kn_status kn__comm_pair(kn_comm *comm, kn__call call, int peer, bool sends) {
    call.root = sends ? comm->rank : peer;
    KN_TRY(kn__comm_call(comm, call));
    return note_now(comm, peer);
}

/* --- the calls of other ranks --- */

static void news_make(kn__news *out, kn_comm *comm, int r, bool is_gpu) {
    *out = (kn__news){.mark = KN__NEWS_MARK, .rank = comm->rank, .is_gpu = is_gpu};
    pthread_mutex_lock(&comm->lock);
    walk w = walk_from_latest(comm, r, is_gpu);
    while (out->n < KN__NEWS_CALLS && walk_back(&w, comm, r, is_gpu)) {
        if (w.call->number > comm->now.number) continue; /* enqueued already; not waited in */
        if (!out->n) out->order = w.order;
        out->says[out->n++] = w.call->says;
    }
    pthread_mutex_unlock(&comm->lock);
}

void kn__comm_tell(kn_comm *comm, int r, bool is_gpu) {
    kn__with *with = &comm->with[r];
    const kn__transport *t = comm->transport;
    if (!t || r == comm->rank || with->told == comm->now.number) return;
    if (with->ask.pending && t->test(comm->state, &with->ask.request) == 0) return;
    KN_ASSERT(with->told < comm->now.number); /* calls are numbered upwards */
    with->told = comm->now.number;
    news_make(&with->out, comm, r, is_gpu);
    with->ask = (kn__ask){.peer = r};
    with->ask.pending =
        t->send(comm->state, &with->ask.request, &with->out, sizeof with->out, r, KN__TAG_NOTICE);
}

void kn__comm_hear(kn_comm *comm, const void *text) {
    kn__news news;
    memcpy(&news, text, sizeof news);
    if (news.rank < 0 || news.rank >= comm->size || news.n < 1 || news.n > KN__NEWS_CALLS) return;
    kn__with *with = &comm->with[news.rank];
    for (int i = 0; i < news.n; i++) news.says[i].name[sizeof news.says[i].name - 1] = '\0';
    with->heard[news.is_gpu != 0] = news;
    with->heard_ns = kn__now_ns(CLOCK_MONOTONIC);
    with->last = news.says[0];
}

/* The first of the calls that differ. */
static bool differs(kn__says *mine, kn__says *theirs, kn_comm *comm, int r, bool is_gpu) {
    const kn__news *news = &comm->with[r].heard[is_gpu];
    bool found = false;
    pthread_mutex_lock(&comm->lock);
    walk w = walk_from_latest(comm, r, is_gpu);
    while (walk_back(&w, comm, r, is_gpu) && w.order + (uint64_t)news->n > news->order) {
        if (w.order > news->order) continue;
        const kn__says *says = &news->says[news->order - w.order];
        if (is_same(&w.call->says, says)) continue;
        *mine = w.call->says;
        *theirs = *says;
        found = true;
    }
    pthread_mutex_unlock(&comm->lock);
    return found;
}

kn_status kn__comm_compare(kn_comm *comm) {
    char ours[96], others[96], what[256];
    kn__says mine, theirs;
    for (int i = 0; i < 2 * comm->size; i++) {
        int r = i / 2;
        if (!comm->with[r].heard[i % 2].n || !differs(&mine, &theirs, comm, r, i % 2)) continue;
        snprintf(what, sizeof what, "calls %s, rank %d calls %s",
                 says_text(others, sizeof others, &theirs), comm->rank,
                 says_text(ours, sizeof ours, &mine));
        return kn__comm_fail_by(comm, r, what);
    }
    return KN_OK;
}

const char *kn__comm_last_text(char *out, size_t bytes, const kn_comm *comm, int r) {
    const kn__with *with = &comm->with[r];
    char text[96];
    uint64_t age = kn__now_ns(CLOCK_MONOTONIC) - with->heard_ns;
    out[0] = '\0';
    if (with->heard_ns && age < 2 * comm->timeout_ns)
        snprintf(out, bytes, "; %.3g s ago it waited in %s", 1e-9 * (double)age,
                 says_text(text, sizeof text, &with->last));
    return out;
}
