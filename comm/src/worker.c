/* The thread of a communicator that runs calls beside the caller's work, in order. */
#include <signal.h>
#include <stdlib.h>

#include "helper.h"
#include "now.h"
#include "ranks.h"

static void job_run(kn_comm *comm, kn__job *job) {
    uint64_t begin = kn__now_ns(CLOCK_MONOTONIC);
    kn_status status = job->run(comm, job);
    job->run_ns = kn__now_ns(CLOCK_MONOTONIC) - begin;
    KN_ASSERT(status == KN_OK || kn_last_error()->status == status);
    job->error.status = KN_OK;
    if (status < 0) job->error = *kn_last_error();
}

static void *worker(void *of) {
    kn_comm *comm = of;
    kn__helper_enter();
    pthread_mutex_lock(&comm->lock);
    for (;;) {
        while (!comm->first && !comm->ends) pthread_cond_wait(&comm->changed, &comm->lock);
        kn__job *job = comm->first;
        if (!job) break;
        KN_ASSERT(!comm->is_working && !job->is_done);
        comm->first = job->next;
        comm->is_working = true;
        pthread_mutex_unlock(&comm->lock);
        job_run(comm, job);
        pthread_mutex_lock(&comm->lock);
        comm->is_working = false;
        job->is_done = true;
        pthread_cond_broadcast(&comm->changed);
    }
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static kn_status thread_start(kn_comm *comm) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&comm->thread, NULL, worker, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return KN_FAIL(KN_ERR_OOM, "kn_comm: no thread for communication");
    comm->has_thread = true;
    return KN_OK;
}

kn_status kn__comm_post(kn_comm *comm, kn__job *job) {
    kn_status status = kn__comm_is_forked(comm) ? kn__comm_fail_forked(comm, "kn_comm")
                       : comm->has_thread       ? KN_OK
                                                : thread_start(comm);
    job->next = NULL;
    job->is_done = status < 0; /* no other code would mark it */
    if (status < 0) job->error = *kn_last_error();
    if (status < 0) return status;
    pthread_mutex_lock(&comm->lock);
    KN_ASSERT(!comm->ends && (!comm->first || !comm->last->next));
    if (comm->first)
        comm->last->next = job;
    else
        comm->first = job;
    comm->last = job;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    return KN_OK;
}

kn_status kn__comm_job_wait(kn_comm *comm, kn__job *job) {
    pthread_mutex_lock(&comm->lock);
    while (!job->is_done) pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    if (job->error.status == KN_OK) return KN_OK;
    return KN_FAIL(job->error.status, "%s", job->error.message);
}

void kn__comm_drain(kn_comm *comm) {
    if (!comm->has_thread || kn__comm_is_forked(comm)) return;
    pthread_mutex_lock(&comm->lock);
    while (comm->first || comm->is_working) pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

void kn__comm_worker_end(kn_comm *comm) {
    if (!comm->has_thread) return;
    pthread_mutex_lock(&comm->lock);
    comm->ends = true;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->thread, NULL);
    KN_ASSERT(!comm->first && !comm->is_working); /* it ends after the last job */
    comm->has_thread = false;
}
