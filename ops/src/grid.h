/* Where a place of a grid lies in an image, on both devices. Always in double, so that both take
 * the same elements. */
#ifndef KN_GRID_H
#define KN_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "rounded.h"

typedef struct kn__grid {
    int64_t batch, channels, in[2], places; /* in: rows, columns of x; places: of a grid */
    bool nearest, border, align;
} kn__grid;

/* Along one axis: the element before the place, how far behind it the place is, and the slope of
 * that by the grid's number. */
typedef struct kn__grid_axis {
    int64_t at;
    double part, slope;
} kn__grid_axis;

static inline KN_HOST_DEVICE kn__grid_axis kn__grid_axis_of(const kn__grid *g, int d, double c) {
    double n = (double)g->in[d], most = n - 1;
    double slope = g->align ? most / 2 : n / 2;
    if (!(c == c)) c = -1;
    c = c < -1e30 ? -1e30 : c > 1e30 ? 1e30 : c; /* outside too; a slope of 0 makes no NaN of it */
    double place = g->align ? KN_MUL_F64(KN_ADD_F64(c, 1), slope)
                            : KN_ADD_F64(KN_MUL_F64(KN_ADD_F64(c, 1), slope), -0.5);
    if (g->border && place <= 0) place = 0, slope = 0;
    if (g->border && place >= most) place = most, slope = 0;
    if (!(place > -2)) place = -2; /* outside all the same */
    if (!(place < n + 1)) place = n + 1;
    kn__grid_axis a = {0, 0, slope};
    if (g->nearest) {
        double below = (double)(int64_t)(place + 2) - 2, rest = place - below;
        a.at = (int64_t)below;
        if (rest > 0.5 || (rest == 0.5 && a.at % 2)) a.at++;
        a.slope = 0;
        return a;
    }
    a.at = (int64_t)(place + 2) - 2;
    a.part = place - (double)a.at;
    return a;
}

/* The elements around a place, -1: outside; their weights; and the weights' slopes by the column's
 * and by the row's number. */
typedef struct kn__corners {
    int64_t at[4];
    double weight[4], by_column[4], by_row[4];
} kn__corners;

static inline KN_HOST_DEVICE kn__corners kn__grid_corners(const kn__grid *g, double column,
                                                          double row) {
    kn__grid_axis y = kn__grid_axis_of(g, 0, row), x = kn__grid_axis_of(g, 1, column);
    kn__corners c;
    for (int k = 0; k < 4; k++) {
        int down = k / 2, right = k % 2;
        int64_t i = y.at + down, j = x.at + right;
        double wy = down ? y.part : 1 - y.part, wx = right ? x.part : 1 - x.part;
        bool inside = i >= 0 && i < g->in[0] && j >= 0 && j < g->in[1];
        c.weight[k] = wy * wx;
        c.by_column[k] = (right ? x.slope : -x.slope) * wy;
        c.by_row[k] = (down ? y.slope : -y.slope) * wx;
        c.at[k] = inside && (!g->nearest || k == 0) ? i * g->in[1] + j : -1;
    }
    return c;
}

#endif
