#include "player.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder.h"
#include "test.h"

enum { NAMES_MAX = 4096, PATH_BYTES = 4096, ITEM_BYTES_MAX = 16 << 20 };

typedef struct name {
    uint64_t address;
    char *text;
} name;

static struct {
    char path[1024], text[64];
    walk_fn walk;
    FILE *file;
    kn__record_sizes sizes;
    name names[NAMES_MAX];
    int n_names;
} player;

static kn_status wrong(const char *what) {
    return KN_FAIL(KN_ERR_FORMAT, "%s: %s", player.path, what);
}

static kn_status start(void *ctx) {
    char head[sizeof KN__RECORDING_MAGIC - 1];
    uint32_t version = 0;
    (void)ctx;
    player.file = fopen(player.path, "rb");
    if (!player.file) return KN_FAIL(KN_ERR_IO, "%s: %s", player.path, strerror(errno));
    bool ok = fread(head, 1, sizeof head, player.file) == sizeof head &&
              fread(&version, sizeof version, 1, player.file) == 1;
    if (ok && memcmp(head, KN__RECORDING_MAGIC, sizeof head) == 0) {
        snprintf(player.text, sizeof player.text, "replay of cupti %" PRIu32, version);
        return KN_OK;
    }
    fclose(player.file);
    player.file = NULL;
    return wrong("not a recording of GPU activity");
}

static void play_launch(const char *bytes, size_t n) {
    kn__recording_launch head;
    kn_scope scopes[KN__DEPTH_MAX];
    int depth = 0;
    memcpy(&head, bytes, sizeof head);
    for (const char *at = bytes + sizeof head, *end = bytes + n;
         at < end && depth < KN__DEPTH_MAX;) {
        char label[PATH_BYTES];
        const char *stop = memchr(at, KN__RECORDING_SEPARATOR, (size_t)(end - at));
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
    if (kind == KN__RECORDING_SIZES && n == sizeof player.sizes) memcpy(&player.sizes, bytes, n);
    if (kind == KN__RECORDING_NAME && n > sizeof(uint64_t)) keep_name(bytes, n);
    if (kind == KN__RECORDING_LAUNCH && n >= sizeof(kn__recording_launch)) play_launch(bytes, n);
    if (kind == KN__RECORDING_BUFFER) play_buffer(bytes, n, fn, sink);
}

/* Launches have to be known before their records: a buffer that follows launches waits for the next
 * drain. A file that was cut off is played as far as it goes. */
static void drain(void *ctx, kn__record_fn fn, void *sink) {
    kn__recording_item head;
    bool launched = false;
    (void)ctx;
    while (player.file && fread(&head, sizeof head, 1, player.file) == 1) {
        if (head.kind == KN__RECORDING_BUFFER && launched &&
            fseek(player.file, -(long)sizeof head, SEEK_CUR) == 0) {
            return;
        }
        launched |= head.kind == KN__RECORDING_LAUNCH;
        void *bytes = head.bytes && head.bytes <= ITEM_BYTES_MAX ? malloc(head.bytes) : NULL;
        bool ok = bytes && fread(bytes, 1, head.bytes, player.file) == head.bytes;
        if (ok) play_item(head.kind, bytes, head.bytes, fn, sink);
        free(bytes);
        if (!ok) break;
    }
    if (player.file) fclose(player.file);
    player.file = NULL;
}

bool player_has_more(void) { return player.file != NULL; }

static void stop(void *ctx) { (void)ctx; }

static uint64_t dropped(void *ctx) {
    (void)ctx;
    return 0;
}

const kn__source *player_source(const char *path, walk_fn walk) {
    static const kn__source source = {
        .name = player.text, .start = start, .stop = stop, .drain = drain, .dropped = dropped};
    for (int i = 0; i < player.n_names; i++) free(player.names[i].text);
    player.n_names = 0;
    player.walk = walk;
    snprintf(player.path, sizeof player.path, "%s", path);
    return &source;
}
