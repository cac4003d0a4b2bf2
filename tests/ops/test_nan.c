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
    static const kn_dtype narrow[] = {KN_F16, KN_BF16, KN_F32, KN_F64};
    for (int i = 0; i < 4; i++) { /* the same as without NaNs */
        kn_tensor *x = kn_cast(X(1000, 1002, -60000, 1004, 1006, 60000, 3), narrow[i]);
        for (int k = 0; k <= 16; k++) {
            double q = k / 16.0;
            assert_true(golden_at(kn_nan_quantile(x, q, KN_ALL, false), 0) ==
                        golden_at(kn_quantile(x, q, KN_ALL, false), 0));
        }
    }
    kn_tensor *places = X(0, 1, 3), *at = X(5, 7, -1);
    VALUES(kn_interp(X(-INF, -1, 0, 0.5, 1, 2, 3, 9, INF, NAN), places, at), 5, 5, 5, 6, 7, 3, -1,
           -1, -1, NAN);
    VALUES(kn_interp(X(0, 1, 2), X(1, 1), X(5, 7)), 5, 7, 7);
    VALUES(kn_interp(X(1), X(1, 2), X(7, NAN)), 7);
    VALUES(kn_interp(X(0, 0.5, 1, 9), X(0, 1), X(1, INF)), 1, INF, INF, INF);
    VALUES(kn_interp(X(3, -3, 1), X(1), X(INF)), INF, INF, INF);
    VALUES(kn_interp(X(-5, -INF, 0), X(-INF, 0), X(1, 2)), 2, 1, 2);
    VALUES(kn_interp(X(0, 1e38F), X(-3e38F, 3e38F), X(0, 1)), 0.5, 0.6666666);
    VALUES(kn_interp(X(0, 0.5), X(0, 1), X(-3e38F, 3e38F)), (double)-3e38F, 0);
    kn_tensor *wide = kn_cast(X(-40000, 40000), KN_F16);
    VALUES(kn_interp(kn_cast(X(0), KN_F16), wide, kn_cast(X(0, 1), KN_F16)), 0.5);
}

int main(void) { return RUN_TESTS(OPS_TEST(numbers_beside_nans_have_places)); }
