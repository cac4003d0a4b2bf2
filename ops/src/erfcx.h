/* The derivatives of erfcx(x) = e^(x²)·erfc(x), for the host's loops and the CUDA kernels.
 *
 * 2·x·z - 2/√π, z = erfcx(x), and the next one are differences that cancel for large x. They are
 * -2 and 8 times e^(x²) times the first and second integral of erfc (Abramowitz and Stegun 7.2.2),
 * whose ratios are continued fractions (7.2.5, 7.1.14): that of the first to erfc is 1/2 over
 * x + 1/c, that of the second to the first 1/2 over c. */
#ifndef KN_ERFCX_H
#define KN_ERFCX_H

#include "rounded.h"

#define KN_ERFCX_FAR 4 /* from here on the fraction has an error below 1e-13 */

/* c = x + 3/2/(x + 4/2/(x + 5/2/(x + …))) */
static inline KN_HOST_DEVICE double kn__erfcx_fraction(double x) {
    double c = x;
    for (int k = 20; k > 2; k--) c = x + 0.5 * k / c;
    return c;
}

static inline KN_HOST_DEVICE double kn__erfcx_slope(double x, double z) {
    if (x < KN_ERFCX_FAR) return 2 * x * z - 1.1283791670955126;
    return -z / (x + 1 / kn__erfcx_fraction(x));
}

static inline KN_HOST_DEVICE double kn__erfcx_slope2(double x, double z) {
    if (x < KN_ERFCX_FAR) return 2 * z + 2 * x * (2 * x * z - 1.1283791670955126);
    return 2 * z / (x * kn__erfcx_fraction(x) + 1);
}

#endif
