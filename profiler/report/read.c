#include "read.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cells.h"
#include "counters.h"
#include "fields.h"
#include "json.h"
#include "protobuf.h"
#include "read_trace.h"
#include "trace_format.h"

/* Where we are, for messages; the first thing that is wrong is kept in `status`. */
typedef struct reader {
    const char *name; /* of the file */
    kn__report *report;
    const kn__row *row; /* NULL: not among the rows */
    kn_status status;
} reader;

enum { PLACE_BYTES = 160, VALUE_BYTES = 40 };

static void wrong(reader *r, const char *key, const char *what) {
    if (r->status < 0) return;
    char place[PLACE_BYTES] = "";
    if (r->row) kn__report_path(place, sizeof place, r->row);
    r->status = KN_FAIL(KN_ERR_FORMAT, "%s is damaged: \"%s\"%s%s %s", r->name, key,
                        place[0] ? " of " : "", place, what);
}

static void no_memory(reader *r) {
    if (r->status >= 0) r->status = KN_FAIL(KN_ERR_OOM, "no memory to read %s", r->name);
}

/* --- values; a key that is missing leaves its value as it is --- */

static const cJSON *get(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* Of what a profile is not one without: zero would pass for measured. */
static void check_has(reader *r, const cJSON *object, const char *key) {
    if (!get(object, key)) wrong(r, key, "is missing");
}

/* Doubles have whole numbers up to 2^53: 104 days in ns, 8 PiB. Beyond, the nearest they have; of
 * UINT64_MAX that is 2^64. */
static void read_unsigned(reader *r, uint64_t *out, const cJSON *object, const char *key) {
    const cJSON *item = get(object, key);
    if (!item) return;
    double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (x >= 0 && x <= 0x1p64) {
        *out = x < 0x1p64 ? (uint64_t)x : UINT64_MAX;
    } else {
        wrong(r, key, "is no whole number from 0");
    }
}

static void read_signed(reader *r, int64_t *out, const cJSON *object, const char *key) {
    const cJSON *item = get(object, key);
    if (!item) return;
    double x = cJSON_IsNumber(item) ? item->valuedouble : 1e300;
    if (x > -9.2e18 && x < 9.2e18) {
        *out = (int64_t)x;
    } else {
        wrong(r, key, "is no whole number");
    }
}

static void read_fields(reader *r, void *out, const cJSON *object, const kn__field *fields) {
    for (const kn__field *f = fields; f->key; f++) {
        void *at = (char *)out + f->offset;
        f->is_signed ? read_signed(r, at, object, f->key) : read_unsigned(r, at, object, f->key);
    }
}

static void read_double(reader *r, double *out, const cJSON *object, const char *key) {
    const cJSON *item = get(object, key);
    if (!item) return;
    if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e300) {
        *out = item->valuedouble;
    } else {
        wrong(r, key, "is no number from 0");
    }
}

static bool is_true(const cJSON *object, const char *key) { return cJSON_IsTrue(get(object, key)); }

/* NULL when it is no text. */
static const char *read_text(const cJSON *object, const char *key) {
    const cJSON *item = get(object, key);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static const cJSON *first_of(reader *r, const cJSON *object, const char *key) {
    const cJSON *item = get(object, key);
    if (item && !cJSON_IsArray(item)) wrong(r, key, "is no list");
    return item && cJSON_IsArray(item) ? item->child : NULL;
}

/* --- rows --- */

static void read_memory(reader *r, kn__row *row, const cJSON *json) {
    read_fields(r, row, json, kn__row_amounts);
    read_fields(r, row, json, kn__row_holdings);
    row->peak_most = cJSON_IsFalse(get(json, "peak_exact")) ? INT64_MAX : 0;
}

static void read_spread(reader *r, kn__row *row, const cJSON *json) {
    double sigma = 0;
    read_unsigned(r, &row->n_ended, json, "n_ended");
    read_double(r, &row->ended_ns, json, "ended_ns");
    read_double(r, &sigma, json, "sigma_ns");
    if (!row->n_ended) return;
    double n = (double)row->n_ended;
    row->squares_ns2 = sigma * sigma * (n - 1) + row->ended_ns * row->ended_ns / n;
}

static bool read_time_bin(kn__time_bin *out, const cJSON *json) {
    const cJSON *ns = cJSON_GetArrayItem(json, 0), *n = cJSON_GetArrayItem(json, 1);
    if (!cJSON_IsNumber(ns) || !cJSON_IsNumber(n)) return false;
    if (!(ns->valuedouble >= 0 && ns->valuedouble < 1e300)) return false;
    if (!(n->valuedouble >= 1 && n->valuedouble < 1.8e19)) return false;
    *out = (kn__time_bin){ns->valuedouble, (uint64_t)n->valuedouble};
    return true;
}

static void read_times(reader *r, kn__row *row, const cJSON *json) {
    kn__time_bin bins[KN__TIME_BINS_MAX];
    int n = 0;
    const cJSON *item = first_of(r, json, "times");
    for (; item && n < KN__TIME_BINS_MAX; item = item->next, n++) {
        if (!read_time_bin(&bins[n], item) || (n && bins[n].ns < bins[n - 1].ns)) {
            wrong(r, "times", "has an entry that is no [time, calls] in order of time");
            return;
        }
    }
    if (kn__report_add_times(r->report, row, bins, n) < 0) no_memory(r);
}

static void read_values(reader *r, kn__row *row, const cJSON *json) {
    row->min_ns = 0;
    read_fields(r, row, json, kn__row_calls);
    read_unsigned(r, &row->first_start, json, "seen_at_ns");
    read_fields(r, row, json, kn__row_gpu);
    read_fields(r, row, json, kn__row_work);
    read_fields(r, row, json, kn__row_runs);
    row->is_extra = is_true(json, "extra");
    read_spread(r, row, json);
    read_times(r, row, json);
    row->open = is_true(json, "open");
    row->is_kernel = is_true(json, "kernel");
    read_memory(r, row, json);
}

/* A second row of the same path. */
static void add_values(reader *r, kn__row *row, const cJSON *json) {
    kn__row more = {.first_start = UINT64_MAX};
    read_values(r, &more, json);
    if (r->status >= 0 && kn__report_add_row(r->report, row, &more) < 0) no_memory(r);
}

static void read_rows(reader *r, kn__row *parent, const cJSON *json, const char *key);

static void read_row(reader *r, kn__row *parent, const cJSON *json) {
    const char *label = read_text(json, "label");
    if (!label) {
        wrong(r, "label", "is missing in a row");
        return;
    }
    kn__row like = {.label = label, .is_range = is_true(json, "range")};
    kn__row *row = kn__report_same(r->report, parent, &like);
    bool is_new = !row;
    const char *kept = is_new ? kn__report_keep(r->report, label) : NULL;
    if (kept) row = kn__report_row_of(r->report, parent, kept, like.is_range);
    if (!row) {
        no_memory(r);
        return;
    }
    const char *where = read_text(json, "file");
    if (where && !row->where) row->where = kn__report_keep(r->report, where);
    r->row = row;
    if (row->depth > KN__READ_DEPTH_MAX) {
        wrong(r, "children", "are nested too deep");
        return;
    }
    check_has(r, json, "n_calls");
    check_has(r, json, "time_ns");
    is_new ? read_values(r, row, json) : add_values(r, row, json);
    read_rows(r, row, json, "children");
    r->row = parent->depth ? parent : NULL;
}

static void read_rows(reader *r, kn__row *parent, const cJSON *json, const char *key) {
    for (const cJSON *item = first_of(r, json, key); item && r->status >= 0; item = item->next) {
        read_row(r, parent, item);
    }
}

/* --- the rest --- */

static void read_pools(reader *r, const cJSON *json) {
    kn__memory_totals *m = &r->report->memory;
    const cJSON *item = first_of(r, json, "pools");
    for (; item && m->n_pools < KN__POOLS_MAX; item = item->next) {
        kn__pool_use *use = &m->pools[m->n_pools++];
        const char *name = read_text(item, "name");
        snprintf(use->name, sizeof use->name, "%s", name ? name : "(unnamed)");
        read_fields(r, use, item, kn__pool_fields);
        read_fields(r, use, item, kn__pool_device);
    }
}

static bool read_bin(kn__series_bin *out, const cJSON *json) {
    double x[3] = {0};
    int n = 0;
    for (const cJSON *item = cJSON_IsArray(json) ? json->child : NULL; item; item = item->next) {
        if (n == 3 || !cJSON_IsNumber(item)) return false;
        x[n++] = item->valuedouble;
    }
    if (n != 3 || !(x[0] >= 0 && x[0] < 1.8e19)) return false;
    if (!(x[1] > -9.2e18 && x[1] < 9.2e18 && x[2] > -9.2e18 && x[2] < 9.2e18)) return false;
    *out = (kn__series_bin){(uint64_t)x[0], (int64_t)x[1], (int64_t)x[2]};
    return true;
}

static void read_live(reader *r, const cJSON *json) {
    kn__series *live = &r->report->live;
    const cJSON *item = first_of(r, json, "live");
    for (; item && live->n < KN__SERIES_BINS; item = item->next) {
        kn__series_bin *bin = &live->bins[live->n++];
        if (!read_bin(bin, item) || (live->n > 1 && bin->end < bin[-1].end)) {
            wrong(r, "live", "has an entry that is no [time, bytes, bytes] in order of time");
            return;
        }
    }
}

static void read_pool_memory(reader *r, const cJSON *json) {
    kn__report *report = r->report;
    report->has_memory = cJSON_IsObject(json);
    if (!report->has_memory) return;
    read_fields(r, report, json, kn__totals_fields);
    read_memory(r, &report->outside, get(json, "outside"));
    read_live(r, json);
    read_pools(r, json);
}

static void read_devices(reader *r, const cJSON *json) {
    kn__gpu_use *gpu = &r->report->gpu;
    const cJSON *item = first_of(r, json, "devices");
    for (; item && gpu->n < KN__GPUS_MAX; item = item->next) {
        kn__gpu_device *use = &gpu->devices[gpu->n++];
        read_fields(r, use, item, kn__gpu_device_fields);
        const cJSON *stream = first_of(r, item, "streams");
        for (; stream && use->n_streams < KN__STREAMS_MAX; stream = stream->next) {
            read_fields(r, &use->streams[use->n_streams++], stream, kn__gpu_stream_fields);
        }
    }
}

static void read_gpu(reader *r, const cJSON *json) {
    kn__balance *b = &r->report->balance;
    if (!cJSON_IsObject(json)) return;
    const char *source = read_text(json, "source");
    b->source = kn__report_keep(r->report, source ? source : "none");
    if (!b->source) no_memory(r);
    const char *notice = read_text(json, "notice");
    b->notice = notice ? kn__report_keep(r->report, notice) : NULL;
    read_fields(r, b, json, kn__balance_fields);
    read_devices(r, json);
}

static const char *read_kept(reader *r, const cJSON *json, const char *key) {
    const char *text = read_text(json, key);
    return text ? kn__report_keep(r->report, text) : NULL;
}

static void read_run(reader *r, const cJSON *json) {
    r->report->run = (kn__run_info){read_kept(r, json, "command"), read_kept(r, json, "host"),
                                    read_kept(r, json, "version"), read_kept(r, json, "words"),
                                    read_kept(r, json, "notes")};
    read_unsigned(r, &r->report->n_runs, json, "n_runs");
    kn__rates *peaks = &r->report->peaks;
    read_double(r, &peaks->flops, json, "peak_gflop_s");
    read_double(r, &peaks->bytes, json, "peak_gbyte_s");
    *peaks = (kn__rates){1e9 * peaks->flops, 1e9 * peaks->bytes};
}

/* --- counters --- */

/* Any number; a key that is missing leaves the value as it is. */
static void read_number(reader *r, long double *out, const cJSON *object, const char *key) {
    const cJSON *item = get(object, key);
    if (!item) return;
    if (cJSON_IsNumber(item) && fabs(item->valuedouble) <= DBL_MAX) {
        *out = item->valuedouble;
    } else {
        wrong(r, key, "is no number");
    }
}

static void read_counter(reader *r, kn__counter *c, const cJSON *json) {
    const char *unit = read_text(json, "unit");
    kn__counter_text(c->unit, sizeof c->unit, unit ? unit : "");
    read_unsigned(r, &c->n, json, "n");
    read_unsigned(r, &c->n_missed, json, "n_missed");
    read_unsigned(r, &c->n_beyond, json, "n_beyond");
    read_number(r, &c->first, json, "first");
    read_number(r, &c->last, json, "last");
    read_number(r, &c->min, json, "min");
    read_number(r, &c->max, json, "max");
    read_number(r, &c->mean, json, "mean");
    bool has_limits = get(json, "limit_min") || get(json, "limit_max");
    c->limit_min = has_limits ? -INFINITY : 0;
    c->limit_max = has_limits ? INFINITY : 0;
    read_number(r, &c->limit_min, json, "limit_min");
    read_number(r, &c->limit_max, json, "limit_max");
}

static void read_counters(reader *r, const cJSON *json) {
    kn__counters *counters = &r->report->counters;
    read_unsigned(r, &counters->n_refused, json, "counters_refused");
    read_unsigned(r, &counters->n_lost, json, "samples_lost");
    const cJSON *item = first_of(r, json, "counters");
    for (; item; item = item->next) {
        const char *name = read_text(item, "name");
        kn__counter *c = kn__counters_get(r->report, name ? name : "(unnamed)");
        if (c) {
            read_counter(r, c, item);
        } else if (counters->all) {
            counters->n_refused++;
        } else {
            no_memory(r);
            return;
        }
    }
}

/* --- events: of a trace, or of a profile that has them --- */

static void read_events(reader *r, const cJSON *json) {
    kn__timeline *line = kn__timeline_make(r->report);
    r->status = line ? kn__events_read(line, r->name, json) : KN_OK;
    if (!line) no_memory(r);
}

static bool is_empty(const kn__timeline *line) {
    return !line->spans.n && !line->works.n && !line->samples.n;
}

static void read_trace(reader *r, const cJSON *json) {
    read_events(r, json);
    if (r->status < 0) return;
    r->status = !is_empty(r->report->timeline)
                    ? kn__timeline_report(r->report->timeline)
                    : KN_FAIL(KN_ERR_FORMAT, "%s is a trace without spans%s", r->name,
                              r->report->trace_cut ? ": its program was killed before it wrote "
                                                     "any, or has just begun"
                                                   : "");
}

/* A profile is complete without them: its words may have kept none. */
static void read_events_of_profile(reader *r, const cJSON *json) {
    read_events(r, json);
    if (r->status >= 0 && is_empty(r->report->timeline)) kn__timeline_drop(r->report);
}

static void check_kind(reader *r, const cJSON *json) {
    const char *schema = cJSON_IsObject(json) ? read_text(json, "schema") : NULL;
    const cJSON *version = get(json, "version");
    if (!schema || strcmp(schema, "knet.prof") != 0) {
        r->status =
            KN_FAIL(KN_ERR_FORMAT,
                    "%s is no profile of the timer and no trace: \"schema\" is %s%.*s%s, not "
                    "\"knet.prof\"",
                    r->name, schema ? "\"" : "", VALUE_BYTES, schema ? schema : "missing",
                    schema ? "\"" : "");
    } else if (!cJSON_IsNumber(version)) {
        wrong(r, "version", "is missing");
    } else if (version->valuedouble != KN__JSON_VERSION) {
        r->status = KN_FAIL(KN_ERR_FORMAT,
                            "%s is of version %g of the profile's format; this program reads "
                            "version %d",
                            r->name, version->valuedouble, KN__JSON_VERSION);
    }
}

static void read_all(reader *r, const cJSON *json) {
    kn__report *report = r->report;
    bool has_events = kn__events_are(json);
    if (has_events && !get(json, "schema")) {
        read_trace(r, json);
        return;
    }
    check_kind(r, json);
    if (r->status < 0) return;
    check_has(r, json, "wall_ns");
    read_unsigned(r, &report->wall_ns, json, "wall_ns");
    read_fields(r, report, json, kn__run_fields);
    read_run(r, get(json, "run"));
    report->buffer_full = is_true(json, "buffer_full");
    report->trace_cut = is_true(json, "trace_cut");
    read_fields(r, &report->steps, get(json, "steps"), kn__steps_fields);
    read_pool_memory(r, get(json, "memory"));
    read_gpu(r, get(json, "gpu"));
    read_counters(r, json);
    check_has(r, json, "scopes");
    read_rows(r, &report->root, json, "scopes");
    if (has_events && r->status >= 0) read_events_of_profile(r, json);
    if (report->timeline) kn__timeline_sort(report->timeline);
    kn__report_sum(report);
}

/* Where the packet of a Perfetto trace that begins at `at` ends: it is the tag of field 1, a length
 * of seven bits a byte, and so many bytes. 0: there is no packet. */
static size_t packet_end(const char *text, size_t at, size_t n) {
    enum { TAG = 1 << 3 | KN__PB_BYTES };
    bool more = at < n && text[at++] == TAG;
    if (!more) return 0;
    uint64_t length = 0;
    for (int shift = 0; more && at < n && shift < 64; shift += 7) {
        length |= (uint64_t)(text[at] & 0x7f) << shift;
        more = text[at++] & 0x80;
    }
    return !more && length <= n - at ? at + (size_t)length : 0;
}

/* Only for files that are no JSON: there the tag is the end of a line, and may stand first. */
static bool is_perfetto(const char *text, size_t n) {
    size_t at = 0;
    for (size_t end; (end = packet_end(text, at, n)) > 0;) at = end;
    return at > 0 && (at == n || text[at] == text[0]); /* the last one may be cut off */
}

static kn_status fail_perfetto(const char *name) {
    return KN_FAIL(KN_ERR_FORMAT,
                   "%s is a trace for Perfetto, which ui.perfetto.dev shows; this program reads "
                   "traces in JSON, which KNET_TIMER=trace=FILE.json writes",
                   name);
}

static kn_status not_json(const char *name, const char *text, size_t n, const char *end) {
    size_t at = end && end >= text && end <= text + n ? (size_t)(end - text) : 0;
    while (n > 0 && text[n - 1] && strchr(" \t\r\n", text[n - 1])) n--;
    if (n == 0) return KN_FAIL(KN_ERR_FORMAT, "%s is empty", name);
    if (is_perfetto(text, n)) return fail_perfetto(name);
    if (at >= n)
        return KN_FAIL(KN_ERR_FORMAT, "%s is cut off: JSON that ends at byte %zu", name, n);
    return KN_FAIL(KN_ERR_FORMAT,
                   "%s is no JSON, is cut off or nested too deep: at byte %zu of %zu", name, at, n);
}

/* Bytes of a text without what separates its last line from the next. */
static size_t without_separator(const char *text, size_t n) {
    while (n > 0 && (text[n - 1] == ',' || text[n - 1] == '\n')) n--;
    return n;
}

/* A trace of ours that has no end: complete lines, of an event each, and perhaps a part of one.
 * NULL: it is no such file. */
static cJSON *parse_cut(const char *text, size_t n) {
    static const char head[] = KN__TRACE_JSON_HEAD, end[] = KN__TRACE_JSON_END "0}";
    if (n < sizeof head || memcmp(text, head, sizeof head - 1) != 0) return NULL;
    char *whole = malloc(n + sizeof end);
    cJSON *json = NULL;
    for (int part = 0; whole && !json && part < 2; part++) {
        while (part && n > 0 && text[n - 1] != '\n') n--;
        n = without_separator(text, n);
        memcpy(whole, text, n);
        memcpy(whole + n, end, sizeof end - 1);
        json = cJSON_ParseWithLength(whole, n + sizeof end - 1);
    }
    free(whole);
    return json;
}

kn_status kn__report_parse(kn__report *out, const char *name, const char *text, size_t n) {
    kn__report_init(out);
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(text, n, &end, 0);
    reader r = {.name = name, .report = out};
    if (!json) {
        json = parse_cut(text, n);
        if (!json) return not_json(name, text, n, end);
        out->trace_cut = true;
        end = text + n;
    }
    while (end < text + n && strchr(" \t\r\n", *end) && *end) end++;
    if (end < text + n) {
        r.status = is_perfetto(text, n)
                       ? fail_perfetto(name)
                       : KN_FAIL(KN_ERR_FORMAT,
                                 "%s has more after the end of the JSON: at byte %zu of %zu", name,
                                 (size_t)(end - text), n);
    } else {
        read_all(&r, json);
    }
    cJSON_Delete(json);
    return r.status;
}
