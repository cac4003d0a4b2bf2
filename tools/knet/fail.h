/* Messages on standard error. */
#ifndef KN_FAIL_H
#define KN_FAIL_H

#include <knet/status.h>

enum {
    KN__EXIT_OK = 0,
    KN__EXIT_FAILURE = 1,
    KN__EXIT_USAGE = 2,
    KN__EXIT_OOM = 3,
    KN__EXIT_PEER = 4 /* another rank failed */
};

/* The command that messages name: "train", or NULL for `knet` itself. */
void kn__fail_command(const char *command);
/* The rank that messages name, from here on. */
void kn__fail_rank(int rank);

/* Prints "knet train: message"; keeps the first message for kn__fail_json(). */
void kn__fail(const char *fmt, ...) KN_PRINTF(1, 2);
/* The same for wrong usage; also names the help. Returns KN__EXIT_USAGE. */
int kn__fail_usage(const char *fmt, ...) KN_PRINTF(1, 2);
/* The same with the message of the last error of the libraries. */
void kn__fail_last(void);
/* Prints "knet train: message"; the command continues. */
void kn__warn(const char *fmt, ...) KN_PRINTF(1, 2);

/* The kept message; "" without one. */
const char *kn__fail_message(void);

#endif
