/* The inside of a communicator. */
#ifndef KN_COMM_RANKS_H
#define KN_COMM_RANKS_H

#include <knet/comm.h>
#include <pthread.h>
#include <stdatomic.h>

#include "checked.h"
#include "transport.h"

enum { NOTICE_BYTES = 512, SCOPE_NAMES = 8 };

/* Another rank, for messages and for the question whether it still runs. */
typedef struct kn__peer {
    char host[64];
    uint64_t machine; /* equal where process ids mean the same */
    uint64_t started; /* of the process, so that a reused id is not mistaken for it */
    int64_t pid;
} kn__peer;

/* A message that a call waits for. */
typedef struct kn__ask {
    kn__request request;
    int peer;
    bool pending;
} kn__ask;

/* A part of a call that a worker thread runs, or a whole one. */
typedef struct kn__job {
    kn_status (*run)(kn_comm *comm, struct kn__job *job);
    void *data, *out; /* out: of a part; NULL: data is also the result */
    int64_t n;        /* of a part, if there is `out` */
    kn_dtype dtype;
    kn_comm_op op;
    uint64_t run_ns; /* how long it took */
    bool is_done;
    kn_error error; /* status KN_OK: it worked */
    struct kn__job *next;
} kn__job;

/* A call of the user's. */
typedef struct kn__call {
    const char *name; /* a literal */
    uint64_t number, bytes;
    int64_t n; /* elements; -1: none */
    kn_dtype dtype;
    kn_comm_op op;
    int root;
} kn__call;

/* The same, for the other ranks. */
typedef struct kn__says {
    char name[16];
    int64_t n;
    int32_t dtype, op, root, zero; /* root of a message: its sender */
} kn__says;

/* A call that this rank has made: with all others, or with one. */
typedef struct kn__past {
    kn__says says;
    uint64_t number;
    int peer; /* -1: all */
    bool is_gpu;
} kn__past;

enum { KN__PAST = 128, KN__NEWS_CALLS = 8, KN__NEWS_MARK = 1 };

/* What a rank that waits tells another one; it comes as a notice. */
typedef struct kn__news {
    char mark; /* no text begins with it */
    int8_t is_gpu;
    int16_t n;
    int32_t rank;
    uint64_t order;                /* of the first, among the calls of these two */
    kn__says says[KN__NEWS_CALLS]; /* the one it waits in, and those before it, backwards */
} kn__news;

/* What has passed between this rank and another one. */
typedef struct kn__with {
    uint64_t n[2]; /* messages, of the host and of GPUs */
    uint64_t chain;
    uint64_t told; /* the number of the call that it knows of */
    kn__ask ask;   /* of `out` */
    kn__news out, heard[2];
    kn__says last;
    uint64_t heard_ns; /* 0: never */
} kn__with;

typedef struct kn__gpu kn__gpu;

struct kn_comm {
    const kn__transport *transport; /* NULL: one rank */
    const kn__transport *owner;     /* of the state, also of one rank; NULL: "self" */
    void *state;
    const char *kind;
    int rank, size, local_rank, local_size;
    kn__peer *peer; /* [size] */
    uint64_t timeout_ns;
    _Atomic uint64_t n_calls;
    kn__call now; /* the running one; like the transport, the worker's while it works */
    void *scratch;
    size_t scratch_bytes;
    const void **sources; /* [size]: room for the arrays of a sum */
    kn__ask *ask;         /* room for the messages of a call */
    int n_ask;
    uint64_t chain;     /* of all collectives of the host */
    kn__with *with;     /* [size] */
    uint64_t looked_ns; /* kn__comm_glance */
    kn__ask notice;     /* always expected */
    char notice_text[NOTICE_BYTES];
    atomic_bool broken;
    char why[NOTICE_BYTES + 256];    /* written before that is set */
    kn__gpu *gpu;                    /* gpu.h; NULL: no call had a tensor of a GPU */
    _Atomic uint64_t interrupted_ns; /* kn_comm_interrupt: 0: not called */
    _Atomic uint64_t hurry_ns;       /* since then, how long a wait takes at most */

    /* The worker; started with the first job. */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    kn__job *first, *last;
    bool has_thread, ends, is_working;

    /* Under the lock as well: a GPU's calls are made by one thread and watched by another. */
    kn__past past[KN__PAST];
    unsigned n_past;
    uint64_t n_all[2]; /* collectives, of the host and of GPUs */
};

/* --- comm.c --- */
kn_status kn__comm_open(kn_comm **out, const kn__transport *transport, void *state, int rank,
                        int size, uint64_t timeout_ns);
/* The error of a broken communicator. */
kn_status kn__comm_fail_broken(const kn_comm *comm);

/* --- state.c --- */
/* In a child of fork: it has no worker, and its messages would be the parent's. */
bool kn__comm_is_forked(const kn_comm *comm);
kn_status kn__comm_fail_forked(const kn_comm *comm, const char *name);
/* Memory of the communicator's own, until the next call of this. */
kn_status kn__comm_scratch(void **out, kn_comm *comm, size_t bytes);
/* Room for the messages of a call; after a failure none of them is pending. */
kn_status kn__comm_asks(kn__ask **out, kn_comm *comm, int n);

/* --- agree.c --- */
/* Opens a call of this rank; sets its number and bytes. Fails on a broken communicator. */
kn_status kn__comm_call(kn_comm *comm, kn__call call);
/* Opens a call of all ranks, or of two: its messages have tags of their own. */
kn_status kn__comm_together(kn_comm *comm, kn__call call);
kn_status kn__comm_pair(kn_comm *comm, kn__call call, int peer, bool sends);
/* Keeps a call, to be compared; peer -1: of all ranks. */
void kn__comm_note(kn_comm *comm, const kn__call *call, int peer, bool is_gpu);
/* The tag of a message of the running call. */
int kn__comm_tag(const kn_comm *comm, int peer, int kind);
/* Tells a rank, once a call, which call of this rank waits for it. */
void kn__comm_tell(kn_comm *comm, int r, bool is_gpu);
/* Takes what another rank tells. */
void kn__comm_hear(kn_comm *comm, const void *text);
/* Fails if another rank has told of a call that is not this rank's. */
kn_status kn__comm_compare(kn_comm *comm);
/* "; 3 s ago it waited in barrier", or "". */
const char *kn__comm_last_text(char *out, size_t bytes, const kn_comm *comm, int r);

/* --- wait.c --- */
kn_status kn__comm_send(kn_comm *comm, kn__ask *ask, const void *data, size_t bytes, int to,
                        int tag);
kn_status kn__comm_receive(kn_comm *comm, kn__ask *ask, void *data, size_t bytes, int from,
                           int tag);
/* Waits for those that are pending. `patience`: of the time-out, in quarters, so that a rank that
 * waits for one that itself waits hears the reason first. */
kn_status kn__comm_wait(kn_comm *comm, kn__ask ask[], int n, int patience);
/* What ends a wait that is not for messages: a rank that ended, or a notice. */
kn_status kn__comm_look(kn_comm *comm);
/* The same, but rarely: for calls that may end without a wait. */
kn_status kn__comm_glance(kn_comm *comm);
/* How long a rank waits before it sends the name of its call. */
uint64_t kn__comm_tell_after_ns(const kn_comm *comm);
/* Fails if a rank does not answer within a quarter of the time-out. */
kn_status kn__comm_roll_call(kn_comm *comm);
/* When a wait that began at `begin` ends because of kn_comm_interrupt; UINT64_MAX: it does not. */
uint64_t kn__comm_give_up_ns(const kn_comm *comm, uint64_t begin);
/* How long a wait for others that begins now takes: the time-out, or kn_comm_interrupt's. */
uint64_t kn__comm_wait_ns(const kn_comm *comm);
/* The running call fails by another rank: "rank 1 of 2 (…) WHAT". */
kn_status kn__comm_fail_by(kn_comm *comm, int rank, const char *what);
/* The running call fails by what happened to this rank. */
kn_status kn__comm_fail_self(kn_comm *comm, const char *what);
/* Starts to listen for the notices of others. */
kn_status kn__comm_listen(kn_comm *comm);
/* The state of this process, for the others. */
void kn__peer_self(kn__peer *out);

/* --- collect.c: data of n elements, on the host; at least two ranks --- */
kn_status kn__all_reduce(kn_comm *comm, void *data, int64_t n, kn_dtype dtype, kn_comm_op op);
/* Of the shards of data, kn__shard_begin: that of this rank is combined into `out` (may be its
 * place in data). */
kn_status kn__reduce_scatter(kn_comm *comm, void *out, void *data, int64_t n, kn_dtype dtype,
                             kn_comm_op op);
/* Every rank gets the shards, of equal bytes, of all others; its own one is in place. */
kn_status kn__all_gather_equal(kn_comm *comm, void *data, size_t shard_bytes);
kn_status kn__reduce_scatter_equal(kn_comm *comm, void *out, const void *data, int64_t shard_n,
                                   kn_dtype dtype, kn_comm_op op);
kn_status kn__broadcast(kn_comm *comm, void *data, size_t bytes, int root);
kn_status kn__barrier(kn_comm *comm);
/* All-reduces up to this size send all data to everyone. Of others this many chunks of a shard are
 * under way. cost.c follows the same steps. */
enum { KN__SMALL_BYTES = 16 << 10, KN__WINDOW = 2 };
/* The bytes of a chunk of shards of `each` bytes. */
size_t kn__chunk_bytes(size_t each, int size);
/* Where the shard of `rank` begins, of n elements cut for `size` ranks; of rank `size`: n. */
int64_t kn__shard_begin(int64_t n, kn_dtype dtype, int size, int rank);

/* --- reduce.c --- */
kn_status kn__reduce_check(const char *name, kn_dtype dtype, kn_comm_op op);
/* dst = the combination of n_src arrays, in their order; dst may be one of them. */
void kn__reduce(void *dst, const void *const src[], int n_src, int64_t n, kn_dtype dtype,
                kn_comm_op op);

/* --- worker.c --- */
/* Hands the job to the communicator's thread; jobs run in the order of the calls. */
kn_status kn__comm_post(kn_comm *comm, kn__job *job);
/* Waits for a job, and returns its error. */
kn_status kn__comm_job_wait(kn_comm *comm, kn__job *job);
/* Waits until no job is left: a call on another thread comes after all of them. */
void kn__comm_drain(kn_comm *comm);
void kn__comm_worker_end(kn_comm *comm);

/* --- module.c --- */
kn_status kn__comm_transport(const kn__transport **out);
kn_status kn__comm_engine(const kn__engine **out);

#endif
