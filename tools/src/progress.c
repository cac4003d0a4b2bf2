#include <inttypes.h>
#include <knet/progress.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 20, SHOW_EVERY_NS = 125000000 };

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* 20 cells of eighths: full blocks, one partial block, spaces. */
static void bar_text(char *out, size_t out_bytes, double share) {
    static const char *const eighth[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int eighths = (int)(share * CELLS * 8); /* not rounded: full only at the end */
    int full = eighths / 8, part = eighths % 8;
    out[0] = '\0';
    for (int i = 0; i < full; i++) strncat(out, "█", out_bytes - strlen(out) - 1);
    strncat(out, eighth[part], out_bytes - strlen(out) - 1);
    for (int i = full + (part > 0); i < CELLS; i++) strncat(out, " ", out_bytes - strlen(out) - 1);
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

char *kn_progress_text(char *out, size_t out_bytes, int64_t done, int64_t total, double seconds,
                       const char *message) {
    char bar[CELLS * 4], elapsed[32], expected[32], rate[48];
    double share = total > 0 ? (double)done / (double)total : 1;
    if (share > 1) share = 1;
    bar_text(bar, sizeof bar, share);
    clock_text(elapsed, sizeof elapsed, seconds);
    clock_text(expected, sizeof expected, share > 0 ? seconds / share : 0);
    double per_second = seconds > 0 ? (double)done / seconds : 0;
    if (per_second >= 1 || done == 0) {
        snprintf(rate, sizeof rate, "%.2fi/s", per_second);
    } else {
        snprintf(rate, sizeof rate, "%.2fs/i", seconds / (double)done);
    }
    snprintf(out, out_bytes, "┣%s┫ [%.2f%%, %" PRId64 "/%" PRId64 ", %s/%s, %s]%s%s", bar,
             100 * share, done, total, elapsed, expected, rate, *message ? " " : "", message);
    return out;
}

kn_progress kn_progress_begin(FILE *out, int64_t total) {
    bool on = out && isatty(fileno(out));
    uint64_t now = on ? now_ns() : 0;
    return (kn_progress){.out = on ? out : NULL, .total = total, .begin_ns = now, .shown_ns = now};
}

bool kn_progress_due(const kn_progress *p) {
    return p->out && now_ns() - p->shown_ns >= SHOW_EVERY_NS;
}

void kn_progress_show(kn_progress *p, int64_t done, const char *message) {
    if (!p->out) return;
    char text[512];
    p->shown_ns = now_ns();
    kn_progress_text(text, sizeof text, done, p->total, (double)(p->shown_ns - p->begin_ns) * 1e-9,
                     message);
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
