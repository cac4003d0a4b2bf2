/* Devices by name: opens those that are not registered yet. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/drivers.h"
#include "device/registry.h"

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER; /* opens one device at a time */

/* N of "cuda:N"; 0 for "cuda"; -1 for other names. */
static int cuda_index(const char *name) {
    if (strcmp(name, "cuda") == 0) return 0;
    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    char *end = NULL;
    errno = 0;
    long index = strtol(name + 5, &end, 10);
    return *end == '\0' && errno == 0 && index < 1000 ? (int)index : -1;
}

static bool find(kn_device **out, const char *name) {
    kn_device *device = kn__device_registered(name);
    if (device) *out = device;
    return device != NULL;
}

static kn_status open_locked(kn_device **out, const char *name, int cuda) {
    if (find(out, name)) return KN_OK; /* another thread opened it */
    if (cuda >= 0) return kn__cuda_open(out, name, cuda);
    if (strcmp(name, "sim") == 0) return kn__sim_open(out);
    return KN_FAIL(KN_ERR_INVALID,
                   "no device is named \"%s\"; there are \"cpu\", \"cuda\", \"cuda:N\" and \"sim\"",
                   name);
}

kn_status kn_device_find(kn_device **out, const char *name) {
    if (!name) return KN_FAIL(KN_ERR_INVALID, "kn_device_find: the name is NULL");
    char canonical[32];
    int cuda = cuda_index(name);
    if (cuda >= 0) snprintf(canonical, sizeof canonical, "cuda:%d", cuda);
    if (cuda >= 0) name = canonical;
    if (find(out, name)) return KN_OK;
    pthread_mutex_lock(&open_lock);
    kn_status status = open_locked(out, name, cuda);
    pthread_mutex_unlock(&open_lock);
    return status;
}

int kn_device_cuda_count(void) { return kn__cuda_count(); }

/* The lock may belong to a thread that the child lacks. */
static void fork_child(void) { open_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, fork_child);
}
