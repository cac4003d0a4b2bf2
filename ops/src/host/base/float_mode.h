/* How a thread's floating-point instructions work: rounding, denormals, traps. New threads have
 * that of the thread that made them. */
#ifndef KN_FLOAT_MODE_H
#define KN_FLOAT_MODE_H

#include <stdbool.h>
#include <stdint.h>

/* Without the flags of what happened so far. */
typedef struct kn__float_mode {
    uint64_t control;
    uint16_t control_x87; /* of long double */
} kn__float_mode;

static inline kn__float_mode kn__float_mode_get(void) {
    kn__float_mode mode = {0};
#if defined(__x86_64__)
    mode.control = __builtin_ia32_stmxcsr() & ~UINT32_C(63);
    __asm__ volatile("fnstcw %0" : "=m"(mode.control_x87));
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode.control));
#endif
    return mode;
}

/* Clears the flags, too: one of an earlier time must not trap now. */
static inline void kn__float_mode_set(kn__float_mode mode) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((uint32_t)mode.control);
    __asm__ volatile("fnclex; fldcw %0" : : "m"(mode.control_x87));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(mode.control));
#else
    (void)mode;
#endif
}

/* Setting takes longer than asking. */
static inline void kn__float_mode_adopt(kn__float_mode mode) {
    kn__float_mode own = kn__float_mode_get();
    if (own.control != mode.control || own.control_x87 != mode.control_x87)
        kn__float_mode_set(mode);
}

#endif
