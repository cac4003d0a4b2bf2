#include "table.h"

#include <stdio.h>
#include <string.h>

#include "lines.h"
#include "name.h"
#include "notes.h"
#include "utf8.h"

enum { LABEL_MIN = 9, LABEL_CUT = 14, LABEL_WISH = 24 };

typedef enum group { GROUP_TIME, GROUP_GPU, GROUP_RATE, GROUP_MEMORY, N_GROUPS } group;

typedef enum column_id {
    TIME,
    TIME_PCT,
    TIME_OWN,
    TIME_AVG,
    TIME_MIN,
    TIME_P50,
    TIME_P99,
    TIME_MAX,
    TIME_SIGMA,
    TIME_FIRST,
    RUN_MIN,
    RUN_MEAN,
    RUN_MAX,
    RUN_IMBALANCE,
    RUN_SLOWEST,
    GPU,
    GPU_PCT,
    GPU_AVG,
    FLOPS,
    BYTES,
    OF_PEAK,
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
    [TIME_OWN] = {GROUP_TIME, 2, 6, "own"},     [TIME_AVG] = {GROUP_TIME, 2, 6, "avg"},
    [TIME_MIN] = {GROUP_TIME, 2, 6, "min"},     [TIME_MAX] = {GROUP_TIME, 2, 6, "max"},
    [TIME_SIGMA] = {GROUP_TIME, 2, 6, "σ"},     [RUN_MIN] = {GROUP_TIME, 2, 6, "least"},
    [RUN_MAX] = {GROUP_TIME, 2, 6, "most"},     [RUN_SLOWEST] = {GROUP_TIME, 2, 5, "in"},
    [RUN_MEAN] = {GROUP_TIME, 2, 6, "mean"},    [RUN_IMBALANCE] = {GROUP_TIME, 2, 6, "imbal"},
    [TIME_P50] = {GROUP_TIME, 2, 6, "p50"},     [TIME_P99] = {GROUP_TIME, 2, 6, "p99"},
    [TIME_FIRST] = {GROUP_TIME, 2, 6, "first"}, [GPU] = {GROUP_GPU, 3, 7, "time"},
    [GPU_PCT] = {GROUP_GPU, 2, 5, "%tot"},      [GPU_AVG] = {GROUP_GPU, 2, 6, "avg"},
    [FLOPS] = {GROUP_RATE, 3, 6, "flop/s"},     [BYTES] = {GROUP_RATE, 2, 6, "B/s"},
    [OF_PEAK] = {GROUP_RATE, 2, 5, "%peak"},    [ALLOC] = {GROUP_MEMORY, 3, 7, "alloc"},
    [ALLOC_PCT] = {GROUP_MEMORY, 2, 5, "%tot"}, [ALLOC_AVG] = {GROUP_MEMORY, 2, 7, "avg"},
    [PEAK] = {GROUP_MEMORY, 2, 8, "peak"},
};

/* What a narrow terminal does without, in this order: the first ones before a label is cut. */
static const column_id droppable[] = {
    TIME_FIRST, TIME_SIGMA, TIME_MIN, TIME_MAX, TIME_P99, TIME_P50,      ALLOC_AVG, ALLOC_PCT,
    OF_PEAK,    BYTES,      FLOPS,    GPU_AVG,  GPU_PCT,  TIME_AVG,      ALLOC,     PEAK,
    RUN_MEAN,   RUN_MIN,    RUN_MAX,  GPU,      TIME_OWN, RUN_IMBALANCE, TIME_PCT,  RUN_SLOWEST};
enum { N_DROPPABLE = sizeof droppable / sizeof *droppable, N_BEFORE_LABELS = 14 };

static const struct {
    const char *name;
    int gap; /* between what stands left of it and its heading */
} groups[N_GROUPS] = {[GROUP_TIME] = {"Time", 2},
                      [GROUP_GPU] = {"GPU", 3},
                      [GROUP_RATE] = {"Rate", 3},
                      [GROUP_MEMORY] = {"Allocations", 3}};

typedef struct layout {
    const kn__report *report;
    const kn__table_options *options;
    bool shown[N_COLUMNS];
    int label; /* characters of the label column: L of the layout's description */
    kn__table_lines lines;
} layout;

static int longest_label(const kn__table_lines *lines) {
    int longest = 0;
    for (size_t i = 0; i < lines->n; i++) {
        int width = kn__text_width(lines->all[i].label) + 2 * lines->all[i].depth + 2;
        if (width > longest) longest = width;
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

static kn__table_lines make_lines(const kn__report *report, const kn__table_options *options) {
    kn__names names = {
        0}; /* a kernel's name is shortened for the eye; JSON and CSV have it whole */
    kn__table_lines lines;
    kn__names_add_kernels(&names, report->root.first);
    kn__names_settle(&names);
    kn__lines_options how = {.depth = options->depth,
                             .top = options->top,
                             .min = options->columns_2018 ? 0 : options->min / 100,
                             .ascii = options->ascii,
                             .names = &names};
    kn__lines_make(&lines, report, &how);
    kn__names_release(&names);
    return lines;
}

static void choose_columns(layout *l, const kn__report *report) {
    const kn__table_options *options = l->options;
    bool memory = options->columns_2018 ? report->has_memory : kn__report_used_memory(report);
    bool gpu = !options->columns_2018 && (report->root.n_gpu || report->root.n_pending);
    bool work = !options->columns_2018 && (report->root.flops || report->root.moved_bytes);
    for (int i = 0; i < N_COLUMNS; i++) {
        group g = columns[i].group;
        l->shown[i] = g == GROUP_TIME || (g == GROUP_GPU && gpu) || (g == GROUP_RATE && work) ||
                      (g == GROUP_MEMORY && memory);
    }
    if (options->columns_2018) l->shown[PEAK] = false;
    l->shown[OF_PEAK] = work && report->peaks.flops > 0;
    l->shown[TIME_OWN] = !options->columns_2018 && l->lines.has_own;
    for (int i = TIME_MIN; i <= TIME_FIRST; i++) l->shown[i] = options->spread;
    bool runs = report->n_runs > 1 && !options->columns_2018;
    for (int i = RUN_MIN; i <= RUN_SLOWEST; i++) l->shown[i] = runs;
}

/* Columns are dropped until labels have the width they wish, then labels are cut, then the rest. */
static void fit(layout *l, int wanted, int width) {
    int wish = wanted < LABEL_WISH ? wanted : LABEL_WISH;
    int least = wanted < LABEL_CUT ? wanted : LABEL_CUT;
    for (int i = 0; i < N_DROPPABLE; i++) {
        int label = i < N_BEFORE_LABELS ? wish : least;
        if (label + fixed_width(l) > width) l->shown[droppable[i]] = false;
    }
}

static layout make_layout(const kn__report *report, const kn__table_options *options) {
    layout l = {.report = report, .options = options, .lines = make_lines(report, options)};
    choose_columns(&l, report);
    int wanted = longest_label(&l.lines);
    if (options->width > 0) {
        int width = options->width - (report->root.n_pending > 0) * 2; /* for " +" */
        if (!options->columns_2018) fit(&l, wanted, width);
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
    return row->max_ns && ns ? kn__time_cell((double)ns, l->options->ascii) : dash;
}

static kn__quantity percentile_cell(const layout *l, const kn__row *row, double part) {
    return row->times ? kn__time_cell(kn__row_percentile(row, part), l->options->ascii) : dash;
}

/* Of runs that lack the row nothing is known. */
static kn__quantity run_cell(const layout *l, const kn__row *row, uint64_t ns) {
    return row->n_runs ? kn__time_cell((double)ns, l->options->ascii) : dash;
}

/* The run that took most, if they differ. */
static kn__quantity slowest_cell(const kn__row *row) {
    kn__quantity cell;
    if (row->n_runs < 2 || row->run_min_ns == row->run_max_ns) return dash;
    snprintf(cell.text, sizeof cell.text, "%llu", (unsigned long long)row->slowest_run);
    return cell;
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

/* Of work that the program told of. */
static kn__quantity rate_cell(const layout *l, column_id id, const kn__row *row) {
    kn__rates rates = kn__row_rates(row);
    double of_peak = kn__row_of_peak(l->report, row);
    if (id == OF_PEAK) return of_peak > 0 ? kn__percent_cell(of_peak, 1) : dash;
    double rate = id == FLOPS ? rates.flops : rates.bytes;
    return rate > 0 ? kn__rate_cell(rate) : dash;
}

/* A row that is only a parent: it was never called. */
static bool is_heading(const kn__row *row) {
    return !row->is_kernel && !row->n_calls && !row->time_ns;
}

/* A path of rows that were filtered has none. */
static kn__quantity own_cell(const layout *l, const kn__line *line) {
    if (!line->row->n_calls && !line->own_ns) return dash;
    return kn__time_cell((double)line->own_ns, l->options->ascii);
}

static kn__quantity cell_of(const layout *l, column_id id, const kn__line *line) {
    const kn__row *row = line->row;
    if (row->is_kernel && columns[id].group != GROUP_GPU) return dash;
    if (is_heading(row) && columns[id].group == GROUP_TIME) return dash;
    double ns = (double)row->time_ns, bytes = (double)row->alloc_bytes;
    switch (id) {
        case TIME:
            return kn__time_cell(ns, l->options->ascii);
        case TIME_PCT:
            return kn__percent_cell(ns, kn__report_whole_ns(l->report));
        case TIME_OWN:
            return own_cell(l, line);
        case TIME_AVG:
            return per_call(l, row, ns, true);
        case TIME_MIN:
            return spread_cell(l, row, row->min_ns);
        case RUN_MIN:
            return run_cell(l, row, row->run_min_ns);
        case RUN_MEAN:
            return row->n_runs ? kn__time_cell(kn__row_run_mean(l->report, row), l->options->ascii)
                               : dash;
        case RUN_IMBALANCE:
            return row->n_runs > 1 ? kn__percent_cell(kn__row_imbalance(l->report, row), 1) : dash;
        case RUN_MAX:
            return run_cell(l, row, row->run_max_ns);
        case RUN_SLOWEST:
            return slowest_cell(row);
        case TIME_P50:
            return percentile_cell(l, row, 0.5);
        case TIME_P99:
            return percentile_cell(l, row, 0.99);
        case TIME_MAX:
            return spread_cell(l, row, row->max_ns);
        case TIME_SIGMA:
            return row->n_ended > 1 ? kn__time_cell(kn__row_sigma(row), l->options->ascii) : dash;
        case TIME_FIRST:
            return spread_cell(l, row, row->first_ns);
        case ALLOC:
            return bytes_cell(l, bytes);
        case ALLOC_PCT:
            return alloc_percent(l, row);
        case ALLOC_AVG:
            return per_call(l, row, bytes, false);
        case PEAK:
            return peak_cell(row);
        default:
            return columns[id].group == GROUP_GPU ? gpu_cell(l, id, row) : rate_cell(l, id, row);
    }
}

/* --- lines --- */

static void add_dashes(kn__text *text, const layout *l, int width) {
    kn__text_repeat(text, l->options->ascii ? "-" : "─", width);
}

static int table_width(const layout *l) { return l->label + fixed_width(l) - 2; }

static void add_group_names(kn__text *text, const layout *l) {
    kn__text_repeat(text, " ", 1 + l->label + 7);
    for (group g = 0; g < N_GROUPS; g++) {
        int span = group_width(l, g) - groups[g].gap;
        if (span <= 0) continue;
        const char *title = span < (int)strlen(groups[g].name) ? "Memory" : groups[g].name;
        int name = (int)strlen(title);
        int left = span > name ? (span - name) / 2 : 0;
        if (g == GROUP_TIME && l->shown[TIME_AVG] && !l->options->spread)
            left--; /* off its centre since 2018 */
        kn__text_repeat(text, " ", groups[g].gap + left);
        kn__text_left(text, title, span - left);
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

/* Over the whole time; each in its column, for neither is a part of the other. No share of the
 * peak, which is the processors': some of the work may be a GPU's. */
static void add_total_rates(kn__text *text, const layout *l) {
    const kn__row *root = &l->report->root;
    const kn__row all = {
        .time_ns = l->report->wall_ns, .flops = root->flops, .moved_bytes = root->moved_bytes};
    for (column_id i = FLOPS; i <= OF_PEAK; i++) {
        if (!l->shown[i]) continue;
        kn__text_right(text, i == OF_PEAK ? "" : rate_cell(l, i, &all).text,
                       columns[i].lead + columns[i].width);
    }
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
    if (g == GROUP_TIME && kn__report_is_parallel(report)) {
        snprintf(part.text, sizeof part.text, "%llu threads",
                 (unsigned long long)report->n_threads);
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
        if (group_width(l, g) <= 0) continue;
        if (g == GROUP_RATE)
            add_total_rates(text, l);
        else
            add_total(text, l, g);
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

static void add_line(kn__text *text, const layout *l, const kn__line *line) {
    const kn__row *row = line->row;
    int indent = 2 * line->depth;
    int deep = indent < l->label ? indent : l->label; /* a very narrow table */
    kn__text_repeat(text, " ", 1 + deep);
    kn__text_label(text, line->label, l->label - deep, l->label + 2 - deep);
    uint64_t n = row->is_kernel ? row->n_gpu : row->n_calls;
    kn__text_right(text, n || row->is_kernel ? kn__count_cell((double)n).text : "-", 5);
    for (column_id i = 0; i < N_COLUMNS; i++) {
        if (!l->shown[i]) continue;
        kn__quantity cell = cell_of(l, i, line);
        kn__text_repeat(text, " ", columns[i].lead);
        if (i == ALLOC_PCT && l->options->columns_2018) {
            kn__text_left(text, cell.text, columns[i].width); /* the one column set to the left */
        } else {
            kn__text_right(text, cell.text, columns[i].width);
        }
    }
    kn__text_puts(text, row->n_pending ? " +\n" : "\n");
}

static void add_table(kn__text *text, const layout *l) {
    add_head(text, l);
    for (size_t i = 0; i < l->lines.n; i++) add_line(text, l, &l->lines.all[i]);
    kn__text_puts(text, " ");
    add_dashes(text, l, table_width(l));
    kn__text_puts(text, "\n");
}

/* From the given byte on: a character that is not ASCII becomes a '?' for each of its columns. */
static void make_ascii(kn__text *text, size_t from) {
    size_t to = from;
    for (size_t at = from, n; at < text->length; at += n) {
        const char *c = text->data + at;
        int wide = kn__utf8_columns(c);
        n = kn__utf8_bytes(c) ? kn__utf8_bytes(c) : 1;
        if ((unsigned char)*c < 0x80) {
            text->data[to++] = *c;
        } else {
            while (wide-- > 0) text->data[to++] = '?';
        }
    }
    text->length = to;
    if (text->data) text->data[to] = '\0';
}

void kn__table_add(kn__text *text, const kn__report *report, const kn__table_options *options) {
    size_t before = text->length;
    layout l = make_layout(report, options);
    if (!options->bare) kn__notes_add_head(text, report, options);
    if (report->root.first || options->columns_2018) {
        add_table(text, &l);
    } else {
        kn__text_puts(text, " no scope was opened\n");
    }
    l.lines.has_own = l.shown[TIME_OWN];
    l.lines.has_share = l.shown[TIME_PCT];
    l.lines.has_runs = l.shown[RUN_MAX];
    l.lines.has_rates = l.shown[FLOPS] || l.shown[BYTES];
    if (!options->bare) kn__notes_add_foot(text, report, &l.lines, l.shown[PEAK], options);
    if (options->ascii) make_ascii(text, before);
    text->failed |= l.lines.failed;
    kn__lines_release(&l.lines);
}
