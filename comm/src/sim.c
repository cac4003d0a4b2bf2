/* Ranks that are threads of one process, over links with a bandwidth and a latency: for tests, and
 * for what other machines would do. Each rank sends over one link; a message leaves when the link
 * is free, takes bytes/bandwidth, and arrives `latency` later. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "now.h"
#include "ranks.h"

enum { EAGER_BYTES = 1024 }; /* messages up to this size don't wait for their receiver */

typedef struct message {
    int from, to, tag;
    void *data; /* to copy from, or to; of small sends a copy */
    size_t bytes;
    uint64_t arrives_ns;
    struct message *peer; /* of a send its receive, and the other way round; NULL: not met */
    bool is_send, is_done, owns_data, is_orphan; /* orphan: its owner has left */
    struct message *next;
} message;

typedef struct messages {
    message *first, **last; /* in the order in which they were made */
} messages;

typedef struct world {
    pthread_mutex_t lock;
    pthread_cond_t *changed; /* [size]: something of this rank's messages */
    int size, n_open;
    double bandwidth, latency_seconds;
    uint64_t *link_free_ns; /* [size] */
    bool *is_gone;          /* [size] */
    messages *of;           /* [size]: a rank's sends and receives */
} world;

typedef struct member {
    world *w;
    int rank;
} member;

/* --- messages; under the lock --- */

static void unlink_message(world *w, message *m) {
    messages *own = &w->of[m->is_send ? m->from : m->to];
    message **at = &own->first;
    KN_ASSERT(m->peer == NULL || m->peer->peer == m);
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    if (own->last == &m->next) own->last = at;
    if (m->peer) m->peer->peer = NULL;
    if (m->owns_data) free(m->data);
    free(m);
}

static bool fits(const message *send, const message *receive) {
    return send->is_send && !receive->is_send && !send->peer && !receive->peer && !send->is_done &&
           !receive->is_done && send->to == receive->to && send->tag == receive->tag &&
           (receive->from < 0 || send->from == receive->from);
}

static void meet(message *a, message *b) {
    KN_ASSERT(a->is_send != b->is_send && !a->peer && !b->peer);
    a->peer = b;
    b->peer = a;
}

/* Looks for the other side of a message among those of one rank. */
static void match_among(world *w, message *m, int rank) {
    for (message *o = w->of[rank].first; o && !m->peer; o = o->next)
        if (m->is_send ? fits(m, o) : fits(o, m)) meet(m, o);
}

static void match(world *w, message *m) {
    int other = m->is_send ? m->to : m->from;
    if (other >= 0) match_among(w, m, other);
    for (int r = 0; other < 0 && r < w->size; r++) match_among(w, m, r);
}

/* Only who waits for a message is woken: ranks are many, processors few. */
static void wake(world *w, int rank) { pthread_cond_broadcast(&w->changed[rank]); }

/* When the message arrives; it has met the other side. */
static uint64_t arrival_of(const message *m) {
    return m->is_send ? m->arrives_ns : m->peer->arrives_ns;
}

/* Copies the message if it has met its other side and arrived. */
static void deliver(world *w, message *m, uint64_t now) {
    if (!m->peer || arrival_of(m) > now) return;
    message *send = m->is_send ? m : m->peer, *receive = send->peer;
    KN_ASSERT(receive && receive->peer == send && !send->is_done && !receive->is_done);
    memcpy(receive->data, send->data, send->bytes < receive->bytes ? send->bytes : receive->bytes);
    send->is_done = receive->is_done = true;
    send->peer = receive->peer = NULL;
    wake(w, send->from);
    wake(w, send->to);
    if (send->is_orphan) unlink_message(w, send);
}

/* Of a rank's messages the one that arrives first; NULL: none has met its other side. */
static message *soonest(const world *w, int rank) {
    message *found = NULL;
    for (message *m = w->of[rank].first; m; m = m->next)
        if (m->peer && (!found || arrival_of(m) < arrival_of(found))) found = m;
    return found;
}

static uint64_t arrival(world *w, int from, size_t bytes) {
    uint64_t now = kn__now_ns(CLOCK_MONOTONIC), start = w->link_free_ns[from];
    if (start < now) start = now;
    double seconds = w->bandwidth > 0 ? (double)bytes / w->bandwidth : 0;
    w->link_free_ns[from] = start + kn__seconds_ns(seconds);
    return w->link_free_ns[from] + kn__seconds_ns(w->latency_seconds);
}

/* --- the transport --- */

static void why(char out[KN__WHY_BYTES]) { snprintf(out, KN__WHY_BYTES, "no host memory"); }

static bool add(const member *me, kn__request *r, const message *like) {
    world *w = me->w;
    KN_ASSERT(like->bytes <= KN__MESSAGE_BYTES);
    message *m = malloc(sizeof *m);
    if (!m) return false;
    *m = *like;
    bool is_eager = m->is_send && m->bytes <= EAGER_BYTES;
    void *copy = is_eager ? malloc(m->bytes + 1) : NULL;
    if (is_eager && !copy) {
        free(m);
        return false;
    }
    if (is_eager) m->data = memcpy(copy, m->data, m->bytes);
    m->owns_data = is_eager;
    pthread_mutex_lock(&w->lock);
    if (m->is_send) m->arrives_ns = arrival(w, me->rank, m->bytes);
    m->next = NULL;
    *w->of[me->rank].last = m;
    w->of[me->rank].last = &m->next;
    match(w, m);
    if (m->peer) wake(w, m->is_send ? m->to : m->peer->from);
    pthread_mutex_unlock(&w->lock);
    r->handle = m;
    return true;
}

static bool sim_send(void *state, kn__request *r, const void *data, size_t bytes, int to, int tag) {
    const member *me = state;
    return add(me, r,
               &(message){.from = me->rank,
                          .to = to,
                          .tag = tag,
                          .data = (void *)data,
                          .bytes = bytes,
                          .is_send = true});
}

static bool sim_receive(void *state, kn__request *r, void *data, size_t bytes, int from, int tag) {
    const member *me = state;
    return add(me, r,
               &(message){.from = from, .to = me->rank, .tag = tag, .data = data, .bytes = bytes});
}

static int sim_test(void *state, kn__request *r) {
    world *w = ((const member *)state)->w;
    message *m = r->handle;
    pthread_mutex_lock(&w->lock);
    deliver(w, m, kn__now_ns(CLOCK_MONOTONIC));
    bool done = m->is_done;
    if (done) {
        unlink_message(w, m);
    } else if (m->owns_data) {
        m->is_orphan = done = true; /* it is under way: the sender is done */
    }
    pthread_mutex_unlock(&w->lock);
    return done;
}

static void sim_cancel(void *state, kn__request *r) {
    world *w = ((const member *)state)->w;
    pthread_mutex_lock(&w->lock);
    unlink_message(w, r->handle);
    pthread_mutex_unlock(&w->lock);
}

static void sim_idle(void *state, uint64_t until_ns, unsigned n_idle) {
    const member *me = state;
    world *w = me->w;
    uint64_t now = kn__now_ns(CLOCK_MONOTONIC), next = until_ns;
    bool is_late = false;
    (void)n_idle;
    pthread_mutex_lock(&w->lock);
    message *m = soonest(w, me->rank);
    while (m && arrival_of(m) <= now) {
        deliver(w, m, now);
        is_late = true; /* since the caller's tests */
        m = soonest(w, me->rank);
    }
    if (m && arrival_of(m) < next) next = arrival_of(m);
    struct timespec until = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
    if (!is_late) pthread_cond_timedwait(&w->changed[me->rank], &w->lock, &until);
    pthread_mutex_unlock(&w->lock);
}

static bool sim_is_alive(void *state, int rank) {
    world *w = ((const member *)state)->w;
    pthread_mutex_lock(&w->lock);
    bool is_alive = !w->is_gone[rank];
    pthread_mutex_unlock(&w->lock);
    return is_alive;
}

static void world_free(world *w) {
    for (int r = 0; w->of && r < w->size; r++)
        while (w->of[r].first) unlink_message(w, w->of[r].first);
    pthread_mutex_destroy(&w->lock);
    for (int r = 0; w->changed && r < w->size; r++) pthread_cond_destroy(&w->changed[r]);
    free(w->changed);
    free(w->link_free_ns);
    free(w->is_gone);
    free(w->of);
    free(w);
}

static void sim_leave(const member *me) {
    world *w = me->w;
    pthread_mutex_lock(&w->lock);
    w->is_gone[me->rank] = true;
    for (int r = 0; r < w->size; r++) wake(w, r);
    pthread_mutex_unlock(&w->lock);
}

static void sim_close(void *state, uint64_t wait_ns) {
    member *me = state;
    world *w = me->w;
    (void)wait_ns;
    sim_leave(me);
    pthread_mutex_lock(&w->lock);
    KN_ASSERT(w->n_open > 0 && w->is_gone[me->rank]);
    bool is_last = --w->n_open == 0;
    pthread_mutex_unlock(&w->lock);
    if (is_last) world_free(w);
    free(me);
}

static const kn__transport sim = {.abi = KN__TRANSPORT_ABI,
                                  .kind = "sim",
                                  .close = sim_close,
                                  .send = sim_send,
                                  .receive = sim_receive,
                                  .test = sim_test,
                                  .cancel = sim_cancel,
                                  .idle = sim_idle,
                                  .is_alive = sim_is_alive,
                                  .why = why};

void kn_comm_sim_kill(kn_comm *comm) {
    if (comm->transport == &sim) sim_leave(comm->state);
}

/* --- its making --- */

static world *world_create(int n, const kn_comm_sim_options *o) {
    pthread_condattr_t attr;
    world *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    pthread_mutex_init(&w->lock, NULL);
    w->changed = calloc((size_t)n, sizeof *w->changed);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (int r = 0; w->changed && r < n; r++) pthread_cond_init(&w->changed[r], &attr);
    pthread_condattr_destroy(&attr);
    w->size = n;
    w->bandwidth = o->bandwidth;
    w->latency_seconds = o->latency_seconds;
    w->of = calloc((size_t)n, sizeof *w->of);
    for (int r = 0; w->of && r < n; r++) w->of[r].last = &w->of[r].first;
    w->link_free_ns = calloc((size_t)n, sizeof *w->link_free_ns);
    w->is_gone = calloc((size_t)n, sizeof *w->is_gone);
    if (w->changed && w->of && w->link_free_ns && w->is_gone) return w;
    world_free(w);
    return NULL;
}

static kn_status member_create(kn_comm **out, world *w, int rank, uint64_t timeout_ns) {
    member *me = malloc(sizeof *me);
    if (!me) return KN_FAIL(KN_ERR_OOM, "kn_comm_sim_create: no host memory");
    *me = (member){w, rank};
    kn_status status = kn__comm_open(out, &sim, me, rank, w->size, timeout_ns);
    if (status < 0) free(me);
    return status;
}

kn_status kn_comm_sim_create(kn_comm *out[], int n, const kn_comm_sim_options *options) {
    kn_comm_sim_options o = options ? *options : (kn_comm_sim_options){0};
    for (int i = 0; i < 4; i++)
        if (o.reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_comm_sim_options: reserved is not zero");
    if (!out || n < 1 || n > 4096 || !(o.bandwidth >= 0) || !(o.latency_seconds >= 0) ||
        !(o.timeout_seconds >= 0) || o.latency_seconds > 1e9 || o.timeout_seconds > 1e9)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_comm_sim_create: %d ranks (1 to 4096), bandwidth %g, latency %g s, "
                       "time-out %g s (0 to 1e9)",
                       n, o.bandwidth, o.latency_seconds, o.timeout_seconds);
    world *w = world_create(n, &o);
    if (!w) return KN_FAIL(KN_ERR_OOM, "kn_comm_sim_create: no host memory");
    kn_status status = KN_OK;
    for (int r = 0; r < n; r++) out[r] = NULL;
    for (int r = 0; r < n && status == KN_OK; r++) {
        status = member_create(&out[r], w, r, kn__seconds_ns(o.timeout_seconds));
        w->n_open += status == KN_OK;
    }
    bool is_used = w->n_open > 0;
    for (int r = 0; r < n && status < 0; r++) {
        kn_comm_destroy(out[r]);
        out[r] = NULL;
    }
    if (!is_used) world_free(w);
    return status;
}
