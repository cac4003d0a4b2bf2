/* a·b + c, rounded once where the instruction set has that: v3 and v4. By name and not by the
 * compiler's choice, so that a function has the same bits wherever it is inlined. */
#ifndef KN_FUSED_SUM_H
#define KN_FUSED_SUM_H

#ifdef __FMA__
#define kn__fma_f32(a, b, c) __builtin_fmaf(a, b, c)
#define kn__fma_f64(a, b, c) __builtin_fma(a, b, c)
#else
#define kn__fma_f32(a, b, c) ((a) * (b) + (c))
#define kn__fma_f64(a, b, c) ((a) * (b) + (c))
#endif

#endif
