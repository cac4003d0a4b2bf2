/* The seam between the collectives and what carries their bytes: messages between two ranks.
 *
 * A module such as libknet_comm_mpi.so holds one table of these functions. It needs none of our
 * libraries: what fails leaves its reason in why(). One thread at a time calls those of a state.
 * Messages with the same sender, receiver and tag arrive in order; a receive gets no message of
 * another tag. */
#ifndef KN_COMM_TRANSPORT_H
#define KN_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KN__TRANSPORT_ABI = 4, KN__WHY_BYTES = 320 };

/* The longest message; MPI counts bytes in an int. */
enum { KN__MESSAGE_BYTES = 64 << 20 };

/* A message under way; the transport's own. */
typedef struct kn__request {
    void *handle;
} kn__request;

/* The lowest bits of a tag; the others are a hash of the call, of which a transport may drop the
 * highest. */
enum {
    KN__TAG_INPUT = 1,
    KN__TAG_RESULT,
    KN__TAG_USER,
    KN__TAG_NOTICE,
    KN__TAG_ROLL,
    KN__TAG_KIND_BITS = 3
};

typedef struct kn__transport {
    uint32_t abi;
    const char *kind;
    /* Joins the world, and waits for its ranks at most so long. False: why() says why; *is_late:
     * it has waited so long. */
    bool (*open)(void **state, int *rank, int *size, uint64_t wait_ns, bool *is_late);
    /* Leaves it, waiting for the others at most so long; 0: without a word to them. */
    void (*close)(void *state, uint64_t wait_ns);
    bool (*send)(void *state, kn__request *r, const void *data, size_t bytes, int to, int tag);
    /* from -1: any rank. */
    bool (*receive)(void *state, kn__request *r, void *data, size_t bytes, int from, int tag);
    /* 1: the message has arrived, or its memory may be reused; 0: not yet; -1: failed. After
     * 1 and -1 the request is over. */
    int (*test)(void *state, kn__request *r);
    /* Gives up a message; its memory may be reused. */
    void (*cancel)(void *state, kn__request *r);
    /* Returns when something may have changed, at `until_ns` of CLOCK_MONOTONIC at the latest.
     * n_idle: how often in a row. */
    void (*idle)(void *state, uint64_t until_ns, unsigned n_idle);
    /* Whether a rank still runs; NULL: judge by its process. */
    bool (*is_alive)(void *state, int rank);
    /* Copies the reason of the last failure. */
    void (*why)(char out[KN__WHY_BYTES]);
} kn__transport;

/* What a module exports; its first member is the version. */
#define KN__TRANSPORT_SYMBOL "kn_comm_transport"

/* The seam for tensors of GPUs: whole collectives, which a library such as NCCL enqueues on a
 * stream. libknet_comm_nccl.so holds one table. Any thread may call. What fails writes its reason
 * to why [KN__ENGINE_WHY_BYTES]. */
enum { KN__ENGINE_ABI = 1, KN__ENGINE_ID_BYTES = 128, KN__ENGINE_WHY_BYTES = 512 };

typedef enum kn__engine_what {
    KN__ENGINE_ALL_REDUCE = 0,
    KN__ENGINE_BROADCAST,
    KN__ENGINE_ALL_GATHER,
    KN__ENGINE_REDUCE_SCATTER,
    KN__ENGINE_SEND,
    KN__ENGINE_RECEIVE
} kn__engine_what;

typedef struct kn__engine_work {
    kn__engine_what what;
    const void *in;
    void *out; /* may be in; of a gather or scatter in place, the rank's own part of the other */
    size_t n;  /* elements: of a gather or scatter, of one rank's part */
    int dtype; /* kn_dtype */
    int op;    /* kn_comm_op */
    int peer;  /* root, receiver or sender */
    void *stream;
} kn__engine_work;

typedef struct kn__engine {
    uint32_t abi;
    const char *kind;
    /* The name of a new world, for all its ranks. */
    bool (*id_make)(unsigned char id[KN__ENGINE_ID_BYTES], char *why);
    /* Begins to join it; test() says when that is done. */
    bool (*open)(void **state, const unsigned char id[KN__ENGINE_ID_BYTES], int rank, int size,
                 int cuda_device, char *why);
    /* Begins to enqueue the work; test() says when all of it is on its stream. */
    bool (*enqueue)(void *state, const kn__engine_work *work, char *why);
    /* 1: idle; 0: not yet; -1: failed. */
    int (*test)(void *state, char *why);
    /* Ends all work that is enqueued; every later call of enqueue and test fails. */
    void (*give_up)(void *state);
    /* Leaves the world, waiting for the others at most so long, and frees the state. */
    void (*close)(void *state, uint64_t wait_ns);
} kn__engine;

#define KN__ENGINE_SYMBOL "kn_comm_engine"

#endif
