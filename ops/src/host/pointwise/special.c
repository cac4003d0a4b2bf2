#define _DEFAULT_SOURCE
#include "host/pointwise/special.h"

#include "polygamma.h"

static const double pi = 3.1415926535897932;

double kn__mod(double x, double y) {
    double rest = fmod(x, y);
    if (rest == 0) return copysign(0, y);
    return (rest < 0) != (y < 0) ? rest + y : rest;
}

/* Without the rest, which has x's sign, the quotient is whole. */
double kn__floor_div(double x, double y) {
    double rest = fmod(x, y), q = nearbyint((x - rest) / y);
    if (rest != 0 && (rest < 0) != (y < 0)) q -= 1;
    return y == 0 ? x / y : copysign(q, x / y);
}

double kn__mod2pi(double x) {
    double s = sin(x), angle = fabs(x) < 3 ? x : atan2(s, cos(x)); /* sin and cos reduce exactly */
    return angle < 0 ? angle + 2 * pi : angle;
}

/* e^(y²) of a y whose square is rounded: y² = high² + (y - high)(y + high). */
static double exp_square(double y) {
    double high = (double)(float)y;
    return exp(high * high) * exp((y - high) * (y + high));
}

/* Halley's steps on f = erf(y) - x, or erfc(y) - p: u = f/f', f''/f' = -2y. */
static double halley(double y, double u) { return y - u / (1 + y * u); }

double kn__erfcinv(double p) {
    if (!(p >= 0 && p <= 2)) return NAN;
    if (p == 0 || p == 2) return p == 0 ? INFINITY : -INFINITY;
    if (p > 1.5) return -kn__erfcinv(2 - p);
    if (p > 0.5) return -kn__erfinv(p - 1);
    /* erfc(y) is about e^(-y²)/(y·√π) */
    double log_p = -log(p), y = sqrt(log_p - 0.5 * log(pi * log_p));
    if (!(y > 0.4)) y = 0.4;
    for (int i = 0; i < 4; i++) {
        double u = 0.88622692545275801 * (p * exp_square(y) - kn__erfcx(y));
        if (!(fabs(u) < 1)) break; /* the square overflows */
        y = halley(y, u);
    }
    return y;
}

double kn__erfinv(double x) {
    if (!(fabs(x) <= 1)) return NAN;
    if (fabs(x) > 0.5) return copysign(kn__erfcinv(1 - fabs(x)), x);
    double z = x * x, y = x * (0.88622692545275801 + z * (0.2320136665346544 + z * 0.19));
    for (int i = 0; i < 3; i++) {
        y = halley(y, 0.88622692545275801 * (erf(y) - x) * exp(y * y));
    }
    return y;
}

double kn__erfcx(double x) {
    if (x < 25) return x < -26.7 ? INFINITY : exp_square(x) * erfc(x);
    double z = 1 / (x * x); /* the asymptotic series */
    double p = 1 - z * 0.5 * (1 - z * 1.5 * (1 - z * 2.5 * (1 - z * 3.5 * (1 - z * 4.5))));
    return x > 1e150 ? 0.56418958354775629 / x : p * (0.56418958354775629 / x);
}

double kn__gamma(double x) { return tgamma(x); }

double kn__lgamma(double x) {
    int sign;
    return lgamma_r(x, &sign);
}

/* They take as many steps as the order. */
static bool is_order(double n) { return fabs(n) <= KN_BESSEL_ORDER_MAX; }

double kn__besselj(double n, double x) { return is_order(n) ? jn((int)nearbyint(n), x) : NAN; }
double kn__bessely(double n, double x) { return is_order(n) ? yn((int)nearbyint(n), x) : NAN; }
