#include "metrics.h"

#include <inttypes.h>
#include <string.h>

#include "counters.h"

enum { NOTES_MAX = 16 }; /* as kn_prof_note takes */

/* How a number is shown: as it is, or nanoseconds as seconds. */
typedef enum unit { PLAIN, SECONDS } unit;

/* A family of the rows or the pools: its samples stand together. */
typedef struct family {
    const char *name; /* ends in its unit, a counter's in "_total" after it */
    const char *type, *help;
    unit unit;
    bool of_memory;
    size_t offset; /* of a uint64_t or int64_t */
} family;

#define ROW(field) offsetof(kn__row, field)
static const family of_rows[] = {
    {"knet_scope_calls_total", "counter", "Calls of the scope.", PLAIN, false, ROW(n_calls)},
    {"knet_scope_time_seconds_total", "counter", "Time in the scope, rows below it included.",
     SECONDS, false, ROW(time_ns)},
    {"knet_scope_gpu_seconds_total", "counter", "GPU time of what the scope launched.", SECONDS,
     false, ROW(gpu_ns)},
    {"knet_scope_allocated_bytes_total", "counter", "Bytes allocated in the scope.", PLAIN, true,
     ROW(alloc_bytes)},
    {"knet_scope_allocations_total", "counter", "Allocations in the scope.", PLAIN, true,
     ROW(n_allocs)},
    {"knet_scope_held_bytes", "gauge", "Live bytes that the scope allocated.", PLAIN, true,
     ROW(held)},
    {"knet_scope_peak_bytes", "gauge", "Most bytes that were live while the scope was open.", PLAIN,
     true, ROW(peak)},
};

#define POOL(field) offsetof(kn__pool_use, field)
static const family of_pools[] = {
    {"knet_pool_live_bytes", "gauge", "Bytes in use.", PLAIN, true, POOL(live)},
    {"knet_pool_live_peak_bytes", "gauge", "Most bytes that were in use.", PLAIN, true,
     POOL(live_max)},
    {"knet_pool_reserved_bytes", "gauge", "Bytes taken from the device.", PLAIN, true,
     POOL(reserved)},
    {"knet_pool_reserved_peak_bytes", "gauge", "Most bytes taken from the device.", PLAIN, true,
     POOL(reserved_max)},
    {"knet_pool_allocations_total", "counter", "Allocations.", PLAIN, true, POOL(n_allocs)},
    {"knet_pool_out_of_memory_total", "counter", "Allocations that failed.", PLAIN, true,
     POOL(n_ooms)},
};
enum {
    N_OF_ROWS = sizeof of_rows / sizeof *of_rows,
    N_OF_POOLS = sizeof of_pools / sizeof *of_pools
};

/* --- pieces --- */

static void add_head(kn__text *text, const char *name, const char *type, const char *help) {
    kn__text_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A control character is "\x0A", as a byte that is not UTF-8: labels that differ stay different. */
static void add_escaped(kn__text *text, const char *string) {
    kn__text clean = {0};
    kn__text_utf8(&clean, string);
    for (const char *s = clean.data; s && *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f) {
            kn__text_printf(text, "\\\\x%02X", (unsigned)*s);
            continue;
        }
        if (*s == '"' || *s == '\\') kn__text_puts(text, "\\");
        kn__text_add(text, s, 1);
    }
    text->failed |= clean.failed;
    kn__text_release(&clean);
}

static void add_label(kn__text *text, const char *key, const char *value) {
    kn__text_printf(text, "%s=\"", key);
    add_escaped(text, value);
    kn__text_puts(text, "\"");
}

/* A slash in a label is "\/", a backslash "\\": each row has a path of its own. */
static void add_parts(kn__text *text, const kn__row *row) {
    if (row->depth > 1) {
        add_parts(text, row->parent);
        kn__text_puts(text, "/");
    }
    for (const char *s = row->label; *s; s++) {
        if (*s == '/' || *s == '\\') kn__text_puts(text, "\\");
        kn__text_add(text, s, 1);
    }
}

static void add_path(kn__text *text, const kn__row *row) {
    kn__text path = {0};
    add_parts(&path, row);
    add_label(text, "path", path.data && !path.failed ? path.data : "");
    if (row->is_range) kn__text_puts(text, ",kind=\"range\"");
    text->failed |= path.failed;
    kn__text_release(&path);
}

static void add_seconds(kn__text *text, double ns) { kn__text_printf(text, " %.9g\n", ns / 1e9); }

/* Counters are never below 0; a gauge may be. */
static void add_value(kn__text *text, const family *f, const void *of) {
    const char *at = (const char *)of + f->offset;
    int64_t value = *(const int64_t *)(const void *)at;
    if (f->unit == SECONDS) {
        add_seconds(text, (double)value);
    } else {
        kn__text_printf(text, " %" PRId64 "\n", value);
    }
}

/* --- rows --- */

static void add_rows(kn__text *text, const family *f, const kn__row *parent) {
    for (const kn__row *row = parent->first; row; row = row->next) {
        kn__text_printf(text, "%s{", f->name);
        add_path(text, row);
        kn__text_puts(text, "}");
        add_value(text, f, row);
        add_rows(text, f, row);
    }
}

static void add_quantile(kn__text *text, const kn__row *row, const char *quantile, double part) {
    kn__text_puts(text, "knet_scope_call_seconds{");
    add_path(text, row);
    kn__text_printf(text, ",quantile=\"%s\"}", quantile);
    add_seconds(text, kn__row_percentile(row, part));
}

static void add_calls(kn__text *text, const kn__row *parent) {
    for (const kn__row *row = parent->first; row; row = row->next) {
        if (row->times) {
            add_quantile(text, row, "0.5", 0.5);
            add_quantile(text, row, "0.99", 0.99);
            kn__text_puts(text, "knet_scope_call_seconds_count{");
            add_path(text, row);
            kn__text_printf(text, "} %" PRIu64 "\nknet_scope_call_seconds_sum{", row->n_ended);
            add_path(text, row);
            kn__text_puts(text, "}");
            add_seconds(text, row->ended_ns);
        }
        add_calls(text, row);
    }
}

static void add_tree(kn__text *text, const kn__report *report) {
    for (int i = 0; i < N_OF_ROWS; i++) {
        const family *f = &of_rows[i];
        if (f->of_memory && !report->has_memory) continue;
        add_head(text, f->name, f->type, f->help);
        add_rows(text, f, &report->root);
    }
    add_head(text, "knet_scope_call_seconds", "summary", "Time of one call.");
    add_calls(text, &report->root);
}

/* --- counters of the program --- */

#define VALUE(field) offsetof(kn__counter, field)
static const family of_counters[] = {
    {"knet_counter_samples_total", "counter", "Samples of the counter.", PLAIN, false, VALUE(n)},
    {"knet_counter_last", "gauge", "Last value of the counter.", PLAIN, false, VALUE(last)},
    {"knet_counter_min", "gauge", "Least value of the counter.", PLAIN, false, VALUE(min)},
    {"knet_counter_max", "gauge", "Largest value of the counter.", PLAIN, false, VALUE(max)},
    {"knet_counter_mean", "gauge", "Mean of the samples.", PLAIN, false, VALUE(mean)},
};
enum { N_OF_COUNTERS = sizeof of_counters / sizeof *of_counters };

/* A counter without a value has no gauges. */
static void add_counter(kn__text *text, const family *f, const kn__counter *c) {
    bool is_gauge = f->type[0] == 'g';
    if (is_gauge && !c->n) return;
    kn__text_printf(text, "%s{", f->name);
    add_label(text, "counter", c->name);
    kn__text_puts(text, ",");
    add_label(text, "unit", c->unit);
    kn__text_puts(text, "}");
    if (is_gauge) {
        kn__text_puts(text, " ");
        kn__counter_value(text, *(const long double *)(const void *)((const char *)c + f->offset));
        kn__text_puts(text, "\n");
    } else {
        add_value(text, f, c);
    }
}

static void add_counters(kn__text *text, const kn__counters *counters) {
    for (int i = 0; counters->n && i < N_OF_COUNTERS; i++) {
        const family *f = &of_counters[i];
        add_head(text, f->name, f->type, f->help);
        for (int j = 0; j < counters->n; j++) add_counter(text, f, &counters->all[j]);
    }
}

/* --- pools, GPUs, the run --- */

static void add_pools(kn__text *text, const kn__memory_totals *memory) {
    for (int i = 0; i < N_OF_POOLS; i++) {
        const family *f = &of_pools[i];
        add_head(text, f->name, f->type, f->help);
        for (int j = 0; j < memory->n_pools; j++) {
            const kn__pool_use *pool = &memory->pools[j];
            kn__text_printf(text, "%s{", f->name);
            add_label(text, "pool", pool->name);
            kn__text_printf(text, ",number=\"%d\"}", j); /* names may be alike */
            add_value(text, f, pool);
        }
    }
}

static void add_gpus(kn__text *text, const kn__gpu_use *gpu) {
    if (!gpu->n) return;
    add_head(text, "knet_gpu_busy_seconds_total", "counter", "Time in which some stream had work.");
    for (int i = 0; i < gpu->n; i++) {
        kn__text_printf(text, "knet_gpu_busy_seconds_total{device=\"%" PRIu64 "\"}",
                        gpu->devices[i].device);
        add_seconds(text, (double)gpu->devices[i].busy_ns);
    }
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* As the name of a label: what can't be in one is "__2D", and so is a '_' that is not between
 * letters and digits: keys that differ stay different. */
static void add_note_name(kn__text *text, const char *key, size_t n) {
    kn__text_puts(text, "note_");
    for (size_t i = 0; i < n; i++) {
        bool is_inside = i > 0 && i + 1 < n && is_word(key[i - 1]) && is_word(key[i + 1]);
        if (is_word(key[i]) || (key[i] == '_' && is_inside)) {
            kn__text_add(text, &key[i], 1);
        } else {
            kn__text_printf(text, "__%02X", (unsigned char)key[i]);
        }
    }
}

/* Where the note's value ends: before the next ", key=". */
static const char *note_end(const char *value) {
    for (const char *at = strstr(value, ", "); at; at = strstr(at + 1, ", ")) {
        size_t n = strcspn(at + 2, "=,");
        if (n && at[2 + n] == '=') return at;
    }
    return value + strlen(value);
}

/* One "key=value" of the notes; not where a value made it look like a key that was there before:
 * a label may not come twice. */
static void add_note(kn__text *labels, const char *key, const char *value, const char *end) {
    kn__text name = {0}, shown = {0};
    kn__text_puts(&name, ",");
    add_note_name(&name, key, (size_t)(value - key) - 1);
    kn__text_puts(&name, "=\"");
    kn__text_add(&shown, value, (size_t)(end - value));
    bool is_new = name.data && !(labels->data && strstr(labels->data, name.data));
    if (is_new) {
        kn__text_puts(labels, name.data);
        add_escaped(labels, shown.data ? shown.data : "");
        kn__text_puts(labels, "\"");
    }
    labels->failed |= name.failed || shown.failed;
    kn__text_release(&name);
    kn__text_release(&shown);
}

static void add_notes(kn__text *text, const char *notes) {
    kn__text labels = {0};
    for (int i = 0; notes && *notes && i < NOTES_MAX; i++) {
        const char *equals = strchr(notes, '=');
        if (!equals) break;
        const char *end = note_end(equals + 1);
        add_note(&labels, notes, equals + 1, end);
        notes = *end ? end + 2 : end;
    }
    if (labels.length) kn__text_add(text, labels.data, labels.length);
    text->failed |= labels.failed;
    kn__text_release(&labels);
}

static void add_run(kn__text *text, const kn__report *report) {
    const kn__run_info *run = &report->run;
    add_head(text, "knet_run_info", "gauge", "What runs; always 1.");
    kn__text_puts(text, "knet_run_info{");
    add_label(text, "command", run->command ? run->command : "");
    kn__text_puts(text, ",");
    add_label(text, "host", run->host ? run->host : "");
    kn__text_puts(text, ",");
    add_label(text, "version", run->version ? run->version : "");
    add_notes(text, run->notes);
    kn__text_puts(text, "} 1\n");
    add_head(text, "knet_measured_seconds_total", "counter", "Time that was measured.");
    kn__text_puts(text, "knet_measured_seconds_total");
    add_seconds(text, (double)report->wall_ns);
    add_head(text, "knet_steps_total", "counter", "Iterations that ended.");
    kn__text_printf(text, "knet_steps_total %" PRIu64 "\n", report->steps.n);
}

void kn__metrics_add(kn__text *text, const kn__report *report) {
    add_run(text, report);
    add_tree(text, report);
    if (report->has_memory) add_pools(text, &report->memory);
    add_gpus(text, &report->gpu);
    add_counters(text, &report->counters);
}
