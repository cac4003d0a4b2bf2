/* The derivatives of the logarithm of the gamma function, for the host's loops and the CUDA
 * kernels.
 *
 * Order 0 (digamma): the recurrence up to x >= 10, then the asymptotic series (Abramowitz and
 * Stegun 6.3.18). Order n: (-1)^(n+1)·n!·ζ(n + 1, x), by Euler's and Maclaurin's formula (23.2.3
 * ff.). Below zero by reflection (6.3.7, 6.4.7). NaN above order 170, whose n! is beyond f64. Odd
 * orders are +inf at all their poles: they are so on both sides of them. */
#ifndef KN_POLYGAMMA_H
#define KN_POLYGAMMA_H

#include <math.h>
#include <stdbool.h>

#include "rounded.h"

#define KN_BESSEL_ORDER_MAX 100000 /* of the Bessel functions: beyond it NaN */

static inline KN_HOST_DEVICE double kn__digamma_above(double x) { /* x > 0 */
    double sum = 0;
    while (x < 10) sum -= (2 * x + 1) / (x * (x + 1)), x += 2; /* two terms, one division */
    double z = 1 / (x * x);
    double p = 1.0 / 12;
    p = p * z - 691.0 / 32760;
    p = p * z + 1.0 / 132;
    p = p * z - 1.0 / 240;
    p = p * z + 1.0 / 252;
    p = p * z - 1.0 / 120;
    p = p * z + 1.0 / 12;
    return sum + (log(x) - 0.5 / x - z * p);
}

/* x^-s; most orders are low. */
static inline KN_HOST_DEVICE double kn__inverse_power(double s, double x) {
    double y = 1 / x;
    return s == 1 ? y : s == 2 ? y * y : s == 3 ? y * y * y : pow(x, -s);
}

/* ζ(s, x), the sum of (x + k)^-s; x > 0, s an integer above 1. */
static inline KN_HOST_DEVICE double kn__hurwitz(double s, double x) {
    double sum = 0, past = 10 + s;
    while (x < past && s == 2) { /* two terms, one division */
        double a = x * x, b = (x + 1) * (x + 1);
        sum += (a + b) / (a * b), x += 2;
    }
    while (x < past) sum += kn__inverse_power(s, x), x += 1;
    /* B2k/(2k)! */
    double power = kn__inverse_power(s, x), z = 1 / (x * x), term = s * power / x, tail = 0;
    const double b2 = 1.0 / 12, b4 = -1.0 / 720, b6 = 1.0 / 30240, b8 = -1.0 / 1209600,
                 b10 = 1.0 / 47900160, b12 = -691.0 / 1307674368000.0, b14 = 1.0 / 74724249600.0;
    tail += b2 * term;
    term *= (s + 1) * (s + 2) * z;
    tail += b4 * term;
    term *= (s + 3) * (s + 4) * z;
    tail += b6 * term;
    term *= (s + 5) * (s + 6) * z;
    tail += b8 * term;
    term *= (s + 7) * (s + 8) * z;
    tail += b10 * term;
    term *= (s + 9) * (s + 10) * z;
    tail += b12 * term;
    term *= (s + 11) * (s + 12) * z;
    tail += b14 * term;
    return sum + (tail + 0.5 * power + kn__inverse_power(s - 1, x) / (s - 1));
}

/* The same sum, x < 0 and `rest` from an integer: all terms (x + k)^-s of any integer k, which have
 * period 1 in x, but those of k < 0. In a loop: the function is inlined once. */
static inline KN_HOST_DEVICE double kn__hurwitz_below(double s, double x, double rest) {
    double sum = 0, sign = s == 2 * floor(s / 2) ? 1 : -1;
    for (int i = 0; i < 3; i++) {
        double from = i == 0 ? (rest < 0 ? 1 + rest : rest) : rest < 0 ? -rest : 1 - rest;
        double part = kn__hurwitz(s, i == 2 ? 1 - x : from);
        sum += i == 0 ? part : i == 1 ? sign * part : -sign * part;
    }
    return sum;
}

/* Order n is rounded to an integer, below zero 0. NaN at the poles of even orders, but for the
 * infinities of order 0 at 0. */
static inline KN_HOST_DEVICE double kn__polygamma(double n, double x) {
    const double pi = 3.1415926535897932;
    n = n > 0 ? floor(n + 0.5) : 0;
    if (n > 170) return NAN;
    bool is_even = n == 2 * floor(n / 2);
    if (x == 0) {
        if (n == 0) return 1 / x < 0 ? INFINITY : -INFINITY;
        return is_even ? NAN : INFINITY;
    }
    if (x < 0) {
        double rest = x - rint(x), angle = pi * rest; /* exact; both have period 1 */
        if (x == -INFINITY) return NAN;
        if (rest == 0) return is_even ? NAN : INFINITY;
        if (n == 0)
            return kn__digamma_above(1 - x) -
                   (fabs(rest) == 0.5 ? 0 : pi * cos(angle) / sin(angle));
        if (n == 1) return pi / sin(angle) * (pi / sin(angle)) - kn__hurwitz(2, 1 - x);
    }
    if (n == 0) return x == INFINITY ? x : kn__digamma_above(x);
    if (x == INFINITY) return 0;
    double factorial = n < 3 ? n : n == 3 ? 6 : n == 4 ? 24 : exp(lgamma(n + 1));
    double zeta =
        factorial * (x < 0 ? kn__hurwitz_below(n + 1, x, x - rint(x)) : kn__hurwitz(n + 1, x));
    return is_even ? -zeta : zeta;
}

#endif
