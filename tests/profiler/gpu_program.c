/* A program that "uses the GPU" through the mock CUPTI: argv[1] is the mock's path, argv[2] the
 * number of threads. Each thread launches 1000 kernels of 2 µs in train/gemm and 250 copies of 1 µs
 * in train. "crowd": 128 threads
 * with a fifth of that each. "forks", "signals", "graph", "memory" and "calls": what the functions
 * below say. */
#include <dirent.h>
#include <dlfcn.h>
#include <knet/prof.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mock_cupti.h"

#include "../support/forked_leaks.h"

enum { THREADS_MAX = 128 };

static void *mock;
static pthread_barrier_t start_line; /* all threads live at once */
static int n_rounds = 1000, pause_every;
static mock_launch_fn launch;

static void *train(void *arg) {
    pthread_barrier_wait(&start_line);
    KN_SCOPE("train");
    for (int i = 0; i < n_rounds; i++) {
        {
            KN_SCOPE("gemm");
            launch(MOCK_KERNEL, "_ZN7cutlass6KernelI4GemmLi128EEEvT_", 2000, 0);
        }
        if (i % 4 == 0) launch(MOCK_COPY, NULL, 1000, 0);
        if (pause_every && i % pause_every == 0) usleep(60000); /* the drain comes in between */
    }
    launch(MOCK_SET, NULL, 500, 0);
    launch(MOCK_PEER_COPY, NULL, 700, 0);
    launch(MOCK_KERNEL, "fails", 1000, 1);
    pthread_barrier_wait(&start_line);
    return arg;
}

static int run_threads(int n) {
    pthread_t threads[THREADS_MAX];
    if (n < 1 || n > THREADS_MAX) return 98;
    pthread_barrier_init(&start_line, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, train, NULL) != 0) return 98;
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    return 6;
}

static int run_crowd(void) {
    n_rounds = 200;
    pause_every = 50;
    return run_threads(THREADS_MAX);
}

/* A buffer for each thread, and little else. */
static int run_pack(void) {
    n_rounds = 20;
    return run_threads(THREADS_MAX);
}

static void *find(const char *name) { return dlsym(mock, name); }

/* Nodes 1 and 2 are captured in train/forward/conv, node 3 in train/backward; 50 replays of 1 µs a
 * node in train/step, two of them of node 4, whose capture was not recorded. */
static int run_graph(void) {
    mock_capture_fn capture;
    mock_instantiate_fn instantiate;
    mock_replay_fn replay;
    mock_destroy_fn destroy;
    *(void **)(void *)&capture = find("mock_capture");
    *(void **)(void *)&instantiate = find("mock_instantiate");
    *(void **)(void *)&replay = find("mock_replay");
    *(void **)(void *)&destroy = find("mock_destroy");
    KN_SCOPE("train");
    {
        KN_SCOPE("forward");
        KN_SCOPE("conv");
        capture(7, 1);
        capture(7, 2);
    }
    {
        KN_SCOPE("backward");
        capture(7, 3);
    }
    instantiate(7, 1, 3);
    for (int i = 0; i < 50; i++) {
        KN_SCOPE("step");
        replay(1, i < 2 ? 4 : 3, 1000);
    }
    destroy(7, 1);
    destroy(7, 0);
    return 6;
}

/* 8 MiB allocated in "load", half of it freed; 1 MiB at addresses used again and again. */
static int run_memory(void) {
    mock_memory_fn memory;
    *(void **)(void *)&memory = find("mock_memory");
    KN_SCOPE("load");
    for (uint64_t i = 1; i <= 8; i++) memory(i << 20, 1 << 20, 1);
    for (uint64_t i = 1; i <= 4; i++) memory(i << 20, 0, 0);
    for (int i = 0; i < 1000; i++) {
        memory(1 << 20, 1 << 20, 1);
        memory(1 << 20, 0, 0);
    }
    memory(99 << 20, 0, 0); /* from before the start */
    return 6;
}

static int run_calls(void) {
    mock_sync_fn sync;
    *(void **)(void *)&sync = find("mock_sync");
    KN_SCOPE("train");
    for (int i = 0; i < 20; i++) {
        launch(MOCK_KERNEL, "saxpy", 1000, i == 19);
        KN_SCOPE("cudaDeviceSynchronize"); /* wrapped already */
        sync();
    }
    sync();
    return 6;
}

/* A sanitizer's own work at exit takes its time. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FORKS = 30 };
#else
enum { FORKS = 1000 };
#endif

/* Children end by exit() while the drain works. */
static int run_forks(void) {
    int n_stuck = 0;
    for (int i = 0; i < FORKS; i++) {
        {
            KN_SCOPE("train");
            for (int k = 0; k < 60000 / FORKS; k++) launch(MOCK_KERNEL, "saxpy", 1000, 0);
        }
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            launch(MOCK_KERNEL, "in the child", 1000, 0);
            kn_prof_pause();
            kn_prof_resume();
            exit(7);
        }
        int status = 0;
        waitpid(child, &status, 0);
        n_stuck += !WIFEXITED(status) || WEXITSTATUS(status) != 7;
    }
    return n_stuck ? 1 : 6;
}

/* The signals that each thread but this one blocks, a line each. */
static int run_signals(void) {
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300], line[256];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        bool is_other = task->d_name[0] != '.' && atoi(task->d_name) != getpid();
        FILE *file = is_other ? fopen(path, "r") : NULL;
        while (file && fgets(line, sizeof line, file)) {
            if (strncmp(line, "SigBlk:", 7) == 0) fputs(line, stderr);
        }
        if (file) fclose(file);
    }
    if (tasks) closedir(tasks);
    return 6;
}

/* As many scopes as there is memory for, and then 2000 launches. */
static int run_scopes(void) {
    for (int i = 0; i < 20000; i++) {
        char label[32];
        snprintf(label, sizeof label, "scope %d", i);
        kn_scope scope = kn_scope_begin(label);
        kn_scope_end(&scope);
    }
    for (int i = 0; i < 2000; i++) launch(MOCK_KERNEL, "saxpy", 1000, 0);
    return 6;
}

/* 4 copies, two of them of nothing. */
static int run_copies(void) {
    mock_copy_fn copy;
    *(void **)(void *)&copy = find("mock_copy");
    KN_SCOPE("copies");
    for (int i = 0; i < 2; i++) {
        copy(4096);
        copy(0);
    }
    return 6;
}

/* The context goes before the program ends. */
static int run_context(void) {
    mock_destroy_context_fn destroy;
    *(void **)(void *)&destroy = find("mock_destroy_context");
    launch(MOCK_KERNEL, "saxpy", 1000, 0);
    destroy();
    return 6;
}

/* The timer's waits have no end by time while MOCK_CUPTI has the word "endless". */
__attribute__((visibility("default"))) int pthread_cond_clockwait(pthread_cond_t *cond,
                                                                  pthread_mutex_t *lock,
                                                                  clockid_t clock,
                                                                  const struct timespec *until) {
    const char *list = getenv("MOCK_CUPTI");
    int (*wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *) = NULL;
    if (list && strstr(list, "endless")) return pthread_cond_wait(cond, lock);
    *(void **)(void *)&wait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    return wait(cond, lock, clock, until);
}

/* With the word "joins" in MOCK_CUPTI, prints each thread that starts and each that is joined. */
static int printed(int error, const char *line) {
    const char *list = getenv("MOCK_CUPTI");
    if (!error && list && strstr(list, "joins")) fputs(line, stderr);
    return error;
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *out,
                                                          const pthread_attr_t *attributes,
                                                          void *(*run)(void *), void *arg) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NULL;
    *(void **)(void *)&create = dlsym(RTLD_NEXT, "pthread_create");
    return printed(create(out, attributes, run, arg), "thread starts\n");
}

__attribute__((visibility("default"))) int pthread_join(pthread_t thread, void **result) {
    int (*join)(pthread_t, void **) = NULL;
    *(void **)(void *)&join = dlsym(RTLD_NEXT, "pthread_join");
    return printed(join(thread, result), "thread joined\n");
}

/* A graph that is destroyed again and again, among 60,000 nodes. */
static void *destroy_graphs(void *are_enough) {
    mock_destroy_fn destroy;
    *(void **)(void *)&destroy = find("mock_destroy");
    while (!atomic_load((atomic_bool *)are_enough)) destroy(3, 0);
    return are_enough;
}

/* Children capture while the parent's other thread is in the table of graphs most of the time. */
static int run_graph_forks(void) {
    mock_capture_fn capture;
    pthread_t thread;
    atomic_bool are_enough = false;
    int n_stuck = 0;
    *(void **)(void *)&capture = find("mock_capture");
    KN_SCOPE("captured");
    for (uint64_t i = 1; i <= 60000; i++) capture(7, i);
    if (pthread_create(&thread, NULL, destroy_graphs, &are_enough) != 0) return 98;
    for (int i = 0; i < 20 && !n_stuck; i++) {
        usleep(1000);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            capture(9, 200001);
            for (int k = 0; k < 500; k++) launch(MOCK_KERNEL, "in the child", 1000, 0);
            _exit(7);
        }
        int status = 0;
        waitpid(child, &status, 0);
        n_stuck += !WIFEXITED(status) || WEXITSTATUS(status) != 7;
    }
    atomic_store(&are_enough, true);
    pthread_join(thread, NULL);
    return n_stuck ? 1 : 6;
}

/* Another context comes to lie where the first one was. */
static int run_context_again(void) {
    int code = run_context();
    const void **destroyed = dlsym(RTLD_DEFAULT, "mock_cuda_destroyed");
    if (destroyed) *destroyed = NULL;
    launch(MOCK_KERNEL, "saxpy", 1000, 0);
    return code;
}

static uint64_t count(const char *name) {
    mock_count_fn fn;
    *(void **)(void *)&fn = find(name);
    return fn();
}

/* Launches a little and waits until somebody asks for the records. */
static int run_wait(void) {
    launch(MOCK_KERNEL, "saxpy", 1000, 0);
    for (int i = 0; i < 4000 && count("mock_flushes") == 0; i++) usleep(5000);
    return count("mock_flushes") ? 6 : 5;
}

/* Fills a few buffers, and waits until somebody asks for the records. */
static int run_wake(void) {
    for (int i = 0; i < 1000; i++) launch(MOCK_KERNEL, "saxpy", 1000, 0);
    for (int i = 0; i < 4000 && count("mock_flushes") == 0; i++) usleep(5000);
    return count("mock_flushes") ? 6 : 5;
}

/* A report in the middle. */
static int run_reports(void) {
    for (int i = 0; i < 2000; i++) {
        launch(MOCK_KERNEL, "saxpy", 1000, 0);
        if (i == 999 && kn_prof_report("/dev/null") < 0) return 5;
    }
    return 6;
}

/* Whether CUPTI makes records in a pause. */
static int run_pause(void) {
    launch(MOCK_KERNEL, "saxpy", 1000, 0);
    kn_prof_pause();
    uint64_t before = count("mock_made");
    launch(MOCK_KERNEL, "saxpy", 1000, 0);
    bool made = count("mock_made") > before;
    kn_prof_resume();
    launch(MOCK_KERNEL, "saxpy", 1000, 0);
    return made ? 5 : 6;
}

/* 300 graphs of 500 nodes, each replayed once and destroyed. */
static int run_many_graphs(void) {
    mock_capture_fn capture;
    mock_instantiate_fn instantiate;
    mock_replay_fn replay;
    mock_destroy_fn destroy;
    *(void **)(void *)&capture = find("mock_capture");
    *(void **)(void *)&instantiate = find("mock_instantiate");
    *(void **)(void *)&replay = find("mock_replay");
    *(void **)(void *)&destroy = find("mock_destroy");
    KN_SCOPE("train");
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t graph = 2000000 + 5000 * i, first = 10000000 + 2000 * i;
        {
            KN_SCOPE("captured");
            for (uint64_t k = 0; k < 500; k++) capture(graph, first + k);
        }
        instantiate(graph, first, first + 499);
        replay(first, first + 1, 1000);
        destroy(graph, 0);
        kn_status flushed = kn_prof_report("/dev/null"); /* joins, so that they can be forgotten */
        if (flushed < 0) return 5;
    }
    return 6;
}

int main(int argc, char **argv) {
    mock = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!mock) return 99;
    *(void **)(void *)&launch = find("mock_launch");
    const struct {
        const char *name;
        int (*run)(void);
    } ways[] = {{"copies", run_copies},
                {"scopes", run_scopes},
                {"context", run_context},
                {"context again", run_context_again},
                {"wait", run_wait},
                {"wake", run_wake},
                {"pack", run_pack},
                {"reports", run_reports},
                {"graph forks", run_graph_forks},
                {"pause", run_pause},
                {"graphs", run_many_graphs}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(argv[2], ways[i].name) == 0) return ways[i].run();
    }
    if (strcmp(argv[2], "forks") == 0) return run_forks();
    if (strcmp(argv[2], "signals") == 0) return run_signals();
    if (strcmp(argv[2], "graph") == 0) return run_graph();
    if (strcmp(argv[2], "memory") == 0) return run_memory();
    if (strcmp(argv[2], "calls") == 0) return run_calls();
    if (strcmp(argv[2], "crowd") == 0) return run_crowd();
    return run_threads(atoi(argv[2]));
}
