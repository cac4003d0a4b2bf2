/* The words of KNET_ALLOC, which are read once, when the library is loaded, in report.c alone.
 *
 * A list separated by commas; later words win. Each wrong word is ignored and reported by a line on
 * stderr. */
#ifndef KN_ALLOC_CONFIG_H
#define KN_ALLOC_CONFIG_H

#include <knet/pool.h>

#include "inspect/writer.h"

enum { KN__CONFIG_PATH_BYTES = 512 };

typedef struct kn__alloc_config {
    kn_pool_options pool; /* of the devices' default pools */
    bool help;
    bool stacks;
    char stats[KN__CONFIG_PATH_BYTES]; /* "": none, as below; "-" is stderr */
    char trace[KN__CONFIG_PATH_BYTES];
    char snapshot[KN__CONFIG_PATH_BYTES];
    char oom[KN__CONFIG_PATH_BYTES];
} kn__alloc_config;

/* Reads a list; NULL is an empty one. Wrong words are ignored and reported in `messages`. */
void kn__alloc_config_read(kn__alloc_config *out, const char *list, kn__writer *messages);
/* The grammar, as KNET_ALLOC=help prints it. */
void kn__alloc_config_help(kn__writer *w);

#endif
