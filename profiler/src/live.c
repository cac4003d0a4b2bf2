#include "live.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file.h"
#include "live_page.h"
#include "thread.h"

/* The program may end while another thread opens the first scope. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the four below */
static kn__live_page *page;                              /* constant for the thread */
static pthread_t thread;
static bool running; /* there is a thread to join */
static bool stopped;
static atomic_bool ending;
static void (*make_report)(kn__text *text);

static void futex_wait(_Atomic(uint32_t) *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic(uint32_t) *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Within the limit of files' sizes, which a signal enforces. The file can't shrink under us, and
 * the program may close its descriptor, `*fd_out`: only the mapping is used from here on. */
static kn__live_page *make_page(int *fd_out) {
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur < KN__LIVE_BYTES) return NULL;
    int fd = kn__above_streams(memfd_create(KN__LIVE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0) return NULL;
    void *at = MAP_FAILED;
    if (ftruncate(fd, KN__LIVE_BYTES) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        at = mmap(NULL, KN__LIVE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    if (at == MAP_FAILED) {
        close(fd);
        return NULL;
    }
    madvise(at, KN__LIVE_BYTES, MADV_DONTDUMP);
    kn__live_page *made = at;
    made->pid = (uint32_t)getpid();
    *fd_out = fd;
    memcpy(made->magic, kn__live_magic, sizeof made->magic);
    atomic_store(&made->version, KN__LIVE_VERSION);
    return made;
}

static void write_text(const kn__text *text) {
    bool fits = !text->failed && text->length <= KN__LIVE_BYTES - KN__LIVE_TEXT_AT;
    atomic_fetch_add(&page->version_of_text, 1);
    if (fits) memcpy((char *)page + KN__LIVE_TEXT_AT, text->data, text->length);
    atomic_store(&page->length, fits ? text->length : 0);
    atomic_fetch_add(&page->version_of_text, 1);
}

static void answer(uint32_t asked) {
    kn__text text = {0};
    make_report(&text);
    write_text(&text);
    kn__text_release(&text);
    atomic_store(&page->answered, asked);
    futex_wake(&page->answered);
}

static void *run(void *arg) {
    prctl(PR_SET_NAME, "knet live");
    atomic_store(&page->thread, (uint32_t)syscall(SYS_gettid));
    for (;;) {
        uint32_t asked = atomic_load(&page->asked);
        if (atomic_load(&ending)) return arg;
        if (asked == atomic_load(&page->answered)) {
            futex_wait(&page->asked, asked);
        } else {
            answer(asked);
        }
    }
}

void kn__live_start(void (*report)(kn__text *text)) {
    int fd = -1;
    make_report = report;
    pthread_mutex_lock(&lock);
    if (!stopped) page = make_page(&fd);
    running = page && kn__thread_start(&thread, run, NULL) == 0;
    if (page && !running) { /* no thread would answer */
        munmap(page, KN__LIVE_BYTES);
        close(fd);
        page = NULL;
    }
    pthread_mutex_unlock(&lock);
}

void kn__live_stop(void) {
    pthread_mutex_lock(&lock);
    bool was_running = running;
    running = false;
    stopped = true;
    pthread_mutex_unlock(&lock);
    if (!was_running) return;
    atomic_store(&ending, true);
    atomic_fetch_add(&page->asked, 1);
    futex_wake(&page->asked);
    pthread_join(thread, NULL);
    atomic_store(&page->ended, 1);
    futex_wake(&page->answered);
}

void kn__live_forget(void) {
    pthread_mutex_init(&lock, NULL); /* another thread may have held it at the fork */
    running = false;
}
