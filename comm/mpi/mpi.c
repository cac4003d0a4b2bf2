/* libknet_comm_mpi.so: messages by MPI. The functions of MPI are called from one thread at a time.
 * MPI is started once a process, with the first communicator, and ended at exit. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "now.h"
#include "transport.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char reason[MPI_MAX_ERROR_STRING + 64];
static int n_open;
static bool is_started, is_left, is_broken; /* by us; ended; without an orderly end */

typedef struct state {
    MPI_Comm comm;
    int tag_mask; /* MPI's largest tag may be 32767 */
} state;

static const char *why(void) { return reason; }

static bool works(const char *function, int error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (error == MPI_SUCCESS) return true;
    MPI_Error_string(error, text, &length);
    snprintf(reason, sizeof reason, "%s: %s", function, text);
    return false;
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
    if (is_ok && level < MPI_THREAD_SERIALIZED) {
        snprintf(reason, sizeof reason, "it allows calls from one thread alone (level %d)", level);
        is_ok = false;
    }
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
    if (!done) snprintf(reason, sizeof reason, "no thread");
    return done;
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

static bool start(uint64_t wait_ns, bool *is_late) {
    int is_running = 0;
    if (is_left) {
        snprintf(reason, sizeof reason, "MPI has ended in this process");
        return false;
    }
    if (!is_started) {
        if (!works("MPI_Initialized", MPI_Initialized(&is_running)) || is_running)
            return is_running;
        if (!life_begin()) return false;
        is_started = true;
    }
    if (life_wait(&life.is_done, wait_ns)) return life.works;
    *is_late = true;
    snprintf(reason, sizeof reason,
             "a rank has not joined within %.3g s; it may have ended before, or still loads",
             1e-9 * (double)wait_ns);
    return false;
}

/* The largest 2^k - 1 that is a tag. */
static int tag_mask_of(MPI_Comm comm) {
    int *largest = NULL, is_known = 0, mask = 32767;
    if (MPI_Comm_get_attr(comm, MPI_TAG_UB, (void *)&largest, &is_known) != MPI_SUCCESS)
        return mask;
    while (is_known && mask <= *largest / 2 - 1) mask = 2 * mask + 1;
    return mask;
}

static bool mpi_open(void **out, int *rank, int *size, uint64_t wait_ns, bool *is_late) {
    pthread_mutex_lock(&lock);
    state *s = malloc(sizeof *s);
    bool done = s && start(wait_ns, is_late) &&
                works("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &s->comm)) &&
                works("MPI_Comm_rank", MPI_Comm_rank(s->comm, rank)) &&
                works("MPI_Comm_size", MPI_Comm_size(s->comm, size));
    if (done) MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
    if (done) s->tag_mask = tag_mask_of(s->comm);
    n_open += done;
    pthread_mutex_unlock(&lock);
    if (!done) free(s);
    *out = done ? s : NULL;
    return done;
}

/* MPI_Finalize waits for all ranks: not where one of them has failed. */
static void mpi_close(void *of, uint64_t wait_ns) {
    state *s = of;
    pthread_mutex_lock(&lock);
    is_broken = is_broken || !wait_ns;
    if (!is_broken) MPI_Comm_free(&s->comm);
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
    if (!works("MPI_Isend",
               MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag & s->tag_mask, s->comm, &request)))
        return false;
    r->handle = (void *)request;
    return true;
}

static bool mpi_receive(void *of, kn__request *r, void *data, size_t bytes, int from, int tag) {
    const state *s = of;
    MPI_Request request;
    int source = from < 0 ? MPI_ANY_SOURCE : from;
    if (!works("MPI_Irecv",
               MPI_Irecv(data, (int)bytes, MPI_BYTE, source, tag & s->tag_mask, s->comm, &request)))
        return false;
    r->handle = (void *)request;
    return true;
}

static int mpi_test(void *of, kn__request *r) {
    MPI_Request request = (MPI_Request)r->handle;
    int done = 0;
    (void)of;
    bool is_ok = works("MPI_Test", MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    r->handle = (void *)request;
    return is_ok ? done : -1;
}

static void mpi_cancel(void *of, kn__request *r) {
    MPI_Request request = (MPI_Request)r->handle;
    (void)of;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
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
