/* A process that saves without end is killed 100 times, at any moment of a save: the file is always
 * there and whole, and has the last save that returned, or the one after it. Then processes end at
 * each call of a save that changes or syncs files, in turn: moments too short for a kill to meet.
 *
 * `test_checkpoint_kill save DIR [N]` is the process that saves. It ends before its N-th such call;
 * the program's own rename, link and fsync stand before the library's. */
#include <dlfcn.h>
#include <fcntl.h>
#include <knet/checkpoint.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint_dir.h"
#include "test.h"

enum { KILLS = 100, WEIGHTS = 40000 };

extern char **environ;
static char self[FILES_PATH_MAX];

/* What both processes see: the number of the last save that returned. */
typedef struct board {
    _Atomic int64_t saved;
} board;

static board *board_open(const char *folder) {
    char name[FILES_PATH_MAX + 32];
    snprintf(name, sizeof name, "%s/board", folder);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(board)) < 0) return NULL;
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return b == MAP_FAILED ? NULL : b;
}

/* --- calls of a save --- */

static int n_calls, end_at; /* end_at 0: never */

static void call_counts(void) {
    if (++n_calls == end_at) kill(getpid(), SIGKILL);
}

typedef int (*names_fn)(const char *from, const char *to);
static names_fn names_fn_of(const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    names_fn fn;
    memcpy(&fn, &symbol, sizeof fn); /* ISO C has no cast for it */
    return fn;
}

KN_API int rename(const char *from, const char *to) {
    call_counts();
    return names_fn_of("rename")(from, to);
}

KN_API int link(const char *from, const char *to) {
    call_counts();
    return names_fn_of("link")(from, to);
}

KN_API int fsync(int fd) { /* a kill loses nothing of the system's cache */
    (void)fd;
    call_counts();
    return 0;
}

typedef struct job {
    kn_params *params;
    kn_tensor *w;
    kn_optim *optim;
    kn_checkpoint checkpoint;
} job;

static kn_status job_open(job *j) {
    *j = (job){0};
    KN_TRY(kn_params_create(&j->params, NULL));
    j->w = kn_param(j->params, KN_SHAPE(WEIGHTS), (kn_init){0}, "w");
    KN_TRY(kn_check());
    KN_TRY(kn_momentum_create(&j->optim, j->params, 0.1, 0.9, NULL));
    KN_TRY(kn_optim_prepare(j->optim));
    j->checkpoint = (kn_checkpoint){.params = j->params, .optim = j->optim};
    return KN_OK;
}

static void job_close(job *j) {
    kn_optim_destroy(j->optim);
    kn_params_destroy(j->params);
}

/* --- the process that saves --- */

static kn_status save_on(job *j, board *b, const char *file) {
    if (access(file, F_OK) == 0) KN_TRY(kn_checkpoint_load(&j->checkpoint, file));
    for (uint64_t i = j->checkpoint.number[0] + 1;; i++) {
        float *w = kn_data_mut(j->w);
        for (int k = 0; k < WEIGHTS; k++) w[k] = (float)i;
        j->checkpoint.number[0] = i;
        KN_TRY(kn_checkpoint_save(file, &j->checkpoint,
                                  &(kn_checkpoint_options){.keep = (int)(i % 3)}));
        atomic_store(&b->saved, (int64_t)i);
    }
}

static int save_forever(const char *folder, const char *end) {
    end_at = end ? atoi(end) : 0;
    char file[FILES_PATH_MAX + 32];
    snprintf(file, sizeof file, "%s/run.safetensors", folder);
    board *b = board_open(folder);
    job j;
    kn_status status = b ? job_open(&j) : KN_ERR_IO;
    if (status == KN_OK) status = save_on(&j, b, file);
    fprintf(stderr, "%s\n", kn_last_error()->message);
    return status < 0;
}

/* --- the test --- */

static pid_t start(int end) {
    pid_t pid = 0;
    char save[] = "save", text[16];
    snprintf(text, sizeof text, "%d", end);
    assert_int_equal(
        posix_spawn(&pid, self, NULL, NULL, (char *[]){self, save, dir, text, NULL}, environ), 0);
    return pid;
}

static void wait_for_save(const board *b, int64_t after, pid_t pid) {
    int status = 0;
    while (atomic_load(&b->saved) <= after) {
        if (waitpid(pid, &status, WNOHANG) == pid) fail_msg("the process ended: %d", status);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

static void kill_it(pid_t pid) {
    int status = 0;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* The number of the save in the file. */
static int64_t load(job *j) {
    assert_ok(kn_checkpoint_load(&j->checkpoint, path));
    const float *w = kn_data(j->w);
    for (int i = 0; i < WEIGHTS; i++) assert_true(w[i] == (float)j->checkpoint.number[0]);
    return (int64_t)j->checkpoint.number[0];
}

static void no_kill_loses_a_save(void **state) {
    (void)state;
    board *b = board_open(dir);
    assert_non_null(b);
    job j;
    assert_ok(job_open(&j));
    for (int i = 0; i < KILLS; i++) {
        int64_t before = atomic_load(&b->saved);
        pid_t pid = start(0);
        wait_for_save(b, before, pid);
        nanosleep(&(struct timespec){.tv_nsec = (long)test_random_below(3000000)}, NULL);
        kill_it(pid);
        int64_t saved = atomic_load(&b->saved), found = load(&j);
        if (found != saved && found != saved + 1)
            fail_msg("kill %d: save %lld returned, the file has %lld", i, (long long)saved,
                     (long long)found);
        atomic_store(&b->saved, found);
    }
    job_close(&j);
    munmap(b, sizeof *b);
}

static void a_save_that_ends_at_any_call_leaves_a_whole_file(void **state) {
    (void)state;
    board *b = board_open(dir);
    assert_non_null(b);
    job j;
    assert_ok(job_open(&j));
    for (int end = 1; end <= 40; end++) {
        int status = 0;
        int64_t before = atomic_load(&b->saved);
        pid_t pid = start(end);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        if (before == 0 && access(path, F_OK) != 0) continue; /* of the first save */
        int64_t saved = atomic_load(&b->saved), found = load(&j);
        if (found != saved && found != saved + 1)
            fail_msg("end at call %d: save %lld returned, the file has %lld", end, (long long)saved,
                     (long long)found);
        atomic_store(&b->saved, found);
    }
    assert_true(atomic_load(&b->saved) > 100); /* 40 calls are some ten saves */
    job_close(&j);
    munmap(b, sizeof *b);
}

int main(int argc, char **argv) {
    if (argc >= 3 && strcmp(argv[1], "save") == 0) return save_forever(argv[2], argv[3]);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return 1;
    self[n] = '\0';
    const struct CMUnitTest tests[] = {TEST(no_kill_loses_a_save),
                                       TEST(a_save_that_ends_at_any_call_leaves_a_whole_file)};
    return cmocka_run_group_tests_name("test_checkpoint_kill", tests, dir_make, dir_remove);
}
