/* How the calls of a row are spread. */
#include <stdlib.h>
#include <string.h>

#include "report.h"

static uint64_t sum_of(const kn__times *times) {
    uint64_t sum = 0;
    for (int i = 0; i < times->n; i++) sum += times->bins[i].n;
    return sum;
}

static double within(double ns, const kn__row *row) {
    if (ns < (double)row->min_ns) return (double)row->min_ns;
    return ns > (double)row->max_ns ? (double)row->max_ns : ns;
}

double kn__row_percentile(const kn__row *row, double part) {
    const kn__times *times = row->times;
    if (!times || !times->n) return 0;
    double rank = part * (double)sum_of(times), seen = 0;
    int i = 0;
    for (; i < times->n - 1; i++) {
        seen += (double)times->bins[i].n;
        if (seen >= rank) break;
    }
    return within(times->bins[i].ns, row);
}

/* Both are in order; bins of the same time become one. Returns how many there are. */
static int merge(kn__time_bin *out, const kn__times *a, const kn__time_bin *b, int n_b) {
    int n = 0, i = 0, j = 0, n_a = a ? a->n : 0;
    while (i < n_a || j < n_b) {
        bool first = j == n_b || (i < n_a && a->bins[i].ns <= b[j].ns);
        kn__time_bin bin = first ? a->bins[i++] : b[j++];
        if (n && out[n - 1].ns == bin.ns) {
            out[n - 1].n += bin.n;
        } else {
            out[n++] = bin;
        }
    }
    return n;
}

kn_status kn__report_add_times(kn__report *report, kn__row *row, const kn__time_bin *bins, int n) {
    if (!n) return KN_OK;
    int most = n + (row->times ? row->times->n : 0);
    kn__times *times = kn__report_bytes(report, sizeof *times + (size_t)most * sizeof *times->bins);
    if (!times) return KN_FAIL(KN_ERR_OOM, "no memory for the report");
    times->n = merge(times->bins, row->times, bins, n);
    row->times = times;
    return KN_OK;
}
