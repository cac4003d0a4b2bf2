#include "table.h"

#include <stdio.h>
#include <string.h>

#include "name.h"

enum { LABEL_MIN = 9, LABEL_WISH = 24, PATH_BYTES = 512 };

typedef enum group { GROUP_TIME, GROUP_GPU, GROUP_MEMORY, N_GROUPS } group;

typedef enum column_id {
    TIME,
    TIME_PCT,
    TIME_AVG,
    TIME_MIN,
    TIME_MAX,
    TIME_SIGMA,
    TIME_FIRST,
    GPU,
    GPU_PCT,
    GPU_AVG,
    ALLOC,
    ALLOC_PCT,
    ALLOC_AVG,
    PEAK,
    N_COLUMNS
} column_id;

typedef struct column {
    group group;
    int lead, width; /* spaces before it, its own characters */
    const char *head;
} column;

static const column columns[N_COLUMNS] = {
    [TIME] = {GROUP_TIME, 3, 6, "time"},        [TIME_PCT] = {GROUP_TIME, 2, 5, "%tot"},
    [TIME_AVG] = {GROUP_TIME, 2, 6, "avg"},     [TIME_MIN] = {GROUP_TIME, 2, 6, "min"},
    [TIME_MAX] = {GROUP_TIME, 2, 6, "max"},     [TIME_SIGMA] = {GROUP_TIME, 2, 6, "σ"},
    [TIME_FIRST] = {GROUP_TIME, 2, 6, "first"}, [GPU] = {GROUP_GPU, 3, 7, "time"},
    [GPU_PCT] = {GROUP_GPU, 2, 5, "%tot"},      [GPU_AVG] = {GROUP_GPU, 2, 6, "avg"},
    [ALLOC] = {GROUP_MEMORY, 3, 7, "alloc"},    [ALLOC_PCT] = {GROUP_MEMORY, 2, 5, "%tot"},
    [ALLOC_AVG] = {GROUP_MEMORY, 2, 7, "avg"},  [PEAK] = {GROUP_MEMORY, 2, 8, "peak"},
};

/* What a narrow terminal does without, in this order. */
static const column_id droppable[] = {TIME_FIRST, TIME_SIGMA, TIME_MIN, TIME_MAX, ALLOC_AVG,
                                      ALLOC_PCT,  GPU_AVG,    GPU_PCT,  TIME_AVG};

static const struct {
    const char *name;
    int gap; /* between what stands left of it and its heading */
} groups[N_GROUPS] = {
    [GROUP_TIME] = {"Time", 2}, [GROUP_GPU] = {"GPU", 3}, [GROUP_MEMORY] = {"Allocations", 3}};

typedef struct layout {
    const kn__report *report;
    const kn__table_options *options;
    bool shown[N_COLUMNS];
    int label; /* characters of the label column: L of the layout's description */
    kn__names names;
} layout;

static bool is_hidden(const layout *l, const kn__row *row) {
    return l->options->depth > 0 && row->depth > l->options->depth;
}

/* A kernel's name is shortened for the eye; JSON and CSV have it whole. */
static const char *label_of(const layout *l, const kn__row *row) {
    const char *shown = row->is_kernel ? kn__names_get(&l->names, row->label) : NULL;
    return shown ? shown : row->label;
}

static void add_names(kn__names *names, const kn__row *row) {
    for (; row; row = row->next) {
        if (row->is_kernel) kn__names_add(names, row->label);
        add_names(names, row->first);
    }
}

static int longest_label(const layout *l, const kn__row *row) {
    int longest = 0;
    for (; row; row = row->next) {
        if (is_hidden(l, row)) continue;
        int own = kn__text_width(label_of(l, row)) + 2 * row->depth;
        int inner = longest_label(l, row->first);
        if (own > longest) longest = own;
        if (inner > longest) longest = inner;
    }
    return longest;
}

static int group_width(const layout *l, group g) {
    int width = 0;
    for (int i = 0; i < N_COLUMNS; i++) {
        if (l->shown[i] && columns[i].group == g) width += columns[i].lead + columns[i].width;
    }
    return width;
}

/* Everything right of the label column, the space at the left of the line and one to spare. */
static int fixed_width(const layout *l) {
    int width = 2 + 7;
    for (group g = 0; g < N_GROUPS; g++) width += group_width(l, g);
    return width;
}

static layout make_layout(const kn__report *report, const kn__table_options *options) {
    layout l = {.report = report, .options = options};
    bool memory = report->has_memory, gpu = report->has_gpu && !options->columns_2018;
    for (int i = 0; i < N_COLUMNS; i++) {
        group g = columns[i].group;
        l.shown[i] = g == GROUP_TIME || (g == GROUP_GPU && gpu) || (g == GROUP_MEMORY && memory);
    }
    if (options->columns_2018) l.shown[PEAK] = false;
    for (int i = TIME_MIN; i <= TIME_FIRST; i++) l.shown[i] = options->spread;
    add_names(&l.names, report->root.first);
    kn__names_settle(&l.names);
    int wanted = longest_label(&l, report->root.first);
    if (options->width > 0) {
        int width = options->width - (report->root.n_pending > 0); /* for " +" */
        int wish = wanted < LABEL_WISH ? wanted : LABEL_WISH;
        int n = options->columns_2018 ? 0 : (int)(sizeof droppable / sizeof *droppable);
        for (int i = 0; i < n && wish + fixed_width(&l) > width; i++) {
            l.shown[droppable[i]] = false;
        }
        int overflow = wanted + fixed_width(&l) - width;
        if (overflow > 0) wanted -= overflow;
    }
    l.label = wanted < LABEL_MIN ? LABEL_MIN : wanted;
    return l;
}

/* --- cells --- */

static const kn__quantity dash = {"-"};

static kn__quantity bytes_cell(const layout *l, double bytes) {
    bool none = l->options->columns_2018 ? bytes < 1000 : bytes <= 0;
    return none ? dash : kn__bytes_cell(bytes);
}

static kn__quantity per_call(const layout *l, const kn__row *row, double amount, bool is_time) {
    if (!row->n_calls) return dash;
    double each = amount / (double)row->n_calls;
    return is_time ? kn__time_cell(each, l->options->ascii) : bytes_cell(l, each);
}

/* Of calls that ended. */
static kn__quantity spread_cell(const layout *l, const kn__row *row, uint64_t ns) {
    return row->max_ns ? kn__time_cell((double)ns, l->options->ascii) : dash;
}

static double gpu_total(const kn__report *report) { return (double)report->root.gpu_ns; }

static kn__quantity peak_cell(const kn__row *row) {
    bool exact = kn__row_peak_exact(row);
    if (row->peak <= 0 && exact) return dash;
    kn__quantity bytes = kn__bytes_cell((double)row->peak), cell = {""};
    size_t shift = !exact;
    if (shift) cell.text[0] = '~';
    memcpy(cell.text + shift, bytes.text, sizeof cell.text - 1 - shift);
    return cell;
}

static kn__quantity alloc_percent(const layout *l, const kn__row *row) {
    if (!l->options->columns_2018 && !row->alloc_bytes) return dash;
    return kn__percent_cell((double)row->alloc_bytes, (double)l->report->root.alloc_bytes);
}

static kn__quantity gpu_cell(const layout *l, column_id id, const kn__row *row) {
    if (!row->n_gpu) return dash;
    double ns = (double)row->gpu_ns;
    if (id == GPU_PCT) return kn__percent_cell(ns, gpu_total(l->report));
    if (id == GPU) return kn__time_cell(ns, l->options->ascii);
    return row->is_kernel ? kn__time_cell(ns / (double)row->n_gpu, l->options->ascii)
                          : per_call(l, row, ns, true);
}

/* A row that only stands above others: it was never called. */
static bool is_heading(const kn__row *row) {
    return !row->is_kernel && !row->n_calls && !row->time_ns;
}

static kn__quantity cell_of(const layout *l, column_id id, const kn__row *row) {
    if (row->is_kernel && columns[id].group != GROUP_GPU) return dash;
    if (is_heading(row) && columns[id].group == GROUP_TIME) return dash;
    double ns = (double)row->time_ns, bytes = (double)row->alloc_bytes;
    switch (id) {
        case TIME:
            return kn__time_cell(ns, l->options->ascii);
        case TIME_PCT:
            return kn__percent_cell(ns, (double)l->report->root.time_ns);
        case TIME_AVG:
            return per_call(l, row, ns, true);
        case TIME_MIN:
            return spread_cell(l, row, row->min_ns);
        case TIME_MAX:
            return spread_cell(l, row, row->max_ns);
        case TIME_SIGMA:
            return row->n_ended > 1 ? kn__time_cell(kn__row_sigma(row), l->options->ascii) : dash;
        case TIME_FIRST:
            return spread_cell(l, row, row->first_ns);
        case GPU:
        case GPU_PCT:
        case GPU_AVG:
            return gpu_cell(l, id, row);
        case ALLOC:
            return bytes_cell(l, bytes);
        case ALLOC_PCT:
            return alloc_percent(l, row);
        case ALLOC_AVG:
            return per_call(l, row, bytes, false);
        case PEAK:
            return peak_cell(row);
        case N_COLUMNS:
            break;
    }
    return dash;
}

/* --- lines --- */

static void add_dashes(kn__text *text, const layout *l, int width) {
    kn__text_repeat(text, l->options->ascii ? "-" : "─", width);
}

static int table_width(const layout *l) { return l->label + fixed_width(l) - 2; }

static void add_group_names(kn__text *text, const layout *l) {
    kn__text_repeat(text, " ", 1 + l->label + 7);
    for (group g = 0; g < N_GROUPS; g++) {
        int span = group_width(l, g) - groups[g].gap, name = (int)strlen(groups[g].name);
        if (span <= 0) continue;
        int left = span > name ? (span - name) / 2 : 0;
        if (g == GROUP_TIME && l->shown[TIME_AVG] && !l->options->spread)
            left--; /* off its centre since 2018 */
        kn__text_repeat(text, " ", groups[g].gap + left);
        kn__text_left(text, groups[g].name, span - left);
    }
    kn__text_puts(text, "\n");
}

static void add_underlines(kn__text *text, const layout *l) {
    kn__text_repeat(text, " ", 1 + l->label + 7);
    for (group g = 0; g < N_GROUPS; g++) {
        int span = group_width(l, g) - groups[g].gap;
        if (span <= 0) continue;
        kn__text_repeat(text, " ", groups[g].gap);
        add_dashes(text, l, span);
    }
    kn__text_puts(text, "\n");
}

static void add_total(kn__text *text, const layout *l, group g) {
    const kn__report *report = l->report;
    kn__quantity total, part;
    if (g == GROUP_TIME) {
        total = kn__time_cell((double)report->wall_ns, l->options->ascii);
        part = kn__percent_cell((double)report->root.time_ns, (double)report->wall_ns);
    } else if (g == GROUP_GPU) {
        total = kn__time_cell(gpu_total(report), l->options->ascii);
        double known = gpu_total(report) - (double)report->balance.unattributed_ns;
        part = kn__percent_cell(known, gpu_total(report));
    } else {
        double all = (double)report->root.alloc_bytes + (double)report->outside.alloc_bytes;
        total = bytes_cell(l, all);
        part = kn__percent_cell((double)report->root.alloc_bytes, all);
    }
    int span = group_width(l, g) - groups[g].gap;
    int pad = (g == GROUP_MEMORY ? 7 : 6) - kn__text_width(total.text);
    char line[2 * sizeof(kn__quantity) + 8];
    snprintf(line, sizeof line, "%*s%s / %s", pad > 0 ? pad : 0, "", total.text, part.text);
    if (kn__text_width(line) > span) snprintf(line, sizeof line, "%s", total.text);
    if (g != GROUP_TIME) kn__text_repeat(text, " ", groups[g].gap);
    kn__text_center(text, line, span);
}

static void add_head(kn__text *text, const layout *l) {
    kn__text_puts(text, " ");
    add_dashes(text, l, table_width(l));
    kn__text_puts(text, "\n");
    add_group_names(text, l);
    add_underlines(text, l);
    kn__text_puts(text, " ");
    kn__text_center(text, "Tot / % measured:", l->label + 9); /* takes the gap of the first group */
    for (group g = 0; g < N_GROUPS; g++) {
        if (group_width(l, g) > 0) add_total(text, l, g);
    }
    kn__text_puts(text, "\n\n ");
    kn__text_left(text, "Section", l->label);
    kn__text_puts(text, " ncalls");
    for (int i = 0; i < N_COLUMNS; i++) {
        if (!l->shown[i]) continue;
        const char *head = i == TIME_SIGMA && l->options->ascii ? "sd" : columns[i].head;
        kn__text_right(text, head, columns[i].lead + columns[i].width);
    }
    kn__text_puts(text, "\n ");
    add_dashes(text, l, table_width(l));
    kn__text_puts(text, "\n");
}

static void add_row(kn__text *text, const layout *l, const kn__row *row) {
    int indent = 2 * (row->depth - 1);
    int deep = indent < l->label ? indent : l->label; /* a very narrow table */
    kn__text_repeat(text, " ", 1 + deep);
    kn__text_label(text, label_of(l, row), l->label - deep, l->label + 2 - deep);
    uint64_t n = row->is_kernel ? row->n_gpu : row->n_calls;
    kn__text_right(text, is_heading(row) ? "-" : kn__count_cell((double)n).text, 5);
    for (column_id i = 0; i < N_COLUMNS; i++) {
        if (!l->shown[i]) continue;
        kn__quantity cell = cell_of(l, i, row);
        kn__text_repeat(text, " ", columns[i].lead);
        if (i == ALLOC_PCT && l->options->columns_2018) {
            kn__text_left(text, cell.text, columns[i].width); /* the one column set to the left */
        } else {
            kn__text_right(text, cell.text, columns[i].width);
        }
    }
    kn__text_puts(text, row->n_pending ? " +\n" : "\n");
}

static void add_rows(kn__text *text, const layout *l, const kn__row *row) {
    for (; row; row = row->next) {
        if (is_hidden(l, row)) continue;
        add_row(text, l, row);
        add_rows(text, l, row->first);
    }
}

/* --- the lines above and below --- */

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

static void add_run(kn__text *text, const layout *l) {
    const kn__report *r = l->report;
    bool ascii = l->options->ascii;
    kn__text_printf(text, " %s", kn__time_cell((double)r->wall_ns, ascii).text);
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

static void add_full(kn__text *text, const kn__report *report) {
    if (!report->buffer_full) return;
    kn__text_printf(text,
                    " the timer's own memory (%s) was full, this table is not complete: raise "
                    "KNET_TIMER=buf=\n",
                    kn__bytes_text((double)report->buffer_bytes).text);
}

static void add_pools(kn__text *text, const kn__report *report) {
    for (int i = 0; i < report->memory.n_pools; i++) {
        const kn__pool_use *use = &report->memory.pools[i];
        kn__text_printf(text, " %s: high-water mark %s live", use->name,
                        kn__bytes_text((double)use->live_max).text);
        kn__text_printf(text, ", %s reserved", kn__bytes_text((double)use->reserved_max).text);
        kn__text_printf(text, "; now %s live", kn__bytes_text((double)use->live).text);
        kn__text_printf(text, ", %s reserved", kn__bytes_text((double)use->reserved).text);
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

static void add_owner(kn__text *text, const kn__owner *owner, const char *before) {
    kn__text_printf(text, "%s %s ", before, kn__bytes_text((double)owner->bytes).text);
    kn__text_label(text, owner->path, PATH_BYTES, 0);
}

static void add_owners(kn__text *text, const kn__report *report) {
    if (report->n_owners) {
        kn__text_printf(text, " at the high-water mark of %s",
                        kn__bytes_text((double)report->memory.live_max).text);
    }
    for (int i = 0; i < report->n_owners; i++) add_owner(text, &report->owners[i], i ? "," : ":");
    if (report->n_owners) kn__text_puts(text, "\n");
    if (report->n_holders) kn__text_puts(text, " not freed");
    for (int i = 0; i < report->n_holders; i++) {
        add_owner(text, &report->holders[i], i ? "," : ":");
    }
    if (report->n_holders) kn__text_puts(text, "\n");
}

void kn__table_add(kn__text *text, const kn__report *report, const kn__table_options *options) {
    layout l = make_layout(report, options);
    if (!options->bare) {
        add_balance(text, &report->balance);
        add_run(text, &l);
        add_full(text, report);
        if (report->has_memory) add_pools(text, report);
    }
    add_head(text, &l);
    add_rows(text, &l, report->root.first);
    kn__text_puts(text, " ");
    add_dashes(text, &l, table_width(&l));
    kn__text_puts(text, "\n");
    if (!options->bare && report->has_memory) add_owners(text, report);
    kn__names_release(&l.names);
}
