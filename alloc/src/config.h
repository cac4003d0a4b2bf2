/* The words of KNET_ALLOC: read once, when the library is loaded, and nowhere else.
 *
 * A list separated by commas; later words win. A word that is wrong is reported on stderr, a line a
 * word, and skipped; the others count. */
#ifndef KNET_ALLOC_CONFIG_H
#define KNET_ALLOC_CONFIG_H

#include <knet/pool.h>

#include "writer.h"

enum { KN__CONFIG_PATH_BYTES = 512 };

typedef struct kn__alloc_config {
    kn_pool_options pool; /* of the devices' default pools */
    bool help;
    char stats[KN__CONFIG_PATH_BYTES]; /* "": none, as below; "-" is stderr */
    char trace[KN__CONFIG_PATH_BYTES];
    char snapshot[KN__CONFIG_PATH_BYTES];
    char oom[KN__CONFIG_PATH_BYTES];
} kn__alloc_config;

/* Reads a list (NULL: none). What is wrong in it is told in `messages`. */
void kn__alloc_config_read(kn__alloc_config *out, const char *list, kn__writer *messages);
/* The grammar, as KNET_ALLOC=help prints it. */
void kn__alloc_config_help(kn__writer *w);

/* report.c: what the environment said. */
const kn__alloc_config *kn__alloc_config_get(void);
/* One line to stderr, about what the environment asked for. */
void kn__config_say(const char *fmt, ...) KN_PRINTF(1, 2);
/* The pool goes, or the process ends: its statistics, and at exit its snapshot, where asked for. */
void kn__config_report(kn_pool *pool, bool at_exit);
void kn__config_report_oom(kn_pool *pool); /* under the pool's lock */

#endif
