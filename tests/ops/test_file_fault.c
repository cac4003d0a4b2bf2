/* The n-th allocation while a file is written or read fails, n = 1, 2, … until none does: the
 * status is OOM, for a file is not damaged because there is no memory; nothing leaks, no part of a
 * file stays, and the next call works. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <knet/file.h>
#include <knet/print.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ops_test.h"

/* --- malloc and kn_alloc, which can be made to fail on one thread --- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *ptr, size_t size);
void __libc_free(void *ptr);
static _Thread_local int malloc_fail_at, n_mallocs; /* 0: never */
static _Thread_local long n_blocks;                 /* of this thread, live */
static _Thread_local int fail_at, n_allocs;

static bool refused(void) { return malloc_fail_at && ++n_mallocs == malloc_fail_at; }

static void *counted(void *ptr) {
    n_blocks += ptr != NULL;
    return ptr;
}

#define REPLACES __attribute__((visibility("default")))
REPLACES void *malloc(size_t size) { return refused() ? NULL : counted(__libc_malloc(size)); }
REPLACES void *calloc(size_t n, size_t size) {
    return refused() ? NULL : counted(__libc_calloc(n, size));
}
REPLACES void *realloc(void *ptr, size_t size) {
    if (refused()) return NULL;
    void *moved = __libc_realloc(ptr, size);
    return ptr ? moved : counted(moved);
}
REPLACES void free(void *ptr) {
    n_blocks -= ptr != NULL;
    __libc_free(ptr);
}

/* The C library's own calls don't come here. */
REPLACES void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    if (!refused()) return (void *)syscall(SYS_mmap, at, size, prot, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

KN_API kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    typedef kn_status (*alloc_fn)(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream);
    static alloc_fn real;
    if (!real) {
        void *symbol = dlsym(RTLD_NEXT, "kn_alloc");
        memcpy(&real, &symbol, sizeof real); /* ISO C has no cast for it */
    }
    if (fail_at && ++n_allocs == fail_at)
        return KN_FAIL(KN_ERR_OOM, "scripted failure of allocation %d", n_allocs);
    return real(out, pool, size_bytes, stream);
}

/* --- the calls --- */

static char folder[] = "/tmp/knet_file_fault_XXXXXX";
static kn_tensor *a, *b;

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static kn_status save_npy(void) { return kn_npy_save(path_of("a.npy"), a); }

static kn_status save_npz(void) {
    const kn_named both[] = {{"a", a}, {"b", b}};
    return kn_npz_save(path_of("a.npz"), both, 2, NULL);
}

static kn_status save_deflated(void) {
    const kn_named both[] = {{"a", a}, {"b", b}};
    return kn_npz_save(path_of("deflated.npz"), both, 2, &(kn_npz_options){.compress = 1});
}

static kn_status save_safetensors(void) {
    const kn_named both[] = {{"a", a}, {"b", b}};
    const char *const metadata[][2] = {{"key", "text"}};
    return kn_safetensors_save(path_of("a.safetensors"), both, 2, metadata, 1);
}

static kn_status read_file(const char *name) {
    KN_FRAME();
    kn_file *f = NULL;
    KN_TRY(kn_file_open(&f, path_of(name)));
    kn_status status = KN_OK;
    for (int i = 0; i < kn_file_count(f) && status == KN_OK; i++) {
        kn_tensor *t = kn_file_read(f, kn_file_name(f, i));
        status = kn_check();
        assert_true(t || status < 0);
    }
    kn_file_close(f);
    return status;
}

static kn_status read_npy(void) { return read_file("a.npy"); }
static kn_status read_npz(void) { return read_file("a.npz"); }
static kn_status read_deflated(void) { return read_file("deflated.npz"); }
static kn_status read_safetensors(void) { return read_file("a.safetensors"); }

static kn_status print(void) {
    static char text[1 << 12];
    size_t length;
    return kn_print_text(text, sizeof text, &length, b, NULL);
}

static const struct {
    const char *name;
    kn_status (*fn)(void);
} calls[] = {{"npy_save", save_npy},
             {"npz_save", save_npz},
             {"npz_save, compressed", save_deflated},
             {"safetensors_save", save_safetensors},
             {"read NPY", read_npy},
             {"read NPZ", read_npz},
             {"read compressed NPZ", read_deflated},
             {"read safetensors", read_safetensors},
             {"print", print}};
enum { N_CALLS = sizeof calls / sizeof *calls };

/* --- the walk --- */

static int files(void) {
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* False: the call has fewer allocations of the kind. */
static bool fails_at(int which, bool of_device, int at) {
    uint64_t live = ops_live_bytes();
    int before = files();
    long blocks = n_blocks;
    n_mallocs = n_allocs = 0;
    *(of_device ? &fail_at : &malloc_fail_at) = at;
    kn_status status = calls[which].fn();
    fail_at = malloc_fail_at = 0;
    bool reached = (of_device ? n_allocs : n_mallocs) >= at;
    if (reached ? status != KN_ERR_OOM : status != KN_OK)
        fail_msg("%s, %s %d: %d, %s", calls[which].name, of_device ? "kn_alloc" : "malloc", at,
                 status, kn_last_error()->message);
    assert_int_equal(kn_check(), KN_OK);
    assert_int_equal(ops_live_bytes(), live);
    assert_int_equal(n_blocks, blocks);
    assert_int_equal(files(), before);
    return reached;
}

static void files_without_memory_are_not_damaged(void **state) {
    (void)state;
    KN_FRAME();
    kn_rng *rng = NULL;
    assert_non_null(mkdtemp(folder));
    assert_ok(kn_rng_create(&rng, 1));
    a = kn_normal(KN_SHAPE(30, 400), 0, 1, rng);
    b = kn_cast(kn_ones(KN_SHAPE(7)), KN_I64);
    kn_rng_destroy(rng);
    assert_ok(kn_check());
    for (int i = 0; i < N_CALLS; i++) {
        assert_ok(calls[i].fn());
        for (int of_device = 0; of_device < 2; of_device++) {
            int at = 1;
            while (fails_at(i, of_device, at)) at++;
        }
        assert_ok(calls[i].fn());
    }
    const char *const names[] = {"a.npy", "a.npz", "deflated.npz", "a.safetensors"};
    for (int i = 0; i < 4; i++) assert_int_equal(remove(path_of(names[i])), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) { return RUN_TESTS(OPS_TEST(files_without_memory_are_not_damaged)); }
