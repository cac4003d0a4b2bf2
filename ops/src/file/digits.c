#include "digits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "convert.h"

static void strip_zeros(kn__digits *d) {
    while (d->n > 1 && d->digit[d->n - 1] == '0') d->n--;
    d->digit[d->n] = 0;
}

/* Of "-d.ddde-xx", whatever the locale's point is. */
static kn__digits parse(const char *text) {
    kn__digits d = {0};
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') d.digit[d.n++] = *p;
    d.exponent = *p ? atoi(p + 1) : 0;
    strip_zeros(&d);
    return d;
}

static bool reads_back(const char *text, double x, kn_dtype dtype) {
    double y = dtype == KN_F64 ? strtod(text, NULL) : (double)strtof(text, NULL);
    if (dtype == KN_F16) return kn__f32_to_f16((float)y) == kn__f32_to_f16((float)x);
    if (dtype == KN_BF16) return kn__f32_to_bf16((float)y) == kn__f32_to_bf16((float)x);
    return y == x;
}

/* One unit of the last digit further from 0; false: all digits are nines. */
static bool step_out(char *text) {
    char *p = strchr(text, 'e');
    while (p-- > text) {
        if (*p < '0' || *p > '9') continue;
        if (*p != '9') return ++*p, true;
        *p = '0';
    }
    return false;
}

/* Below a power of two floats are nearer to each other than above: there the nearest number of n
 * digits may be another float, and the next one further from 0 be this one. */
kn__digits kn__digits_of(double x, kn_dtype dtype) {
    char text[64], next[64];
    int exponent;
    bool is_power = fabs(frexp(x, &exponent)) == 0.5;
    for (int n = 1; n <= KN__DIGITS_MAX; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, x);
        if (reads_back(text, x, dtype)) break;
        memcpy(next, text, sizeof next);
        if (is_power && step_out(next) && reads_back(next, x, dtype)) return parse(next);
    }
    return parse(text);
}

kn__digits kn__digits_rounded(double x, int places) {
    char text[64];
    KN_ASSERT(places < KN__DIGITS_MAX);
    snprintf(text, sizeof text, "%.*e", places, x);
    return parse(text);
}

kn__digits kn__digits_scientific(double x, kn_dtype dtype, int places) {
    kn__digits d = kn__digits_of(x, dtype);
    return d.n - 1 <= places ? d : kn__digits_rounded(x, places);
}

kn__digits kn__digits_fixed(double x, kn_dtype dtype, int places) {
    kn__digits d = kn__digits_of(x, dtype);
    if (d.n - 1 - d.exponent <= places) return d;
    int kept = d.exponent + places; /* digits after the first */
    if (kept >= 0) return kn__digits_rounded(x, kept);
    /* Less than half of the last place, or a one there: of x itself, not of its digits. */
    char text[400] = "";
    if (kept == -1) snprintf(text, sizeof text, "%.*f", places, x);
    bool up = strpbrk(text, "123456789") != NULL;
    return (kn__digits){.digit = {up ? '1' : '0'}, .n = 1, .exponent = up ? -places : 0};
}
