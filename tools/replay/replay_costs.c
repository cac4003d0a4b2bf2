/* Costs of driver calls: the published ones, and those that a file has. */
#include "replay_costs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METRIC_BYTES = 64 };
static const double MIB = 1024.0 * 1024.0;

static const struct {
    const char *name;
    double fixed_us, mib_us;
} calls[] = {
#define X(name, text, fixed_us, mib_us) {text, fixed_us, mib_us},
    KN__CALLS_LIST(X)
#undef X
};

/* The times of a call at the smallest and the largest size that were measured. */
typedef struct measured {
    double low_mib, low_us, high_mib, high_us;
    bool any;
} measured;

const char *kn__call_name(kn__driver_call call) { return calls[call].name; }

kn__costs kn__costs_published(void) {
    kn__costs costs = {.n_measured = 0};
    for (int i = 0; i < KN__CALLS; i++) {
        costs.fixed_us[i] = calls[i].fixed_us;
        costs.mib_us[i] = calls[i].mib_us;
    }
    return costs;
}

static void note(measured *m, double mib, double us) {
    if (!m->any || mib < m->low_mib) {
        m->low_mib = mib;
        m->low_us = us;
    }
    if (!m->any || mib > m->high_mib) {
        m->high_mib = mib;
        m->high_us = us;
    }
    m->any = true;
}

/* "cuMemMap_20MiB_us", "cuEventRecord_ns", and "cuMemAllocAsync_pair_1000_ns", which is an
 * allocation and a free. Figures beside a busy stream have another end. */
static void take_metric(measured *all, const char *metric, double value) {
    unsigned long size = 0;
    int end = 0;
    if (sscanf(metric, "cuMemAllocAsync_pair_%lu_ns%n", &size, &end) == 1 && !metric[end]) {
        note(&all[KN__CALL_ALLOC_ASYNC], (double)size / MIB, value / 2e3);
        note(&all[KN__CALL_FREE_ASYNC], (double)size / MIB, value / 2e3);
        return;
    }
    for (int i = 0; i < KN__CALLS; i++) {
        size_t n = strlen(calls[i].name);
        if (strncmp(metric, calls[i].name, n) != 0) continue;
        end = 0;
        if (strcmp(metric + n, "_ns") == 0) {
            note(&all[i], 0, value / 1e3);
        } else if (sscanf(metric + n, "_%luMiB_us%n", &size, &end) == 1 && end &&
                   !metric[n + (size_t)end]) {
            note(&all[i], (double)size, value);
        }
    }
}

/* The text after "key":, or NULL. */
static const char *after(const char *line, const char *key) {
    const char *at = strstr(line, key);
    return at ? at + strlen(key) : NULL;
}

static void take_line(measured *all, const char *line) {
    char metric[METRIC_BYTES];
    const char *name = after(line, "\"metric\":\""), *value = after(line, "\"value\":");
    if (!strstr(line, "\"bench\":\"gpu_driver\"") || !name || !value) return;
    size_t n = strcspn(name, "\"");
    char *end = NULL;
    double number = strtod(value, &end);
    if (n >= sizeof metric || end == value || !(number >= 0 && number < 1e12)) return;
    snprintf(metric, sizeof metric, "%.*s", (int)n, name);
    take_metric(all, metric, number);
}

/* A line through two points; a call never takes less for more. */
static void fit(kn__costs *costs, int call, const measured *m) {
    double slope = 0;
    if (m->high_mib > m->low_mib && m->high_us > m->low_us) {
        slope = (m->high_us - m->low_us) / (m->high_mib - m->low_mib);
    }
    double fixed = m->low_us - slope * m->low_mib;
    costs->mib_us[call] = slope;
    costs->fixed_us[call] = fixed > 0 ? fixed : 0;
    costs->n_measured++;
}

kn_status kn__costs_read(kn__costs *out, const char *path) {
    measured all[KN__CALLS] = {{.any = false}};
    kn__costs costs = kn__costs_published();
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "r");
    if (!file) return KN_FAIL(KN_ERR_IO, "%s: %s", path, strerror(errno));
    while (getline(&line, &room, file) >= 0) take_line(all, line);
    free(line);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed) return KN_FAIL(KN_ERR_IO, "%s: it can't be read", path);
    for (int i = 0; i < KN__CALLS; i++) {
        if (all[i].any) fit(&costs, i, &all[i]);
    }
    if (!costs.n_measured) {
        return KN_FAIL(KN_ERR_FORMAT, "%s: no figure of a driver call; bench_gpu_costs prints them",
                       path);
    }
    *out = costs;
    return KN_OK;
}

double kn__costs_us(const kn__costs *costs, const kn__driver_calls *made) {
    double us = 0;
    for (int i = 0; i < KN__CALLS; i++) {
        us += (double)made->n[i] * costs->fixed_us[i];
        us += (double)made->bytes[i] / MIB * costs->mib_us[i];
    }
    return us;
}
