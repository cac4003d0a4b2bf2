/* For tests of files: where those of other writers lie, and what their arrays hold. */
#ifndef KN_FILE_TEST_H
#define KN_FILE_TEST_H

#include "ops_test.h"

#define DATA KNET_TEST_DATA "/arrays/"

/* 0, 1, 2, …; of KN_BOOL 0, 1, 0, … */
static inline void assert_counts(kn_tensor *t) {
    assert_non_null(t);
    kn_dtype dtype = kn_tensor_dtype(t);
    kn_tensor *f64 = kn_cast(t, KN_F64);
    for (int64_t i = 0; i < kn_tensor_numel(t); i++)
        assert_close(ops_at(f64, i), (double)(dtype == KN_BOOL ? i % 2 : i), 0, 0);
}

#endif
