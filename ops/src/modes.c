#include "modes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* 0: a word that is wrong. */
static int mode_read(const char *name) {
    static const struct {
        const char *word;
        kn__mode mode;
    } words[] = {{"", KN__MODE_UNSET},    {"0", KN__MODE_NEVER},    {"off", KN__MODE_NEVER},
                 {"1", KN__MODE_DEFAULT}, {"on", KN__MODE_DEFAULT}, {"all", KN__MODE_ALL}};
    const char *text = getenv(name);
    if (!text) return KN__MODE_UNSET;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i].word) == 0) return (int)words[i].mode;
    return 0;
}

/* No call follows a wrong word: threads begin with kn__modes_check(). */
static kn__mode environment(_Atomic int *known, const char *name) {
    int value = atomic_load_explicit(known, memory_order_relaxed);
    if (value) return (kn__mode)value;
    value = mode_read(name);
    atomic_store_explicit(known, value, memory_order_relaxed);
    return (kn__mode)value;
}

int kn__mode_isa(void) {
    const char *text = getenv("KNET_ISA");
    if (!text || !*text) return 0;
    return text[0] == 'v' && text[1] >= '2' && text[1] <= '4' && !text[2] ? text[1] - '0' : -1;
}

kn_status kn__mode_conv_route(int *out) {
    static const char *const words[] = {"table", "ours", "onednn", "winograd", "measure"};
    const char *text = getenv("KNET_CONV_ROUTE");
    int way = 0;
    while (text && *text && way < 5 && strcmp(text, words[way]) != 0) way++;
    if (way == 5)
        return KN_FAIL(
            KN_ERR_INVALID,
            "KNET_CONV_ROUTE is '%s'; it must be table, measure, ours, onednn or winograd", text);
    *out = way;
    return KN_OK;
}

kn_status kn__modes_check(void) {
    int way = 0;
    static const char *const names[] = {"KNET_FUSE", "KNET_RECOMPUTE"};
    for (int i = 0; i < 2; i++)
        if (!mode_read(names[i]))
            return KN_FAIL(KN_ERR_INVALID, "%s is '%s'; it must be 0, off, 1, on or all", names[i],
                           getenv(names[i]));
    if (kn__mode_isa() < 0)
        return KN_FAIL(KN_ERR_INVALID, "KNET_ISA is '%s'; it must be v2, v3 or v4",
                       getenv("KNET_ISA"));
    return kn__mode_conv_route(&way);
}

kn__mode kn__mode_fuse(void) {
    static _Atomic int known;
    return environment(&known, "KNET_FUSE");
}

kn__mode kn__mode_recompute(void) {
    static _Atomic int known;
    return environment(&known, "KNET_RECOMPUTE");
}
