/* A scope around one call of a library: for code that wraps BLAS, oneDNN, cuBLAS, cuDNN or a
 * driver.
 *
 *     KN_TRY(dnn_status(KN_PROF_FN(dnnl_sgemm, 'N', 'N', m, n, k, 1.0f, a, k, b, n, 0.0f, c, n)));
 *     KN_PROF_DO("copy in", memcpy(dst, src, size_bytes));
 *
 * The scope is named after the function, so the table shows where the time of an op went. With the
 * timer off it costs the branch of a scope. Arguments are evaluated once, inside the scope.
 */
#ifndef KNET_PROF_CALL_H
#define KNET_PROF_CALL_H

#include <knet/prof.h>

/* The value of `expr` (not void), evaluated in a scope; label: bytes that never change, such as a
 * literal. Nests: the names of its variables are unique. */
#define KN_PROF_CALL(label, ...) KN_PROF_CALL_(__COUNTER__, (label), (__VA_ARGS__))
#define KN_PROF_CALL_(id, label, expr)                                                             \
    __extension__({                                                                                \
        kn_scope KN_CAT(kn_call_, id) = kn_scope_begin_static(label);                              \
        __typeof__(expr) KN_CAT(kn_value_, id) = expr;                                             \
        kn_scope_end(&KN_CAT(kn_call_, id));                                                       \
        KN_CAT(kn_value_, id);                                                                     \
    })

/* fn(arguments) in a scope named "fn"; fn is the plain name of a function that returns a value. */
#define KN_PROF_FN(fn, ...) KN_PROF_CALL(#fn, fn(__VA_ARGS__))

/* A statement, or a call of a void function, in a scope. It must not return, goto or break out. */
#define KN_PROF_DO(label, ...) KN_PROF_DO_(__COUNTER__, (label), __VA_ARGS__)
#define KN_PROF_DO_(id, label, ...)                                                                \
    do {                                                                                           \
        kn_scope KN_CAT(kn_call_, id) = kn_scope_begin_static(label);                              \
        __VA_ARGS__;                                                                               \
        kn_scope_end(&KN_CAT(kn_call_, id));                                                       \
    } while (0)

#endif
