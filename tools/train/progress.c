#include <inttypes.h>
#include <knet/progress.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "now.h"
#include "user_locale.h"

enum { CELLS = 20, CELLS_LEAST = 5, COLUMNS_UNKNOWN = 80, SHOW_EVERY_NS = 125000000 };

/* Appends to a text; what doesn't fit is left out. */
static void add(char *out, size_t out_bytes, const char *text) {
    strncat(out, text, out_bytes - strlen(out) - 1);
}

/* Characters of UTF-8, which take a column each here. */
static int width(const char *text) {
    int n = 0;
    for (; *text; text++) n += (*text & 0xc0) != 0x80;
    return n;
}

static void cut(char *text, int columns) {
    for (; *text; text++)
        if ((*text & 0xc0) != 0x80 && columns-- == 0) break;
    *text = '\0';
}

static void add_bar_ascii(char *out, size_t out_bytes, double share, int n_cells) {
    int full = (int)(share * n_cells);
    add(out, out_bytes, "[");
    for (int i = 0; i < n_cells; i++) add(out, out_bytes, i < full ? "#" : " ");
    add(out, out_bytes, "] ");
}

/* Cells in eighths: full blocks, one partial block, spaces. */
static void add_bar(char *out, size_t out_bytes, double share, int n_cells) {
    static const char *const eighth[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int eighths = (int)(share * n_cells * 8); /* not rounded: full only at the end */
    int full = eighths / 8, part = eighths % 8;
    add(out, out_bytes, "┣");
    for (int i = 0; i < full; i++) add(out, out_bytes, "█");
    add(out, out_bytes, eighth[part]);
    for (int i = full + (part > 0); i < n_cells; i++) add(out, out_bytes, " ");
    add(out, out_bytes, "┫ ");
}

/* 01:36, or 1:02:36 from an hour on. */
static void clock_text(char *out, size_t out_bytes, double seconds) {
    int64_t s = seconds < 1e12 ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(out, out_bytes, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60),
                 (int)(s % 60));
    } else {
        snprintf(out, out_bytes, "%02d:%02d", (int)(s / 60), (int)(s % 60));
    }
}

/* The numbers, from the one that goes last in a narrow terminal. */
enum { N_NUMBERS = 4 };
typedef struct numbers {
    char text[N_NUMBERS][72];
} numbers;

static numbers numbers_make(double share, int64_t first, int64_t done, int64_t total,
                            double seconds) {
    numbers n;
    char elapsed[32], expected[32];
    clock_text(elapsed, sizeof elapsed, seconds);
    int64_t made = done - first;
    double left = share < 1 ? (double)(total - first) : (double)made;
    clock_text(expected, sizeof expected, made > 0 ? seconds * left / (double)made : 0);
    double per_second = seconds > 0 ? (double)made / seconds : 0;
    snprintf(n.text[0], sizeof n.text[0], "%.2f%%", 100 * share);
    snprintf(n.text[1], sizeof n.text[1], "%" PRId64 "/%" PRId64, done, total);
    snprintf(n.text[2], sizeof n.text[2], "%s/%s", elapsed, expected);
    if (per_second >= 1 || made == 0) {
        snprintf(n.text[3], sizeof n.text[3], "%.2fi/s", per_second);
    } else {
        snprintf(n.text[3], sizeof n.text[3], "%.2fs/i", seconds / (double)made);
    }
    return n;
}

/* "[86.83%, 903/1040] message" */
static void add_numbers(char *out, size_t out_bytes, const numbers *n, int n_shown,
                        const char *message) {
    for (int i = 0; i < n_shown; i++) {
        add(out, out_bytes, i ? ", " : "[");
        add(out, out_bytes, n->text[i]);
    }
    add(out, out_bytes, *message ? "] " : "]");
    add(out, out_bytes, message);
}

/* Numbers go one by one until a bar of CELLS_LEAST fits beside the rest, then the bar goes. */
static void add_line(char *out, size_t out_bytes, int columns, int64_t first, int64_t done,
                     int64_t total, double seconds, const char *message, bool ascii) {
    enum { EDGES = 3 };
    char rest[512];
    double share = total > 0 ? (double)done / (double)total : 1;
    if (share > 1) share = 1;
    numbers n = numbers_make(share, first, done, total, seconds);
    int n_shown = N_NUMBERS, cells = CELLS;
    for (;; n_shown--) {
        rest[0] = '\0';
        add_numbers(rest, sizeof rest, &n, n_shown, message);
        if (columns > 0) cells = columns - EDGES - width(rest);
        if (cells >= CELLS_LEAST || n_shown == 1) break;
    }
    out[0] = '\0';
    if (cells > CELLS) cells = CELLS;
    if (cells >= CELLS_LEAST) (ascii ? add_bar_ascii : add_bar)(out, out_bytes, share, cells);
    add(out, out_bytes, rest);
    if (columns > 0) cut(out, columns);
}

char *kn_progress_text(char *out, size_t out_bytes, int columns, int64_t done, int64_t total,
                       double seconds, const char *message) {
    add_line(out, out_bytes, columns, 0, done, total, seconds, message, false);
    return out;
}

/* Other terminals would show the escape sequence that erases the rest of a line. */
static bool can_erase(FILE *out) {
    const char *type = getenv("TERM");
    return isatty(fileno(out)) && type && *type && strcmp(type, "dumb") != 0;
}

kn_progress kn_progress_begin(FILE *out, int64_t total) {
    bool on = out && can_erase(out);
    uint64_t now = on ? kn__now_ns(CLOCK_MONOTONIC) : 0;
    return (kn_progress){.out = on ? out : NULL, .total = total, .begin_ns = now, .shown_ns = now};
}

void kn_progress_from(kn_progress *p, int64_t done) { p->first = done; }

bool kn_progress_due(const kn_progress *p) {
    return p->out && kn__now_ns(CLOCK_MONOTONIC) - p->shown_ns >= SHOW_EVERY_NS;
}

/* Asked each time: terminals change. A line that fills the last column would wrap in some. */
static int columns_of(FILE *out) {
    struct winsize size = {0};
    int columns = COLUMNS_UNKNOWN;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) columns = size.ws_col;
    return columns > 1 ? columns - 1 : 1;
}

void kn_progress_show(kn_progress *p, int64_t done, const char *message) {
    if (!p->out) return;
    char text[512];
    p->shown_ns = kn__now_ns(CLOCK_MONOTONIC);
    add_line(text, sizeof text, columns_of(p->out), p->first, done, p->total,
             (double)(p->shown_ns - p->begin_ns) * 1e-9, message, !kn__locale_is_utf8());
    fprintf(p->out, "\r%s\033[K", text);
    fflush(p->out);
}

void kn_progress_clear(kn_progress *p) {
    if (!p->out) return;
    fputs("\r\033[K", p->out);
    fflush(p->out);
}

void kn_progress_end(kn_progress *p) {
    kn_progress_clear(p);
    p->out = NULL;
}
