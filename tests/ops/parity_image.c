/* Cases of resizing images, and of samples at the places of a grid. */
#include "parity_case.h"

/* --- resize --- */

static parity_operand planes(int64_t batch, int64_t channels, const int64_t *size, int n) {
    parity_operand o = {.fill = FILL_UNIFORM, .shape = {{batch, channels}, 2 + n}};
    for (int i = 0; i < n; i++) o.shape.dim[2 + i] = size[i];
    return o;
}

static void resize_of(int n, const int64_t *in, const int64_t *out, double ratio) {
    for (int mode = KN_RESIZE_NEAREST; mode <= KN_RESIZE_CORNERS; mode++) {
        kn_attr_resize attr = {.n_spatial = n, .mode = mode};
        for (int i = 0; i < n; i++) {
            attr.in[i] = in[i], attr.out[i] = out[i], attr.ratio[i] = ratio;
            if (mode == KN_RESIZE_CORNERS)
                attr.ratio[i] = out[i] > 1 ? (double)(in[i] - 1) / (double)(out[i] - 1) : 0;
            else if (ratio == 0 && mode == KN_RESIZE_LINEAR)
                attr.ratio[i] = (double)in[i] / (double)out[i];
        }
        parity_operand large = planes(2, 3, in, n), small = planes(2, 3, out, n);
        parity_case *c = parity_add(KN_OP_resize, COMPARE_CLOSE);
        c->n_in = 1, c->in[0] = large, c->out[0] = like(small, FILL_GUARD);
        set_attr(c, &attr, sizeof attr);
        c = parity_add(KN_OP_resize_back, COMPARE_CLOSE);
        c->n_in = 1, c->in[0] = small, c->out[0] = like(large, FILL_GUARD);
        set_attr(c, &attr, sizeof attr);
    }
}

static void resize_cases(void) {
    resize_of(1, (int64_t[]){1}, (int64_t[]){1}, 0);
    resize_of(1, (int64_t[]){7}, (int64_t[]){19}, 0);
    resize_of(1, (int64_t[]){1}, (int64_t[]){6}, 0);
    resize_of(2, (int64_t[]){5, 7}, (int64_t[]){11, 13}, 0);
    resize_of(2, (int64_t[]){31, 29}, (int64_t[]){7, 3}, 0);
    resize_of(2, (int64_t[]){16, 12}, (int64_t[]){32, 24}, 0.5);
    resize_of(2, (int64_t[]){9, 9}, (int64_t[]){9, 1}, 0);
    resize_of(2, (int64_t[]){10, 6}, (int64_t[]){6, 4}, 1 / 0.67);
    resize_of(2, (int64_t[]){7, 5}, (int64_t[]){9, 24}, 0);
    resize_of(2, (int64_t[]){4, 3}, (int64_t[]){18, 400}, 0); /* four rows alike and more */
    resize_of(3, (int64_t[]){3, 4, 5}, (int64_t[]){2, 5, 12}, 0);
    resize_of(3, (int64_t[]){3, 4, 5}, (int64_t[]){7, 2, 11}, 0);
}

/* --- grid --- */

static void grid_of(int64_t batch, int64_t channels, const int64_t *in, const int64_t *out,
                    parity_fill fill) {
    for (int i = 0; i < 8; i++) {
        kn_attr_grid attr = {i & 1, i >> 1 & 1, i >> 2 & 1, 0};
        parity_operand x = planes(batch, channels, in, 2), y = planes(batch, channels, out, 2);
        parity_operand grid = {.fill = fill, .shape = {{batch, out[0], out[1], 2}, 4}};
        parity_case *c = parity_add(KN_OP_grid_sample, COMPARE_CLOSE);
        c->n_in = 2, c->in[0] = x, c->in[1] = grid, c->out[0] = like(y, FILL_GUARD);
        c->one_dtype = true; /* which elements are near depends on rounding */
        set_attr(c, &attr, sizeof attr);
        c = parity_add(KN_OP_grid_sample_back, COMPARE_CLOSE);
        c->n_in = 3, c->in[0] = x, c->in[1] = grid, c->in[2] = y;
        c->out[0] = like(x, FILL_GUARD), c->out[1] = like(grid, FILL_GUARD);
        c->one_dtype = true;
        set_attr(c, &attr, sizeof attr);
    }
}

void parity_image_cases(void) {
    resize_cases();
    grid_of(1, 1, (int64_t[]){1, 1}, (int64_t[]){1, 1}, FILL_UNIFORM);
    grid_of(2, 3, (int64_t[]){5, 7}, (int64_t[]){4, 9}, FILL_UNIFORM);
    grid_of(1, 11, (int64_t[]){70, 33}, (int64_t[]){17, 19}, FILL_UNIFORM);
    grid_of(2, 2, (int64_t[]){4, 3}, (int64_t[]){5, 6}, FILL_ABOVE_ONE);
    grid_of(2, 3, (int64_t[]){40, 30}, (int64_t[]){31, 29}, FILL_UNIFORM);
    grid_of(1, 2, (int64_t[]){6, 5}, (int64_t[]){7, 5}, FILL_SPECIAL);
}
