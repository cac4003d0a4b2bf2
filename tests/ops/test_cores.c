/* The default number of threads: a control group's limit counts, in both versions. */
#include "cores.h"

#include <knet/frame.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static char root[] = "/tmp/knet_cores_XXXXXX";

/* Writes a file under the root, and the folders that it needs. */
static void put(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + sizeof root, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int begin(void **state) {
    (void)state;
    strcpy(root + sizeof root - 7, "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void no_file_is_no_limit(void **state) {
    (void)state;
    assert_int_equal(kn__cgroup_cores(root), 0);
    put("/proc/self/cgroup", "0::/\n");
    assert_int_equal(kn__cgroup_cores(root), 0);
}

static void version_2_divides_quota_by_period_and_rounds_up(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(kn__cgroup_cores(root), 0);
    put("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    assert_int_equal(kn__cgroup_cores(root), 2);
    put("/sys/fs/cgroup/cpu.max", "10000 100000\n");
    assert_int_equal(kn__cgroup_cores(root), 1);
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_int_equal(kn__cgroup_cores(root), 4);
}

static void the_least_limit_up_to_the_root_counts(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    assert_int_equal(kn__cgroup_cores(root), 3);
}

static void version_1_has_quota_and_period_in_two_files(void **state) {
    (void)state;
    put("/proc/self/cgroup", "12:cpuset:/\n4:cpu,cpuacct:/docker/4a5b\n1:name=systemd:/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(kn__cgroup_cores(root), 0);
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"); /* a container's root */
    assert_int_equal(kn__cgroup_cores(root), 2);
    put("/sys/fs/cgroup/cpu,cpuacct/docker/4a5b/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/4a5b/cpu.cfs_quota_us", "100000\n");
    assert_int_equal(kn__cgroup_cores(root), 1);
}

static void damaged_files_are_no_limit(void **state) {
    (void)state;
    put("/proc/self/cgroup", "\n:\n0\n0:\n0::\n1:cpu\nx::::\n2:cpu:/a");
    put("/sys/fs/cgroup/cpu.max", "");
    assert_int_equal(kn__cgroup_cores(root), 0);
    put("/sys/fs/cgroup/cpu.max", "-5 0\n");
    assert_int_equal(kn__cgroup_cores(root), 0);
    put("/sys/fs/cgroup/cpu.max", "100000\n");
    assert_int_equal(kn__cgroup_cores(root), 0);
}

/* As it is at the thread's first op, not when OpenMP was loaded. */
static void affinity_is_a_limit(void **state) {
    (void)state;
    int how = 0;
    pid_t child = fork();
    if (child == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((size_t)sched_getcpu(), &one);
        unsetenv("OMP_NUM_THREADS");
        _exit(sched_setaffinity(0, sizeof one, &one) == 0 ? kn__threads_default() : 99);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 1);
}

static void omp_num_threads_overrides_the_limit(void **state) {
    (void)state;
    const char *set = getenv("OMP_NUM_THREADS");
    assert_non_null(set); /* by CTest */
    assert_int_equal(kn_frame_threads(), atoi(set));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void) {
    return RUN_TESTS(
        CASE(no_file_is_no_limit), CASE(version_2_divides_quota_by_period_and_rounds_up),
        CASE(the_least_limit_up_to_the_root_counts),
        CASE(version_1_has_quota_and_period_in_two_files), CASE(damaged_files_are_no_limit),
        CASE(affinity_is_a_limit), CASE(omp_num_threads_overrides_the_limit));
}
