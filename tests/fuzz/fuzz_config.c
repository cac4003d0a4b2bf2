/* Fuzzing of the parser of KNET_ALLOC: whatever it is given, each wrong word is one line, and what
 * it lets through holds together. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/config.h"
#include "utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok) {
    if (!ok) abort();
}

static void check_line(const char *line, size_t length) {
    must(length > 12 && memcmp(line, "KNET_ALLOC: ", 12) == 0);
    for (size_t i = 0, n; i < length; i += n) {
        n = kn__utf8_bytes(line + i);
        must(n > 0 && (unsigned char)line[i] >= 0x20 && line[i] != 0x7f);
    }
}

static void check_path(const char *path) {
    must(memchr(path, '\0', KN__CONFIG_PATH_BYTES) != NULL && !strchr(path, ','));
}

static void check(const kn__alloc_config *c) {
    const kn_pool_options *o = &c->pool;
    must(o->device_fraction >= 0 && o->device_fraction <= 1);
    must(!o->slab_max_bytes || (o->slab_max_bytes >= 1 << 16 && o->slab_max_bytes <= 1 << 20));
    must(!o->limit_bytes || o->soft_limit_bytes <= o->limit_bytes);
    must(o->limit_bytes <= (size_t)1 << 60);
    must(!o->name && !o->clock_fn && !o->pinned);
    check_path(c->stats);
    check_path(c->trace);
    check_path(c->snapshot);
    check_path(c->oom);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char list[1 << 13], messages[1 << 22];
    if (size >= sizeof list) size = sizeof list - 1;
    memcpy(list, data, size);
    list[size] = '\0';
    kn__alloc_config config;
    kn__writer w = kn__writer_of(messages, sizeof messages);
    kn__alloc_config_read(&config, list, &w);
    check(&config);
    size_t n_lines = 0, n_words = 1;
    for (const char *line = messages, *end; (end = strchr(line, '\n')); line = end + 1, n_lines++) {
        check_line(line, (size_t)(end - line));
    }
    for (const char *c = list; *c; c++) n_words += *c == ',';
    must(n_lines <= n_words + 1); /* one each, and one for words that contradict each other */
    must(w.text.length == 0 || messages[w.text.length - 1] == '\n');
    return 0;
}
