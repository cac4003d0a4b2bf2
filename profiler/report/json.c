#include "json.h"

#include <inttypes.h>
#include <string.h>

#include "counters.h"
#include "fields.h"

/* Before a key, unless it is the first. */
static const char *comma(const kn__text *text) {
    return text->length && text->data[text->length - 1] == '{' ? "" : ",";
}

static void add_unsigned(kn__text *text, const char *key, uint64_t value) {
    kn__text_printf(text, "%s\"%s\":%" PRIu64, comma(text), key, value);
}

static void add_signed(kn__text *text, const char *key, int64_t value) {
    kn__text_printf(text, ",\"%s\":%" PRId64, key, value);
}

static void add_bool(kn__text *text, const char *key, bool value) {
    kn__text_printf(text, ",\"%s\":%s", key, value ? "true" : "false");
}

static void add_fields(kn__text *text, const kn__field *fields, const void *of) {
    for (const kn__field *f = fields; f->key; f++) {
        const char *at = (const char *)of + f->offset;
        f->is_signed ? add_signed(text, f->key, *(const int64_t *)(const void *)at)
                     : add_unsigned(text, f->key, *(const uint64_t *)(const void *)at);
    }
}

static void add_memory(kn__text *text, const kn__row *row) {
    add_fields(text, kn__row_amounts, row);
    add_signed(text, "net_bytes", (int64_t)(row->alloc_bytes - row->freed_bytes));
    add_fields(text, kn__row_holdings, row);
    add_bool(text, "peak_exact", kn__row_peak_exact(row));
}

/* The bins as [ns, calls]. */
static void add_times(kn__text *text, const kn__row *row) {
    if (!row->times) return;
    kn__text_printf(text, ",\"p50_ns\":%.0f,\"p99_ns\":%.0f,\"times\":[",
                    kn__row_percentile(row, 0.5), kn__row_percentile(row, 0.99));
    for (int i = 0; i < row->times->n; i++) {
        const kn__time_bin *bin = &row->times->bins[i];
        kn__text_printf(text, "%s[%.17g,%" PRIu64 "]", i ? "," : "", bin->ns, bin->n);
    }
    kn__text_puts(text, "]");
}

static void add_work(kn__text *text, const kn__report *report, const kn__row *row) {
    kn__rates rates = kn__row_rates(row);
    double of_peak = kn__row_of_peak(report, row);
    add_fields(text, kn__row_work, row);
    kn__text_printf(text, ",\"gflop_s\":%.6g,\"gbyte_s\":%.6g", rates.flops / 1e9,
                    rates.bytes / 1e9);
    if (of_peak > 0) kn__text_printf(text, ",\"of_peak\":%.4g", of_peak);
}

static void add_rows(kn__text *text, const kn__report *report, const kn__row *parent,
                     const char *begin);

static void add_row(kn__text *text, const kn__report *report, const kn__row *row) {
    kn__text_puts(text, "{\"label\":");
    kn__text_json(text, row->label);
    if (row->where) {
        kn__text_puts(text, ",\"file\":");
        kn__text_json(text, row->where);
    }
    add_fields(text, kn__row_calls, row);
    if (row->n_ended) { /* an open call has no length yet */
        add_unsigned(text, "n_ended", row->n_ended);
        kn__text_printf(text, ",\"ended_ns\":%.0f,\"sigma_ns\":%.1f", row->ended_ns,
                        kn__row_sigma(row));
    }
    add_times(text, row);
    if (row->first_start != UINT64_MAX) add_unsigned(text, "seen_at_ns", row->first_start);
    add_bool(text, "open", row->open);
    if (row->is_kernel) add_bool(text, "kernel", true);
    if (row->is_extra) add_bool(text, "extra", true);
    if (row->is_range) add_bool(text, "range", true);
    if (report->has_memory) add_memory(text, row);
    if (row->flops || row->moved_bytes) add_work(text, report, row);
    if (report->has_gpu) add_fields(text, kn__row_gpu, row);
    if (row->n_runs) {
        add_fields(text, kn__row_runs, row);
        kn__text_printf(text, ",\"run_mean_ns\":%.0f,\"imbalance\":%.4g",
                        kn__row_run_mean(report, row), kn__row_imbalance(report, row));
    }
    add_rows(text, report, row, ",\"children\":[");
    kn__text_puts(text, "}");
}

static void add_rows(kn__text *text, const kn__report *report, const kn__row *parent,
                     const char *begin) {
    kn__text_puts(text, begin);
    for (const kn__row *row = parent->first; row; row = row->next) {
        kn__text_puts(text, row == parent->first ? "\n" : ",\n");
        add_row(text, report, row);
    }
    kn__text_puts(text, "]");
}

static void add_pool(kn__text *text, const kn__pool_use *use) {
    kn__text_puts(text, "{\"name\":");
    kn__text_json(text, use->name);
    add_fields(text, kn__pool_fields, use);
    if (use->device_total) add_fields(text, kn__pool_device, use);
    kn__text_puts(text, "}");
}

/* When, in ns from the start, and the bytes: most since the one before, and then. */
static void add_live(kn__text *text, const kn__series *live) {
    kn__text_puts(text, ",\n\"live\":[");
    for (int i = 0; i < live->n; i++) {
        const kn__series_bin *bin = &live->bins[i];
        kn__text_printf(text, "%s[%" PRIu64 ",%" PRId64 ",%" PRId64 "]", i ? "," : "", bin->end,
                        bin->max, bin->last);
    }
    kn__text_puts(text, "]");
}

static void add_pools(kn__text *text, const kn__report *report) {
    kn__text_puts(text, "\n\"memory\":{\"unit\":\"bytes\"");
    add_fields(text, kn__totals_fields, report);
    add_live(text, &report->live);
    kn__text_puts(text, ",\n\"outside\":{\"label\":");
    kn__text_json(text, report->outside.label);
    add_memory(text, &report->outside);
    kn__text_puts(text, "},\"pools\":[");
    for (int i = 0; i < report->memory.n_pools; i++) {
        if (i) kn__text_puts(text, ",");
        add_pool(text, &report->memory.pools[i]);
    }
    kn__text_puts(text, "]},");
}

static void add_device(kn__text *text, const kn__gpu_device *use) {
    kn__text_puts(text, "\n{");
    add_fields(text, kn__gpu_device_fields, use);
    kn__text_puts(text, ",\"streams\":[");
    for (int i = 0; i < use->n_streams; i++) {
        kn__text_puts(text, i ? ",{" : "{");
        add_fields(text, kn__gpu_stream_fields, &use->streams[i]);
        kn__text_puts(text, "}");
    }
    kn__text_puts(text, "]}");
}

static void add_gpu(kn__text *text, const kn__report *report) {
    const kn__balance *b = &report->balance;
    kn__text_puts(text, "\n\"gpu\":{\"source\":");
    kn__text_json(text, b->source ? b->source : "none");
    if (b->notice) {
        kn__text_puts(text, ",\"notice\":");
        kn__text_json(text, b->notice);
    }
    add_fields(text, kn__balance_fields, b);
    kn__text_puts(text, ",\"devices\":[");
    for (int i = 0; i < report->gpu.n; i++) {
        if (i) kn__text_puts(text, ",");
        add_device(text, &report->gpu.devices[i]);
    }
    kn__text_puts(text, "]},");
}

static void add_text(kn__text *text, const char *key, const char *value) {
    if (!value) return;
    kn__text_printf(text, "%s\"%s\":", comma(text), key);
    kn__text_json(text, value);
}

static void add_run(kn__text *text, const kn__report *report) {
    kn__text_puts(text, ",\n\"run\":{");
    add_text(text, "command", report->run.command);
    add_text(text, "host", report->run.host);
    add_text(text, "version", report->run.version);
    add_text(text, "words", report->run.words);
    add_text(text, "notes", report->run.notes);
    if (report->n_runs > 1) add_unsigned(text, "n_runs", report->n_runs);
    if (report->peaks.flops > 0) {
        kn__text_printf(text, "%s\"peak_gflop_s\":%.6g,\"peak_gbyte_s\":%.6g", comma(text),
                        report->peaks.flops / 1e9, report->peaks.bytes / 1e9);
    }
    kn__text_puts(text, "}");
}

void kn__json_add(kn__text *text, const kn__report *report) {
    kn__text_printf(text, "{\"schema\":\"knet.prof\",\"version\":%d", KN__JSON_VERSION);
    add_unsigned(text, "wall_ns", report->wall_ns);
    add_unsigned(text, "measured_ns", report->root.time_ns);
    add_fields(text, kn__run_fields, report);
    add_bool(text, "buffer_full", report->buffer_full);
    if (report->trace_cut) add_bool(text, "trace_cut", true);
    add_run(text, report);
    kn__counters_add_json(text, &report->counters);
    kn__text_puts(text, ",\n\"steps\":{");
    add_fields(text, kn__steps_fields, &report->steps);
    kn__text_puts(text, "},");
    if (report->has_memory) add_pools(text, report);
    if (report->has_gpu) add_gpu(text, report);
    add_rows(text, report, &report->root, "\n\"scopes\":[");
    kn__text_puts(text, "}\n");
}
