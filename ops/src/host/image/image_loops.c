/* Resizing a plane, row by row: the rows around a row of the result are blended, then elements of
 * the blend; back in the other order. Samples at places of a grid, for all channels of a few places
 * at a time. */
#include <string.h>

#include "host/base/loops.h"

/* --- resize --- */

/* The rows of x that make one row of y; linear: up to four. */
typedef struct rows {
    int n;
    int64_t at[4];
    real weight[4];
} rows;

static rows rows_of(const kn__resize_work *w, int64_t z, int64_t h) {
    kn__taps plane = w->plane[z], row = w->row[h];
    if (plane.weight == 0 && row.weight == 0)
        return (rows){1, {(plane.at * w->r.in[1] + row.at) * w->r.in[2]}, {1}};
    rows all = {.n = 0};
    for (int i = 0; i <= (plane.weight != 0); i++)
        for (int k = 0; k <= (row.weight != 0); k++) {
            double weight = i ? plane.weight : 1 - plane.weight;
            weight *= k ? row.weight : 1 - row.weight;
            int64_t at = (i ? plane.next : plane.at) * w->r.in[1] + (k ? row.next : row.at);
            all.at[all.n] = at * w->r.in[2];
            all.weight[all.n++] = (real)weight;
        }
    return all;
}

static void blend(real *restrict to, const real *restrict x, const rows *r, int64_t n) {
    for (int k = 0; k < r->n; k++) {
        const real *restrict from = x + r->at[k];
        real w = r->weight[k];
        for (int64_t i = 0; i < n; i++) to[i] = k ? to[i] + w * from[i] : w * from[i];
    }
}

static void take_row(real *restrict y, const real *restrict x, const kn__resize_work *w) {
    const int32_t *restrict at = w->at, *restrict next = w->next;
    const real *restrict weight = w->weight;
    int64_t n = w->r.out[2];
    if (w->doubles) {
        for (int64_t i = 0; i < n / 2; i++) y[2 * i] = y[2 * i + 1] = x[i];
    } else if (w->r.is_linear) {
        for (int64_t i = 0; i < n; i++) y[i] = x[at[i]] + weight[i] * (x[next[i]] - x[at[i]]);
    } else {
        for (int64_t i = 0; i < n; i++) y[i] = x[at[i]];
    }
}

/* How many rows of y, from row h of plane z on, come from one row of x alone, the same one; else 1.
 */
static int64_t rows_alike(const kn__resize_work *w, int64_t z, int64_t h) {
    const kn__taps *row = w->row + h;
    int64_t n = 1, most = w->r.out[1] - h;
    if (w->plane[z].weight != 0 || row->weight != 0) return 1;
    while (n < most && row[n].weight == 0 && row[n].at == row->at) n++;
    return n;
}

void KN_LOOP(resize_plane)(const kn__resize_work *w, void *y, const void *x, void *row) {
    const kn__resize *r = &w->r;
    const real *in = x;
    real *out = y;
    size_t bytes = (size_t)r->out[2] * sizeof(real);
    for (int64_t z = 0; z < r->out[0]; z++)
        for (int64_t h = 0, n; h < r->out[1]; h += n, out += n * r->out[2]) {
            rows from = rows_of(w, z, h);
            n = rows_alike(w, z, h);
            if (from.n > 1) blend(row, in, &from, r->in[2]);
            take_row(out, from.n > 1 ? row : in + from.at[0], w);
            for (int64_t k = 1; k < n; k++) memcpy(out + k * r->out[2], out, bytes);
        }
}

/* Neighbours that come from one element are added up first. */
static void put_row(real *restrict dx, const real *restrict g, const kn__resize_work *w) {
    const int32_t *restrict at = w->at, *restrict next = w->next;
    const real *restrict weight = w->weight;
    int64_t n = w->r.out[2], i = 0;
    if (w->doubles) {
        for (int64_t j = 0; j < n / 2; j++) dx[j] += g[2 * j] + g[2 * j + 1];
        return;
    }
    while (i < n && !w->r.is_linear) {
        int32_t to = at[i];
        real sum = g[i++];
        for (; i < n && at[i] == to; i++) sum += g[i];
        dx[to] += sum;
    }
    for (; i < n; i++) {
        real right = weight[i] * g[i];
        dx[at[i]] += g[i] - right;
        dx[next[i]] += right;
    }
}

/* The sum of n rows one after the other. */
static void add_rows(real *restrict to, const real *restrict from, int64_t n, int64_t width) {
    for (int64_t i = 0; i < width; i++) to[i] = from[i] + from[width + i];
    for (int64_t k = 2; k < n; k++)
        for (int64_t i = 0; i < width; i++) to[i] += from[k * width + i];
}

void KN_LOOP(resize_back_plane)(const kn__resize_work *w, void *dx, const void *g, void *row) {
    const kn__resize *r = &w->r;
    const real *in = g, *part = row;
    real *out = dx;
    size_t bytes = (size_t)r->in[2] * sizeof(real);
    memset(dx, 0, (size_t)(r->in[0] * r->in[1]) * bytes);
    for (int64_t z = 0; z < r->out[0]; z++)
        for (int64_t h = 0, n; h < r->out[1]; h += n, in += n * r->out[2]) {
            rows to = rows_of(w, z, h);
            n = rows_alike(w, z, h);
            if (n > 1) add_rows(row, in, n, r->out[2]);
            if (to.n == 1) {
                put_row(out + to.at[0], n > 1 ? part : in, w);
                continue;
            }
            memset(row, 0, bytes);
            put_row(row, in, w);
            for (int k = 0; k < to.n; k++)
                for (int64_t i = 0; i < r->in[2]; i++) out[to.at[k] + i] += to.weight[k] * part[i];
        }
}

/* --- samples --- */

typedef struct places {
    int64_t at[4][KN_GRID_RUN];
    real weight[4][KN_GRID_RUN], by_column[4][KN_GRID_RUN], by_row[4][KN_GRID_RUN];
} places;

/* Of a double without a fraction; not every instruction set has the conversion for vectors. */
static inline int64_t whole(double x) {
    const double shift = 0x1.8p52; /* lowest bit: 1 */
    int64_t bits, base;
    x += shift;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&base, &shift, sizeof base);
    return bits - base;
}

enum { WEIGHTS, SLOPES };

/* Of n numbers of the grid from place `first` on: the elements, and their weights or slopes. */
static inline __attribute__((always_inline)) void places_of(places *restrict p, const kn__grid *g,
                                                            const void *grid, int64_t first,
                                                            int64_t n, bool nearest, int what) {
    const real *restrict number = (const real *)grid + 2 * first;
    const kn__grid sizes = *g;
    for (int64_t i = 0; i < n; i++) {
        double column = (double)number[2 * i], row = (double)number[2 * i + 1];
        kn__corners c = kn__grid_corners(&sizes, column, row, nearest);
        for (int k = 0; k < (nearest ? 1 : 4); k++) {
            p->at[k][i] = whole(c.at[k]);
            if (!nearest && what == WEIGHTS) p->weight[k][i] = (real)c.weight[k];
            if (what == WEIGHTS) continue;
            p->by_column[k][i] = (real)c.by_column[k];
            p->by_row[k][i] = (real)c.by_row[k];
        }
    }
}

static inline real element(const real *x, int64_t at) {
    real value = x[at < 0 ? 0 : at];
    return at < 0 ? 0 : value;
}

/* Sums begin with 0, also of one element: -0 becomes 0. */
static inline __attribute__((always_inline)) void sample(const kn__grid *g, real *y, const real *x,
                                                         const void *grid, int64_t first, int64_t n,
                                                         bool nearest) {
    places p;
    places_of(&p, g, grid, first, n, nearest, WEIGHTS);
    for (int64_t c = 0; c < g->channels; c++) {
        const real *restrict in = x + c * g->in[0] * g->in[1];
        real *restrict out = y + c * g->places + first;
        for (int64_t i = 0; i < n; i++) {
            real sum = 0;
            for (int k = 0; k < (nearest ? 1 : 4); k++)
                sum += (nearest ? 1 : p.weight[k][i]) * element(in, p.at[k][i]);
            out[i] = sum;
        }
    }
}

void KN_LOOP(grid_sample)(const kn__grid *g, void *y, const void *x, const void *grid,
                          int64_t first, int64_t n) {
    if (g->nearest) {
        sample(g, y, x, grid, first, n, true);
    } else {
        sample(g, y, x, grid, first, n, false);
    }
}

static inline __attribute__((always_inline)) void back_x(const kn__grid *g, real *dx,
                                                         const real *dy, const void *grid,
                                                         int64_t channels, bool nearest) {
    int64_t plane = g->in[0] * g->in[1];
    places p;
    memset(dx, 0, (size_t)(channels * plane) * sizeof(real));
    for (int64_t first = 0; first < g->places; first += KN_GRID_RUN) {
        int64_t n = g->places - first < KN_GRID_RUN ? g->places - first : KN_GRID_RUN;
        places_of(&p, g, grid, first, n, nearest, WEIGHTS);
        for (int64_t c = 0; c < channels; c++) {
            const real *restrict in = dy + c * g->places + first;
            real *restrict out = dx + c * plane;
            for (int64_t i = 0; i < n; i++)
                for (int k = 0; k < (nearest ? 1 : 4); k++)
                    if (p.at[k][i] >= 0) out[p.at[k][i]] += (nearest ? 1 : p.weight[k][i]) * in[i];
        }
    }
}

void KN_LOOP(grid_back_x)(const kn__grid *g, void *dx, const void *dy, const void *grid,
                          int64_t channels) {
    if (g->nearest) {
        back_x(g, dx, dy, grid, channels, true);
    } else {
        back_x(g, dx, dy, grid, channels, false);
    }
}

/* Not of the nearest elements, which don't change along the grid's numbers. */
void KN_LOOP(grid_back_grid)(const kn__grid *g, void *dgrid, const void *x, const void *dy,
                             const void *grid, int64_t first, int64_t n) {
    real sum[2][KN_GRID_RUN] = {{0}}, *out = (real *)dgrid + 2 * first;
    places p;
    places_of(&p, g, grid, first, n, false, SLOPES);
    for (int64_t c = 0; c < g->channels; c++) {
        const real *restrict in = (const real *)x + c * g->in[0] * g->in[1];
        const real *restrict d = (const real *)dy + c * g->places + first;
        for (int64_t i = 0; i < n; i++) {
            for (int k = 0; k < 4; k++) {
                real part = d[i] * element(in, p.at[k][i]);
                sum[0][i] += p.by_column[k][i] * part;
                sum[1][i] += p.by_row[k][i] * part;
            }
        }
    }
    for (int64_t i = 0; i < n; i++) out[2 * i] = sum[0][i], out[2 * i + 1] = sum[1][i];
}
