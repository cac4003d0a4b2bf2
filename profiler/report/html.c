#include "html.h"

#include <inttypes.h>
#include <string.h>

#include "html_counters.h"
#include "html_page.h"
#include "html_timeline.h"

/* page.html, which the build puts here; ends in a zero byte. */
extern const unsigned char kn__html_page[];

static const char placeholder[] = "@DATA@";
enum { LABELS_MIN = 64, NUMBER_BYTES = 24, ROW_VALUES = 15 };

/* Which labels there are, each once: most rows share theirs with others. */
typedef struct label_slot {
    uint64_t key;
    const char *label;
    uint64_t number;
} label_slot;

void kn__page_number(kn__text *text, uint64_t n) {
    char digits[NUMBER_BYTES], *at = digits + sizeof digits;
    do {
        *--at = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    kn__text_add(text, at, (size_t)(digits + sizeof digits - at));
}

void kn__page_string(kn__text *text, const char *string) {
    kn__text json = {0};
    kn__text_json(&json, string);
    for (const char *at = json.data; at && *at;) {
        size_t n = strcspn(at, "<");
        kn__text_add(text, at, n);
        at += n;
        if (*at != '<') continue;
        kn__text_puts(text, "\\u003c");
        at++;
    }
    text->failed |= json.failed;
    kn__text_release(&json);
}

uint64_t kn__page_label(kn__page *p, const char *label) {
    uint64_t key = kn__hash_text(0, label);
    if (kn__hash_is_full(&p->labels) &&
        !kn__hash_grow(&p->labels, sizeof(label_slot), LABELS_MIN)) {
        p->text->failed = true;
        return 0;
    }
    label_slot *at = kn__hash_find(&p->labels, sizeof *at, key);
    while (at->key && strcmp(at->label, label) != 0) {
        at = kn__hash_after(&p->labels, sizeof *at, at);
    }
    if (at->key) return at->number;
    kn__hash_use(&p->labels, at, key);
    at->label = label;
    at->number = p->n_labels++;
    if (at->number) kn__text_puts(&p->names, ",");
    kn__page_string(&p->names, label);
    return at->number;
}

uint64_t kn__page_kernel(kn__page *p, const char *label) {
    const char *shown = kn__names_get(&p->kernels, label);
    return kn__page_label(p, shown ? shown : label);
}

/* Zeros at the end are left out. */
static void add_row(kn__page *p, const kn__row *row) {
    uint64_t values[ROW_VALUES] = {
        (uint64_t)row->depth,
        row->is_kernel ? kn__page_kernel(p, row->label) : kn__page_label(p, row->label),
        row->is_kernel ? row->n_gpu : row->n_calls,
        row->time_ns,
        row->gpu_ns,
        row->alloc_bytes,
        row->peak > 0 ? (uint64_t)row->peak : 0,
        row->min_ns,
        (uint64_t)kn__row_percentile(row, 0.5),
        (uint64_t)kn__row_percentile(row, 0.99),
        row->max_ns,
        row->is_extra    ? 2
        : row->is_range  ? 3
        : row->is_kernel ? 1
                         : 0,
        row->flops,
        row->moved_bytes,
        row->where ? kn__page_label(p, row->where) + 1 : 0,
    };
    int n = ROW_VALUES;
    while (n > 3 && !values[n - 1]) n--;
    kn__text_add(p->text, p->first ? "\n[" : ",\n[", p->first ? 2 : 3);
    p->first = false;
    for (int i = 0; i < n; i++) {
        if (i) kn__text_add(p->text, ",", 1);
        kn__page_number(p->text, values[i]);
    }
    kn__text_add(p->text, "]", 1);
}

static void add_rows(kn__page *p, const kn__row *row) {
    for (; row; row = row->next) {
        add_row(p, row);
        add_rows(p, row->first);
    }
}

static void add_run(kn__text *text, const kn__run_info *run) {
    const char *const keys[] = {"command", "host", "version", "words", "notes"};
    const char *const values[] = {run->command, run->host, run->version, run->words, run->notes};
    const char *separator = "";
    kn__text_puts(text, "{\"run\":{");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!values[i]) continue;
        kn__text_printf(text, "%s\"%s\":", separator, keys[i]);
        kn__page_string(text, values[i]);
        separator = ",";
    }
    kn__text_puts(text, "}");
}

static void add_memory(kn__text *text, const kn__report *report) {
    kn__text_printf(text, ",\n\"most\":%" PRId64 ",\"most_at\":%" PRIu64 ",\"live\":[",
                    report->memory.live_max, report->live.max_at);
    for (int i = 0; i < report->live.n; i++) {
        const kn__series_bin *bin = &report->live.bins[i];
        kn__text_printf(text, "%s[%" PRIu64 ",%" PRId64 ",%" PRId64 "]", i ? "," : "", bin->end,
                        bin->max, bin->last);
    }
    kn__text_puts(text, "],\"owners\":[");
    for (int i = 0; i < report->n_owners; i++) {
        kn__text_puts(text, i ? ",[" : "[");
        kn__page_string(text, report->owners[i].path);
        kn__text_printf(text, ",%" PRId64 "]", report->owners[i].bytes);
    }
    kn__text_puts(text, "]");
}

static void add_gpus(kn__text *text, const kn__gpu_use *gpu) {
    kn__text_puts(text, ",\n\"gpus\":[");
    for (int i = 0; i < gpu->n; i++) {
        const kn__gpu_device *use = &gpu->devices[i];
        kn__text_printf(text, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%d]", i ? "," : "",
                        use->device, use->busy_ns, use->idle_ns, use->n_streams);
    }
    kn__text_puts(text, "]");
}

static void add_data(kn__page *p, const kn__report *report) {
    const kn__steps *steps = &report->steps;
    add_run(p->text, &report->run);
    kn__text_printf(p->text, ",\"wall\":%" PRIu64 ",\"threads\":%" PRIu64 ",\"steps\":%" PRIu64,
                    report->wall_ns, report->n_threads, steps->n);
    kn__text_printf(p->text, ",\"step\":%" PRIu64,
                    steps->n_timed ? steps->sum_ns / steps->n_timed : 0);
    if (report->has_memory || report->live.n) add_memory(p->text, report);
    add_gpus(p->text, &report->gpu);
    kn__html_counters_add(p, report);
    kn__text_puts(p->text, ",\n\"rows\":[");
    p->first = true;
    add_rows(p, report->root.first);
    kn__text_puts(p->text, "]");
    if (report->timeline) kn__html_timeline_add(p, report->timeline);
    kn__text_puts(p->text, ",\n\"labels\":[");
    kn__text_puts(p->text, p->names.data ? p->names.data : "");
    kn__text_puts(p->text, "]}");
}

void kn__html_add(kn__text *text, const kn__report *report) {
    kn__page p = {.text = text};
    const char *whole = (const char *)kn__html_page, *at = strstr(whole, placeholder);
    kn__text_add(text, whole, (size_t)(at - whole));
    kn__names_add_kernels(&p.kernels, report->root.first);
    kn__names_settle(&p.kernels);
    add_data(&p, report);
    kn__text_puts(text, at + sizeof placeholder - 1);
    text->failed |= p.names.failed;
    kn__text_release(&p.names);
    kn__hash_release(&p.labels);
    kn__names_release(&p.kernels);
}
