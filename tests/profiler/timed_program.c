/* A program of many ways to end, for test_process.c: argv[1] says which. */
#include <dlfcn.h>
#include <fcntl.h>
#include <knet/pool.h>
#include <knet/prof.h>
#include <knet/prof_counter.h>
#include <knet/prof_read.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/forked_leaks.h"
#include "../support/main_end.h"

static int plain(void) {
    for (int i = 0; i < 3; i++) {
        KN_SCOPE("step");
        { KN_SCOPE("forward"); }
        kn_scope grad = kn_scope_begin_grad("conv[1]");
        kn_scope_end(&grad);
        kn_step();
    }
    return 0;
}

static void *die_with_open_scopes(void *arg) {
    (void)kn_scope_begin_static("open in thread");
    (void)kn_scope_begin_static("inner");
    return arg;
}

static int exit_in_scope(void) {
    KN_SCOPE("outer");
    KN_SCOPE("inner");
    exit(5);
}

static bool exit_at_once(void *ctx, const kn_prof_row *row) {
    (void)ctx;
    exit(row->depth == 1 ? 6 : 7);
}

static int exit_in_visitor(void) {
    KN_SCOPE("outer");
    return kn_prof_visit(exit_at_once, NULL) < 0;
}

static int in_thread(void *(*fn)(void *arg), void *arg) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, fn, arg) != 0) return 1;
    return pthread_join(thread, NULL);
}

static int dying_thread(void) { return in_thread(die_with_open_scopes, NULL); }

static void *run_for_ever(void *arg) {
    for (;;) {
        KN_SCOPE("running");
        { KN_SCOPE("leaf"); }
    }
    return arg;
}

static int threads_still_running(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        if (pthread_create(&threads[i], NULL, run_for_ever, NULL) != 0) return 1;
    }
    KN_SCOPE("main");
    usleep(20000);
    return 0;
}

/* The child must print nothing of its own. */
static int fork_in_scope(void) {
    KN_SCOPE("parent");
    pid_t child = fork();
    if (child == 0) {
        KN_SCOPE("child");
        exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int memory(void) {
    kn_pool *pool = NULL;
    void *x = NULL;
    if (kn_pool_create(&pool, kn_device_host(), NULL) < 0) return 1;
    KN_SCOPE("allocating");
    if (kn_alloc(&x, pool, 3 << 20, NULL) < 0) return 1;
    int failed = kn_free(pool, x) < 0;
    kn_pool_destroy(pool);
    return failed;
}

/* The last block stays until its pool is destroyed. */
static int watched_pool(void) {
    kn_pool *pool = NULL, *other = NULL;
    kn_pool_options options = {.name = "watched"};
    if (kn_pool_create(&pool, kn_device_host(), &options) < 0) return 1;
    if (kn_pool_create(&other, kn_device_host(), NULL) < 0) return 1;
    static const size_t sizes[] = {4096, 8192, 256};
    for (int i = 0; i < 3; i++) {
        void *x = NULL, *y = NULL;
        if (kn_alloc(&x, pool, sizes[i], NULL) < 0 || kn_alloc(&y, other, 100, NULL) < 0) return 1;
        if ((i < 2 && kn_free(pool, x) < 0) || kn_free(other, y) < 0) return 1;
    }
    kn_pool_destroy(pool);
    kn_pool_destroy(other);
    return 0;
}

static int pause_between(void) {
    KN_SCOPE("all the time");
    { KN_SCOPE("before"); }
    kn_prof_pause();
    kn_prof_pause();
    { KN_SCOPE("while it is off"); }
    usleep(50000);
    kn_prof_resume();
    { KN_SCOPE("after"); }
    return 0;
}

static int report_now(void) {
    plain();
    if (kn_prof_note("data", "old") < 0 || kn_prof_note("commit", "a \"b\"") < 0) return 2;
    if (kn_prof_note("data", "new") < 0 || kn_prof_note("gone", "1") < 0) return 2;
    if (kn_prof_note("gone", NULL) < 0 || kn_prof_note("gone", NULL) < 0) return 2;
    kn_status status = kn_prof_report("now.%p.json");
    if (status < 0) printf("%d %s\n", (int)status, kn_last_error()->message);
    char name[64];
    snprintf(name, sizeof name, "now.%ld.json", (long)getpid());
    if (status >= 0) printf("%s\n", name);
    return status < 0;
}

/* Prints the message of each note that is refused. */
static int bad_notes(void) {
    char long_text[200];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    const char *const keys[] = {NULL, "", "a=b", "a,b", "a\nb", long_text};
    int n_refused = 0;
    for (int i = 0; i < 6; i++) n_refused += kn_prof_note(keys[i], "1") == KN_ERR_INVALID;
    n_refused += kn_prof_note("key", long_text) == KN_ERR_INVALID;
    for (int i = 0; i < 17; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        n_refused += kn_prof_note(key, "1") == KN_ERR_INVALID;
    }
    printf("%d %s\n", n_refused, kn_last_error()->message);
    return 0;
}

static int owners(void) {
    if (kn_prof_owners_on() < 0) return 1;
    return memory();
}

/* The parent's report comes at exit; the child can have none. */
static int fork_and_report(void) {
    pid_t child = fork();
    if (child == 0) {
        bool refused =
            kn_prof_report("-") == KN_ERR_UNSUPPORTED && kn_prof_owners_on() == KN_ERR_UNSUPPORTED;
        exit(refused ? 7 : 8);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Ten steps; of "step" and its "half", one a step. */
static int ten_steps(void) {
    for (int i = 0; i < 10; i++) {
        {
            KN_SCOPE("step");
            KN_SCOPE("half");
            usleep(1000);
        }
        kn_step();
    }
    return 0;
}

/* The steps 1, 2 and 10 take 3 MiB, 6 and 7 nothing, others 64 KiB; 1 MiB is live all the time. */
static int ten_steps_of_memory(void) {
    kn_pool *pool = NULL;
    void *x = NULL, *y = NULL;
    if (kn_pool_create(&pool, kn_device_host(), &(kn_pool_options){.name = "stepped"}) < 0 ||
        kn_alloc(&x, pool, 1 << 20, NULL) < 0)
        return 1;
    for (int i = 1; i <= 10; i++) {
        KN_SCOPE("step");
        const size_t bytes = i < 3 || i == 10 ? 3 << 20 : 64 << 10;
        if (i / 2 != 3 && (kn_alloc(&y, pool, bytes, NULL) < 0 || kn_free(pool, y) < 0)) return 1;
        kn_step();
    }
    kn_pool_destroy(pool); /* with x */
    return 0;
}

/* Of its six steps the second to the fourth have the folder. */
static int change_folder(void) {
    kn_step();
    if (mkdir("sub", 0777) || chdir("sub") || plain() || rename("../sub", "../gone")) return 1;
    for (int i = 0; i < 2; i++) kn_step();
    return 0;
}

/* Waits for a report of the timer's own, and prints a line. */
static int wait_for_report(void) {
    KN_SCOPE("waiting");
    for (int i = 0; i < 2000; i++) {
        usleep(5000);
        if (access("early.txt", F_OK) == 0) return 0;
    }
    return 3;
}

static int raise_signal(void) {
    KN_SCOPE("signalled");
    return raise(SIGUSR2) != 0 ? 1 : wait_for_report();
}

static int raise_for_ever(int number) {
    KN_SCOPE("ended");
    raise(number);
    for (int i = 0; i < 2000; i++) usleep(5000);
    return 3;
}

static int get_term(void) { return raise_for_ever(SIGTERM); }
static int get_int(void) { return raise_for_ever(SIGINT); }
static int get_hup(void) { return raise_for_ever(SIGHUP); }

/* Which the caller ignores. */
static int get_hup_and_go_on(void) {
    KN_SCOPE("signalled");
    if (raise(SIGHUP) != 0 || wait_for_report() != 0 || unlink("early.txt") != 0) return 1;
    return raise(SIGHUP) != 0 ? 1 : wait_for_report(); /* and again */
}

/* Waits for a byte that comes after the signal. */
static int read_through_signal(void) {
    int ends[2];
    char byte = 0;
    KN_SCOPE("reading");
    if (pipe(ends) != 0) return 1;
    if (fork() == 0) {
        usleep(100000);
        kill(getppid(), SIGUSR2);
        usleep(100000);
        _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
    }
    return read(ends[0], &byte, 1) == 1 ? 0 : 4;
}

/* By somebody who will not wait for a report that cannot be written. */
static int get_int_twice(void) {
    KN_SCOPE("ended");
    raise(SIGINT);
    usleep(50000);
    raise(SIGINT);
    _exit(3);
}

static void copy_out(const char *to, const char *from) {
    char bytes[4096];
    int in = open(from, O_RDONLY), out = open("copy.tmp", O_WRONLY | O_CREAT, 0666);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0;) {
        if (write(out, bytes, (size_t)n) != n) return;
    }
    (void)rename("copy.tmp", to);
}

/* While the last report is written: the pipe is not read before. */
static int get_term_at_exit(void) {
    KN_SCOPE("ended");
    if (fork() != 0) return 0;
    usleep(100000);
    kill(getppid(), SIGTERM);
    copy_out("early.txt", "pipe");
    _exit(0);
}

/* The child dies as without the timer. */
static int child_gets_term(void) {
    pid_t child = fork();
    if (child == 0) {
        raise(SIGTERM);
        _exit(4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM ? 7 : 8;
}

static jmp_buf way_out;

static void leave_by_longjmp(void) {
    KN_SCOPE("inner");
    KN_SCOPE("innermost");
    longjmp(way_out, 1);
}

static int jump(void) {
    KN_SCOPE("outer");
    for (volatile int i = 0; i < 1000; i++) {
        if (setjmp(way_out) == 0) leave_by_longjmp();
    }
    return 0;
}

static void recurse(int n) {
    KN_SCOPE("recursion");
    if (n > 0) recurse(n - 1);
    __asm__ volatile("" ::: "memory"); /* no tail call */
}

static int go_deep(void) {
    for (int i = 0; i < 10; i++) recurse(19);
    return 0;
}

/* Leaves a block in itself, from as deep as `fails_at`, where there is a path of it already. */
__attribute__((noinline)) static void recurse_until(int n, int fails_at) {
    KN_SCOPE("recursion");
    if (n == fails_at) longjmp(way_out, 1);
    if (n < 3) recurse_until(n + 1, fails_at);
    __asm__ volatile("" ::: "memory"); /* no tail call */
}

static int jump_from_recursion(void) {
    for (volatile int i = 0; i < 101; i++) {
        if (setjmp(way_out) == 0) recurse_until(0, i % 5 ? i % 5 - 1 : 9);
    }
    KN_SCOPE("behind");
    return 0;
}

/* One plug-in after the other, which the system loads at the same addresses. */
static int load_plugins(char **paths, int n) {
    for (int i = 0; i < n; i++) {
        void *library = dlopen(paths[i], RTLD_NOW);
        void (*run)(void) = NULL;
        if (library) *(void **)(void *)&run = dlsym(library, "plugin_run");
        if (!run) return 1;
        for (int k = 0; k < 3; k++) run();
        dlclose(library);
    }
    return 0;
}

static int jump_from_plugin(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    void (*run)(jmp_buf * to) = NULL;
    if (library) *(void **)(void *)&run = dlsym(library, "plugin_jump");
    if (!run) return 1;
    for (volatile int i = 0; i < 1001; i++) {
        if (setjmp(way_out) == 0) run(i % 2 ? &way_out : NULL);
    }
    KN_SCOPE("behind");
    return 0;
}

/* More than a megabyte of them. */
static int many_nodes(void) {
    for (int i = 0; i < 20000; i++) {
        char label[32];
        snprintf(label, sizeof label, "scope %d", i);
        kn_scope scope = kn_scope_begin(label);
        kn_scope_end(&scope);
    }
    return 0;
}

static void *one_scope_in_thread(void *arg) {
    KN_SCOPE("in a thread");
    return arg;
}

static int two_threads(void) {
    KN_SCOPE("main");
    return in_thread(one_scope_in_thread, NULL);
}

static void *take_a_turn(void *arg) {
    KN_SCOPE("turn");
    for (int i = 0; i < 3; i++) {
        KN_SCOPE("inside");
    }
    if (arg) {
        KN_SCOPE("of the last");
    }
    return NULL;
}

static int threads_in_turn(void) {
    int last;
    for (int i = 0; i < 3; i++) {
        if (in_thread(take_a_turn, i == 2 ? &last : NULL)) return 1;
    }
    return 0;
}

static kn_pool *pool_of_all;

static void *allocate_at_random(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    void *blocks[64] = {0};
    KN_SCOPE("allocating");
    for (int i = 0; i < 2000; i++) {
        void **block = &blocks[rand_r(&seed) % 64];
        if (*block && kn_free(pool_of_all, *block) < 0) abort();
        size_t bytes = 256u * (1u + (unsigned)rand_r(&seed) % 4000);
        if (*block || kn_alloc(block, pool_of_all, bytes, NULL) < 0) *block = NULL;
    }
    for (int i = 0; i < 64; i++) {
        if (blocks[i] && kn_free(pool_of_all, blocks[i]) < 0) abort();
    }
    return NULL;
}

/* Says what the pool's own mark is. */
static int eight_threads_allocate(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    kn_pool_stats stats;
    if (kn_pool_create(&pool_of_all, kn_device_host(), NULL) < 0) return 1;
    for (uintptr_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, allocate_at_random, (void *)(i + 1)) != 0) return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    kn_pool_stats_read(&stats, sizeof stats, pool_of_all);
    printf("%llu\n", (unsigned long long)stats.live_bytes_max);
    fflush(stdout); /* while the timer's files are open */
    return 0;
}

static void *hold_64_mib(void *arg) {
    void *block = NULL;
    if (kn_alloc(&block, pool_of_all, 64 << 20, NULL) < 0) abort();
    pthread_barrier_wait(arg); /* all hold theirs */
    return kn_free(pool_of_all, block) < 0 ? NULL : arg;
}

/* 256 MiB of four threads, in a scope of another thread, which holds 64 MiB itself. */
static int hold_in_threads(void) {
    pthread_t threads[4];
    pthread_barrier_t barrier;
    void *block = NULL;
    if (kn_prof_owners_on() < 0) return 1;
    if (kn_pool_create(&pool_of_all, kn_device_host(), NULL) < 0) return 1;
    if (kn_alloc(&block, pool_of_all, 64 << 20, NULL) < 0) return 1;
    KN_SCOPE("parallel");
    pthread_barrier_init(&barrier, NULL, 4);
    for (int i = 0; i < 4; i++) {
        if (pthread_create(&threads[i], NULL, hold_64_mib, &barrier) != 0) return 1;
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    return kn_prof_report("held.json") < 0;
}

enum { FILES = 64 };

static void close_stderr(void) { close(STDERR_FILENO); }

static int closed_stderr(void) {
    atexit(close_stderr);
    return plain();
}

/* As daemons do; then files of its own have the same numbers. */
static void close_all_files(void) {
    for (int fd = STDERR_FILENO + 1; fd < FILES; fd++) close(fd);
    while (open("data", O_WRONLY | O_CREAT, 0666) < FILES - 1) {
    }
}

/* 3 more: "data" is its stderr. */
static int daemon_of_steps(void) {
    struct stat of_stderr, data;
    {
        KN_SCOPE("before");
    }
    close_all_files();
    if (fstat(STDERR_FILENO, &of_stderr) != 0 || stat("data", &data) != 0) return 1;
    return plain() + 3 * (of_stderr.st_ino == data.st_ino);
}

static int closed_files(void) {
    close_all_files();
    return closed_stderr();
}

static int files_like_stderr(void) {
    struct stat of_stderr, file;
    int n = 0;
    if (fstat(STDERR_FILENO, &of_stderr) != 0) return -1;
    for (int fd = STDERR_FILENO + 1; fd < FILES; fd++) {
        n += fstat(fd, &file) == 0 && file.st_ino == of_stderr.st_ino;
    }
    return n;
}

/* How many descriptors of its stderr a program has that its child hasn't. */
static int count_files_of_child(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(files_like_stderr());
    if (waitpid(child, &status, 0) != child) return 9;
    return files_like_stderr() - WEXITSTATUS(status);
}

static int counters(void) {
    kn_prof_counter_options jobs = {.unit = "jobs"};
    kn_prof_counter *queue = kn_prof_counter_get("queue", &jobs);
    (void)kn_prof_counter_get("idle", NULL);
    kn_prof_counter_sample_int64(queue, ((int64_t)1 << 53) + 1);
    kn_prof_counter_sample(queue, -1);
    return plain();
}

static void *outlive_main(void *arg) {
    KN_SCOPE("after main");
    wait_for_main_end();
    usleep(20000);
    return arg;
}

static int end_main(void) {
    pthread_t thread;
    end_in_a_minute();
    KN_SCOPE("main");
    if (pthread_create(&thread, NULL, outlive_main, NULL) != 0) return 1;
    pthread_exit(NULL);
}

static const struct {
    const char *name;
    int (*run)(void);
} ways[] = {{"plain", plain},
            {"exit", exit_in_scope},
            {"exit in visitor", exit_in_visitor},
            {"thread", dying_thread},
            {"running", threads_still_running},
            {"fork", fork_in_scope},
            {"memory", memory},
            {"heap", watched_pool},
            {"pause", pause_between},
            {"report", report_now},
            {"bad notes", bad_notes},
            {"owners", owners},
            {"fork report", fork_and_report},
            {"steps", ten_steps},
            {"steps of memory", ten_steps_of_memory},
            {"folder", change_folder},
            {"counters", counters},
            {"nodes", many_nodes},
            {"wait", wait_for_report},
            {"signal", raise_signal},
            {"eight threads", eight_threads_allocate},
            {"hold", hold_in_threads},
            {"term", get_term},
            {"int", get_int},
            {"hup", get_hup},
            {"hup ignored", get_hup_and_go_on},
            {"read", read_through_signal},
            {"int twice", get_int_twice},
            {"term at exit", get_term_at_exit},
            {"child term", child_gets_term},
            {"jump", jump},
            {"jump from recursion", jump_from_recursion},
            {"recursion", go_deep},
            {"closed stderr", closed_stderr},
            {"closed files", closed_files},
            {"daemon", daemon_of_steps},
            {"fork and count", count_files_of_child},
            {"two threads", two_threads},
            {"end main", end_main},
            {"turns", threads_in_turn}};

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "plugins") == 0) return load_plugins(argv + 2, argc - 2);
    if (argc > 2 && strcmp(argv[1], "jump from plugin") == 0) return jump_from_plugin(argv[2]);
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(argv[1], ways[i].name) == 0) return ways[i].run();
    }
    return 99;
}
