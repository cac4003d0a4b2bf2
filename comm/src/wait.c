/* Messages with a time limit: waits, and finds out which rank keeps a call waiting. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "mix.h"
#include "now.h"
#include "ranks.h"
#include "units.h"

enum { MILLISECOND = 1000000, LOOK_EVERY = 5 * MILLISECOND, TELL_AFTER = 100 * MILLISECOND };

/* --- processes --- */

static void file_read(char *out, size_t bytes, const char *path) {
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(out, 1, bytes - 1, file) : 0;
    out[n] = '\0';
    if (file) fclose(file);
}

/* Words of a line are counted from 1; `at` is at one. NULL: there are fewer. */
static const char *word_find(const char *at, int word, int wanted) {
    for (; at && word < wanted; word++) at = strchr(at + 1, ' ');
    return at;
}

/* When a process started, in clock ticks since boot, and whether it runs; 0: there is no such
 * process. The state is that of the initial thread, which is a zombie while others run where main
 * has ended by pthread_exit. */
static uint64_t process_started(int64_t pid, bool *runs) {
    enum { STATE = 3, THREADS = 20, STARTED = 22 };
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    file_read(text, sizeof text, path);
    const char *at = strrchr(text, ')'); /* the name may have any character */
    if (!at || !at[1]) return 0;
    at += 2;
    const char *threads = word_find(at, STATE, THREADS);
    const char *started = word_find(threads, THREADS, STARTED);
    *runs = (*at != 'Z' && *at != 'X') || (threads && strtol(threads, NULL, 10) > 1);
    return started ? strtoull(started, NULL, 10) : 0;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; *text; text++) hash = kn__mix(hash ^ (unsigned char)*text);
    return hash;
}

void kn__peer_self(kn__peer *out) {
    char boot[64], space[64] = "";
    bool runs = false;
    memset(out, 0, sizeof *out);
    if (gethostname(out->host, sizeof out->host - 1) != 0) strcpy(out->host, "?");
    file_read(boot, sizeof boot, "/proc/sys/kernel/random/boot_id");
    ssize_t n = readlink("/proc/thread-self/ns/pid", space, sizeof space - 1);
    space[n > 0 ? n : 0] = '\0';
    out->machine = hash_text(hash_text(hash_text(1, out->host), boot), space);
    out->pid = getpid();
    out->started = process_started(out->pid, &runs);
}

/* Of a rank on another machine nothing is known. A process whose threads have all ended, but whose
 * launcher has not looked yet, is a zombie. */
static bool is_alive(const kn_comm *comm, int rank) {
    const kn__transport *t = comm->transport;
    if (t->is_alive) return t->is_alive(comm->state, rank);
    const kn__peer *peer = &comm->peer[rank];
    if (!comm->peer[comm->rank].started || peer->machine != comm->peer[comm->rank].machine)
        return true;
    bool runs = false;
    uint64_t started = process_started(peer->pid, &runs);
    return started == peer->started && runs;
}

/* --- failure --- */

static void notices_send(kn_comm *comm, const char *text) {
    const kn__transport *t = comm->transport;
    kn__request *request = calloc((size_t)comm->size, sizeof *request);
    char notice[NOTICE_BYTES] = "";
    snprintf(notice, sizeof notice, "%s", text);
    if (!request) return;
    uint64_t until = kn__now_ns(CLOCK_MONOTONIC) + 200 * MILLISECOND;
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank || !is_alive(comm, r)) continue;
        if (!t->send(comm->state, &request[r], notice, sizeof notice, r, KN__TAG_NOTICE)) continue;
        int done = t->test(comm->state, &request[r]);
        while (!done && kn__now_ns(CLOCK_MONOTONIC) < until) {
            t->idle(comm->state, until, 0);
            done = t->test(comm->state, &request[r]);
        }
        if (!done) t->cancel(comm->state, &request[r]);
    }
    free(request);
}

/* From here on every call returns this error; the messages of the running one are given up. */
static kn_status broken(kn_comm *comm, const char *reason, bool tell) {
    KN_ASSERT(!atomic_load(&comm->broken) && reason[0]); /* the first reason stays */
    snprintf(comm->why, sizeof comm->why, "%s", reason);
    for (int i = 0; i < comm->n_ask; i++) {
        if (comm->ask[i].pending) comm->transport->cancel(comm->state, &comm->ask[i].request);
        comm->ask[i].pending = false;
    }
    if (tell) notices_send(comm, reason);
    atomic_store(&comm->broken, true);
    return KN_FAIL(KN_ERR_PEER, "%s", comm->why);
}

kn_status kn__comm_fail_broken(const kn_comm *comm) {
    return KN_FAIL(KN_ERR_PEER, "the communicator is broken since: %s", comm->why);
}

void kn_comm_abort(kn_comm *comm, const char *why) {
    char text[NOTICE_BYTES];
    if (!comm || !comm->transport || atomic_load(&comm->broken) || kn__comm_is_forked(comm)) return;
    kn__gpu_abandon(comm);
    kn__comm_drain(comm);
    if (atomic_load(&comm->broken)) return;
    const kn__peer *self = &comm->peer[comm->rank];
    snprintf(text, sizeof text, "rank %d of %d (%.40s, process %" PRId64 ") failed: %.300s",
             comm->rank, comm->size, self->host, self->pid, why);
    notices_send(comm, text);
    snprintf(comm->why, sizeof comm->why, "this rank failed: %.300s", why);
    atomic_store(&comm->broken, true);
}

void kn_comm_interrupt(kn_comm *comm, double seconds) {
    if (!comm) return;
    atomic_store(&comm->hurry_ns, kn__seconds_ns(seconds)); /* before it is looked at */
    atomic_store(&comm->interrupted_ns, kn__now_ns(CLOCK_MONOTONIC));
}

uint64_t kn__comm_give_up_ns(const kn_comm *comm, uint64_t begin) {
    uint64_t from = atomic_load(&comm->interrupted_ns);
    if (!from) return UINT64_MAX;
    return (begin > from ? begin : from) + atomic_load(&comm->hurry_ns);
}

uint64_t kn__comm_wait_ns(const kn_comm *comm) {
    uint64_t hurry = atomic_load(&comm->interrupted_ns) ? atomic_load(&comm->hurry_ns) : UINT64_MAX;
    return hurry < comm->timeout_ns ? hurry : comm->timeout_ns;
}

/* "all_reduce (call 57, 4.0 MiB): rank 1 of 2 (node1, process 77) ended" */
kn_status kn__comm_fail_by(kn_comm *comm, int rank, const char *what) {
    KN_ASSERT(rank >= 0 && rank < comm->size && rank != comm->rank);
    char text[NOTICE_BYTES];
    const kn__peer *peer = &comm->peer[rank];
    snprintf(text, sizeof text,
             "%s (call %" PRIu64 ", %s): rank %d of %d (%.63s, process %" PRId64 ") %s",
             comm->now.name, comm->now.number, kn__bytes_text((double)comm->now.bytes).text, rank,
             comm->size, peer->host, peer->pid, what);
    return broken(comm, text, true);
}

kn_status kn__comm_fail_self(kn_comm *comm, const char *what) {
    char text[NOTICE_BYTES];
    const kn__peer *self = &comm->peer[comm->rank];
    snprintf(text, sizeof text,
             "rank %d of %d (%.63s, process %" PRId64 ") failed in %s (call %" PRIu64
             ", %s): %.250s",
             comm->rank, comm->size, self->host, self->pid, comm->now.name, comm->now.number,
             kn__bytes_text((double)comm->now.bytes).text, what);
    return broken(comm, text, comm->transport != NULL);
}

/* Where the text blames this rank, as it does in one that was stopped and runs again; else NULL. */
static const char *find_self(const kn_comm *comm, const char *text) {
    char self[64];
    snprintf(self, sizeof self, "): rank %d of %d (", comm->rank, comm->size);
    const char *at = strstr(text, self);
    return at ? at + strlen("): ") : NULL;
}

static kn_status fail_by_notice(kn_comm *comm) {
    char text[NOTICE_BYTES + 128];
    comm->notice_text[NOTICE_BYTES - 1] = '\0';
    const char *notice = comm->notice_text, *self = find_self(comm, notice);
    /* A notice that has a call already names it. */
    if (strncmp(notice, "rank ", 5) == 0)
        snprintf(text, sizeof text, "%s (call %" PRIu64 "): %s", comm->now.name, comm->now.number,
                 notice);
    else if (self)
        snprintf(text, sizeof text, "%.*sthis rank, %s", (int)(self - notice), notice, self);
    else
        snprintf(text, sizeof text, "%s", notice);
    return broken(comm, text, false);
}

/* --- messages --- */

static kn_status fail_transport(kn_comm *comm, int peer) {
    char what[256], why[KN__WHY_BYTES];
    comm->transport->why(why);
    snprintf(what, sizeof what, "cannot be reached: %.200s", why);
    return kn__comm_fail_by(comm, peer, what);
}

kn_status kn__comm_send(kn_comm *comm, kn__ask *ask, const void *data, size_t bytes, int to,
                        int tag) {
    *ask = (kn__ask){.peer = to};
    if (!bytes) return KN_OK;
    if (tag != KN__TAG_ROLL) tag = kn__comm_tag(comm, to, tag);
    if (!comm->transport->send(comm->state, &ask->request, data, bytes, to, tag))
        return fail_transport(comm, to);
    ask->pending = true;
    return KN_OK;
}

kn_status kn__comm_receive(kn_comm *comm, kn__ask *ask, void *data, size_t bytes, int from,
                           int tag) {
    *ask = (kn__ask){.peer = from};
    if (!bytes) return KN_OK;
    if (tag != KN__TAG_ROLL) tag = kn__comm_tag(comm, from, tag);
    if (!comm->transport->receive(comm->state, &ask->request, data, bytes, from, tag))
        return fail_transport(comm, from);
    ask->pending = true;
    return KN_OK;
}

kn_status kn__comm_listen(kn_comm *comm) {
    comm->notice = (kn__ask){.peer = -1, .pending = true};
    if (comm->transport->receive(comm->state, &comm->notice.request, comm->notice_text,
                                 NOTICE_BYTES, -1, KN__TAG_NOTICE))
        return KN_OK;
    char why[KN__WHY_BYTES];
    comm->transport->why(why);
    comm->notice.pending = false;
    return broken(comm, why, false);
}

/* Tests all; *late: one that is not done, or -1. */
static kn_status test_all(kn_comm *comm, kn__ask ask[], int n, int *late) {
    *late = -1;
    for (int i = 0; i < n; i++) {
        if (!ask[i].pending) continue;
        KN_ASSERT(ask[i].peer != comm->rank);
        int done = comm->transport->test(comm->state, &ask[i].request);
        ask[i].pending = done == 0;
        if (done < 0) return fail_transport(comm, ask[i].peer);
        if (!done && *late < 0) *late = i;
    }
    return KN_OK;
}

static kn_status notice_look(kn_comm *comm) {
    while (comm->notice.pending) {
        int heard = comm->transport->test(comm->state, &comm->notice.request);
        comm->notice.pending = heard == 0;
        if (heard <= 0) break;
        if (comm->notice_text[0] != KN__NEWS_MARK) return fail_by_notice(comm);
        kn__comm_hear(comm, comm->notice_text);
        KN_TRY(kn__comm_listen(comm));
    }
    return kn__comm_compare(comm);
}

kn_status kn__comm_glance(kn_comm *comm) {
    uint64_t now = kn__now_ns(CLOCK_MONOTONIC);
    if (now - comm->looked_ns < LOOK_EVERY) return KN_OK;
    comm->looked_ns = now;
    return notice_look(comm);
}

uint64_t kn__comm_tell_after_ns(const kn_comm *comm) {
    uint64_t part = comm->timeout_ns / 8;
    return part < TELL_AFTER ? part : TELL_AFTER;
}

kn_status kn__comm_look(kn_comm *comm) {
    if (!comm->transport) return KN_OK;
    KN_TRY(notice_look(comm));
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank || is_alive(comm, r)) continue;
        KN_TRY(notice_look(comm)); /* sent just before it ended */
        return kn__comm_fail_by(comm, r, "ended");
    }
    return KN_OK;
}

/* What ends a wait early. A rank that ended may have sent its last message, or a notice that says
 * why, just before, which take more than one test to arrive. A rank that ends meanwhile is not to
 * blame: it may have ended because of this one. */
static kn_status look(kn_comm *comm, kn__ask ask[], int n) {
    int dead = -1, late = -1;
    for (int i = 0; i < n && dead < 0; i++)
        if (ask[i].pending && !is_alive(comm, ask[i].peer)) dead = i;
    KN_TRY(notice_look(comm));
    if (dead < 0) return KN_OK;
    for (int i = 0; i < 10; i++) {
        KN_TRY(test_all(comm, ask, n, &late));
        KN_TRY(notice_look(comm));
    }
    return ask[dead].pending ? kn__comm_fail_by(comm, ask[dead].peer, "ended") : KN_OK;
}

static kn_status fail_late(kn_comm *comm, int peer, uint64_t waited_ns) {
    char what[256], last[128];
    snprintf(what, sizeof what, "sent nothing for %.3g s%s", 1e-9 * (double)waited_ns,
             kn__comm_last_text(last, sizeof last, comm, peer));
    return kn__comm_fail_by(comm, peer, what);
}

/* The other rank may only be in a longer step. */
static kn_status fail_interrupted(kn_comm *comm, int peer, uint64_t waited_ns) {
    char what[256];
    snprintf(what, sizeof what,
             "a signal ended its wait for rank %d (%.63s, process %" PRId64 ") after %.3g s", peer,
             comm->peer[peer].host, comm->peer[peer].pid, 1e-9 * (double)waited_ns);
    return kn__comm_fail_self(comm, what);
}

static void tell_late(kn_comm *comm, const kn__ask ask[], int n) {
    for (int i = 0; i < n; i++)
        if (ask[i].pending) kn__comm_tell(comm, ask[i].peer, false);
}

kn_status kn__comm_wait(kn_comm *comm, kn__ask ask[], int n, int patience) {
    uint64_t begin = kn__now_ns(CLOCK_MONOTONIC), next_look = begin + LOOK_EVERY;
    uint64_t limit = begin + comm->timeout_ns / 4 * (uint64_t)patience;
    for (unsigned i = 0;; i++) {
        int late = -1;
        KN_TRY(test_all(comm, ask, n, &late));
        if (late < 0) return KN_OK;
        uint64_t now = kn__now_ns(CLOCK_MONOTONIC);
        if (now >= next_look) {
            KN_TRY(look(comm, ask, n));
            if (now - begin >= kn__comm_tell_after_ns(comm)) tell_late(comm, ask, n);
            next_look = now + LOOK_EVERY;
        }
        if (now >= limit) return fail_late(comm, ask[late].peer, now - begin);
        if (now >= kn__comm_give_up_ns(comm, begin))
            return fail_interrupted(comm, ask[late].peer, now - begin);
        comm->transport->idle(comm->state, next_look < limit ? next_look : limit, i);
    }
}

kn_status kn__comm_roll_call(kn_comm *comm) {
    char here = 0, *there = NULL;
    kn__ask *ask = NULL;
    void *room = NULL;
    if (!comm->transport) return KN_OK;
    KN_TRY(kn__comm_asks(&ask, comm, 2 * comm->size));
    KN_TRY(kn__comm_scratch(&room, comm, (size_t)comm->size));
    there = room;
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank) continue;
        KN_TRY(kn__comm_receive(comm, &ask[r], &there[r], 1, r, KN__TAG_ROLL));
        KN_TRY(kn__comm_send(comm, &ask[comm->size + r], &here, 1, r, KN__TAG_ROLL));
    }
    return kn__comm_wait(comm, ask, comm->size, 1);
}
