/* Two options of knet train that name one file: each would replace what the other wrote. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "train_session.h"

enum { LINKS_MAX = 40 }; /* as Linux follows */

typedef struct named {
    const char *option, *path; /* as given; NULL: not given */
    bool is_checkpoint, is_output;
    int64_t keep;   /* checkpoints before it */
    bool is_placed; /* it has a place */
    char place[KN__PATH_EXPANDED_BYTES];
} named;

/* What a link to a file that is not there points to, in `path` itself, from link to link. */
static bool links_follow(char path[KN__PATH_EXPANDED_BYTES]) {
    char to[KN__PATH_EXPANDED_BYTES];
    for (int i = 0; i < LINKS_MAX; i++) {
        ssize_t n = readlink(path, to, sizeof to - 1);
        if (n < 0) return true;
        to[n] = '\0';
        char *slash = strrchr(path, '/'), *name = to[0] == '/' || !slash ? path : slash + 1;
        size_t room = KN__PATH_EXPANDED_BYTES - (size_t)(name - path);
        if ((size_t)n >= room) return false;
        memcpy(name, to, (size_t)n + 1);
    }
    return false;
}

/* Where the file lies or will lie, without links; false: a device, a pipe, or in no folder. */
static bool place_find(char place[KN__PATH_EXPANDED_BYTES], const char *given) {
    struct stat file;
    char folder[KN__PATH_EXPANDED_BYTES], path[KN__PATH_EXPANDED_BYTES];
    if (stat(given, &file) == 0 && !S_ISREG(file.st_mode)) return false;
    if (realpath(given, place)) return true;
    if (snprintf(path, sizeof path, "%s", given) >= (int)sizeof path || !links_follow(path))
        return false;
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    if (!realpath(folder, place)) return false;
    size_t n = strlen(place);
    return snprintf(place + n, KN__PATH_EXPANDED_BYTES - n, "/%s", slash ? slash + 1 : path) <
           (int)(KN__PATH_EXPANDED_BYTES - n);
}

/* False: no file that another option could name. */
static bool named_find(named *f) {
    char path[KN__PATH_EXPANDED_BYTES];
    if (!f->path) return false;
    if (!f->is_output) return place_find(f->place, f->path);
    if (strcmp(f->path, "-") == 0) return false;
    return kn__path_expand(path, sizeof path, f->path) && place_find(f->place, path);
}

/* Besides its file a checkpoint has a new one and those before it. */
static bool checkpoint_writes(const char *checkpoint, int64_t keep, const char *place) {
    size_t n = strlen(checkpoint);
    char end[24] = ".new";
    if (strncmp(place, checkpoint, n) != 0) return false;
    if (!place[n] || strcmp(place + n, end) == 0) return true;
    for (int64_t i = 1; i <= keep; i++) {
        snprintf(end, sizeof end, ".%" PRId64, i);
        if (strcmp(place + n, end) == 0) return true;
    }
    return false;
}

static bool writes(const named *a, const char *place) {
    return a->is_checkpoint ? checkpoint_writes(a->place, a->keep, place)
                            : strcmp(a->place, place) == 0;
}

static bool write_one(const named *a, const named *b) {
    return a->is_placed && b->is_placed && (writes(a, b->place) || writes(b, a->place));
}

int kn__train_paths_check(const kn__train_options *o) {
    named file[] = {
        {.option = "checkpoint", .path = o->checkpoint, .is_checkpoint = true, .keep = o->keep},
        {.option = "best", .path = o->best, .is_checkpoint = true},
        {.option = "metrics", .path = o->metrics},
        {.option = "curves", .path = o->curves},
        {.option = "output", .path = o->common.output, .is_output = true}};
    enum { N = sizeof file / sizeof *file };
    for (int i = 0; i < N; i++) {
        named *f = &file[i];
        f->is_placed = named_find(f);
        for (int k = 0; k < i; k++) {
            if (!write_one(&file[k], f)) continue;
            kn__output_cancel();
            return kn__fail_usage("--%s and --%s write one file, %s", file[k].option, f->option,
                                  f->place);
        }
    }
    for (const named *f = file; f < file + N; f++)
        if (f->path && !f->is_output && strcmp(f->path, "-") == 0)
            return kn__fail_usage(
                "--%s - is no file: standard output has the result; ./- is a file "
                "of that name",
                f->option);
    return KN__EXIT_OK;
}
