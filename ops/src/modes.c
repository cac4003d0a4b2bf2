#include "modes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static kn__mode environment(_Atomic int *known, const char *name) {
    int value = atomic_load_explicit(known, memory_order_relaxed);
    if (value) return (kn__mode)value;
    const char *text = getenv(name);
    value = !text || !*text            ? KN__MODE_UNSET
            : strcmp(text, "0") == 0   ? KN__MODE_NEVER
            : strcmp(text, "all") == 0 ? KN__MODE_ALL
                                       : KN__MODE_DEFAULT;
    atomic_store_explicit(known, value, memory_order_relaxed);
    return (kn__mode)value;
}

kn__mode kn__mode_fuse(void) {
    static _Atomic int known;
    return environment(&known, "KNET_FUSE");
}

kn__mode kn__mode_recompute(void) {
    static _Atomic int known;
    return environment(&known, "KNET_RECOMPUTE");
}
