#include "holders.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "roles.h"

enum { WIDTH = 100, HEIGHT = 12, OWNERS = 10, OWNERS_MAX = 1000, AXIS = 10, COLUMNS_MAX = 1000 };
enum { PATH_BYTES = 1024, PATH_COLUMN = 18 };

/* Runs have no time in common. */
static bool is_merged(const kn__report *report) { return report->n_runs > 1; }

/* --- owners --- */

static void add_owner(kn__text *text, const kn__row *row, double of, int width) {
    int columns = width > 2 * PATH_COLUMN ? width - PATH_COLUMN : width > 0 ? PATH_COLUMN : 0;
    char path[PATH_BYTES];
    kn__report_path(path, sizeof path, row);
    kn__text_right(text, kn__bytes_cell((double)row->held_at_peak).text, 9);
    kn__text_right(text, kn__percent_cell((double)row->held_at_peak, of).text, 7);
    kn__text_puts(text, "  ");
    kn__text_end(text, path, columns);
    kn__text_puts(text, "\n");
}

static void add_owners(kn__text *text, const kn__report *report, int wanted, int width) {
    const kn__row *owners[OWNERS_MAX];
    int n = kn__report_owners(owners, wanted < OWNERS_MAX ? wanted : OWNERS_MAX, report);
    double of = (double)report->memory.live_max, sum = 0;
    kn__text_puts(text, "\n owned then by\n");
    for (int i = 0; i < n; i++) {
        add_owner(text, owners[i], of, width);
        sum += (double)owners[i]->held_at_peak;
    }
    if (of - sum < 1) return;
    kn__text_right(text, kn__bytes_cell(of - sum).text, 9);
    kn__text_right(text, kn__percent_cell(of - sum, of).text, 7);
    kn__text_wrap(text, "by others, or from before the timer", PATH_COLUMN, PATH_COLUMN - 2,
                  width > 0 ? width : INT_MAX);
}

/* --- graph --- */

typedef struct graph {
    int n; /* columns */
    double top, span_ns;
    int peak;                 /* the column of the high-water mark */
    double high[COLUMNS_MAX]; /* most in the time of a column */
} graph;

static int column_at(const graph *g, double ns) {
    double at = g->span_ns > 0 ? ns / g->span_ns * g->n : 0;
    return at < g->n ? (int)at : g->n - 1;
}

static void raise_to(double *high, double bytes) {
    if (bytes > *high) *high = bytes;
}

/* A bin spans the time since the one before; the bytes live at its end stay live until the next
 * bin changes them. */
static void fill(graph *g, const kn__report *report) {
    const kn__series *live = &report->live;
    double last = 0, end = 0;
    for (int i = 0; i < live->n; i++) {
        const kn__series_bin *bin = &live->bins[i];
        int from = column_at(g, end), to = column_at(g, (double)bin->end);
        for (int c = from; c < to; c++) raise_to(&g->high[c], last);
        raise_to(&g->high[to], (double)bin->max);
        end = (double)bin->end;
        last = (double)bin->last;
    }
    for (int c = column_at(g, end); c < g->n; c++) raise_to(&g->high[c], last);
}

/* From the timer's start: pauses count. */
static double span_of(const kn__report *report) {
    const kn__series *live = &report->live;
    double span = (double)report->wall_ns;
    return live->n ? fmax(span, (double)live->bins[live->n - 1].end) : span;
}

static graph make_graph(const kn__report *report, int width) {
    const kn__series *live = &report->live;
    graph g = {.n = width - AXIS - 2};
    if (g.n > COLUMNS_MAX) g.n = COLUMNS_MAX;
    if (g.n < 1) g.n = 1;
    g.span_ns = span_of(report);
    g.peak = column_at(&g, (double)live->max_at);
    fill(&g, report);
    raise_to(&g.high[g.peak], (double)report->memory.live_max);
    for (int c = 0; c < g.n; c++) raise_to(&g.top, g.high[c]); /* bins outside measured steps too */
    return g;
}

/* The column as eighths of a line, from the bottom. */
static const char *glyph_of(const graph *g, int column, double line, int height, bool ascii) {
    static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double filled = g->high[column] / g->top * height - line;
    if (!(filled > 0)) return " ";
    if (ascii) return filled < 0.5 && line > 0 ? " " : column == g->peak ? "#" : ":";
    return filled >= 1 ? eighths[8] : eighths[(int)(8 * filled + 0.999)];
}

static void add_graph_line(kn__text *text, const graph *g, int line, int height, bool ascii) {
    bool labelled = line == height - 1 || line == height / 2;
    double value = line == height - 1 ? g->top : g->top * line / height;
    kn__text_right(text, labelled ? kn__bytes_cell(value).text : "", AXIS);
    kn__text_puts(text, ascii ? " |" : " │");
    int end = g->n; /* no spaces at the end of a line */
    while (end > 0 && strcmp(glyph_of(g, end - 1, line, height, ascii), " ") == 0) end--;
    for (int c = 0; c < end; c++) kn__text_puts(text, glyph_of(g, c, line, height, ascii));
    kn__text_puts(text, "\n");
}

static void add_axis(kn__text *text, const graph *g, bool ascii) {
    kn__text_right(text, "0B", AXIS);
    kn__text_puts(text, ascii ? " +" : " └");
    for (int c = 0; c < g->n; c++) {
        kn__text_puts(text, c == g->peak ? "^" : ascii ? "-" : "─");
    }
    kn__text_puts(text, "\n");
    kn__text_repeat(text, " ", AXIS + 2);
    kn__text_puts(text, "0");
    kn__text_right(text, kn__time_cell(g->span_ns, ascii).text, g->n - 1);
    kn__text_puts(text, "\n");
}

static void add_graph(kn__text *text, const kn__report *report, const kn__memory_view *view) {
    int width = view->width ? view->width : WIDTH, height = view->height ? view->height : HEIGHT;
    graph g = make_graph(report, width);
    kn__text_puts(text, "\n");
    kn__text_wrap(text, "live bytes over time (^ the high-water mark)", 1, 0, width);
    kn__text_puts(text, "\n");
    for (int line = height - 1; line >= 0; line--) {
        add_graph_line(text, &g, line, height, view->ascii);
    }
    add_axis(text, &g, view->ascii);
}

/* --- all --- */

static void add_mark(kn__text *text, const kn__report *report, bool ascii) {
    kn__text_printf(text, " high-water mark %s",
                    kn__bytes_text((double)report->memory.live_max).text);
    if (is_merged(report)) {
        kn__text_printf(text, ", the highest of %llu runs\n", (unsigned long long)report->n_runs);
        return;
    }
    kn__text_printf(text, ", %s after the start",
                    kn__time_cell((double)report->live.max_at, ascii).text);
    kn__text_printf(text, " (of %s)\n", kn__time_cell(span_of(report), ascii).text);
}

static void add_pools(kn__text *text, const kn__report *report) {
    for (int i = 0; i < report->memory.n_pools; i++) {
        const kn__pool_use *use = &report->memory.pools[i];
        kn__text_puts(text, " ");
        kn__text_shown(text, use->name, INT_MAX);
        kn__text_printf(text, ": at most %s live", kn__bytes_text((double)use->live_max).text);
        kn__text_printf(text, ", %s reserved", kn__bytes_text((double)use->reserved_max).text);
        if (is_merged(report)) kn__text_puts(text, " in one run");
        kn__text_printf(text, "; at the end %s live", kn__bytes_text((double)use->live).text);
        kn__text_printf(text, ", %s reserved", kn__bytes_text((double)use->reserved).text);
        if (is_merged(report)) kn__text_puts(text, " in all");
        kn__text_printf(text, "; %s allocations", kn__count_cell((double)use->n_allocs).text);
        if (use->n_ooms) {
            kn__text_printf(text, "; out of memory %llu times", (unsigned long long)use->n_ooms);
        }
        kn__text_puts(text, "\n");
    }
}

/* Of traces that tell how much was live, but not whose it was. */
static void add_levels(kn__text *text, const kn__report *report, const kn__memory_view *view) {
    kn__text lines = {0};
    add_mark(&lines, report, view->ascii);
    kn__text_puts(&lines,
                  " its owners are not in the trace; a profile of KNET_TIMER=json=FILE has them\n");
    kn__text_wrapped(text, &lines, view->width);
    if (!is_merged(report)) add_graph(text, report, view);
}

void kn__memory_add(kn__text *text, const kn__report *report, const kn__memory_view *view) {
    if (!report->has_memory && report->memory.live_max > 0) {
        add_levels(text, report, view);
        return;
    }
    if (!report->has_memory || report->memory.live_max <= 0) {
        kn__text_puts(text, !report->has_memory
                                ? " this profile has no memory in it: KNET_TIMER=nomem\n"
                            : report->live.n ? " no memory was live while steps were measured\n"
                                             : " no memory was allocated\n");
        return;
    }
    kn__text lines = {0};
    add_mark(&lines, report, view->ascii);
    add_pools(&lines, report);
    kn__text_wrapped(text, &lines, view->width);
    add_owners(text, report, view->owners ? view->owners : OWNERS, view->width);
    kn__roles_add(text, report, view->limit_bytes, view->width);
    if (!is_merged(report)) add_graph(text, report, view);
}
