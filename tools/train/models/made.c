/* Made-up data of the right shape, which the models can learn: for timing, and where a data set is
 * not at hand. Numbers depend on the split and the sample alone. */
#include <math.h>
#include <stdlib.h>

#include "mix.h"
#include "model.h"

double kn__made_uniform(uint64_t *state) { return kn__uniform(kn__splitmix(state)); }
int64_t kn__made_below(uint64_t *state, int64_t n) {
    return (int64_t)(kn__splitmix(state) % (uint64_t)n);
}
static uint64_t seed_of(kn_split split) { return split == KN_TEST ? 2 : 1; }

static int64_t numel_of(kn_shape s) {
    int64_t n = 1;
    for (int i = 0; i < s.n_dims; i++) n *= s.dim[i];
    return n;
}

kn_status kn__made_samples(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split,
                           kn__made_fn fill, kn_dtype x_dtype, kn_shape y, kn_dtype y_dtype) {
    kn_shape xs = {.n_dims = facts->x.n_dims + 1}, ys = {.n_dims = y.n_dims + 1};
    size_t x_bytes = (size_t)numel_of(facts->x) * kn_dtype_bytes(x_dtype);
    size_t y_bytes = (size_t)numel_of(y) * kn_dtype_bytes(y_dtype);
    xs.dim[0] = ys.dim[0] = n;
    for (int i = 0; i < facts->x.n_dims; i++) xs.dim[i + 1] = facts->x.dim[i];
    for (int i = 0; i < y.n_dims; i++) ys.dim[i + 1] = y.dim[i];
    uint64_t state = seed_of(split);
    char *xv = calloc((size_t)n, x_bytes), *yv = calloc((size_t)n, y_bytes);
    kn_status status = KN_OK;
    if (!xv || !yv) {
        status = KN_FAIL(KN_ERR_OOM, "no memory for %lld made-up samples", (long long)n);
    } else {
        for (int64_t i = 0; i < n; i++)
            fill(xv + (size_t)i * x_bytes, yv + (size_t)i * y_bytes, facts, &state);
        KN_FRAME(.device = kn_device_host(), .record = KN_OFF);
        status = kn_dataset_create(out, kn_tensor_from(xv, x_dtype, xs),
                                   kn_tensor_from(yv, y_dtype, ys), 0);
    }
    free(xv);
    free(yv);
    return status;
}

/* A line through n dimensions, with noise. */
static void line_fill(void *x_, void *y_, const kn_model_facts *facts, uint64_t *state) {
    float *x = x_, *y = y_;
    double sum = 0.5;
    for (int64_t i = 0; i < facts->x.dim[0]; i++) {
        x[i] = (float)(2 * kn__made_uniform(state) - 1);
        sum += ((double)(i % 5) - 2) * (double)x[i];
    }
    y[0] = (float)(sum + 0.1 * kn__made_uniform(state));
}
kn_status kn__made_line(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split) {
    return kn__made_samples(out, facts, n, split, line_fill, KN_F32, KN_SHAPE(1), KN_F32);
}

/* Images, with marks 0 or 1: of those that are set, each makes its own rows brighter. */
static void marks_fill(void *x_, void *y_, const kn_model_facts *facts, uint64_t *state) {
    float *x = x_, *y = y_;
    int64_t n = numel_of(facts->x), width = facts->x.dim[2], marks = facts->n_classes;
    for (int64_t k = 0; k < marks; k++) y[k] = kn__made_uniform(state) < 0.3 ? 1 : 0;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(0.5 * kn__made_uniform(state)) + 0.5f * y[i / width % marks];
}
kn_status kn__made_marks(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split) {
    return kn__made_samples(out, facts, n, split, marks_fill, KN_F32, KN_SHAPE(facts->n_classes),
                            KN_F32);
}

/* A text whose next word mostly follows from the last one; the words of number 0 and 1, padding and
 * unknown, are not in it. */
static int64_t word_after(int64_t word, int64_t words, uint64_t *state) {
    int64_t n = words - 2;
    return kn__made_uniform(state) < 0.1 ? 2 + kn__made_below(state, n) : 2 + (word * 5 + 3) % n;
}
static void text_fill(void *x_, void *y_, const kn_model_facts *facts, uint64_t *state) {
    int64_t *x = x_, *y = y_, word = 2 + kn__made_below(state, facts->words - 2);
    for (int64_t t = 0; t < facts->x.dim[0]; t++) {
        x[t] = word;
        y[t] = word = word_after(word, facts->words, state);
    }
}
kn_status kn__made_text(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split) {
    return kn__made_samples(out, facts, n, split, text_fill, KN_I64, facts->x, KN_I64);
}

/* Sentences whose words name their tags, one of ten by its first character where it has any. Words
 * are Zipf-like: low numbers are frequent. */
static void tags_fill(void *x_, void *y_, const kn_model_facts *facts, uint64_t *state) {
    int64_t *x = x_, *y = y_, words = facts->words;
    int64_t width = facts->x.n_dims > 1 ? facts->x.dim[1] : 1;
    for (int64_t t = 0; t < facts->x.dim[0]; t++, x += width) {
        int64_t word = (int64_t)pow((double)words, kn__made_uniform(state)) - 1;
        y[t] = word % facts->n_classes;
        x[0] = word;
        if (width == 1 || kn__made_below(state, 10)) continue;
        x[0] = 0;
        x[1] = 1 + y[t];
        for (int64_t i = 2; i < width; i++) x[i] = 1 + kn__made_below(state, facts->n_classes);
    }
}
kn_status kn__made_tags(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split) {
    return kn__made_samples(out, facts, n, split, tags_fill, KN_I64, KN_SHAPE(facts->x.dim[0]),
                            KN_I64);
}

/* A source, and its words in reverse order as the target; 1 begins a target. */
static void pairs_fill(void *x_, void *y_, const kn_model_facts *facts, uint64_t *state) {
    int64_t *x = x_, *y = y_, T = facts->x.dim[1];
    for (int64_t t = 0; t < T; t++) x[t] = 2 + kn__made_below(state, facts->words - 2);
    for (int64_t t = 0; t < T; t++) {
        y[t] = x[T - 1 - t];
        x[T + t] = t ? y[t - 1] : 1;
    }
}
kn_status kn__made_pairs(kn_dataset **out, const kn_model_facts *facts, int64_t n, kn_split split) {
    return kn__made_samples(out, facts, n, split, pairs_fill, KN_I64, KN_SHAPE(facts->x.dim[1]),
                            KN_I64);
}

/* Boards of connect-four after some random moves: the policy asks for the lowest legal column next
 * to the middle, the result is the player with more stones there. y has the form of connect4.c's
 * loss. */
static void boards_fill(void *x_, void *y_, const kn_model_facts *facts, uint64_t *state) {
    enum { ROWS = 6, COLUMNS = 7, CELLS = ROWS * COLUMNS };
    static const int order[COLUMNS] = {3, 2, 4, 1, 5, 0, 6};
    float *x = x_, *y = y_;
    int height[COLUMNS] = {0}, lead = 0;
    (void)facts;
    for (int i = 0; i < CELLS; i++) x[i] = 1;
    for (int64_t k = 0, n = kn__made_below(state, 24); k < n; k++) {
        int64_t column = kn__made_below(state, COLUMNS), who = 1 + k % 2;
        if (height[column] == ROWS) continue;
        int64_t cell = height[column]++ * COLUMNS + column;
        x[cell] = 0;
        x[who * CELLS + cell] = 1;
        if (column == 3) lead += who == 1 ? 1 : -1;
    }
    for (int i = 0; i < COLUMNS; i++) y[8 + i] = height[i] < ROWS ? 1 : 0;
    for (int i = 0; i < COLUMNS; i++) {
        if (height[order[i]] == ROWS) continue;
        y[order[i]] = 1;
        break;
    }
    y[7] = (float)((lead > 0) - (lead < 0));
    y[15] = 1;
}
kn_status kn__made_boards(kn_dataset **out, const kn_model_facts *facts, int64_t n,
                          kn_split split) {
    return kn__made_samples(out, facts, n, split, boards_fill, KN_F32, KN_SHAPE(16), KN_F32);
}
