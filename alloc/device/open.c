/* Devices by name: opens those that are not registered yet. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "device/drivers.h"
#include "device/registry.h"

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER; /* opens one device at a time */

/* N of "KIND:N"; 0 for "KIND"; -1 for other names. */
static int index_of(const char *name, const char *kind) {
    size_t length = strlen(kind);
    if (strncmp(name, kind, length) != 0) return -1;
    name += length;
    if (*name == '\0') return 0;
    if (name[0] != ':' || name[1] < '0' || name[1] > '9') return -1;
    char *end = NULL;
    errno = 0;
    long index = strtol(name + 1, &end, 10);
    return *end == '\0' && errno == 0 && index < 1000 ? (int)index : -1;
}

/* What follows "cuda:", where that is a word; NULL for other names. */
static const char *cuda_word(const char *name) {
    bool word = strncmp(name, "cuda:", 5) == 0 && name[5] && (name[5] < '0' || name[5] > '9');
    return word ? name + 5 : NULL;
}

/* Programs that ask for "cuda:auto" in several places get one device. Under the lock. */
static kn_status choose(int *out, const char *word) {
    static int chosen = -1;
    bool is_auto = strcmp(word, "auto") == 0;
    if (is_auto && chosen >= 0) {
        *out = chosen;
        return KN_OK;
    }
    KN_TRY(kn__cuda_choose(out, word));
    if (is_auto) chosen = *out;
    return KN_OK;
}

static bool find(kn_device **out, const char *name) {
    kn_device *device = kn__device_registered(name);
    if (device) *out = device;
    return device != NULL;
}

static kn_status open_locked(kn_device **out, const char *name, int cuda, bool managed) {
    char canonical[32];
    if (cuda_word(name)) {
        KN_TRY(choose(&cuda, cuda_word(name)));
        snprintf(canonical, sizeof canonical, "cuda:%d", cuda);
        name = canonical;
    }
    if (find(out, name)) return KN_OK; /* another thread opened it */
    if (cuda >= 0) return kn__cuda_open(out, name, cuda, managed);
    if (strcmp(name, "sim") == 0) return kn__sim_open(out);
    return KN_FAIL(KN_ERR_INVALID,
                   "no device is named \"%s\"; there are \"cpu\", \"cuda\", \"cuda:N\", "
                   "\"cuda:auto\", \"managed:N\" and \"sim\"",
                   name);
}

kn_status kn_device_find(kn_device **out, const char *name) {
    if (!name) return KN_FAIL(KN_ERR_INVALID, "kn_device_find: the name is NULL");
    char canonical[32];
    int cuda = index_of(name, "cuda"), managed = index_of(name, "managed");
    if (cuda >= 0) snprintf(canonical, sizeof canonical, "cuda:%d", cuda);
    if (managed >= 0) snprintf(canonical, sizeof canonical, "managed:%d", managed);
    if (cuda >= 0 || managed >= 0) name = canonical;
    if (find(out, name)) return KN_OK;
    KN__CANCEL_LATER();
    pthread_mutex_lock(&open_lock);
    kn_status status = open_locked(out, name, managed >= 0 ? managed : cuda, managed >= 0);
    pthread_mutex_unlock(&open_lock);
    return status;
}

int kn_device_cuda_count(void) { return kn__cuda_count(); }

/* The lock may belong to a thread that the child lacks. */
static void fork_child(void) { open_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, fork_child);
}
