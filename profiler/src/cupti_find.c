#include "cupti_find.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* 12080 for 12.8; 0: no driver. */
static int driver_version(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    int (*read)(int *) = NULL, version = 0;
    if (driver) *(void **)(void *)&read = dlsym(driver, "cuDriverGetVersion");
    if (read && read(&version) != 0) version = 0;
    if (driver) dlclose(driver);
    return version;
}

static void *open_in(const char *folder, const char *name) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* --- beside libcudart --- */

static int keep_cudart(struct dl_phdr_info *info, size_t size, void *folder) {
    const char *file = strrchr(info->dlpi_name, '/');
    (void)size;
    if (!file || strncmp(file, "/libcudart.so", 13) != 0) return 0;
    return snprintf(folder, PATH_MAX, "%.*s", (int)(file - info->dlpi_name), info->dlpi_name) > 0;
}

static void *open_beside_cudart(const char *name) {
    static const char *const places[] = {"", "/../../cuda_cupti/lib", "/../extras/CUPTI/lib64",
                                         "/../../extras/CUPTI/lib64"};
    char cudart[PATH_MAX], folder[PATH_MAX + 32];
    void *library = NULL;
    if (!dl_iterate_phdr(keep_cudart, cudart)) return NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places && !library; i++) {
        snprintf(folder, sizeof folder, "%s%s", cudart, places[i]);
        library = open_in(folder, name);
    }
    return library;
}

/* --- in folders of installers --- */

static void *open_in_all(const char *pattern, const char *name) {
    glob_t found;
    void *library = NULL;
    if (glob(pattern, 0, NULL, &found) != 0) return NULL;
    for (size_t i = 0; i < found.gl_pathc && !library; i++) {
        library = open_in(found.gl_pathv[i], name);
    }
    globfree(&found);
    return library;
}

static void *open_in_environment(const char *name) {
    static const char *const variables[] = {"VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME"};
    static const char *const places[] = {"lib/python3*/site-packages/nvidia/cuda_cupti/lib",
                                         "lib/python3*/site-packages/nvidia/cu13/lib", "lib",
                                         "extras/CUPTI/lib64"};
    enum { N_PLACES = sizeof places / sizeof *places };
    void *library = NULL;
    for (size_t i = 0; i < N_PLACES * sizeof variables / sizeof *variables && !library; i++) {
        char pattern[PATH_MAX];
        const char *root = getauxval(AT_SECURE) ? NULL : getenv(variables[i / N_PLACES]);
        if (!root || !root[0]) continue;
        snprintf(pattern, sizeof pattern, "%s/%s", root, places[i % N_PLACES]);
        library = open_in_all(pattern, name);
    }
    return library;
}

static void *open_in_toolkit(const char *name) {
    void *library = open_in("/usr/local/cuda/extras/CUPTI/lib64", name);
    return library ? library : open_in("/usr/local/cuda/lib64", name);
}

void *kn__cupti_open(void) {
    static const char *const versions[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.13"};
    int driver = driver_version();
    bool is_old = driver && driver < 13000;
    void *library = NULL;
    for (int i = 0; i < 2 && !library; i++) {
        const char *name = versions[i + is_old];
        library = open_beside_cudart(name);
        if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (!library) library = open_in_environment(name);
        if (!library) library = open_in_toolkit(name);
    }
    return library ? library : dlopen("libcupti.so", RTLD_NOW | RTLD_LOCAL);
}
