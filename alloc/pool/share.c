/* Blocks that other processes open. */
#include <errno.h>
#include <fcntl.h>
#include <knet/share.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cancel.h"
#include "checked.h"
#include "core/pool_state.h"
#include "device/registry.h"
#include "pool/fault.h"
#include "pool/pool_lock.h"

/* --- the owner --- */

/* Where the handle starts that the address lies in. */
static char *handle_at(const kn__range *range, const char *ptr) {
    size_t i = (size_t)(ptr - range->base) / range->unit;
    while (i > 0 && !range->granules[i].span) i--;
    return range->base + i * range->unit;
}

/* Under the lock: the block's handles stay. */
static kn_status export_handles(kn_share *out, kn_pool *pool, const kn_block_info *block) {
    const kn__range *range = &pool->range;
    const char *end = (const char *)block->ptr + block->size_bytes;
    char *at = handle_at(range, block->ptr);
    out->offset_bytes = (uint64_t)((char *)block->ptr - at);
    for (; at < end; at += kn__handle_bytes(range, at)) {
        if (!kn__handle_bytes(range, at)) {
            return KN_FAIL(KN_ERR_INVALID, "kn_block_share: %p is paused", block->ptr);
        }
        if (out->n_files == KN_SHARE_FILES_MAX) {
            return KN_FAIL(KN_ERR_UNSUPPORTED,
                           "kn_block_share: the block of %zu bytes lies in more than %d handles",
                           block->size_bytes, KN_SHARE_FILES_MAX);
        }
        int *file = &out->files[out->n_files];
        KN_TRY(pool->driver->handle_export(pool->impl, file, kn__granule_of(range, at)->handle));
        out->file_bytes[out->n_files++] = kn__handle_bytes(range, at);
    }
    return KN_OK;
}

kn_status kn_block_share(kn_share *out, kn_pool *pool, const void *ptr) {
    kn_block_info block;
    kn_share share = {.n_files = 0};
    KN_TRY(kn__pool_given(pool, __func__));
    KN_TRY(kn__device_usable(pool->device, __func__));
    if (!(pool->handle_flags & KN_HANDLE_SHARED)) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_block_share: pool %s was created without the option shareable",
                       pool->name);
    }
    if (!kn_block_find(&block, sizeof block, pool, ptr) || block.ptr != ptr) {
        return KN_FAIL(KN_ERR_INVALID, "kn_block_share: no live block of pool %s starts at %p",
                       pool->name, ptr);
    }
    share.size_bytes = block.size_bytes;
    KN__CANCEL_LATER();
    kn__pool_lock(pool);
    kn_status status = export_handles(&share, pool, &block);
    kn__pool_unlock(pool);
    if (status < 0) {
        kn_share_release(&share);
        return status;
    }
    *out = share;
    return KN_OK;
}

void kn_share_release(kn_share *share) {
    for (int i = 0; i < share->n_files; i++) close(share->files[i]);
    share->n_files = 0;
}

/* --- the way between --- */

static const char MAGIC[8] = "knshare1";

typedef struct message {
    char magic[8];
    uint64_t size_bytes, offset_bytes, n_files;
    uint64_t file_bytes[KN_SHARE_FILES_MAX];
} message;

/* Beside the descriptors a socket may deliver what its owner asked for, as the sender's credentials
 * (SO_PASSCRED) or its security label. */
enum { OTHER_CONTROL_BYTES = 512 };

typedef union control { /* aligned for its header */
    struct cmsghdr header;
    char bytes[CMSG_SPACE(KN_SHARE_FILES_MAX * sizeof(int)) + OTHER_CONTROL_BYTES];
} control;

kn_status kn_share_send(int socket, const kn_share *share) {
    message text = {.size_bytes = share->size_bytes,
                    .offset_bytes = share->offset_bytes,
                    .n_files = (uint64_t)share->n_files};
    control files;
    size_t bytes = (size_t)share->n_files * sizeof(int);
    struct iovec part = {.iov_base = &text, .iov_len = sizeof text};
    struct msghdr whole = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = &files,
                           .msg_controllen = CMSG_SPACE(bytes)};
    memcpy(text.magic, MAGIC, sizeof text.magic);
    memcpy(text.file_bytes, share->file_bytes, sizeof text.file_bytes);
    memset(&files, 0, sizeof files);
    if (share->n_files < 1 || share->n_files > KN_SHARE_FILES_MAX) {
        return KN_FAIL(KN_ERR_INVALID, "kn_share_send: the share was released");
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&whole);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(header), share->files, bytes);
    ssize_t sent;
    do {
        sent = sendmsg(socket, &whole, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)sizeof text) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "kn_share_send: %s", sent < 0 ? strerror(errno) : "sent in part");
}

/* The descriptors that came, whatever else is wrong; those beyond the room of `out` are closed.
 * Returns how many came. */
static uint64_t take_files(kn_share *out, struct msghdr *whole) {
    uint64_t n_came = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(whole); h; h = CMSG_NXTHDR(whole, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int file;
            memcpy(&file, CMSG_DATA(h) + i * sizeof file, sizeof file);
            if (out->n_files == KN_SHARE_FILES_MAX)
                close(file);
            else
                out->files[out->n_files++] = file;
        }
        n_came += n;
    }
    return n_came;
}

static bool is_whole(const kn_share *share) {
    uint64_t total = 0;
    if (share->n_files < 1 || share->n_files > KN_SHARE_FILES_MAX) return false;
    for (int i = 0; i < share->n_files; i++) {
        if (!share->file_bytes[i] || share->file_bytes[i] > UINT64_MAX / 2 - total) return false;
        total += share->file_bytes[i];
    }
    return share->size_bytes && share->size_bytes <= total &&
           share->offset_bytes <= total - share->size_bytes;
}

/* The system drops those that the process may not have. While those that came are open. */
static kn_status too_few_files(uint64_t n, uint64_t n_sent) {
    struct rlimit most;
    char why[96] = "the system dropped the others";
    int one_more = open("/", O_PATH | O_CLOEXEC);
    if (one_more < 0 && errno == EMFILE && getrlimit(RLIMIT_NOFILE, &most) == 0) {
        snprintf(why, sizeof why, "the process may have no more than %llu open files (ulimit -n)",
                 (unsigned long long)most.rlim_cur);
    }
    if (one_more >= 0) close(one_more);
    return KN_FAIL(KN_ERR_IO, "kn_share_receive: %llu of %llu descriptors arrived: %s",
                   (unsigned long long)n, (unsigned long long)n_sent, why);
}

kn_status kn_share_receive(kn_share *out, int socket) {
    message text;
    control files;
    kn_share share = {.n_files = 0};
    struct iovec part = {.iov_base = &text, .iov_len = sizeof text};
    struct msghdr whole = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &files, .msg_controllen = sizeof files};
    ssize_t got;
    do {
        got = recvmsg(socket, &whole, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return KN_FAIL(KN_ERR_IO, "kn_share_receive: %s", strerror(errno));
    if (got == 0) {
        return KN_FAIL(KN_ERR_IO, "kn_share_receive: the other side closed the connection");
    }
    uint64_t n_came = take_files(&share, &whole);
    bool good = got == (ssize_t)sizeof text && memcmp(text.magic, MAGIC, sizeof MAGIC) == 0 &&
                text.n_files <= KN_SHARE_FILES_MAX;
    if (good && (whole.msg_flags & MSG_CTRUNC) && n_came < text.n_files) {
        kn_status status = too_few_files(n_came, text.n_files);
        kn_share_release(&share);
        return status;
    }
    good = good && !(whole.msg_flags & MSG_CTRUNC) && n_came == text.n_files;
    if (good) {
        share.size_bytes = text.size_bytes;
        share.offset_bytes = text.offset_bytes;
        memcpy(share.file_bytes, text.file_bytes, sizeof share.file_bytes);
    }
    if (!good || !is_whole(&share)) {
        kn_share_release(&share);
        return KN_FAIL(KN_ERR_FORMAT, "kn_share_receive: %zd bytes that are no share", got);
    }
    *out = share;
    return KN_OK;
}

/* --- the other process --- */

typedef struct opened {
    struct opened *next;
    kn_device *device;
    char *base, *ptr;
    size_t bytes;
    int n;
    uint64_t handles[KN_SHARE_FILES_MAX];
    uint64_t handle_bytes[KN_SHARE_FILES_MAX];
} opened;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static opened *all;

static void unmap(opened *o) {
    KN_ASSERT(o->base && o->n <= KN_SHARE_FILES_MAX);
    const kn_device_driver *driver = o->device->driver;
    char *at = o->base;
    for (int i = 0; i < o->n; i++) {
        if (driver->handle_unmap(o->device->impl, at, o->handle_bytes[i]) < 0) {
            kn_log_write(0, "kn_share_close: %s", kn_last_error()->message);
            return; /* the addresses are still in use */
        }
        driver->handle_destroy(o->device->impl, o->handles[i], o->handle_bytes[i]);
        at += o->handle_bytes[i];
    }
    driver->range_release(o->device->impl, o->base, o->bytes);
}

static kn_status map_one(opened *o, char *at, int file, uint64_t bytes) {
    const kn_device_driver *driver = o->device->driver;
    void *impl = o->device->impl;
    uint64_t handle = 0;
    KN_ASSERT(o->n < KN_SHARE_FILES_MAX && at + bytes <= o->base + o->bytes);
    KN_TRY(driver->handle_import(impl, &handle, file));
    kn_status status = driver->handle_map(impl, at, bytes, handle);
    if (status < 0) {
        driver->handle_destroy(impl, handle, bytes);
        return status;
    }
    o->handles[o->n] = handle;
    o->handle_bytes[o->n++] = bytes;
    return KN_OK;
}

static kn_status map(opened *o, const kn_share *share) {
    const kn_device_driver *driver = o->device->driver;
    void *base = NULL;
    KN_ASSERT(!o->base && !o->bytes && !o->n);
    for (int i = 0; i < share->n_files; i++) o->bytes += share->file_bytes[i];
    KN_TRY(driver->range_reserve(o->device->impl, &base, o->bytes));
    char *at = o->base = base;
    kn_status status = KN_OK;
    for (int i = 0; i < share->n_files && status == KN_OK; at += share->file_bytes[i++]) {
        status = map_one(o, at, share->files[i], share->file_bytes[i]);
    }
    if (status == KN_OK) status = driver->range_access(o->device->impl, o->base, o->bytes);
    if (status == KN_OK) return KN_OK;
    kn_error error = *kn_last_error();
    unmap(o);
    return kn_fail_within_at(error.file, error.line, status, "%s", error.message);
}

kn_status kn_share_open(void **out, kn_device *device, const kn_share *share) {
    KN_TRY(kn__device_usable(device, __func__));
    if (!is_whole(share)) return KN_FAIL(KN_ERR_INVALID, "kn_share_open: this is no share");
    if (!(device->driver->handle_flags & KN_HANDLE_SHARED) || !device->driver->handle_import) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_share_open: %s has no memory that processes can share", device->name);
    }
    opened *o = calloc(1, sizeof *o);
    if (!o) return KN_FAIL(KN_ERR_OOM, "kn_share_open: no host memory");
    o->device = device;
    kn_status status = map(o, share);
    if (status < 0) {
        free(o);
        return status;
    }
    KN_ASSERT(o->n == share->n_files && share->offset_bytes + share->size_bytes <= o->bytes);
    *out = o->ptr = o->base + share->offset_bytes;
    pthread_mutex_lock(&lock);
    o->next = all;
    all = o;
    pthread_mutex_unlock(&lock);
    return KN_OK;
}

void kn_share_close(kn_device *device, void *ptr) {
    if (!ptr) return;
    pthread_mutex_lock(&lock);
    opened **link = &all;
    while (*link && ((*link)->ptr != ptr || (*link)->device != device)) link = &(*link)->next;
    opened *o = *link;
    if (o) *link = o->next;
    pthread_mutex_unlock(&lock);
    if (!o) {
        kn_log_write(0, "kn_share_close: %p is no open share of %s", ptr,
                     device ? device->name : "NULL, which is no device");
        return;
    }
    if (kn__device_alive(device)) unmap(o);
    free(o);
}

static void fork_child(void) { lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, fork_child);
}
