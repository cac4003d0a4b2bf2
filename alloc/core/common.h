/* Small macros of the allocator: branches, lists, counters that one thread writes and others read.
 */
#ifndef KN_ALLOC_COMMON_H
#define KN_ALLOC_COMMON_H

#include <stdatomic.h>

#define KN__LIKELY(x) __builtin_expect(!!(x), 1)
#define KN__UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Lists of what has the members `next` and `prev`. */
#define KN__LIST_ADD(head, item)                                                                   \
    do {                                                                                           \
        (item)->prev = NULL;                                                                       \
        (item)->next = *(head);                                                                    \
        if ((item)->next) (item)->next->prev = (item);                                             \
        *(head) = (item);                                                                          \
    } while (0)
#define KN__LIST_REMOVE(head, item)                                                                \
    do {                                                                                           \
        if ((item)->next) (item)->next->prev = (item)->prev;                                       \
        *((item)->prev ? &(item)->prev->next : (head)) = (item)->next;                             \
    } while (0)

/* Plain loads and stores of what other threads may read at any time. */
#define KN__READ(counter) atomic_load_explicit(&(counter), memory_order_relaxed)
#define KN__WRITE(counter, value) atomic_store_explicit(&(counter), (value), memory_order_relaxed)
#define KN__BUMP(counter, delta) KN__WRITE(counter, KN__READ(counter) + (delta))

#endif
