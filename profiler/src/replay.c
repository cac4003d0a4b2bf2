#include "replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cells.h"
#include "checked.h"
#include "file.h"

enum { NAMES_MAX = 4096, PATH_BYTES = 4096, ITEM_BYTES_MAX = 16 << 20, OUT_BYTES = 1 << 16 };
enum { SIZES = 1, NAME, LAUNCH, BUFFER };

static const char magic[8] = {'K', 'N', 'E', 'T', 'A', 'C', 'T', '1'};
static const char separator = '\x1f'; /* between the labels of a path */

typedef struct item_head {
    uint32_t kind, bytes;
} item_head;

typedef struct launch_head {
    uint32_t id, launch, what; /* kn__told */
} launch_head;

/* --- recording --- */

/* The bytes are kept here, not by stdio: exit() of a forked child would write them again. */
static struct {
    bool on;
    int fd, error; /* error: errno of the first write that failed */
    size_t n_out;
    char out[OUT_BYTES];
    uint64_t n_bytes;
    kn__record_sizes sizes;
    const char *names[NAMES_MAX]; /* addresses that were written */
    int n_names;
} recorder;

static void write_out(const void *bytes, size_t n) {
    if (!recorder.error) recorder.error = kn__write_all(recorder.fd, bytes, n);
}

static void flush_out(void) {
    write_out(recorder.out, recorder.n_out);
    recorder.n_out = 0;
}

static void put(const void *bytes, size_t n) {
    KN_ASSERT(recorder.n_out <= OUT_BYTES);
    if (n > OUT_BYTES - recorder.n_out) flush_out();
    if (n > OUT_BYTES) {
        write_out(bytes, n);
    } else {
        memcpy(recorder.out + recorder.n_out, bytes, n);
        recorder.n_out += n;
    }
}

/* An item of two parts; beyond the bound there are no more. */
static void put_item(uint32_t kind, const void *a, size_t n_a, const void *b, size_t n_b) {
    item_head head = {kind, (uint32_t)(n_a + n_b)};
    if (recorder.n_bytes + sizeof head + head.bytes > KN__RECORDING_BYTES_MAX) return;
    recorder.n_bytes += sizeof head + head.bytes;
    put(&head, sizeof head);
    put(a, n_a);
    if (n_b) put(b, n_b);
}

kn_status kn__recorder_start(const char *name, uint32_t version) {
    char path[KN__PATH_EXPANDED_BYTES];
    if (!kn__path_expand(path, sizeof path, name)) {
        return KN_FAIL(KN_ERR_IO, "recording: the path %.64s... is too long", name);
    }
    recorder.fd = kn__open_output(path);
    recorder.on = recorder.fd >= 0;
    if (!recorder.on) {
        return KN_FAIL(KN_ERR_IO, "recording: %s: %s", path, strerror(errno));
    }
    recorder.error = 0;
    recorder.n_bytes = recorder.n_out = 0;
    recorder.n_names = 0;
    recorder.sizes = (kn__record_sizes){{0}};
    put(magic, sizeof magic);
    put(&version, sizeof version);
    return KN_OK;
}

static void put_sizes(const kn__record_sizes *seen) {
    kn__record_sizes merged = recorder.sizes;
    for (int i = 0; i < KN__KINDS_MAX; i++) {
        if (seen->of[i]) merged.of[i] = seen->of[i];
    }
    if (memcmp(&merged, &recorder.sizes, sizeof merged) == 0) return;
    recorder.sizes = merged;
    put_item(SIZES, &merged, sizeof merged, NULL, 0);
}

static void put_name(const char *name) {
    for (int i = 0; i < recorder.n_names; i++) {
        if (recorder.names[i] == name) return;
    }
    if (recorder.n_names == NAMES_MAX) return;
    recorder.names[recorder.n_names++] = name;
    uint64_t address = (uint64_t)(uintptr_t)name;
    put_item(NAME, &address, sizeof address, name, strlen(name) + 1);
}

void kn__recorder_buffer(void *bytes, size_t used, const kn__record_sizes *seen) {
    if (!recorder.on) return;
    put_sizes(seen);
    for (void *at = NULL; (at = kn__cupti_next(bytes, used, at, &recorder.sizes));) {
        const char **name = kn__cupti_name(at);
        if (name && *name) put_name(*name);
    }
    put_item(BUFFER, bytes, used, NULL, 0);
}

static size_t add_labels(char *out, const kn__node *node) {
    if (!node || !node->parent) return 0;
    size_t at = add_labels(out, node->parent), n = strlen(node->label);
    if (at + n + 2 > PATH_BYTES) return at;
    memcpy(out + at, node->label, n);
    out[at + n] = separator;
    return at + n + 1;
}

void kn__recorder_launch(kn__told what, uint32_t id, uint32_t launch_id, const kn__node *node) {
    char path[PATH_BYTES];
    launch_head head = {id, launch_id, (uint32_t)what};
    if (recorder.on) put_item(LAUNCH, &head, sizeof head, path, add_labels(path, node));
}

kn_status kn__recorder_finish(void) {
    if (!recorder.on) return KN_OK;
    flush_out();
    if (close(recorder.fd) != 0 && !recorder.error) recorder.error = errno;
    recorder.on = false;
    if (!recorder.error) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "recording: the file is not complete: %s", strerror(recorder.error));
}

/* --- playing --- */

typedef struct name {
    uint64_t address;
    char *text;
} name;

static struct {
    char path[1024], text[64];
    kn__walk_fn walk;
    FILE *file;
    kn__record_sizes sizes;
    name names[NAMES_MAX];
    int n_names;
} player;

static kn_status wrong(const char *what) {
    return KN_FAIL(KN_ERR_FORMAT, "%s: %s", player.path, what);
}

static kn_status start(void *ctx) {
    char head[sizeof magic];
    uint32_t version = 0;
    (void)ctx;
    player.file = fopen(player.path, "rb");
    if (!player.file) return KN_FAIL(KN_ERR_IO, "%s: %s", player.path, strerror(errno));
    bool ok = fread(head, 1, sizeof head, player.file) == sizeof head &&
              fread(&version, sizeof version, 1, player.file) == 1;
    if (ok && memcmp(head, magic, sizeof magic) == 0) {
        snprintf(player.text, sizeof player.text, "replay of cupti %" PRIu32, version);
        return KN_OK;
    }
    fclose(player.file);
    player.file = NULL;
    return wrong("not a recording of GPU activity");
}

static void play_launch(const char *bytes, size_t n) {
    launch_head head;
    kn_scope scopes[KN__DEPTH_MAX];
    int depth = 0;
    memcpy(&head, bytes, sizeof head);
    for (const char *at = bytes + sizeof head, *end = bytes + n;
         at < end && depth < KN__DEPTH_MAX;) {
        char label[PATH_BYTES];
        const char *stop = memchr(at, separator, (size_t)(end - at));
        if (!stop) break;
        snprintf(label, sizeof label, "%.*s", (int)(stop - at), at);
        scopes[depth++] = kn_scope_begin(label);
        at = stop + 1;
    }
    if (head.what == KN__TOLD_FAILURE) {
        kn__activity_cancel(head.launch);
    } else if (head.what != KN__TOLD_LAUNCH) {
        kn__activity_note(head.id, head.what == KN__TOLD_OURS);
    } else if (head.id == head.launch) {
        kn__activity_launch(head.id);
    } else {
        kn__activity_alias(head.id, head.launch);
    }
    while (depth > 0) kn_scope_end(&scopes[--depth]);
}

static void keep_name(const char *bytes, size_t n) {
    if (player.n_names == NAMES_MAX || bytes[n - 1]) return;
    name *new = &player.names[player.n_names];
    memcpy(&new->address, bytes, sizeof new->address);
    new->text = strdup(bytes + sizeof new->address);
    player.n_names += new->text != NULL;
}

static const char *name_at(const char *address) {
    for (int i = player.n_names; i-- > 0;) { /* the latest that lay there */
        if (player.names[i].address == (uint64_t)(uintptr_t)address) return player.names[i].text;
    }
    return NULL;
}

static void play_buffer(void *bytes, size_t used, kn__record_fn fn, void *sink) {
    for (void *at = NULL;;) {
        kn__record record;
        at = player.walk ? player.walk(bytes, used, at)
                         : kn__cupti_next(bytes, used, at, &player.sizes);
        if (!at) return;
        const char **text = kn__cupti_name(at);
        if (text) *text = name_at(*text);
        if (kn__cupti_read(&record, at)) fn(sink, &record, 1);
    }
}

static void play_item(uint32_t kind, void *bytes, size_t n, kn__record_fn fn, void *sink) {
    if (kind == SIZES && n == sizeof player.sizes) memcpy(&player.sizes, bytes, n);
    if (kind == NAME && n > sizeof(uint64_t)) keep_name(bytes, n);
    if (kind == LAUNCH && n >= sizeof(launch_head)) play_launch(bytes, n);
    if (kind == BUFFER) play_buffer(bytes, n, fn, sink);
}

/* Launches have to be known before their records: a buffer that follows launches waits for the next
 * drain. A file that was cut off is played as far as it goes. */
static void drain(void *ctx, kn__record_fn fn, void *sink) {
    item_head head;
    bool launched = false;
    (void)ctx;
    while (player.file && fread(&head, sizeof head, 1, player.file) == 1) {
        if (head.kind == BUFFER && launched &&
            fseek(player.file, -(long)sizeof head, SEEK_CUR) == 0) {
            return;
        }
        launched |= head.kind == LAUNCH;
        void *bytes = head.bytes && head.bytes <= ITEM_BYTES_MAX ? malloc(head.bytes) : NULL;
        bool ok = bytes && fread(bytes, 1, head.bytes, player.file) == head.bytes;
        if (ok) play_item(head.kind, bytes, head.bytes, fn, sink);
        free(bytes);
        if (!ok) break;
    }
    if (player.file) fclose(player.file);
    player.file = NULL;
}

bool kn__replay_more(void) { return player.file != NULL; }

static void stop(void *ctx) { (void)ctx; }

static uint64_t dropped(void *ctx) {
    (void)ctx;
    return 0;
}

const kn__source *kn__replay_source(const char *path, kn__walk_fn walk) {
    static const kn__source source = {
        .name = player.text, .start = start, .stop = stop, .drain = drain, .dropped = dropped};
    for (int i = 0; i < player.n_names; i++) free(player.names[i].text);
    player.n_names = 0;
    player.walk = walk;
    snprintf(player.path, sizeof player.path, "%s", path);
    return &source;
}
