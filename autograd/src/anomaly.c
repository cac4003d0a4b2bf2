/* Anomaly mode: the search for a value that is not finite. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tape.h"

_Atomic int kn__anomaly;

void kn_anomaly_set(bool on) { atomic_store_explicit(&kn__anomaly, on, memory_order_relaxed); }
bool kn_anomaly_get(void) { return atomic_load_explicit(&kn__anomaly, memory_order_relaxed); }

/* "NaN at [3,5]" */
static void describe(char *out, size_t out_bytes, const kn_tensor *t, int64_t i, double value) {
    int64_t index[KN_DIMS_MAX];
    char text[128];
    kn_shape place = {.n_dims = t->n_dims};
    for (int d = t->n_dims - 1; d >= 0; d--) {
        index[d] = i % t->dim[d];
        i /= t->dim[d];
    }
    for (int d = 0; d < t->n_dims; d++) place.dim[d] = index[d];
    const char *what = isnan(value) ? "NaN" : value > 0 ? "inf" : "-inf";
    snprintf(out, out_bytes, "%s at %s", what, kn_shape_text(text, sizeof text, place));
}

bool kn__find_not_finite(char *out, size_t out_bytes, kn_tensor *t) {
    out[0] = '\0';
    if (!t || t == KN_NONE || !t->storage || !t->n || !kn__dtype_is_float(t->dtype)) return false;
    KN_FRAME(.record = KN_OFF);
    size_t bytes = (size_t)t->n * sizeof(double);
    double *value = calloc((size_t)t->n, sizeof *value);
    kn_tensor *wide = kn_cast(t, KN_F64);
    kn_status status = wide && value ? kn_copy_out(value, bytes, wide) : kn_check();
    int64_t i = 0, n = status == KN_OK && value ? t->n : 0;
    while (i < n && isfinite(value[i])) i++;
    if (i < n) describe(out, out_bytes, t, i, value[i]);
    free(value);
    return i < n;
}
