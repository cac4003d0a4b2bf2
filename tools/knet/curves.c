#include "curves.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { POINTS_MAX = 400 }; /* more epochs are lines alone */
enum { WIDTH = 640, PANEL = 240, LEFT = 64, RIGHT = 120, TOP = 40, BOTTOM = 32, TICKS = 4 };

typedef struct curve {
    const char *name, *color;
    double (*value)(const kn_epoch *epoch);
} curve;

typedef struct panel {
    const char *title;
    const curve *curves;
    int n_curves;
    double factor; /* of the values, for people */
    const char *unit;
} panel;

static double train_loss(const kn_epoch *e) { return e->loss; }
static double test_loss(const kn_epoch *e) { return e->test_loss; }
static double test_accuracy(const kn_epoch *e) { return e->accuracy; }

static const curve losses[] = {{"training", "#0072b2", train_loss}, {"test", "#d55e00", test_loss}};
static const curve accuracies[] = {{"test", "#d55e00", test_accuracy}};
static const panel panels[] = {{"loss", losses, 2, 1, ""}, {"accuracy", accuracies, 1, 100, " %"}};

/* The values' range; false: no curve has a value. */
static bool range_of(double *lo, double *hi, const panel *p, const kn_epoch epochs[], int64_t n) {
    *lo = (double)INFINITY;
    *hi = -(double)INFINITY;
    for (int c = 0; c < p->n_curves; c++) {
        for (int64_t i = 0; i < n; i++) {
            double y = p->factor * p->curves[c].value(&epochs[i]);
            if (!isfinite(y)) continue;
            *lo = fmin(*lo, y);
            *hi = fmax(*hi, y);
        }
    }
    double room = *hi > *lo ? 0.05 * (*hi - *lo) : 0.5;
    bool some = *lo <= *hi;
    *lo -= room;
    *hi += room;
    return some;
}

/* Where epochs are missing there is a gap. */
static double x_of(int64_t i, const kn_epoch epochs[], int64_t n) {
    double first = (double)epochs[0].index, length = (double)epochs[n - 1].index - first;
    double part = length > 0 ? ((double)epochs[i].index - first) / length : 0.5;
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}
static double y_of(double y, double lo, double hi) {
    return TOP + (hi - y) / (hi - lo) * (PANEL - TOP - BOTTOM);
}

static void curve_draw(kn__text *out, const curve *c, const panel *p, const kn_epoch epochs[],
                       int64_t n, const double range[2], int place) {
    kn__text_printf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
                    c->color);
    bool any = false;
    for (int64_t i = 0; i < n; i++) {
        double y = p->factor * c->value(&epochs[i]);
        if (!isfinite(y)) continue;
        any = true;
        kn__text_printf(out, "%.1f,%.1f ", x_of(i, epochs, n), y_of(y, range[0], range[1]));
    }
    kn__text_puts(out, "\"/>\n");
    for (int64_t i = 0; n <= POINTS_MAX && i < n; i++) {
        double y = p->factor * c->value(&epochs[i]);
        if (!isfinite(y)) continue;
        kn__text_printf(out,
                        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"><title>epoch %" PRId64
                        ": %.4g%s</title></circle>\n",
                        x_of(i, epochs, n), y_of(y, range[0], range[1]), c->color, epochs[i].index,
                        y, p->unit);
    }
    if (any)
        kn__text_printf(out, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", WIDTH - RIGHT + 16,
                        TOP + 8 + 18 * place, c->color, c->name);
}

static void axes_draw(kn__text *out, const panel *p, const kn_epoch epochs[], int64_t n,
                      const double range[2]) {
    kn__text_printf(out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", LEFT, TOP - 12,
                    p->title);
    for (int i = 0; i <= TICKS; i++) {
        double y = range[0] + (range[1] - range[0]) * i / TICKS, at = y_of(y, range[0], range[1]);
        kn__text_printf(out,
                        "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                        "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g%s</text>\n",
                        LEFT, WIDTH - RIGHT, at, at, LEFT - 8, at + 4, y, p->unit);
    }
    for (int64_t i = 0; i<n; i += n> 10 ? (n + 9) / 10 : 1)
        kn__text_printf(out,
                        "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%" PRId64 "</text>\n",
                        x_of(i, epochs, n), PANEL - BOTTOM + 20, epochs[i].index);
    kn__text_printf(out, "<text x=\"%d\" y=\"%d\">epoch</text>\n", WIDTH - RIGHT + 16,
                    PANEL - BOTTOM + 20);
}

void kn__curves_note(kn__text *out, const kn_epoch *e) {
    kn__text_printf(out, "<!-- epoch %" PRId64 " %.17g %.17g %.17g -->\n", e->index, e->loss,
                    e->test_loss, e->accuracy);
}

void kn__curves_svg(kn__text *out, const char *title, const kn_epoch epochs[], int64_t n) {
    double range[2][2];
    bool shown[2];
    int n_shown = 0;
    for (int i = 0; i < 2; i++) {
        shown[i] = range_of(&range[i][0], &range[i][1], &panels[i], epochs, n);
        n_shown += shown[i];
    }
    kn__text_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                    "font-family=\"sans-serif\" font-size=\"12\">\n<title>%s</title>\n"
                    "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                    WIDTH, n_shown * PANEL, title);
    for (int64_t i = 0; i < n; i++) kn__curves_note(out, &epochs[i]);
    for (int i = 0, at = 0; i < 2; i++) {
        const panel *p = &panels[i];
        if (!shown[i]) continue;
        kn__text_printf(out, "<g transform=\"translate(0 %d)\">\n", PANEL * at++);
        axes_draw(out, p, epochs, n, range[i]);
        for (int c = 0; c < p->n_curves; c++)
            curve_draw(out, &p->curves[c], p, epochs, n, range[i], c);
        kn__text_puts(out, "</g>\n");
    }
    kn__text_puts(out, "</svg>\n");
}

int64_t kn__curves_read(kn_epoch **out, const char *path, int64_t before) {
    struct stat s;
    bool is_regular = stat(path, &s) == 0 && S_ISREG(s.st_mode); /* reading takes a pipe's writer */
    FILE *file = is_regular ? fopen(path, "r") : NULL;
    char *line = NULL;
    size_t line_bytes = 0;
    int64_t n = 0;
    kn_epoch e = {.index = 0};
    while (file && getline(&line, &line_bytes, file) >= 0) {
        if (sscanf(line, "<!-- epoch %" SCNd64 " %lf %lf %lf -->", &e.index, &e.loss, &e.test_loss,
                   &e.accuracy) != 4 ||
            e.index >= before)
            continue;
        kn_epoch *more = realloc(*out, (size_t)(n + 1) * sizeof *more);
        if (!more) break;
        *out = more;
        more[n++] = e;
    }
    free(line);
    if (file) fclose(file);
    return n;
}
