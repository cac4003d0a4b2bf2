/* A scope around one call of a library: for wrappers of BLAS, oneDNN, cuBLAS, cuDNN, a driver.
 *
 *     KN_TRY(dnn_status(KN_PROF_FN(dnnl_sgemm, 'N', 'N', m, n, k, 1.0f, a, k, b, n, 0.0f, c, n)));
 *     KN_PROF_DO("copy in", memcpy(dst, src, size_bytes));
 *
 * The scope is named after the function, so the table shows where the time of an op went. Arguments
 * are evaluated once, inside the scope. With the timer off it costs the branch of a scope.
 * Errors: none of its own; the call's value, a status say, passes through. Threads: any, as
 * KN_SCOPE. Needs gcc or clang (statement expressions), C alone.
 */
#ifndef KNET_PROF_CALL_H
#define KNET_PROF_CALL_H

#include <knet/prof.h>

/* The value of `expr` (not void), evaluated in a scope. `label`: bytes that never change, such as a
 * literal, and not NULL; it is not copied. Nests: the names of its variables are unique. */
#define KN_PROF_CALL(label, ...) KN_PROF_CALL_(__COUNTER__, (label), (__VA_ARGS__))
#define KN_PROF_CALL_(id, label, expr)                                                             \
    __extension__({                                                                                \
        kn_scope KN_CAT(kn_call_, id) = kn_scope_begin_static(label);                              \
        __typeof__(expr) KN_CAT(kn_value_, id) = expr;                                             \
        kn_scope_end(&KN_CAT(kn_call_, id));                                                       \
        KN_CAT(kn_value_, id);                                                                     \
    })

/* fn(arguments) in a scope named "fn", and its value; fn is the plain name of a function that does
 * not return void. */
#define KN_PROF_FN(fn, ...) KN_PROF_CALL(#fn, fn(__VA_ARGS__))

/* A statement, or a call that returns nothing, in a scope. No return, goto or break out of it. */
#define KN_PROF_DO(label, ...) KN_PROF_DO_(__COUNTER__, (label), __VA_ARGS__)
#define KN_PROF_DO_(id, label, ...)                                                                \
    do {                                                                                           \
        kn_scope KN_CAT(kn_call_, id) = kn_scope_begin_static(label);                              \
        __VA_ARGS__;                                                                               \
        kn_scope_end(&KN_CAT(kn_call_, id));                                                       \
    } while (0)

#endif
