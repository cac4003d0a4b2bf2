#include "cores.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libgomp.h"

enum { PATH_BYTES = 4096 };

static int cores_of(double quota, double period) {
    if (!(quota > 0 && period > 0)) return 0;
    double cores = quota / period;
    int whole = cores < 1e6 ? (int)cores : 1000000;
    return whole + (whole < cores);
}

static double number_in(const char *folder, const char *name) {
    char path[PATH_BYTES + 64];
    double number = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%lf", &number) != 1) number = 0;
    fclose(file);
    return number;
}

/* Version 2: "QUOTA PERIOD", or "max PERIOD" without a limit. */
static int cores_in_v2(const char *folder) {
    char path[PATH_BYTES + 64];
    double quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%lf %lf", &quota, &period) != 2) quota = 0;
    fclose(file);
    return cores_of(quota, period);
}

/* Version 1: a quota of -1 is no limit. */
static int cores_in_v1(const char *folder) {
    return cores_of(number_in(folder, "cpu.cfs_quota_us"), number_in(folder, "cpu.cfs_period_us"));
}

static int smaller_limit(int a, int b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/* The least limit from the group up to the root. A container sees its own group as the root, though
 * the path may be the host's: folders that don't exist set no limit. */
static int cores_upward(const char *mount, const char *group, int (*cores_in)(const char *)) {
    char folder[PATH_BYTES];
    int n = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (n < 0 || (size_t)n >= sizeof folder) return 0;
    int cores = 0;
    size_t mount_length = strlen(mount);
    for (;;) {
        cores = smaller_limit(cores, cores_in(folder));
        char *slash = strrchr(folder + mount_length, '/');
        if (!slash) return cores;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup: "number:controllers:path"; version 2 has 0 and no controller. */
static int cores_of_line(const char *root, char *line) {
    char *rest = line, mount[PATH_BYTES];
    line[strcspn(line, "\n")] = '\0';
    strsep(&rest, ":");
    char *controllers = strsep(&rest, ":");
    if (!controllers || !rest) return 0;
    if (!*controllers) {
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
        return cores_upward(mount, rest, cores_in_v2);
    }
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controllers);
    for (char *name; (name = strsep(&controllers, ","));)
        if (strcmp(name, "cpu") == 0) return cores_upward(mount, rest, cores_in_v1);
    return 0;
}

int kn__cgroup_cores(const char *root) {
    char path[PATH_BYTES], line[PATH_BYTES];
    int cores = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) cores = smaller_limit(cores, cores_of_line(root, line));
    fclose(file);
    return cores;
}

/* --- affinity --- */

static void add_place(cpu_set_t *out, int place) {
    int ids[CPU_SETSIZE], n = omp_get_place_num_procs(place);
    if (n < 0 || n > CPU_SETSIZE) return;
    omp_get_place_proc_ids(place, ids);
    for (int i = 0; i < n; i++) CPU_SET((size_t)ids[i], out);
}

bool kn__cores_allowed(cpu_set_t *out) {
    cpu_set_t main_thread;
    if (sched_getaffinity(0, sizeof *out, out) < 0) return false;
    if (sched_getaffinity(getpid(), sizeof main_thread, &main_thread) == 0)
        CPU_OR(out, out, &main_thread);
    for (int i = 0; i < omp_get_num_places(); i++) add_place(out, i);
    return true;
}

/* --- the default --- */

static pthread_once_t limit_once = PTHREAD_ONCE_INIT;
static bool is_set;
static int limit;

static void limit_read(void) {
    const char *set = getenv("OMP_NUM_THREADS");
    is_set = set && *set;
    if (!is_set) limit = kn__cgroup_cores("");
}

int kn__threads_default(void) {
    pthread_once(&limit_once, limit_read);
    cpu_set_t allowed;
    int threads = omp_get_max_threads();
    if (is_set) return threads;
    /* OpenMP's number is that of the time when it was loaded. */
    int now = kn__cores_allowed(&allowed) ? CPU_COUNT(&allowed) : 0;
    return smaller_limit(threads, smaller_limit(limit, now));
}
