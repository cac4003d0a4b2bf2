#include "host/conv/conv_winograd.h"

#include "host/conv/conv_over.h"
#include "host/conv/conv_plan.h"
#include "host/conv/conv_winograd_parts.h"

static int taps_of(const kn__conv_sizes *s, int d) {
    return (int)kn__chunks(s->window[d], s->stride[d]);
}

bool kn__winograd_fits(const kn__conv_sizes *s) {
    int taps = taps_of(s, 1);
    return kn__loops(KN_F32)->tile_columns >= LANES && s->groups == 1 && s->in[0] == 1 &&
           s->window[0] == 1 && (taps == 2 || taps == 3) && taps_of(s, 2) == taps &&
           s->stride[1] <= 2 && s->stride[2] == s->stride[1] && s->dilation[1] == 1 &&
           s->dilation[2] == 1 && !s->padding[0] && !s->padding_end[0] && !s->flip;
}

static kn__planes images_of(const kn_tensor *t, int64_t channels, const int64_t size[2]) {
    return (kn__planes){.data = t->data, .channels = channels, .size = {size[0], size[1]}};
}

/* Where the taps of a phase lie in a window, which begins at its elements `at`; turned: it is
 * turned round. */
static kn__winograd_taps taps_at(const kn__conv_sizes *s, const int at[2], bool turned) {
    kn__winograd_taps taps = {.n = taps_of(s, 1)};
    for (int k = 0; k < taps.n * taps.n; k++) {
        int tap = turned ? taps.n * taps.n - 1 - k : k;
        int64_t row = s->stride[1] * (tap / taps.n) + at[0];
        int64_t column = s->stride[2] * (tap % taps.n) + at[1];
        bool is_there = row < s->window[1] && column < s->window[2];
        taps.place[k] = is_there ? (int)(row * s->window[2] + column) : -1;
    }
    return taps;
}

/* The phases of x's windows. */
static void phases_of_x(kn__winograd *k, const kn__conv_sizes *s) {
    for (int f = 0; f < k->n_phases; f++) {
        int at[2] = {f / 2, f % 2};
        k->phase[f].taps = taps_at(s, at, false);
        for (int d = 0; d < 2; d++) k->phase[f].pad[d] = s->padding[1 + d] - at[d];
    }
}

/* The phases of dx, whose elements x = stride·i + from are met by the window's from from + padding
 * on, modulo the stride. */
static void phases_of_dx(kn__winograd *k, const kn__conv_sizes *s) {
    for (int f = 0; f < k->n_phases; f++) {
        kn__phase *p = &k->phase[f];
        int at[2];
        p->from[0] = f / 2, p->from[1] = f % 2;
        for (int d = 0; d < 2; d++) {
            int64_t first = p->from[d] + s->padding[1 + d], skipped = first / s->stride[1 + d];
            at[d] = (int)(first % s->stride[1 + d]);
            p->pad[d] = taps_of(s, 1) - 1 - skipped;
        }
        p->taps = taps_at(s, at, true);
    }
}

/* Of a pass whose tiles lie in planes of `out`. */
static kn__winograd winograd_of(const kn__planes *from, const int64_t out[2],
                                const kn__conv_sizes *s, bool of_dx) {
    const kn__loop_table *loops = kn__loops(KN_F32);
    int64_t stride = s->stride[1];
    kn__winograd k = {.loops = loops, .from = *from, .width = loops->tile_columns};
    k.n_numbers = kn__winograd_numbers(taps_of(s, 1));
    k.n_phases = (int)(stride * stride);
    k.stride_from = of_dx ? 1 : stride, k.stride_to = of_dx ? stride : 1;
    k.out[0] = out[0], k.out[1] = out[1];
    k.tile_rows = kn__chunks(out[0], TILE * k.stride_to);
    k.tile_columns = kn__chunks(out[1], TILE * k.stride_to);
    k.rows = s->batch * k.tile_rows;
    return k;
}

static kn__winograd of_x(const kn_op_call *call, const kn__conv_sizes *s) {
    kn__planes x = images_of(call->in[0], s->channels, s->in + 1);
    kn__winograd k = winograd_of(&x, s->out + 1, s, false);
    phases_of_x(&k, s);
    k.n_to = s->outputs;
    k.w_from = s->window_size, k.w_to = s->window_size * s->channels;
    return k;
}

static kn_status forward(kn_op_call *call, const kn__conv_sizes *s, unsigned flags) {
    kn__winograd k = of_x(call, s);
    k.from.in_blocks = flags & KN_PLAN_FROM_BLOCKS;
    k.to_blocks = flags & KN_PLAN_TO_BLOCKS;
    k.w = call->in[1]->data;
    k.to = call->out[0]->data;
    if (call->in[2] != KN_NONE) k.bias = call->in[2]->data;
    k.finish = kn__conv_finish_of(call);
    if (!k.finish.act && !k.finish.residual) k.finish.y = NULL;
    return kn__winograd_products(call, &k, flags & KN_PLAN_KEEP ? call->in[1] : NULL);
}

static kn_status data(kn_op_call *call, const kn__conv_sizes *s) {
    kn__planes dy = images_of(call->in[0], s->outputs, s->out + 1);
    kn__winograd k = winograd_of(&dy, s->in + 1, s, true);
    phases_of_dx(&k, s);
    k.n_to = s->channels;
    k.w_from = s->window_size * s->channels, k.w_to = s->window_size;
    k.w = call->in[1]->data;
    k.to = call->out[0]->data;
    k.in_place = kn__conv_is_over(call) && kn__winograd_fits_in_place(&k);
    if (!k.in_place) {
        const char *from = NULL;
        KN_TRY(kn__conv_dy_apart(&from, call));
        k.from.data = (const float *)(const void *)from;
    }
    return kn__winograd_products(call, &k, NULL);
}

static kn_status weight(kn_op_call *call, const kn__conv_sizes *s) {
    kn__winograd k = of_x(call, s);
    kn__planes dy = images_of(call->in[1], s->outputs, s->out + 1);
    return kn__winograd_sums(call, &k, &dy);
}

kn_status kn__winograd_conv(kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                            unsigned flags) {
    if (pass == KN_PASS_WEIGHT) return weight(call, s);
    return pass == KN_PASS_DATA ? data(call, s) : forward(call, s, flags);
}

kn__winograd_work kn__winograd_work_of(const kn__conv_sizes *s, kn__conv_pass pass) {
    bool of_dx = pass == KN_PASS_DATA;
    kn__planes from = {.channels = of_dx ? s->outputs : s->channels};
    kn__winograd k = winograd_of(&from, (of_dx ? s->in : s->out) + 1, s, of_dx);
    k.n_to = of_dx ? s->channels : s->outputs;
    double n = k.n_numbers, phases = k.n_phases,
           parts = (double)kn__chunks(k.n_to, most_at_once(&k));
    double channels = (double)rounded(from.channels, LANES), to = (double)rounded(k.n_to, LANES);
    double tiles = (double)(k.rows * k.tile_columns), pairs = n * phases * channels * to;
    double made = phases * channels * parts + phases_to(&k) * to;
    return (kn__winograd_work){.sums = pairs * tiles, .images = n * made * tiles, .weights = pairs};
}
