#include "notes.h"

#include <limits.h>
#include <string.h>

#include "counters.h"
#include "utf8.h"

enum { OWNER_COLUMN = 11 };

/* --- above --- */

static void add_balance(kn__text *text, const kn__balance *b) {
    if (!b->source) return;
    kn__text_printf(text,
                    " %s: launched %llu = timed %llu + pending %llu + dropped %llu + untimed %llu",
                    b->source, (unsigned long long)b->launched, (unsigned long long)b->timed,
                    (unsigned long long)b->pending, (unsigned long long)b->dropped,
                    (unsigned long long)b->untimed);
    if (b->pending) kn__text_puts(text, "; rows that end in + wait for some");
    if (b->n_unattributed) {
        kn__text_printf(text, "; %llu records (%s) belong to no scope",
                        (unsigned long long)b->n_unattributed,
                        kn__time_cell((double)b->unattributed_ns, true).text);
    }
    if (b->n_lost) {
        kn__text_printf(text, "; %llu records were lost", (unsigned long long)b->n_lost);
    }
    kn__text_puts(text, "\n");
    if (b->notice) kn__text_printf(text, " %s: %s\n", b->source, b->notice);
}

static void add_run(kn__text *text, const kn__report *r, bool ascii) {
    kn__text_printf(text, " %s", kn__time_cell((double)r->wall_ns, ascii).text);
    if (r->n_runs > 1) kn__text_printf(text, " in all of %llu runs", (unsigned long long)r->n_runs);
    if (r->n_threads > 1) kn__text_printf(text, ", %llu threads", (unsigned long long)r->n_threads);
    if (r->steps.n) kn__text_printf(text, ", %llu steps", (unsigned long long)r->steps.n);
    if (r->steps.n_timed) {
        double mean = (double)r->steps.sum_ns / (double)r->steps.n_timed;
        kn__text_printf(text, " of %s", kn__time_cell(mean, ascii).text);
        kn__text_printf(text, " (%s", kn__time_cell((double)r->steps.min_ns, ascii).text);
        kn__text_printf(text, " to %s)", kn__time_cell((double)r->steps.max_ns, ascii).text);
    }
    if (r->n_unrecorded) {
        kn__text_printf(text, ", %llu scopes not recorded (too deep or too many)",
                        (unsigned long long)r->n_unrecorded);
    }
    kn__text_puts(text, "\n");
}

/* Strict math alone is the default: a run without other notes has no line. */
static void add_noted(kn__text *text, const kn__report *r) {
    const char *notes = r->run.notes;
    if (!notes || !*notes || strcmp(notes, "math=strict") == 0) return;
    kn__text_puts(text, r->n_runs > 1 ? " first run: " : " run: ");
    kn__text_shown(text, notes, INT_MAX);
    kn__text_puts(text, "\n");
}

static void add_gpus(kn__text *text, const kn__report *r, bool ascii) {
    for (int i = 0; i < r->gpu.n; i++) {
        const kn__gpu_device *use = &r->gpu.devices[i];
        double busy = (double)use->busy_ns, span = busy + (double)use->idle_ns;
        kn__text_printf(text, " gpu %llu: busy %s", (unsigned long long)use->device,
                        kn__time_cell(busy, ascii).text);
        kn__text_printf(text, " (%s of the time since its first work), idle %s",
                        kn__percent_cell(busy, span).text,
                        kn__time_cell((double)use->idle_ns, ascii).text);
        if (use->n_streams > 1) kn__text_printf(text, "; %d streams", use->n_streams);
        kn__text_puts(text, "\n");
    }
}

static void add_full(kn__text *text, const kn__report *report) {
    if (!report->buffer_full) return;
    kn__text_printf(text,
                    " the timer's own memory (%s) was full, this table is not complete: raise "
                    "KNET_TIMER=buf=\n",
                    kn__bytes_text((double)report->buffer_bytes).text);
}

/* A trace says how many there are, not why. */
static void add_skipped(kn__text *text, const kn__report *r) {
    uint64_t n = r->n_events_skipped;
    const char *words = !r->buffer_bytes              ? "trace_max= or buf="
                        : r->n_events_unbuffered == n ? "buf="
                        : r->n_events_unbuffered == 0 ? "trace_max="
                                                      : "trace_max= and buf=";
    if (r->trace_cut)
        kn__text_puts(text, " the trace is cut off: its program was killed, or still runs\n");
    if (n) {
        kn__text_printf(text, " the trace lacks %llu events: raise KNET_TIMER=%s\n",
                        (unsigned long long)n, words);
    }
}

/* The reserved bytes of another allocator's heap are not known. */
static void add_reserved(kn__text *text, const kn__pool_use *use, uint64_t bytes) {
    if (!use->reserved_max && use->live_max) return;
    kn__text_printf(text, ", %s reserved", kn__bytes_text((double)bytes).text);
}

static void add_left_out(kn__text *text, const kn__memory_totals *memory) {
    if (!memory->n_pools_left_out) return;
    kn__text_printf(text, " %llu more pools have no line: at most %d at once have one\n",
                    (unsigned long long)memory->n_pools_left_out, KN__POOLS_MAX - 1);
}

static void add_pools(kn__text *text, const kn__report *report) {
    for (int i = 0; i < report->memory.n_pools; i++) {
        const kn__pool_use *use = &report->memory.pools[i];
        kn__text_puts(text, " ");
        kn__text_shown(text, use->name, INT_MAX);
        kn__text_printf(text, ": high-water mark %s live",
                        kn__bytes_text((double)use->live_max).text);
        add_reserved(text, use, use->reserved_max);
        if (report->n_runs > 1) kn__text_puts(text, " in one run");
        kn__text_printf(text, "; now %s live", kn__bytes_text((double)use->live).text);
        add_reserved(text, use, use->reserved);
        if (report->n_runs > 1) kn__text_puts(text, " in all");
        if (use->leaked) {
            kn__text_printf(text, "; %s live when it was destroyed",
                            kn__bytes_text((double)use->leaked).text);
        }
        if (use->device_total) {
            kn__text_printf(text, "; then %s of the device's ",
                            kn__bytes_text((double)use->device_used).text);
            kn__text_printf(text, "%s were in use", kn__bytes_text((double)use->device_total).text);
        }
        if (use->n_ooms) {
            kn__text_printf(text, "; out of memory %llu times", (unsigned long long)use->n_ooms);
        }
        kn__text_puts(text, "\n");
    }
}

bool kn__report_used_memory(const kn__report *report) {
    if (!report->has_memory) return false;
    const kn__memory_totals *m = &report->memory;
    return report->root.alloc_bytes || report->outside.alloc_bytes || m->live_max > 0 ||
           report->balance.external.n_allocs || report->root.peak > 0;
}

void kn__notes_add_head(kn__text *text, const kn__report *report,
                        const kn__table_options *options) {
    kn__text lines = {0};
    add_balance(&lines, &report->balance);
    add_run(&lines, report, options->ascii);
    add_noted(&lines, report);
    add_gpus(&lines, report, options->ascii);
    add_full(&lines, report);
    add_skipped(&lines, report);
    if (kn__report_used_memory(report)) add_pools(&lines, report);
    if (report->has_memory) add_left_out(&lines, &report->memory);
    kn__text_wrapped(text, &lines, options->width);
}

/* --- below --- */

static bool has_bound(const kn__row *row) {
    for (; row; row = row->next) {
        if (!row->is_extra && (!kn__row_peak_exact(row) || has_bound(row->first))) return true;
    }
    return false;
}

/* Explains each sign that the table has. */
static void add_legend(kn__text *text, const kn__report *report, const kn__table_lines *lines,
                       bool has_peaks, const kn__table_options *options) {
    kn__text line = {0};
    const char *separator = " ";
#define SAY(...)                                                                                   \
    (kn__text_puts(&line, separator), kn__text_printf(&line, __VA_ARGS__), separator = "; ")
    if (!report->root.first) {
        SAY("scopes: KN_SCOPE of <knet/prof.h>; NVTX ranges, under knet run; knetc.scope of "
            "Python");
    }
    if (lines->has_own) SAY("own: time without the rows inside");
    if (lines->has_share && kn__report_is_parallel(report)) {
        unsigned long long n = (unsigned long long)report->n_threads;
        SAY("%%tot: of the run, of %llu threads up to %llu %%", n, 100 * n);
    }
    if (lines->has_runs) SAY("least, mean, most: in one run; imbal: the slowest above the mean");
    if (report->n_runs > 1) SAY("in: the slowest run, from 0");
    if (lines->joined) SAY("a %s b: b is all that a calls", options->ascii ? ">" : "›");
    if (report->has_ranges) SAY("(range): timed by itself, in no other row's time");
    if (lines->n_small) SAY("(n below x): small rows summed up, min=0 shows all");
    if (lines->has_rates) SAY("flop/s, B/s: what the ops computed and moved, by time");
    if (has_peaks) {
        SAY("peak: most bytes live while open");
        if (has_bound(report->root.first)) SAY("~: at least");
    }
    if (report->root.n_pending) SAY("+: GPU work not timed yet");
#undef SAY
    if (line.length) kn__text_puts(&line, "\n");
    kn__text_wrapped(text, &line, options->width);
}

static void add_owners(kn__text *text, const kn__owner *owners, int n, int width) {
    int columns = width > OWNER_COLUMN + 8 ? width - OWNER_COLUMN : width > 0 ? 8 : 0;
    for (int i = 0; i < n; i++) {
        kn__text_right(text, kn__bytes_cell((double)owners[i].bytes).text, OWNER_COLUMN - 2);
        kn__text_puts(text, "  ");
        kn__text_end(text, owners[i].path, columns);
        kn__text_puts(text, "\n");
    }
}

void kn__notes_add_foot(kn__text *text, const kn__report *report, const kn__table_lines *lines,
                        bool has_peaks, const kn__table_options *options) {
    add_legend(text, report, lines, has_peaks, options);
    kn__counters_add_table(text, &report->counters, options->width);
    if (!report->has_memory) return;
    if (report->n_owners) {
        kn__text_printf(text, " at the high-water mark of %s:\n",
                        kn__bytes_text((double)report->memory.live_max).text);
    }
    add_owners(text, report->owners, report->n_owners, options->width);
    if (report->n_holders) kn__text_puts(text, " not freed:\n");
    add_owners(text, report->holders, report->n_holders, options->width);
}
