/* libknet_comm_mpi.so: messages by MPI. The functions of MPI are called from one thread at a time.
 * MPI is started once a process, with the first communicator, and ended with the last one. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "now.h"
#include "transport.h"

/* Communicators may be used by a thread each: whoever calls MPI has `calls`. */
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t reason_lock = PTHREAD_MUTEX_INITIALIZER;
static char reason[KN__WHY_BYTES];                       /* of the last failure */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below; taken before `calls` */
static int n_open;
static bool is_started, is_left, is_broken; /* by us; ended; without an orderly end */

typedef struct state {
    MPI_Comm comm;
    int tag_mask; /* MPI's largest tag may be 32767 */
} state;

static void why(char out[KN__WHY_BYTES]) {
    pthread_mutex_lock(&reason_lock);
    memcpy(out, reason, sizeof reason);
    pthread_mutex_unlock(&reason_lock);
}

__attribute__((format(printf, 1, 2))) static bool fail(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&reason_lock);
    vsnprintf(reason, sizeof reason, fmt, args);
    pthread_mutex_unlock(&reason_lock);
    va_end(args);
    return false;
}

static bool works(const char *function, int error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (error == MPI_SUCCESS) return true;
    MPI_Error_string(error, text, &length);
    return fail("%s: %s", function, text);
}

/* MPI_Init waits without end for a rank that has ended before it came here, and MPI_Finalize for
 * one that does not come. A thread of its own calls them, so that others can give up. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool is_done, works, ends, has_ended;
} life = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *life_run(void *unused) {
    int level = 0;
    bool is_ok =
        works("MPI_Init_thread", MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level));
    if (is_ok && level < MPI_THREAD_SERIALIZED)
        is_ok = fail("it allows calls from one thread alone (level %d)", level);
    pthread_mutex_lock(&life.lock);
    life.is_done = true;
    life.works = is_ok;
    pthread_cond_broadcast(&life.changed);
    while (!life.ends) pthread_cond_wait(&life.changed, &life.lock);
    pthread_mutex_unlock(&life.lock);
    MPI_Finalize();
    pthread_mutex_lock(&life.lock);
    life.has_ended = true;
    pthread_cond_broadcast(&life.changed);
    pthread_mutex_unlock(&life.lock);
    return unused;
}

/* Signals are for the program's own threads. */
static bool life_begin(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool done = pthread_create(&life.thread, NULL, life_run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return done || fail("no thread");
}

static bool life_wait(const bool *is_so, uint64_t wait_ns) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until = kn__time_after(until, wait_ns);
    pthread_mutex_lock(&life.lock);
    int late = 0;
    while (!*is_so && !late) late = pthread_cond_timedwait(&life.changed, &life.lock, &until);
    bool result = *is_so;
    pthread_mutex_unlock(&life.lock);
    return result;
}

static void life_end(uint64_t wait_ns) {
    pthread_mutex_lock(&life.lock);
    life.ends = true;
    pthread_cond_broadcast(&life.changed);
    pthread_mutex_unlock(&life.lock);
    if (life_wait(&life.has_ended, wait_ns)) pthread_join(life.thread, NULL);
}

/* Whether the program has MPI in a state that serves. */
static bool own_serves(void) {
    int is_over = 0, level = 0;
    if (!works("MPI_Finalized", MPI_Finalized(&is_over))) return false;
    if (is_over) return fail("MPI has ended in this process");
    if (!works("MPI_Query_thread", MPI_Query_thread(&level))) return false;
    return level >= MPI_THREAD_SERIALIZED ||
           fail(
               "the program started it with thread level %d; MPI_Init_thread must give "
               "MPI_THREAD_SERIALIZED (%d) or more",
               level, MPI_THREAD_SERIALIZED);
}

static bool start(uint64_t wait_ns, bool *is_late) {
    int is_running = 0;
    if (is_left) return fail("MPI has ended in this process with its last communicator");
    if (!is_started) {
        if (!works("MPI_Initialized", MPI_Initialized(&is_running))) return false;
        if (is_running) return own_serves();
        if (!life_begin()) return false;
        is_started = true;
    }
    if (life_wait(&life.is_done, wait_ns)) return life.works;
    *is_late = true;
    return fail("a rank has not joined within %.3g s; it may have ended before, or still loads",
                1e-9 * (double)wait_ns);
}

/* The largest 2^k - 1 that is a tag. */
static int tag_mask_of(MPI_Comm comm) {
    int *largest = NULL, is_known = 0, mask = 32767;
    if (MPI_Comm_get_attr(comm, MPI_TAG_UB, (void *)&largest, &is_known) != MPI_SUCCESS)
        return mask;
    while (is_known && mask <= *largest / 2 - 1) mask = 2 * mask + 1;
    return mask;
}

static int mpi_test(void *of, kn__request *r) {
    MPI_Request request = (MPI_Request)r->handle;
    int done = 0;
    (void)of;
    pthread_mutex_lock(&calls);
    bool is_ok = works("MPI_Test", MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    pthread_mutex_unlock(&calls);
    r->handle = (void *)request;
    return is_ok ? done : -1;
}

/* Messages move during MPI_Test alone: looks again at once, as one that is under way arrives within
 * microseconds, then leaves the processor to others that wait for it, and more so the longer
 * nothing happens. A yield may cost a time slice of milliseconds. */
static void mpi_idle(void *of, uint64_t until_ns, unsigned n_idle) {
    (void)of;
    (void)until_ns;
    if (n_idle < 100) return;
    if (n_idle < 300) {
        sched_yield();
        return;
    }
    struct timespec pause = {0, n_idle < 2000 ? 20000 : 100000};
    nanosleep(&pause, NULL);
}

/* A communicator of all ranks. Other threads call MPI meanwhile, as the ranks that come late may
 * wait for their messages first. */
static bool world_copy(MPI_Comm *out, uint64_t wait_ns, bool *is_late) {
    MPI_Request request;
    pthread_mutex_lock(&calls);
    bool is_ok = works("MPI_Comm_idup", MPI_Comm_idup(MPI_COMM_WORLD, out, &request));
    pthread_mutex_unlock(&calls);
    if (!is_ok) return false;
    kn__request r = {(void *)request};
    uint64_t limit = kn__now_ns(CLOCK_MONOTONIC) + wait_ns;
    int done = mpi_test(NULL, &r);
    for (unsigned i = 0; !done && kn__now_ns(CLOCK_MONOTONIC) < limit; i++) {
        mpi_idle(NULL, limit, i);
        done = mpi_test(NULL, &r);
    }
    *is_late = !done;
    return done > 0 || (done == 0 && fail("a rank has not called kn_comm_create within %.3g s",
                                          1e-9 * (double)wait_ns));
}

static bool world_ask(state *s, int *rank, int *size) {
    pthread_mutex_lock(&calls);
    bool is_ok = works("MPI_Comm_rank", MPI_Comm_rank(s->comm, rank)) &&
                 works("MPI_Comm_size", MPI_Comm_size(s->comm, size));
    if (is_ok) MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
    if (is_ok) s->tag_mask = tag_mask_of(s->comm);
    pthread_mutex_unlock(&calls);
    return is_ok;
}

static bool mpi_open(void **out, int *rank, int *size, uint64_t wait_ns, bool *is_late) {
    pthread_mutex_lock(&lock);
    bool is_copying = false;
    state *s = malloc(sizeof *s);
    bool done = s && start(wait_ns, is_late) && world_copy(&s->comm, wait_ns, &is_copying) &&
                world_ask(s, rank, size);
    n_open += done;
    is_broken = is_broken || is_copying;
    pthread_mutex_unlock(&lock);
    *is_late = *is_late || is_copying;
    if (!done && !is_copying) free(s); /* MPI may still write to it */
    *out = done ? s : NULL;
    return done;
}

/* MPI_Finalize waits for all ranks: not where one of them has failed. */
static void mpi_close(void *of, uint64_t wait_ns) {
    state *s = of;
    pthread_mutex_lock(&lock);
    is_broken = is_broken || !wait_ns;
    pthread_mutex_lock(&calls);
    if (!is_broken) MPI_Comm_free(&s->comm);
    pthread_mutex_unlock(&calls);
    n_open--;
    if (!n_open && is_started && !is_broken) {
        life_end(wait_ns);
        is_left = true;
    }
    pthread_mutex_unlock(&lock);
    free(s);
}

static bool mpi_send(void *of, kn__request *r, const void *data, size_t bytes, int to, int tag) {
    const state *s = of;
    MPI_Request request;
    pthread_mutex_lock(&calls);
    bool done = works("MPI_Isend", MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag & s->tag_mask,
                                             s->comm, &request));
    pthread_mutex_unlock(&calls);
    if (done) r->handle = (void *)request;
    return done;
}

static bool mpi_receive(void *of, kn__request *r, void *data, size_t bytes, int from, int tag) {
    const state *s = of;
    MPI_Request request;
    int source = from < 0 ? MPI_ANY_SOURCE : from;
    pthread_mutex_lock(&calls);
    bool done = works("MPI_Irecv", MPI_Irecv(data, (int)bytes, MPI_BYTE, source, tag & s->tag_mask,
                                             s->comm, &request));
    pthread_mutex_unlock(&calls);
    if (done) r->handle = (void *)request;
    return done;
}

static void mpi_cancel(void *of, kn__request *r) {
    MPI_Request request = (MPI_Request)r->handle;
    (void)of;
    pthread_mutex_lock(&calls);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
    pthread_mutex_unlock(&calls);
}

extern const kn__transport kn_comm_transport;
__attribute__((visibility("default")))
const kn__transport kn_comm_transport = {.abi = KN__TRANSPORT_ABI,
                                         .kind = "mpi",
                                         .open = mpi_open,
                                         .close = mpi_close,
                                         .send = mpi_send,
                                         .receive = mpi_receive,
                                         .test = mpi_test,
                                         .cancel = mpi_cancel,
                                         .idle = mpi_idle,
                                         .why = why};
