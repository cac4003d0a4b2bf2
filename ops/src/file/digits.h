/* Numbers as decimal digits: the fewest that read back as the same number of their dtype. */
#ifndef KN_FILE_DIGITS_H
#define KN_FILE_DIGITS_H

#include <knet/tensor.h>

enum { KN__DIGITS_MAX = 17 };

typedef struct kn__digits {
    char digit[KN__DIGITS_MAX + 1]; /* without zeros at the end; "0" for zero */
    int n, exponent;                /* digit[0].digit[1]… times 10^exponent */
} kn__digits;

/* x is finite, and a value of the dtype. */
kn__digits kn__digits_of(double x, kn_dtype dtype);
/* d.ddd…e+xx with this many digits after the point, below KN__DIGITS_MAX. */
kn__digits kn__digits_rounded(double x, int places);
/* At most `places` digits after the point, or of a number d.ddd…e+xx. */
kn__digits kn__digits_fixed(double x, kn_dtype dtype, int places);
kn__digits kn__digits_scientific(double x, kn_dtype dtype, int places);

#endif
