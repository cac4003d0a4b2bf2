/* The functions of rare rows, in f64: from the C library where it has them. f32 rows round their
 * results. */
#ifndef KN_SPECIAL_H
#define KN_SPECIAL_H

#include "erfcx.h"
#include "polygamma.h"

double kn__mod(double x, double y); /* x - n*y with the sign of y */
double kn__floor_div(double x, double y);
double kn__mod2pi(double x); /* in [0, 2π], of any x to the last places */
double kn__erfinv(double x);
double kn__erfcinv(double x);
double kn__erfcx(double x); /* e^(x²)*erfc(x) */
double kn__gamma(double x);
double kn__lgamma(double x); /* of |gamma(x)| */
double kn__besselj(double n, double x);
double kn__bessely(double n, double x);

#endif
