/* Statistics of numbers beside NaNs, and values between places, with odd input. */
#include <math.h>

#include "golden_values.h"

static void numbers_beside_nans_have_places(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *nan = X(NAN, NAN);
    VALUES(kn_nan_median(nan, KN_ALL, false), NAN);
    VALUES(kn_nan_quantile(X(NAN, 3, NAN, 1), 0.75, KN_ALL, false), 2.5);
    VALUES(kn_nan_quantile(X(NAN, INF, -INF), 0, KN_ALL, false), -INF);
    VALUES(kn_nan_var(nan, KN_ALL, false, false), NAN);
    VALUES(kn_nan_var(X(NAN, 3), KN_ALL, false, true), 0);
    VALUES(kn_nan_std(X(NAN, 3), KN_ALL, false, false), NAN);
    VALUES(kn_nan_var(X(INF, 3, NAN), KN_ALL, false, true), NAN);
    VALUES(kn_nan_quantile(X(3, 1), 1, KN_ALL, true), 3);
    VALUES(kn_nan_quantile(X(NAN, 3, 1), 1, KN_ALL, true), 3);
    for (int i = 1; i < 60; i++) { /* equal neighbours stay as they are */
        kn_tensor *y = kn_nan_quantile(kn_full(KN_SHAPE(2), 0.7), i / 60.0, KN_ALL, false);
        assert_true(ops_at(y, 0) == (double)0.7F);
    }
    kn_tensor *places = X(0, 1, 3), *at = X(5, 7, -1);
    VALUES(kn_interp(X(-INF, -1, 0, 0.5, 1, 2, 3, 9, INF, NAN), places, at), 5, 5, 5, 6, 7, 3, -1,
           -1, -1, NAN);
    VALUES(kn_interp(X(0, 1, 2), X(1, 1), X(5, 7)), 5, 7, 7);
}

int main(void) { return RUN_TESTS(OPS_TEST(numbers_beside_nans_have_places)); }
