/* A scope around one call of a library: for wrappers of BLAS, oneDNN, cuBLAS, cuDNN or a driver.
 *
 *     KN_TRY(dnn_status(KN_PROF_FN(dnnl_sgemm, 'N', 'N', m, n, k, 1.0f, a, k, b, n, 0.0f, c, n)));
 *     KN_PROF_DO("copy in", memcpy(dst, src, size_bytes));
 *
 * The scope is named after the function, so the table shows where the time of an op went. Arguments
 * are evaluated once, inside the scope, which is closed on every way out of it: by return or an
 * exception of C++ too. With the timer off it costs the branch of a scope.
 * Errors: none; the value of the call, such as a status, is the value of the macro. Threads: any,
 * as for KN_SCOPE. Needs statement expressions: gcc or clang, in C or C++.
 */
#ifndef KNET_PROF_CALL_H
#define KNET_PROF_CALL_H

#include <knet/prof.h>

/* The value of `expr` (not void), evaluated in a scope. `label`: bytes that never change, such as a
 * literal, and not NULL; it is not copied. Nests: the names of its variables are unique. */
#define KN_PROF_CALL(label, ...) KN_PROF_CALL_(__COUNTER__, (label), (__VA_ARGS__))
#define KN_PROF_CALL_(id, label, expr)                                                             \
    __extension__({                                                                                \
        KN_AT_EXIT(kn_scope_end, kn_scope) = kn_scope_begin_static(label);                         \
        __typeof__(expr) KN_CAT(kn_value_, id) = expr;                                             \
        KN_CAT(kn_value_, id);                                                                     \
    })

/* fn(arguments) in a scope named "fn", and its value; fn is the plain name of a function that does
 * not return void. */
#define KN_PROF_FN(fn, ...) KN_PROF_CALL(#fn, fn(__VA_ARGS__))

/* A statement, or a call of a void function, in a scope. A break or continue in it ends it alone.
 */
#define KN_PROF_DO(label, ...)                                                                     \
    do {                                                                                           \
        KN_AT_EXIT(kn_scope_end, kn_scope) = kn_scope_begin_static(label);                         \
        __VA_ARGS__;                                                                               \
    } while (0)

#endif
