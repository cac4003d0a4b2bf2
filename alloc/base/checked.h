/* Assertions: conditions that hold unless the program, or this code, is wrong.
 *
 * KNET_CHECKED of the build says how many are tested. 0 is what users get: none. A condition that
 * fails is written to stderr with its file, line and function, and the process traps.
 *
 *     1   KN_ASSERT: in constant time, at each change of state; presets dev, asan and tsan
 *     2   KN_ASSERT_SLOW: walks, and counts that are done twice
 *     3   what changes how memory looks: poison, red zones
 */
#ifndef KN_BASE_CHECKED_H
#define KN_BASE_CHECKED_H

#ifndef KN_CHECKED
#define KN_CHECKED 0
#endif

_Noreturn void kn__assert_failed(const char *condition, const char *file, int line,
                                 const char *function);

#define KN__ASSERT_(condition)                                                                     \
    ((condition) ? (void)0 : kn__assert_failed(#condition, __FILE__, __LINE__, __func__))

/* The condition must have no effect: it is not evaluated in what users get. */
#if KN_CHECKED >= 1
#define KN_ASSERT(condition) KN__ASSERT_(condition)
#else
#define KN_ASSERT(condition) ((void)0)
#endif

#if KN_CHECKED >= 2
#define KN_ASSERT_SLOW(condition) KN__ASSERT_(condition)
#else
#define KN_ASSERT_SLOW(condition) ((void)0)
#endif

#endif
