/* Normal numbers of an interval, by the inverse of the distribution function; shared by the host
 * and the CUDA kernels, so that both give the same bits (philox.h). */
#ifndef KN_QUANTILE_H
#define KN_QUANTILE_H

#include "philox.h"

typedef struct kn__truncated { /* of kn_attr_truncated */
    double mean, stddev, lo, hi;
    double p_lo, p_hi; /* probabilities of what lies below the ends */
    int mirrored;      /* those of the upper tail: numbers change sign */
} kn__truncated;

/* c[0]·x^(n-1) + … + c[n-1] over d, of the same form. */
static inline KN_HOST_DEVICE double kn__ratio(const double c[8], const double d[8], double x) {
    return kn__horner(c, 8, x) / kn__horner(d, 8, x);
}

/* x with P(normal < x) = p, 0 < p < 1; error below 1e-15 relative. Wichura 1988, AS 241 (PPND16).
 */
static inline KN_HOST_DEVICE double kn__normal_quantile(double p) {
    const double a[] = {2.5090809287301226727e+3, 3.3430575583588128105e+4,
                        6.7265770927008700853e+4, 4.5921953931549871457e+4,
                        1.3731693765509461125e+4, 1.9715909503065514427e+3,
                        1.3314166789178437745e+2, 3.3871328727963666080e0};
    const double b[] = {5.2264952788528545610e+3, 2.8729085735721942674e+4,
                        3.9307895800092710610e+4, 2.1213794301586595867e+4,
                        5.3941960214247511077e+3, 6.8718700749205790830e+2,
                        4.2313330701600911252e+1, 1.0};
    const double c[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                        2.41780725177450611770e-1, 1.27045825245236838258e0,
                        3.64784832476320460504e0,  5.76949722146069140550e0,
                        4.63033784615654529590e0,  1.42343711074968357734e0};
    const double d[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                        1.51986665636164571966e-2, 1.48103976427480074590e-1,
                        6.89767334985100004550e-1, 1.67638483018380384940e0,
                        2.05319162663775882187e0,  1.0};
    const double e[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                        1.24266094738807843860e-3, 2.65321895265761230930e-2,
                        2.96560571828504891230e-1, 1.78482653991729133580e0,
                        5.46378491116411436990e0,  6.65790464350110377720e0};
    const double f[] = {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                        1.84631831751005468180e-5,  7.86869131145613259100e-4,
                        1.48753612908506148525e-2,  1.36929880922735805310e-1,
                        5.99832206555887937690e-1,  1.0};
    double q = p - 0.5, tail = q < 0 ? p : 1 - p;
    if (q >= -0.425 && q <= 0.425)
        return KN_MUL_F64(q, kn__ratio(a, b, KN_ADD_F64(0.180625, -KN_MUL_F64(q, q))));
    double r = KN_SQRT_F64(-kn__log_unit(tail));
    double x = r <= 5 ? kn__ratio(c, d, r - 1.6) : kn__ratio(e, f, r - 5);
    return q < 0 ? -x : x;
}

/* From the two words of an element. */
static inline KN_HOST_DEVICE double kn__truncated_normal(const kn__truncated *t, uint32_t low,
                                                         uint32_t high) {
    double u = KN_ADD_F64(kn__unit_f64(low, high), 0x1p-54);
    double p = KN_ADD_F64(t->p_lo, KN_MUL_F64(u, t->p_hi - t->p_lo));
    double z = p <= 0 ? t->lo : (p >= 1 ? t->hi : kn__normal_quantile(p));
    double x = KN_ADD_F64(t->mean, KN_MUL_F64(t->stddev, t->mirrored ? -z : z));
    return x < t->lo ? t->lo : (x > t->hi ? t->hi : x);
}

#endif
