/* The file of a checkpoint, replaced once the new one is on disk. */
#ifndef KN_REPLACE_H
#define KN_REPLACE_H

#include <knet/status.h>

/* Writes the file of that name, which is there and empty. */
typedef kn_status (*kn__replace_fn)(void *ctx, const char *beside);

/* Creates and removes PATH.new. IO: it can't be written, or another process has it. */
kn_status kn__replace_try(const char *path);
/* Writes PATH.new, which then gets the name PATH; `keep` older files become PATH.1 … PATH.N. IO;
 * the older file then stays as it was. */
kn_status kn__replace(const char *path, int keep, kn__replace_fn write_fn, void *ctx);

#endif
