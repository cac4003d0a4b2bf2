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

/* Along one axis: the whole number before the place, or nearest to it; how far behind that the
 * place is, and the slope of this by the grid's number. Without a branch: loops over places are
 * vectors. */
typedef struct kn__grid_axis {
    double at, part, slope;
} kn__grid_axis;

static inline KN_HOST_DEVICE kn__grid_axis kn__grid_axis_of(const kn__grid *g, int d, double c,
                                                            bool nearest) {
    double n = (double)g->in[d], most = n - 1;
    double slope = g->align ? most / 2 : n / 2;
    double first = g->border ? 0 : -2, last = g->border ? most : n + 1; /* -2: outside */
    c = c == c ? c : -1;
    c = c < -1e30 ? -1e30 : c > 1e30 ? 1e30 : c; /* outside too; a slope of 0 makes no NaN of it */
    double place = KN_ADD_F64(KN_MUL_F64(KN_ADD_F64(c, 1), slope), g->align ? 0 : -0.5);
    bool before = place <= first, behind = place >= last;
    place = before ? first : place;
    place = behind ? last : place;
    double at = nearest ? KN_NEAREST_F64(place) : KN_FLOOR_F64(place + 2) - 2;
    bool slopes = !nearest & !before & !behind;
    kn__grid_axis a = {at, nearest ? 0 : place - at, slopes ? slope : 0};
    return a;
}

/* The elements around a place, of a plane, -1: outside; their weights; and the weights' slopes by
 * the column's and by the row's number. Nearest: one element of weight 1. */
typedef struct kn__corners {
    double at[4], weight[4], by_column[4], by_row[4];
} kn__corners;

static inline KN_HOST_DEVICE kn__corners kn__grid_corners(const kn__grid *g, double column,
                                                          double row, bool nearest) {
    kn__grid_axis y = kn__grid_axis_of(g, 0, row, nearest);
    kn__grid_axis x = kn__grid_axis_of(g, 1, column, nearest);
    double rows = (double)g->in[0], columns = (double)g->in[1];
    kn__corners c;
    for (int k = 0; k < 4; k++) {
        int down = k / 2, right = k % 2;
        double i = y.at + down, j = x.at + right;
        double wy = down ? y.part : 1 - y.part, wx = right ? x.part : 1 - x.part;
        bool inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns) & (!nearest || k == 0);
        c.weight[k] = wy * wx;
        c.by_column[k] = (right ? x.slope : -x.slope) * wy;
        c.by_row[k] = (down ? y.slope : -y.slope) * wx;
        c.at[k] = inside ? i * columns + j : -1;
    }
    return c;
}

#endif
