/* Gradients of ops of images. */
#include "grad_cases.h"

#define RESIZE(name, size, ...)                                                                    \
    F(name) {                                                                                      \
        CTX;                                                                                       \
        return kn_resize(x[0], size, &(kn_resize_options){__VA_ARGS__});                           \
    }
RESIZE(f_nearest, KN_SHAPE(5, 3), .mode = KN_RESIZE_NEAREST)
RESIZE(f_enlarged, KN_SHAPE(13, 9), .mode = KN_RESIZE_NEAREST) /* up to five rows alike */
RESIZE(f_volume, KN_SHAPE(5, 3, 4), .mode = KN_RESIZE_NEAREST)
RESIZE(f_doubled, KN_SHAPE(5, 3, 6), .mode = KN_RESIZE_NEAREST)
RESIZE(f_exact, KN_SHAPE(7), .mode = KN_RESIZE_EXACT)
RESIZE(f_linear, KN_SHAPE(7, 3), .mode = KN_RESIZE_LINEAR)
RESIZE(f_corners, KN_SHAPE(2, 3, 5), .mode = KN_RESIZE_CORNERS)
RESIZE(f_scaled, KN_SCALAR, .mode = KN_RESIZE_LINEAR, .scale = {0.6, 1.7})

static kn_tensor *resized_back(kn_tensor *g) {
    kn_attr_resize attr = {.ratio = {3.0 / 5, 4.0 / 3},
                           .in = {3, 4},
                           .out = {5, 3},
                           .n_spatial = 2,
                           .mode = KN_RESIZE_LINEAR};
    return KN_CALL(resize_back, &attr, g);
}
F(f_resize_back) {
    CTX;
    return resized_back(kn_square(x[0]));
}

F(f_shuffle) {
    CTX;
    return kn_mul(kn_pixel_shuffle(x[0], 2),
                  kn_resize(kn_pixel_unshuffle(x[0], 1), KN_SHAPE(4, 6), NULL));
}

#define WINDOWS                                                                                    \
    &(kn_unfold_options) {                                                                         \
        .stride = {2, 1}, .padding = {1}, .dilation = { 1, 2 }                                     \
    }
F(f_unfold) {
    CTX;
    return kn_unfold(kn_square(x[0]), KN_SHAPE(2, 2), WINDOWS);
}
F(f_fold) {
    CTX;
    return kn_fold(kn_square(x[0]), KN_SHAPE(3, 4), KN_SHAPE(2, 2), WINDOWS);
}
F(f_affine) {
    CTX;
    return kn_affine_grid(kn_square(x[0]), 2, 3, false);
}

/* Places between elements, away from those where the slope jumps: x[1] in -1 … 1 moves them by 0.06
 * elements. */
static kn_tensor *places(kn_tensor *x) {
    kn_tensor *middle =
        F64(KN_SHAPE(1, 2, 3, 2), -0.5, -0.31, 0.55, 0.37, 0, -0.33, 0.5, 0.3, 2, -0.3, -1.6, 0.35);
    return kn_add(middle, kn_affine(x, 0.03, 0));
}
#define GRID(name, ...)                                                                            \
    F(name) {                                                                                      \
        CTX;                                                                                       \
        return kn_grid_sample(x[0], places(x[1]), &(kn_grid_options){__VA_ARGS__});                \
    }
GRID(f_grid, .border = 0)
GRID(f_grid_border, .border = 1)
F(f_grid_nearest) { /* away from halves */
    CTX;
    kn_tensor *grid = kn_affine(places(x[1]), 1, 0.05);
    return kn_grid_sample(x[0], grid, &(kn_grid_options){.nearest = 1});
}

#define ONCE(op, f, n, ...)                                                                        \
    { KN_OP_##op, #f, f, n, {__VA_ARGS__}, -1, 1, true }

const grad_case grad_image_cases[] = {
    CASE(resize, f_nearest, -1, 1, 1, C1(2, 1, 3, 4)),
    CASE(resize, f_enlarged, -1, 1, 1, C1(1, 2, 3, 2)),
    CASE(resize, f_volume, -1, 1, 1, C1(1, 1, 2, 2, 3)),
    CASE(resize, f_doubled, -1, 1, 1, C1(1, 1, 2, 2, 3)),
    CASE(resize, f_exact, -1, 1, 1, C1(2, 2, 3)),
    CASE(resize, f_linear, -1, 1, 1, C1(1, 2, 3, 5)),
    CASE(resize, f_corners, -1, 1, 1, C1(1, 1, 3, 2, 2)),
    CASE(resize, f_scaled, -1, 1, 1, C1(1, 1, 5, 3)),
    CASE(resize_back, f_resize_back, -1, 1, 1, C1(1, 2, 5, 3)),
    CASE(resize, f_shuffle, -1, 1, 1, C1(1, 4, 2, 3)),
    CASE(index_select, f_unfold, -1, 1, 1, C1(1, 2, 3, 4)),
    CASE(index_add, f_fold, -1, 1, 1, C1(1, 8, 4)),
    CASE(matmul, f_affine, -1, 1, 1, C1(2, 2, 3)),
    ONCE(grid_sample, f_grid, 2, C1(1, 2, 4, 4), C1(1, 2, 3, 2)),
    ONCE(grid_sample, f_grid_border, 2, C1(1, 2, 4, 4), C1(1, 2, 3, 2)),
    ONCE(grid_sample, f_grid_nearest, 2, C1(1, 2, 4, 4), C1(1, 2, 3, 2)),
};
const int n_grad_image_cases = sizeof grad_image_cases / sizeof *grad_image_cases;
