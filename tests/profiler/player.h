/* A source of GPU activity that plays a recording: launches in the scopes they came from, then the
 * records. */
#ifndef KNET_PLAYER_H
#define KNET_PLAYER_H

#include "cupti_records.h"

/* The record after `at` in a buffer (NULL: the first); NULL: no more. */
typedef void *(*walk_fn)(void *bytes, size_t used, void *at);

/* `walk` NULL: by our own reading of the buffers. Its start fails with IO or FORMAT, naming the
 * path. */
const kn__source *player_source(const char *path, walk_fn walk);
/* Whether drains have something left to play. */
bool player_has_more(void);

#endif
