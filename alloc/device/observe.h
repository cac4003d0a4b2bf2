/* The observer as this library sees it: one atomic pointer, NULL while no observer is attached. */
#ifndef KN_ALLOC_OBSERVE_H
#define KN_ALLOC_OBSERVE_H

#include <knet/observer.h>
#include <stdatomic.h>

extern _Atomic(const kn_observer *) kn__observer_table __attribute__((visibility("hidden")));

static inline const kn_observer *kn__observer(void) {
    const kn_observer *table = atomic_load_explicit(&kn__observer_table, memory_order_acquire);
    return __builtin_expect(table != NULL, 0) ? table : NULL;
}

/* Who observes, in the order of the calls: the library's own observers, then the program's. With
 * one the table is its own; with several, one that calls each. A pool's end reaches the program's
 * first, whose reports may still ask for stacks. */
typedef enum kn__layer {
    KN__LAYER_STACKS,
    KN__LAYER_TRACE,
    KN__LAYER_PROGRAM,
    KN__LAYERS
} kn__layer;
/* Sets a layer; NULL takes it out. */
void kn__observer_set(kn__layer layer, const kn_observer *observer);
/* Sets the program's; NULL takes it out. False: another one is attached. */
bool kn__observer_publish(const kn_observer *observer);
/* In the child of a fork, which has one thread. */
void kn__observer_fork_child(void);

/* Wraps a call to a device's driver: KN__CALL("cuMemCreate", result = cuMemCreate(…)); */
#define KN__CALL(name, ...)                                                                        \
    do {                                                                                           \
        const kn_observer *kn_o_ = kn__observer();                                                 \
        if (kn_o_ && kn_o_->on_call_begin) kn_o_->on_call_begin(name);                             \
        __VA_ARGS__;                                                                               \
        if (kn_o_ && kn_o_->on_call_end) kn_o_->on_call_end(name);                                 \
    } while (0)

#endif
