/* The op table, from ops.def: what each op takes and gives, the host's kernels, and which device
 * has what. */
#include <string.h>

#include "checked.h"
#include "kernel.h"
#include "needs.h"
#include "run.h"

/* --- lists in macros --- */
#define NARGS_(a, b, c, d, e, f, g, h, n, ...) n
#define NARGS(...) NARGS_(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define EACH_1(m, a) m(a)
#define EACH_2(m, a, ...) m(a), EACH_1(m, __VA_ARGS__)
#define EACH_3(m, a, ...) m(a), EACH_2(m, __VA_ARGS__)
#define EACH_4(m, a, ...) m(a), EACH_3(m, __VA_ARGS__)
#define EACH_5(m, a, ...) m(a), EACH_4(m, __VA_ARGS__)
#define EACH_6(m, a, ...) m(a), EACH_5(m, __VA_ARGS__)
#define EACH_7(m, a, ...) m(a), EACH_6(m, __VA_ARGS__)
#define EACH_8(m, a, ...) m(a), EACH_7(m, __VA_ARGS__)
#define FOR_EACH(m, ...) PASTE(EACH_, NARGS(__VA_ARGS__))(m, __VA_ARGS__)

/* --- an input: CLASS(name) --- */
#define CLASS_REAL(n) KN_CLASS_REAL | KN_CLASS_SAME
#define CLASS_FLOAT(n) KN_CLASS_FLOAT | KN_CLASS_SAME
#define CLASS_NUMERIC(n) KN_CLASS_NUMERIC | KN_CLASS_SAME
#define CLASS_ANY(n) KN_CLASS_ANY | KN_CLASS_SAME
#define CLASS_MAYBE(n) KN_CLASS_ANY | KN_CLASS_SAME | KN_CLASS_MAYBE
#define CLASS_COMPUTED(n) KN_CLASS_REAL | KN_CLASS_COMPUTED
#define CLASS_MAYBE_COMPUTED(n) KN_CLASS_ANY | KN_CLASS_COMPUTED | KN_CLASS_MAYBE
#define CLASS_MAYBE_INDEX(n) KN_CLASS_INDEX | KN_CLASS_MAYBE
#define CLASS_BOOL(n) KN_CLASS_BOOL
#define CLASS_INDEX(n) KN_CLASS_INDEX
#define CLASS_STATE(n) 1u << KN_F64
#define CLASS(in) CLASS_##in
#define NAME_REAL(n) #n
#define NAME_FLOAT(n) #n
#define NAME_NUMERIC(n) #n
#define NAME_ANY(n) #n
#define NAME_MAYBE(n) #n
#define NAME_COMPUTED(n) #n
#define NAME_MAYBE_COMPUTED(n) #n
#define NAME_MAYBE_INDEX(n) #n
#define NAME_BOOL(n) #n
#define NAME_INDEX(n) #n
#define NAME_STATE(n) #n
#define NAME(in) NAME_##in
#define COUNT_IN(...) NARGS(__VA_ARGS__)
#define CLASSES_IN(...)                                                                            \
    { FOR_EACH(CLASS, __VA_ARGS__) }
#define NAMES_IN(...)                                                                              \
    { FOR_EACH(NAME, __VA_ARGS__) }
#define COUNT_IN_NONE 0
#define CLASSES_IN_NONE                                                                            \
    { 0 }
#define NAMES_IN_NONE                                                                              \
    { 0 }

/* --- results, flags, needs --- */
#define OUT_T KN_OUT_T
#define OUT_COMPUTED KN_OUT_COMPUTED
#define OUT_BY_INFER KN_OUT_T
#define OUT_BOOL KN_BOOL
#define OUT_I64 KN_I64
#define OUT_U8 KN_U8
#define OUT_DTYPE(o) OUT_##o
#define COUNT_OUT(...) NARGS(__VA_ARGS__)
#define DTYPES_OUT(...)                                                                            \
    { FOR_EACH(OUT_DTYPE, __VA_ARGS__) }
#define READS_OF(t) (READS_OF_ t)
#define READS_OF_(reads, formula) reads
#define LIST(...)                                                                                  \
    { __VA_ARGS__ }

__attribute__((weak, visibility("hidden"))) kn_status kn__host_NONE(kn_op_call *call);
__attribute__((weak, visibility("hidden"))) bool kn__infer_NONE(kn_op_call *call);

/* Scopes of rows' backs say which gradients were made: first as Knet's table does, with arguments
 * counted from 1, then, 1 << row further, with their names. */
#define KN_ROW1(name, s, domain, x, ...)                                                           \
    static const char *const name##_labels[] = {#name, #name "[1]", #name, #name "  d " NAME(x)};
#define KN_ROW2(name, s, domain, x, y, ...)                                                        \
    static const char *const name##_labels[] = {                                                   \
        #name, #name "[1]",          #name "[2]",          #name "[1,2]",                          \
        #name, #name "  d " NAME(x), #name "  d " NAME(y), #name "  d " NAME(x) "," NAME(y)};
#define KN_ROW3(name, s, domain, x, y, w, ...)                                                     \
    static const char *const name##_labels[] = {#name,                                             \
                                                #name "[1]",                                       \
                                                #name "[2]",                                       \
                                                #name "[1,2]",                                     \
                                                #name "[3]",                                       \
                                                #name "[1,3]",                                     \
                                                #name "[2,3]",                                     \
                                                #name "[1,2,3]",                                   \
                                                #name,                                             \
                                                #name "  d " NAME(x),                              \
                                                #name "  d " NAME(y),                              \
                                                #name "  d " NAME(x) "," NAME(y),                  \
                                                #name "  d " NAME(w),                              \
                                                #name "  d " NAME(x) "," NAME(w),                  \
                                                #name "  d " NAME(y) "," NAME(w),                  \
                                                #name "  d " NAME(x) "," NAME(y) "," NAME(w)};
#include <knet/ops.def>

/* --- the table --- */
enum { SCALARS_0 = 0, SCALARS_1 = sizeof(kn_attr_scalars), SCALARS_2 = SCALARS_1 };
/* In rows' backs: g, and what may be absent because no wanted derivative reads it. */
#define IS_G (KN_CLASS_FLOAT | KN_CLASS_SAME)
#define IS_T (KN_CLASS_FLOAT | KN_CLASS_SAME | KN_CLASS_MAYBE)
#define BACK_CLASS_REAL(n) IS_T
#define BACK_CLASS_FLOAT(n) IS_T
#define BACK_CLASS_NUMERIC(n) IS_T
#define BACK_CLASS_ANY(n) IS_T
#define BACK_CLASS_BOOL(n) KN_CLASS_BOOL | KN_CLASS_MAYBE
#define BACK_CLASS(in) BACK_CLASS_##in
#define UNIFORM(x, y) ((CLASS(x)) == (CLASS(y)) ? (CLASS(x)) : 0)

#define FORWARD(name_, s, k, uniform_, classes, names)                                             \
    [KN_OP_##name_] = {.name = #name_,                                                             \
                       .infer = kn__infer_row,                                                     \
                       .host = kn__host_row##k,                                                    \
                       .n_in = k,                                                                  \
                       .n_out = 1,                                                                 \
                       .row = k,                                                                   \
                       .attr_bytes = SCALARS_##s,                                                  \
                       .uniform = uniform_,                                                        \
                       .in = classes,                                                              \
                       .in_name = names},
#define BACK(name_, s, k, order_, suffix, n, classes, names)                                       \
    [KN_OP_##name_##_##                                                                            \
        suffix] = {.name = #name_ "_" #suffix,                                                     \
                   .labels = order_ == 1 ? name_##_labels : NULL,                                  \
                   .infer = kn__infer_row_back,                                                    \
                   .host = order_ == 1 ? kn__host_row##k##_back : kn__host_row_back2,              \
                   .n_in = n,                                                                      \
                   .n_out = k,                                                                     \
                   .flags = KN_FLAG_ACC,                                                           \
                   .row = k,                                                                       \
                   .order = order_,                                                                \
                   .attr_bytes = SCALARS_##s,                                                      \
                   .in = classes,                                                                  \
                   .in_name = names},

const kn_op_info kn_op_table[KN_OP_COUNT] = {
#define KN_ROW1(name, s, domain, x, ...)                                                           \
    FORWARD(name, s, 1, CLASS(x), LIST(CLASS(x)), LIST(NAME(x)))                                   \
    BACK(name, s, 1, 1, back, 3, LIST(IS_G, BACK_CLASS(x), IS_T), LIST("g", NAME(x), "z"))         \
    BACK(name, s, 1, 2, back2, 3, LIST(IS_T, BACK_CLASS(x), IS_T), LIST("u", NAME(x), "z"))
#define KN_ROW2(name, s, domain, x, y, ...)                                                        \
    FORWARD(name, s, 2, UNIFORM(x, y), LIST(CLASS(x), CLASS(y)), LIST(NAME(x), NAME(y)))           \
    BACK(name, s, 2, 1, back, 4, LIST(IS_G, BACK_CLASS(x), BACK_CLASS(y), IS_T),                   \
         LIST("g", NAME(x), NAME(y), "z"))                                                         \
    BACK(name, s, 2, 2, back2, 5, LIST(IS_T, IS_T, BACK_CLASS(x), BACK_CLASS(y), IS_T),            \
         LIST("u", "v", NAME(x), NAME(y), "z"))
#define KN_ROW3(name, s, domain, x, y, w, ...)                                                     \
    FORWARD(name, s, 3, 0, LIST(CLASS(x), CLASS(y), CLASS(w)), LIST(NAME(x), NAME(y), NAME(w)))    \
    BACK(name, s, 3, 1, back, 5, LIST(IS_G, BACK_CLASS(x), BACK_CLASS(y), BACK_CLASS(w), IS_T),    \
         LIST("g", NAME(x), NAME(y), NAME(w), "z"))                                                \
    BACK(name, s, 3, 2, back2, 7,                                                                  \
         LIST(IS_T, IS_T, IS_T, BACK_CLASS(x), BACK_CLASS(y), BACK_CLASS(w), IS_T),                \
         LIST("u", "v", "t", NAME(x), NAME(y), NAME(w), "z"))
#define KN_COMPARE(name_, domain, x, y, ...)                                                       \
    [KN_OP_##name_] = {.name = #name_,                                                             \
                       .infer = kn__infer_row,                                                     \
                       .host = kn__host_row2,                                                      \
                       .n_in = 2,                                                                  \
                       .n_out = 1,                                                                 \
                       .row = 2,                                                                   \
                       .uniform = UNIFORM(x, y),                                                   \
                       .out = {KN_BOOL},                                                           \
                       .in = {CLASS(x), CLASS(y)},                                                 \
                       .in_name = {NAME(x), NAME(y)}},
#define KN_COMPARE1(name_, domain, x, ...)                                                         \
    [KN_OP_##name_] = {.name = #name_,                                                             \
                       .infer = kn__infer_row,                                                     \
                       .host = kn__host_row1,                                                      \
                       .n_in = 1,                                                                  \
                       .n_out = 1,                                                                 \
                       .row = 1,                                                                   \
                       .uniform = CLASS(x),                                                        \
                       .out = {KN_BOOL},                                                           \
                       .in = {CLASS(x)},                                                           \
                       .in_name = {NAME(x)}},
/* for joined flags: the first one is pasted */
#define LOW KN_FLAG_LOW
#define WIDE KN_FLAG_WIDE
#define F32 KN_FLAG_F32
#define AGAIN KN_FLAG_AGAIN
#define ONCE KN_FLAG_ONCE
#define NEEDS_OUT_NEEDS(...) NEEDS_OUT_(__VA_ARGS__, 0, 0, 0, 0, 0)
#define NEEDS_OUT_(a, b, c, d, e, ...) (((a) | (b) | (c) | (d) | (e)) >> KN_NEED_OUT)
#define KN_OP(name_, in_, out_, attr_, infer_, kernel_, rule_, needs_, flags_)                     \
    [KN_OP_##name_] = {.name = #name_,                                                             \
                       .infer = kn__infer_##infer_,                                                \
                       .host = kn__host_##kernel_,                                                 \
                       .n_in = COUNT_##in_,                                                        \
                       .n_out = COUNT_##out_,                                                      \
                       .flags = KN_FLAG_##flags_,                                                  \
                       .attr_bytes = sizeof(kn_attr_##attr_),                                      \
                       .out = DTYPES_##out_,                                                       \
                       .out_needs = NEEDS_OUT_##needs_,                                            \
                       .in = CLASSES_##in_,                                                        \
                       .in_name = NAMES_##in_},
#include <knet/ops.def>
};

_Static_assert(sizeof(kn_op_info) == 128, "two cache lines");

/* --- what gradients read --- */

/* A second derivative reads nothing that the first ones did not make the tape keep. */
/* clang-format off */
#define KEEPS(second, first)                                                                       \
    _Static_assert(!(READS_OF(second) & ~((first) | ZERO)), "a second derivative reads more");
#define KN_ROW1(name, s, domain, x, f, d0, d00, third) KEEPS(d00, READS_OF(d0))
#define KN_ROW2(name, s, domain, x, y, f, d0, d1, d00, d01, d11, third)                            \
    KEEPS(d00, READS_OF(d0))                                                                       \
    KEEPS(d11, READS_OF(d1))                                                                       \
    KEEPS(d01, READS_OF(d0) | READS_OF(d1))
#define KN_ROW3(name, s, domain, x, y, w, f, d0, d1, d2, d00, d01, d02, d11, d12, d22, third)      \
    KEEPS(d00, READS_OF(d0))                                                                       \
    KEEPS(d11, READS_OF(d1))                                                                       \
    KEEPS(d22, READS_OF(d2))                                                                       \
    KEEPS(d01, READS_OF(d0) | READS_OF(d1))                                                        \
    KEEPS(d02, READS_OF(d0) | READS_OF(d2))                                                        \
    KEEPS(d12, READS_OF(d1) | READS_OF(d2))
/* clang-format on */
#include <knet/ops.def>

const kn_op_needs kn_op_needs_table[KN_OP_COUNT] = {
#define KN_ROW1(name, s, domain, x, f, d0, d00, third)                                             \
    [KN_OP_##name] = {.first = {READS_OF(d0)}, .n_first = 1, .second = {{READS_OF(d00)}}},
#define KN_ROW2(name, s, domain, x, y, f, d0, d1, d00, d01, d11, third)                            \
    [KN_OP_##name] = {.first = {READS_OF(d0), READS_OF(d1)},                                       \
                      .n_first = 2,                                                                \
                      .second = {{READS_OF(d00), READS_OF(d01)}, {READS_OF(d01), READS_OF(d11)}}},
#define KN_ROW3(name, s, domain, x, y, w, f, d0, d1, d2, d00, d01, d02, d11, d12, d22, third)      \
    [KN_OP_##name] = {.first = {READS_OF(d0), READS_OF(d1), READS_OF(d2)},                         \
                      .n_first = 3,                                                                \
                      .second = {{READS_OF(d00), READS_OF(d01), READS_OF(d02)},                    \
                                 {READS_OF(d01), READS_OF(d11), READS_OF(d12)},                    \
                                 {READS_OF(d02), READS_OF(d12), READS_OF(d22)}}},
#define COUNT_NEEDS(...) NARGS(__VA_ARGS__)
#define LIST_NEEDS(...)                                                                            \
    { __VA_ARGS__ }
#define KN_OP(name, in, out, attr, infer, kernel, rule, needs, flags)                              \
    [KN_OP_##name] = {.first = LIST_##needs, .n_first = COUNT_##needs},
#include <knet/ops.def>
};

/* --- detours of calls --- */

kn_tensor *(*const kn__run_autocast)(kn__ops_thread *self, kn_op_call *call) = kn__autocast_run;
kn_tensor *(*const kn__run_f32)(kn_op_call *call) = kn__f32_run;

/* --- devices --- */

const char *kn_op_name(kn_op op) {
    KN_ASSERT((int)op >= 0 && op < KN_OP_COUNT);
    return kn_op_table[op].name;
}

/* The simulated device has addresses and no memory: its kernels do nothing. */
static kn_status nothing(kn_op_call *call) {
    (void)call;
    return KN_OK;
}

kn_kernel_fn kn__device_kernel(const kn_device *device, kn_op op) {
    switch (kn_device_kind_get(device)) {
        case KN_DEVICE_HOST:
            return kn_op_table[op].host;
        case KN_DEVICE_SIM:
            return nothing;
        case KN_DEVICE_CUDA:
            break;
    }
    const kn__cuda_exports *module = kn__cuda_module();
    if (!module) return NULL;
    if (!module->kernels[op]) {
        KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s: %s has no kernel for it", kn_op_name(op),
                kn_device_name(device));
    }
    return module->kernels[op];
}

bool kn_op_supported(kn_op op, kn_device_kind kind) {
    KN_ASSERT((int)op >= 0 && op < KN_OP_COUNT);
    if (op == KN_OP_reshape || op == KN_OP_to) return true;
    switch (kind) {
        case KN_DEVICE_HOST:
            return kn_op_table[op].host != NULL;
        case KN_DEVICE_SIM:
            return true;
        case KN_DEVICE_CUDA:
            break;
    }
    const kn__cuda_exports *module = kn__cuda_module();
    return module && module->kernels[op];
}
