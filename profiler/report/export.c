#include "export.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* --- CSV --- */

static void add_quoted(kn__text *text, const char *string) {
    kn__text clean = {0};
    kn__text_utf8(&clean, string);
    kn__text_puts(text, "\"");
    for (const char *s = clean.data; s && *s; s++) {
        if (*s == '"') kn__text_puts(text, "\"");
        kn__text_add(text, s, 1);
    }
    kn__text_puts(text, "\"");
    text->failed |= clean.failed;
    kn__text_release(&clean);
}

/* A slash in a label is "\/", a backslash "\\": a path has one reading. */
static void add_path(kn__text *text, const kn__row *row) {
    if (row->depth > 1) {
        add_path(text, row->parent);
        kn__text_puts(text, "/");
    }
    for (const char *s = row->label; *s; s++) {
        if (*s == '/' || *s == '\\') kn__text_puts(text, "\\");
        kn__text_add(text, s, 1);
    }
}

static void add_quoted_path(kn__text *text, const kn__row *row) {
    kn__text path = {0};
    add_path(&path, row);
    add_quoted(text, path.data && !path.failed ? path.data : "");
    text->failed |= path.failed;
    kn__text_release(&path);
}

static void add_csv_row(kn__text *text, const kn__row *row) {
    add_quoted_path(text, row);
    kn__text_printf(
        text, ",%d,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.0f,%" PRIu64, row->depth,
        row->is_kernel  ? "kernel"
        : row->is_range ? "range"
                        : "scope",
        row->n_calls, row->time_ns, row->min_ns, row->max_ns, kn__row_sigma(row), row->first_ns);
    kn__text_printf(text, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRId64,
                    row->alloc_bytes, row->n_allocs, row->temporary_bytes, row->freed_bytes,
                    row->held, row->held_at_peak);
    kn__text_printf(text, ",%" PRId64 ",%" PRId64 ",%s,%" PRIu64 ",%" PRIu64, row->peak, row->rise,
                    kn__row_peak_exact(row) ? "yes" : "no", row->gpu_ns, row->n_gpu);
    kn__text_printf(text, ",%" PRIu64 ",%" PRIu64 ",%.0f,%.0f", row->n_pending, row->gpu_bytes,
                    kn__row_percentile(row, 0.5), kn__row_percentile(row, 0.99));
    kn__rates rates = kn__row_rates(row);
    kn__text_printf(text, ",%" PRIu64 ",%" PRIu64 ",%.6g,%.6g\n", row->flops, row->moved_bytes,
                    rates.flops / 1e9, rates.bytes / 1e9);
    for (const kn__row *child = row->first; child; child = child->next) add_csv_row(text, child);
}

void kn__csv_add(kn__text *text, const kn__report *report) {
    kn__text_puts(text,
                  "path,depth,kind,n_calls,time_ns,min_ns,max_ns,sigma_ns,first_ns,alloc_bytes,"
                  "n_allocs,temporary_bytes,freed_bytes,held_bytes,held_at_peak_bytes,peak_bytes,"
                  "rise_bytes,peak_exact,gpu_ns,n_gpu,n_pending,gpu_bytes,p50_ns,p99_ns,"
                  "flops,moved_bytes,gflop_s,gbyte_s\n");
    for (const kn__row *row = report->root.first; row; row = row->next) add_csv_row(text, row);
}

/* --- weights --- */

static uint64_t weight_of(const kn__row *row, kn__weight weight) {
    if (row->is_extra && weight != KN__WEIGHT_GPU) return 0; /* no time or memory of the program */
    if (weight == KN__WEIGHT_GPU) return row->gpu_ns;
    bool is_beside = row->is_range && row->depth > 1; /* it may be longer than the row above */
    if (weight == KN__WEIGHT_TIME && is_beside) return 0;
    return weight == KN__WEIGHT_ALLOC ? row->alloc_bytes : row->time_ns;
}

static uint64_t weight_inside(const kn__row *row, kn__weight weight) {
    uint64_t sum = 0;
    for (const kn__row *child = row->first; child; child = child->next) {
        sum += weight_of(child, weight);
    }
    return sum;
}

/* Clocks rounded to nanoseconds may make children a little more than all. */
uint64_t kn__row_own(const kn__row *row, kn__weight weight) {
    uint64_t all = weight_of(row, weight), inside = weight_inside(row, weight);
    return all > inside ? all - inside : 0;
}

/* --- folded stacks --- */

/* A label as one frame: what separates frames, lines and weights is taken out. */
static void add_frame(kn__text *text, const char *label) {
    kn__text clean = {0};
    kn__text_utf8(&clean, label);
    for (const char *s = clean.data; s && *s; s++) {
        char c = *s == ';' ? ':' : (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s;
        kn__text_add(text, &c, 1);
    }
    text->failed |= clean.failed;
    kn__text_release(&clean);
    if (!label[0]) kn__text_puts(text, "(empty)");
}

static void add_frames(kn__text *text, const kn__row *row) {
    if (row->depth > 1) {
        add_frames(text, row->parent);
        kn__text_puts(text, ";");
    }
    add_frame(text, row->label);
}

static void add_folded(kn__text *text, const kn__row *row, kn__weight weight) {
    for (; row; row = row->next) {
        uint64_t own = kn__row_own(row, weight);
        if (own) {
            add_frames(text, row);
            kn__text_printf(text, " %" PRIu64 "\n", own);
        }
        add_folded(text, row->first, weight);
    }
}

void kn__folded_add(kn__text *text, const kn__report *report, kn__weight weight) {
    add_folded(text, report->root.first, weight);
}

/* --- flame graph --- */

enum { FLAME_WIDTH = 1200, ROW_HEIGHT = 18, HEAD_HEIGHT = 34, CHAR_WIDTH = 7 };

typedef struct flame {
    kn__text *text;
    kn__weight weight;
    double per_unit; /* pixels */
} flame;

static void add_xml(kn__text *text, const char *string, int width) {
    kn__text clean = {0};
    kn__text_label(&clean, string, width, 0);
    if (clean.data) kn__text_xml(text, clean.data);
    kn__text_release(&clean);
}

/* The same label has the same colour everywhere; warm for the CPU, green for kernels. */
static unsigned colour_of(const kn__row *row) {
    unsigned h = 2166136261u;
    for (const char *c = row->label; *c; c++) h = (h ^ (unsigned char)*c) * 16777619u;
    unsigned strong = 205 + h % 50, middle = 80 + h / 64 % 130, weak = h / 8192 % 55;
    return row->is_kernel ? middle << 16 | strong << 8 | weak : strong << 16 | middle << 8 | weak;
}

static void add_numbers(kn__text *text, const kn__row *row) {
    uint64_t n = row->is_kernel ? row->n_gpu : row->n_calls;
    kn__text_printf(text, ": %s calls", kn__count_cell((double)n).text);
    kn__text_printf(text, ", %s", kn__time_cell((double)row->time_ns, false).text);
    if (row->n_gpu)
        kn__text_printf(text, ", GPU %s", kn__time_cell((double)row->gpu_ns, false).text);
    if (row->alloc_bytes) {
        kn__text_printf(text, ", %s allocated", kn__bytes_text((double)row->alloc_bytes).text);
    }
    if (row->peak > 0) kn__text_printf(text, ", peak %s", kn__bytes_text((double)row->peak).text);
}

static void add_box(const flame *f, const kn__row *row, double x, double width) {
    int y = HEAD_HEIGHT + (row->depth - 1) * ROW_HEIGHT, chars = (int)(width - 6) / CHAR_WIDTH;
    char path[PATH_BYTES];
    kn__report_path(path, sizeof path, row);
    kn__text_puts(f->text, "<g><title>");
    add_xml(f->text, path, PATH_BYTES);
    add_numbers(f->text, row);
    kn__text_printf(f->text,
                    "</title><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" "
                    "fill=\"#%06x\"/>",
                    x, y, width, ROW_HEIGHT - 1, colour_of(row));
    if (chars >= 3) {
        kn__text_printf(f->text, "<text x=\"%.2f\" y=\"%d\">", x + 3, y + ROW_HEIGHT - 5);
        add_xml(f->text, row->label, chars);
        kn__text_puts(f->text, "</text>");
    }
    kn__text_puts(f->text, "</g>\n");
}

/* Boxes too narrow to see are left out with all that is in them. */
static void add_boxes(const flame *f, const kn__row *row, double x) {
    for (; row; row = row->next) {
        double width = (double)weight_of(row, f->weight) * f->per_unit;
        if (width < 0.1) continue;
        if (width > FLAME_WIDTH) width = FLAME_WIDTH; /* a file may say anything */
        add_box(f, row, x, width);
        add_boxes(f, row->first, x);
        x += width;
    }
}

static int depth_of(const kn__row *row) {
    int depth = 0;
    for (; row; row = row->next) {
        int inner = depth_of(row->first);
        if (row->depth > depth) depth = row->depth;
        if (inner > depth) depth = inner;
    }
    return depth;
}

static void add_title(kn__text *text, const char *notes) {
    if (!notes) return;
    kn__text_puts(text, "<title>run: ");
    add_xml(text, notes, PATH_BYTES);
    kn__text_puts(text, "</title>\n");
}

void kn__flame_add(kn__text *text, const kn__report *report, kn__weight weight) {
    static const char *const titles[] = {"Time", "GPU time", "Bytes allocated"};
    uint64_t total = weight_inside(&report->root, weight);
    int height = HEAD_HEIGHT + depth_of(report->root.first) * ROW_HEIGHT + 8;
    kn__quantity cell = weight == KN__WEIGHT_ALLOC ? kn__bytes_text((double)total)
                                                   : kn__time_cell((double)total, false);
    kn__text_printf(text,
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                    "width=\"%d\" height=\"%d\">\n",
                    FLAME_WIDTH, height, FLAME_WIDTH, height);
    add_title(text, report->run.notes);
    kn__text_printf(text,
                    "<style>text{font:12px monospace}rect:hover{stroke:#000}</style>\n"
                    "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
                    "<text x=\"10\" y=\"22\">%s: %s</text>\n",
                    FLAME_WIDTH, height, titles[weight], cell.text);
    flame f = {text, weight, total ? (FLAME_WIDTH - 20) / (double)total : 0};
    add_boxes(&f, report->root.first, 10);
    kn__text_puts(text, "</svg>\n");
}
