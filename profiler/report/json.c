#include "json.h"

#include <inttypes.h>
#include <string.h>

static void add_key(kn__text *text, const char *key) { kn__text_printf(text, "\"%s\":", key); }

static void add_unsigned(kn__text *text, const char *key, uint64_t value) {
    kn__text_printf(text, ",\"%s\":%" PRIu64, key, value);
}

static void add_signed(kn__text *text, const char *key, int64_t value) {
    kn__text_printf(text, ",\"%s\":%" PRId64, key, value);
}

static void add_memory(kn__text *text, const kn__row *row) {
    add_unsigned(text, "alloc_bytes", row->alloc_bytes);
    add_unsigned(text, "n_allocs", row->n_allocs);
    add_unsigned(text, "temporary_bytes", row->temporary_bytes);
    add_unsigned(text, "n_temporary", row->n_temporary);
    add_unsigned(text, "freed_bytes", row->freed_bytes);
    add_signed(text, "net_bytes", (int64_t)(row->alloc_bytes - row->freed_bytes));
    add_signed(text, "held_bytes", row->held);
    add_signed(text, "held_at_peak_bytes", row->held_at_peak);
    add_signed(text, "peak_bytes", row->peak);
    add_signed(text, "rise_bytes", row->rise);
    kn__text_printf(text, ",\"peak_exact\":%s", kn__row_peak_exact(row) ? "true" : "false");
}

static void add_row(kn__text *text, const kn__report *report, const kn__row *row) {
    kn__text_puts(text, "{\"label\":");
    kn__text_json(text, row->label);
    add_unsigned(text, "n_calls", row->n_calls);
    add_unsigned(text, "time_ns", row->time_ns);
    add_unsigned(text, "min_ns", row->min_ns);
    add_unsigned(text, "max_ns", row->max_ns);
    add_unsigned(text, "first_ns", row->first_ns);
    if (row->n_ended) { /* an open call has no length yet */
        add_unsigned(text, "n_ended", row->n_ended);
        kn__text_printf(text, ",\"ended_ns\":%.0f,\"sigma_ns\":%.1f", row->ended_ns,
                        kn__row_sigma(row));
    }
    if (row->first_start != UINT64_MAX) add_unsigned(text, "seen_at_ns", row->first_start);
    kn__text_printf(text, ",\"open\":%s", row->open ? "true" : "false");
    if (row->is_kernel) kn__text_puts(text, ",\"kernel\":true");
    if (row->is_extra) kn__text_puts(text, ",\"extra\":true");
    if (report->has_memory) add_memory(text, row);
    if (report->has_gpu) {
        add_unsigned(text, "gpu_ns", row->gpu_ns);
        add_unsigned(text, "n_gpu", row->n_gpu);
        add_unsigned(text, "n_pending", row->n_pending);
        add_unsigned(text, "gpu_bytes", row->gpu_bytes);
    }
    kn__text_puts(text, ",\"children\":[");
    for (const kn__row *child = row->first; child; child = child->next) {
        if (child != row->first) kn__text_puts(text, ",");
        kn__text_puts(text, "\n");
        add_row(text, report, child);
    }
    kn__text_puts(text, "]}");
}

static void add_pool(kn__text *text, const kn__pool_use *use) {
    kn__text_puts(text, "{\"name\":");
    kn__text_json(text, use->name);
    add_signed(text, "live_bytes", use->live);
    add_signed(text, "live_bytes_max", use->live_max);
    add_unsigned(text, "reserved_bytes", use->reserved);
    add_unsigned(text, "reserved_bytes_max", use->reserved_max);
    add_unsigned(text, "n_allocs", use->n_allocs);
    add_unsigned(text, "n_ooms", use->n_ooms);
    add_signed(text, "leaked_bytes", use->leaked);
    if (use->device_total) {
        add_unsigned(text, "device_used_bytes", use->device_used);
        add_unsigned(text, "device_total_bytes", use->device_total);
    }
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
    add_signed(text, "live_bytes", report->memory.live);
    add_signed(text, "live_bytes_max", report->memory.live_max);
    add_unsigned(text, "live_bytes_max_at_ns", report->live.max_at);
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

static void add_gpu(kn__text *text, const kn__balance *b) {
    kn__text_puts(text, "\n\"gpu\":{\"source\":");
    kn__text_json(text, b->source ? b->source : "none");
    if (b->notice) {
        kn__text_puts(text, ",\"notice\":");
        kn__text_json(text, b->notice);
    }
    add_unsigned(text, "launched", b->launched);
    add_unsigned(text, "timed", b->timed);
    add_unsigned(text, "pending", b->pending);
    add_unsigned(text, "dropped", b->dropped);
    add_unsigned(text, "untimed", b->untimed);
    add_unsigned(text, "unattributed_ns", b->unattributed_ns);
    add_unsigned(text, "n_unattributed", b->n_unattributed);
    add_unsigned(text, "n_lost", b->n_lost);
    kn__text_puts(text, "},");
}

void kn__json_add(kn__text *text, const kn__report *report) {
    kn__text_printf(text, "{\"schema\":\"knet.prof\",\"version\":%d", KN__JSON_VERSION);
    add_unsigned(text, "wall_ns", report->wall_ns);
    add_unsigned(text, "measured_ns", report->root.time_ns);
    add_unsigned(text, "n_threads", report->n_threads);
    add_unsigned(text, "n_unrecorded", report->n_unrecorded);
    add_unsigned(text, "buffer_bytes", report->buffer_bytes);
    kn__text_printf(text, ",\"buffer_full\":%s", report->buffer_full ? "true" : "false");
    kn__text_printf(text, ",\n\"steps\":{\"n\":%" PRIu64, report->steps.n);
    add_unsigned(text, "n_timed", report->steps.n_timed);
    add_unsigned(text, "sum_ns", report->steps.sum_ns);
    add_unsigned(text, "min_ns", report->steps.min_ns);
    add_unsigned(text, "max_ns", report->steps.max_ns);
    kn__text_puts(text, "},");
    if (report->has_memory) add_pools(text, report);
    if (report->has_gpu) add_gpu(text, &report->balance);
    kn__text_puts(text, "\n");
    add_key(text, "scopes");
    kn__text_puts(text, "[");
    for (const kn__row *row = report->root.first; row; row = row->next) {
        if (row != report->root.first) kn__text_puts(text, ",");
        kn__text_puts(text, "\n");
        add_row(text, report, row);
    }
    kn__text_puts(text, "]}\n");
}
