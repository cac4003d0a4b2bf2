/* Waiting by spinning. */
#ifndef KN_BASE_RELAX_H
#define KN_BASE_RELAX_H

/* Tells the processor that this thread spins. */
static inline void kn__relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
