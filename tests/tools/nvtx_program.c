/* A program that knows nothing of the timer: NVTX ranges of all kinds.
 * usage: nvtx_program [exit N | signal N | none | elsewhere | deep | overlap | long | leave HOW |
 * spawn PROGRAM WORD...]
 */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void with_registered(nvtxDomainHandle_t domain, nvtxStringHandle_t name) {
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
                                   .message.registered = name};
    nvtxDomainRangePushEx(domain, &event);
}

static void *work(void *arg) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("solver");
    nvtxStringHandle_t name = nvtxDomainRegisterStringA(domain, "registered");
    for (int i = 0; i < 3; i++) {
        nvtxRangePushA("outer");
        with_registered(domain, name);
        nvtxRangePushW(L"wide \u03bb");
        nvtxRangePop();
        nvtxDomainRangePop(domain);
        nvtxRangePop();
    }
    nvtxRangePop(); /* one too many */
    nvtxRangePushA("crossed");
    with_registered(domain, name);
    nvtxRangePop(); /* of the outer one: domains don't know of each other */
    nvtxDomainRangePop(domain);
    nvtxRangePushA("after");
    nvtxRangePop();
    return arg;
}

/* Jobs that are started here and ended by the thread that did them. */
enum { MANY_RANGES = 300, DEEP = 250 };
static nvtxRangeId_t many[MANY_RANGES];

static void start_many(const char *label) {
    for (int i = 0; i < MANY_RANGES; i++) many[i] = nvtxRangeStartA(label);
}

static void *end_many(void *arg) {
    for (int i = 0; i < MANY_RANGES; i++) nvtxRangeEnd(many[i]);
    return arg;
}

static void *start_one(void *id) {
    *(nvtxRangeId_t *)id = nvtxRangeStartA("of a thread that ended");
    return id;
}

static int end_elsewhere(void) {
    pthread_t thread;
    nvtxRangeId_t late = 0;
    for (int batch = 0; batch < 3; batch++) {
        start_many("job");
        if (pthread_create(&thread, NULL, end_many, NULL) != 0) return 1;
        pthread_join(thread, NULL);
        nvtxRangePushA("after");
        nvtxRangePop();
    }
    if (pthread_create(&thread, NULL, start_one, &late) != 0) return 1;
    pthread_join(thread, NULL);
    nvtxRangeEnd(late);
    nvtxRangePushA("after");
    nvtxRangePop();
    return 0;
}

/* Ranges deeper than the timer goes are still those that the pops end. */
static int push_deep(void) {
    for (int i = 0; i < DEEP; i++) nvtxRangePushA("deep");
    for (int i = 0; i < DEEP; i++) nvtxRangePop();
    nvtxRangePushA("after");
    nvtxRangePop();
    return nvtxRangePop() >= 0;
}

static void sleep_ms(int ms) { usleep((useconds_t)ms * 1000); }

static void *end_soon(void *id) {
    sleep_ms(20);
    nvtxRangeEnd(*(nvtxRangeId_t *)id);
    return id;
}

static int overlap(void) {
    pthread_t thread;
    nvtxRangeId_t a = nvtxRangeStartA("request A"), b = nvtxRangeStartA("request B");
    sleep_ms(10);
    nvtxRangeEnd(a);
    sleep_ms(100);
    nvtxRangeEnd(b);
    nvtxRangePushA("init");
    nvtxRangeId_t whole = nvtxRangeStartA("whole run");
    nvtxRangePop();
    sleep_ms(100);
    nvtxRangeEnd(whole);
    nvtxRangeId_t other = nvtxRangeStartA("ended elsewhere");
    if (pthread_create(&thread, NULL, end_soon, &other) != 0) return 1;
    sleep_ms(300);
    pthread_join(thread, NULL);
    nvtxRangeStartA("never ended");
    sleep_ms(10);
    return 0;
}

static void leave(int number) {
    (void)number;
    _exit(9);
}

/* Ends in a handler that may have interrupted malloc. */
static void allocate_until(int us) {
    void *blocks[64] = {0};
    struct itimerval timer = {.it_value = {0, us}};
    if (signal(SIGVTALRM, leave) == SIG_ERR || setitimer(ITIMER_VIRTUAL, &timer, NULL) != 0) return;
    for (size_t i = 0;; i++) {
        free(blocks[i % 64]);
        blocks[i % 64] = malloc(2000 + i * 977 % 300000);
    }
}

static void say(void) { (void)!write(1, "quick\n", 6); }

/* Without the destructors of libraries. */
static int end_early(const char *how) {
    nvtxRangePushA("early");
    nvtxRangePop();
    if (strcmp(how, "_exit") == 0) _exit(5);
    if (strcmp(how, "_Exit") == 0) _Exit(5);
    if (strcmp(how, "quick_exit") == 0 && at_quick_exit(say) == 0) quick_exit(5);
    if (strcmp(how, "child") == 0) {
        if (fork() == 0) _exit(7);
        if (vfork() == 0) _exit(7); /* in this process's memory */
        int status = 0;
        for (int i = 0; i < 2; i++) {
            if (wait(&status) < 0 || WEXITSTATUS(status) != 7) return 1;
        }
        nvtxRangePushA("early");
        nvtxRangePop();
        return 0;
    }
    allocate_until((int)strtol(how, NULL, 10));
    return 1;
}

enum { LONG_CHARS = 800 };

/* Wide labels that differ in their last letter alone, in each function that takes one. */
static int long_labels(void) {
    static wchar_t wide[LONG_CHARS + 1];
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_UNICODE,
                                   .message.unicode = wide};
    for (int i = 0; i < LONG_CHARS; i++) wide[i] = L'\u4e2d';
    for (int i = 0; i < 3; i++) {
        wide[LONG_CHARS - 1] = L'a' + i;
        nvtxRangePushW(wide);
        nvtxRangePop();
        nvtxMarkW(wide);
        nvtxRangePushEx(&event);
        nvtxRangePop();
        with_registered(NULL, nvtxDomainRegisterStringW(NULL, wide));
        nvtxRangePop();
        nvtxRangePushA("below");
        nvtxRangeEnd(nvtxRangeStartW(wide));
        nvtxRangePop();
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    pthread_t thread;
    if (strcmp(what, "none") == 0) return 0;
    if (strcmp(what, "elsewhere") == 0) return end_elsewhere();
    if (strcmp(what, "deep") == 0) return push_deep();
    if (strcmp(what, "overlap") == 0) return overlap();
    if (strcmp(what, "long") == 0) return long_labels();
    if (strcmp(what, "leave") == 0 && argc > 2) return end_early(argv[2]);
    if (strcmp(what, "spawn") == 0 && argc > 2) {
        if (fork() == 0) {
            execvp(argv[2], argv + 2);
            _exit(127);
        }
    }
    work(NULL);
    if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    if (strcmp(what, "exit") == 0 && argc > 2) return (int)strtol(argv[2], NULL, 10);
    if (strcmp(what, "signal") == 0 && argc > 2) raise((int)strtol(argv[2], NULL, 10));
    return strcmp(what, "spawn") == 0 && wait(NULL) < 0;
}
