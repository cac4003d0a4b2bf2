/* The seam between the collectives and what carries their bytes: messages between two ranks.
 *
 * A module such as libknet_comm_mpi.so holds one table of these functions. It needs none of our
 * libraries: what fails leaves its reason in why(). One thread at a time calls them. Messages with
 * the same sender, receiver and tag arrive in order. */
#ifndef KN_COMM_TRANSPORT_H
#define KN_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KN__TRANSPORT_ABI = 1 };

/* A message under way; the transport's own. */
typedef struct kn__request {
    void *handle;
} kn__request;

enum { KN__TAG_INPUT = 1, KN__TAG_RESULT, KN__TAG_USER, KN__TAG_NOTICE };

typedef struct kn__transport {
    uint32_t abi;
    const char *kind;
    /* Joins the world. False: why() says why. */
    bool (*open)(void **state, int *rank, int *size);
    /* Leaves it. broken: without a word to the others. */
    void (*close)(void *state, bool broken);
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
    const char *(*why)(void);
} kn__transport;

/* What a module exports. */
typedef const kn__transport *(*kn__transport_fn)(void);
#define KN__TRANSPORT_SYMBOL "kn_comm_transport_get"

#endif
