#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conv_sizes.h"
#include "host/conv/conv_dnnl.h"
#include "host/conv/conv_route.h"
#include "kernels_test.h"

typedef struct conv_case {
    int n_spatial;
    int64_t batch, channels, outputs, in[3], window[3]; /* channels and outputs of one group */
    kn_attr_conv attr;
} conv_case;

static kn_shape shape_of(int n_spatial, int64_t a, int64_t b, const int64_t *rest) {
    kn_shape shape = {{a, b}, n_spatial + 2};
    for (int i = 0; i < n_spatial; i++) shape.dim[2 + i] = rest[i];
    return shape;
}

static conv_case random_case(int n_spatial) {
    conv_case c = {.n_spatial = n_spatial,
                   .batch = 1 + (int64_t)test_random_below(4),
                   .channels = 1 + (int64_t)test_random_below(5),
                   .outputs = 1 + (int64_t)test_random_below(6)};
    c.attr = (kn_attr_conv){.groups = 1 + (int64_t)test_random_below(3),
                            .n_spatial = n_spatial,
                            .flip = (int32_t)test_random_below(2)};
    for (int i = 0; i < 3; i++) {
        bool used = i < n_spatial;
        c.attr.stride[i] = used ? 1 + (int64_t)test_random_below(3) : 1;
        c.attr.padding[i] = used ? (int64_t)test_random_below(3) : 0;
        c.attr.padding_end[i] = used ? c.attr.padding[i] + (int64_t)test_random_below(2) : 0;
        c.attr.dilation[i] = used ? 1 + (int64_t)test_random_below(2) : 1;
        c.window[i] = 1 + (int64_t)test_random_below(4);
        c.in[i] = c.attr.dilation[i] * (c.window[i] - 1) + 1 + (int64_t)test_random_below(9);
    }
    return c;
}

/* The definition, term by term: calls visit(x index, w index, y index) for each product. */
typedef struct terms {
    const double *x, *w, *y;
    double *sum;
    int result; /* 0: y, 1: x, 2: w */
} terms;

static void visit(const terms *t, int64_t x, int64_t w, int64_t y) {
    if (t->result == 0) t->sum[y] += t->x[x] * t->w[w];
    if (t->result == 1) t->sum[x] += t->y[y] * t->w[w];
    if (t->result == 2) t->sum[w] += t->x[x] * t->y[y];
}

static void pad_left(int64_t out[3], const kn_shape *shape, int n_spatial) {
    for (int i = 0; i < 3; i++)
        out[i] = i < 3 - n_spatial ? 1 : shape->dim[2 + i - (3 - n_spatial)];
}

static void for_each_term(const conv_case *c, const terms *t, const kn_shape *x_shape,
                          const kn_shape *w_shape, const kn_shape *y_shape) {
    int64_t in[3], win[3], out[3], step[3], pad[3], dil[3];
    pad_left(in, x_shape, c->n_spatial);
    pad_left(win, w_shape, c->n_spatial);
    pad_left(out, y_shape, c->n_spatial);
    for (int i = 0; i < 3; i++) {
        int s = i - (3 - c->n_spatial);
        step[i] = s < 0 ? 1 : c->attr.stride[s];
        pad[i] = s < 0 ? 0 : c->attr.padding[s];
        dil[i] = s < 0 ? 1 : c->attr.dilation[s];
    }
    int64_t n_out = out[0] * out[1] * out[2], n_win = win[0] * win[1] * win[2];
    int64_t outputs = w_shape->dim[0], channels = w_shape->dim[1], groups = c->attr.groups;
    for (int64_t p = 0; p < n_out; p++)
        for (int64_t q = 0; q < n_win; q++) {
            int64_t ps[3] = {p / out[2] / out[1], p / out[2] % out[1], p % out[2]};
            int64_t qs[3] = {q / win[2] / win[1], q / win[2] % win[1], q % win[2]}, at = 0;
            bool inside = true;
            for (int d = 0; d < 3; d++) {
                int64_t k = c->attr.flip ? win[d] - 1 - qs[d] : qs[d];
                int64_t x = ps[d] * step[d] - pad[d] + k * dil[d];
                inside &= x >= 0 && x < in[d];
                at = at * in[d] + x;
            }
            if (!inside) continue;
            for (int64_t b = 0; b < x_shape->dim[0]; b++)
                for (int64_t o = 0; o < outputs; o++)
                    for (int64_t ch = 0; ch < channels; ch++) {
                        int64_t channel = o / (outputs / groups) * channels + ch;
                        int64_t plane = b * channels * groups + channel;
                        visit(t, plane * in[0] * in[1] * in[2] + at,
                              (o * channels + ch) * n_win + q, (b * outputs + o) * n_out + p);
                    }
        }
}

static void assert_terms(const conv_case *c, terms t, kn_tensor *got, const double *start,
                         const kn_shape shapes[3]) {
    int64_t n = kn_tensor_numel(got);
    t.sum = calloc((size_t)n, sizeof *t.sum);
    assert_non_null(t.sum);
    for_each_term(c, &t, &shapes[0], &shapes[1], &shapes[2]);
    double tol = 20 * tolerance(kn_tensor_dtype(got));
    for (int64_t i = 0; i < n; i++)
        assert_close(ops_at(got, i), t.sum[i] + (start ? start[i] : 0), tol, tol);
    free(t.sum);
}

static void check_way(const conv_case *c, kn_dtype dtype, kn__conv_route way) {
    KN_FRAME();
    kn__conv_prefer(way);
    kn_shape x_shape = shape_of(c->n_spatial, c->batch, c->channels * c->attr.groups, c->in);
    kn_shape w_shape = shape_of(c->n_spatial, c->outputs * c->attr.groups, c->channels, c->window);
    kn_tensor *x = random_tensor(dtype, x_shape), *w = random_tensor(dtype, w_shape);
    kn_tensor *y = op_conv_attr(x, w, KN_NONE, &c->attr);
    assert_non_null(y);
    kn_tensor *dy = random_tensor(dtype, kn_tensor_shape(y));
    const kn_shape shapes[3] = {x_shape, w_shape, kn_tensor_shape(y)};
    double *at_x = doubles_of(x), *at_w = doubles_of(w), *at_dy = doubles_of(dy);
    assert_terms(c, (terms){at_x, at_w, NULL, NULL, 0}, y, NULL, shapes);

    kn_tensor *dx = op_conv_data(dy, w, x_shape, &c->attr);
    assert_terms(c, (terms){NULL, at_w, at_dy, NULL, 1}, dx, NULL, shapes);
    kn_tensor *dw = op_conv_weight(x, dy, w_shape, &c->attr, NULL);
    assert_terms(c, (terms){at_x, NULL, at_dy, NULL, 2}, dw, NULL, shapes);

    double tol = 50 * tolerance(dtype), y_dy = dot(y, dy);
    assert_close(dot(x, dx), y_dy, tol, tol); /* adjoint in x, and in w */
    assert_close(dot(w, dw), y_dy, tol, tol);

    kn_tensor *into = random_tensor(dtype, w_shape);
    double *start = doubles_of(into);
    kn__conv_prefer(way); /* not measured yet: measuring would add more than once */
    assert_ptr_equal(op_conv_weight(x, dy, w_shape, &c->attr, into), into);
    assert_terms(c, (terms){at_x, NULL, at_dy, NULL, 2}, into, start, shapes);
    free(start);
    free(at_x), free(at_w), free(at_dy);
    kn__conv_prefer(KN_CONV_TABLED);
}

/* Both our kernels and the library, against the definition. */
static void check_case(const conv_case *c, kn_dtype dtype) {
    check_way(c, dtype, KN_CONV_OURS);
    check_way(c, dtype, KN_CONV_DNNL);
    check_way(c, dtype, KN_CONV_WINOGRAD);
    check_way(c, dtype, KN_CONV_MEASURED);
}

static void random_convolutions_match_the_definition(void **state) {
    (void)state;
    for (int n_spatial = 1; n_spatial <= 3; n_spatial++)
        for (int i = 0; i < 12; i++) {
            conv_case c = random_case(n_spatial);
            FOR_BOTH_DTYPES(dtype) check_case(&c, dtype);
        }
}

static void a_window_of_one_needs_no_copy_and_matches(void **state) {
    (void)state;
    conv_case c = {
        2, 3, 7, 9, {5, 6, 0}, {1, 1, 1}, {{1, 1, 1}, {0}, {0}, {1, 1, 1}, 2, {0}, 2, 0, 0, 0}};
    FOR_BOTH_DTYPES(dtype) check_case(&c, dtype);
}

static const conv_case many_channels[] = {
    {2,
     2,
     32,
     48,
     {9, 10, 0},
     {3, 3, 1},
     {{1, 1, 1}, {1, 1}, {1, 1}, {1, 1, 1}, 1, {0}, 2, 0, 0, 0}},
    {2, 3, 20, 50, {12, 12, 0}, {5, 5, 1}, {{2, 1, 1}, {0}, {0}, {1, 1, 1}, 1, {0}, 2, 0, 0, 0}},
    {2,
     2,
     16,
     16,
     {8, 8, 0},
     {3, 3, 1},
     {{1, 1, 1}, {1, 1}, {1, 1}, {1, 1, 1}, 2, {0}, 2, 0, 0, 0}},
    {2,
     2,
     16,
     32,
     {8, 8, 0},
     {3, 3, 1},
     {{1, 1, 1}, {1, 0}, {1, 0}, {1, 1, 1}, 1, {0}, 2, 1, 0, 0}},
    {2,
     9,
     32,
     48,
     {9, 7, 0},
     {3, 3, 1},
     {{2, 2, 1}, {1, 1}, {1, 1}, {2, 1, 1}, 1, {0}, 2, 0, 0, 0}},
    {3,
     2,
     16,
     16,
     {3, 4, 5},
     {3, 3, 3},
     {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 1, {0}, 3, 0, 0, 0}},
    {2, 3, 1, 1, {8, 9, 0}, {3, 3, 1}, {{1, 1, 1}, {1, 1}, {1, 1}, {1, 1, 1}, 16, {0}, 2, 0, 0, 0}},
    {2,
     5,
     3,
     16,
     {15, 15, 0},
     {7, 7, 1},
     {{2, 2, 1}, {3, 3}, {3, 3}, {1, 1, 1}, 1, {0}, 2, 0, 0, 0}}};

static void many_channels_match(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof many_channels / sizeof *many_channels; i++)
        check_case(&many_channels[i], KN_F32);
}

static kn_tensor *image_of(kn_tensor *x, int64_t b) {
    kn_shape start = {.n_dims = 4}, stop = kn_tensor_shape(x);
    start.dim[0] = b;
    stop.dim[0] = b + 1;
    return kn_slice(x, start, stop);
}

/* dw of a batch is the sum of its images' dw, which take another way where weights are large;
 * images of several runs, and on any number of threads the same bits. */
static void check_large_weights(kn_dtype dtype, kn_shape x_shape, kn_shape w_shape,
                                const kn_attr_conv *attr) {
    KN_FRAME(.threads = 1);
    kn__conv_prefer(KN_CONV_OURS);
    int64_t batch = x_shape.dim[0];
    kn_tensor *x = random_tensor(dtype, x_shape), *w = random_tensor(dtype, w_shape);
    kn_tensor *dy = random_tensor(dtype, kn_tensor_shape(op_conv_attr(x, w, KN_NONE, attr)));
    kn_tensor *dw = op_conv_weight(x, dy, w_shape, attr, NULL), *sum = NULL;
    for (int64_t b = 0; b < batch; b++)
        sum = op_conv_weight(image_of(x, b), image_of(dy, b), w_shape, attr, sum);
    double tol = 100 * tolerance(dtype);
    for (int64_t i = 0; i < kn_tensor_numel(dw); i++)
        assert_close(ops_at(dw, i), ops_at(sum, i), tol, tol);
    kn_tensor *want = kn_add(w, dw);
    KN_FRAME(.threads = 3);
    assert_same_bits(op_conv_weight(x, dy, w_shape, attr, NULL), dw);
    assert_same_bits(op_conv_weight(x, dy, w_shape, attr, w), want);
    kn__conv_prefer(KN_CONV_TABLED);
}

static void large_weights_sum_over_runs_of_images(void **state) {
    (void)state;
    static const kn_attr_conv padded = {{1, 1}, {1, 1}, {1, 1}, {1, 1}, 1, {0}, 2, 0, 0, 0};
    static const kn_attr_conv plain = {{2, 1}, {0}, {0}, {1, 2}, 2, {0}, 2, 0, 0, 0};
    check_large_weights(KN_F32, KN_SHAPE(35, 100, 13, 13), KN_SHAPE(130, 100, 3, 3), &padded);
    check_large_weights(KN_F64, KN_SHAPE(16, 144, 9, 9), KN_SHAPE(100, 72, 3, 3), &plain);
}

static void the_bias_is_added_to_each_output_plane(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) for (int way = KN_CONV_OURS; way <= KN_CONV_WINOGRAD; way++) {
        KN_FRAME();
        kn__conv_prefer((kn__conv_route)way);
        kn_tensor *x = random_tensor(dtype, KN_SHAPE(2, 4, 7, 13)); /* cut along the outputs too */
        kn_tensor *w = random_tensor(dtype, KN_SHAPE(40, 2, 3, 3));
        kn_tensor *b = random_tensor(dtype, KN_SHAPE(40));
        kn_conv_options options = {.groups = 2};
        kn_tensor *y = kn_conv(x, w, b, &options), *plain = kn_conv(x, w, KN_NONE, &options);
        for (int64_t i = 0; i < kn_tensor_numel(y); i++)
            assert_close(ops_at(y, i), ops_at(plain, i) + ops_at(b, i / 55 % 40), 1e-5, 1e-5);
    }
    kn__conv_prefer(KN_CONV_TABLED);
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    static const struct {
        int64_t batch, channels, outputs, side, window;
    } cases[] = {{19, 1, 20, 28, 5}, {21, 20, 50, 12, 5}, {1, 3, 8, 40, 3}, {7, 32, 64, 14, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) FOR_BOTH_DTYPES(dtype) {
            KN_FRAME();
            const kn_attr_conv attr = {
                .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1, .n_spatial = 2};
            int64_t out = cases[i].side - cases[i].window + 1;
            kn_tensor *x = random_tensor(
                dtype, KN_SHAPE(cases[i].batch, cases[i].channels, cases[i].side, cases[i].side));
            kn_tensor *w = random_tensor(dtype, KN_SHAPE(cases[i].outputs, cases[i].channels,
                                                         cases[i].window, cases[i].window));
            kn_tensor *dy =
                random_tensor(dtype, KN_SHAPE(cases[i].batch, cases[i].outputs, out, out));
            for (int which = 0; which < 3; which++)
                for (int way = KN_CONV_OURS; way <= KN_CONV_WINOGRAD; way++) {
                    kn__conv_prefer((kn__conv_route)way);
                    assert_same_bits(conv_pass(which, x, w, dy, &attr, 1),
                                     conv_pass(which, x, w, dy, &attr, 3));
                }
            kn__conv_prefer(KN_CONV_TABLED);
        }
}

/* Three groups of a few channels: the library has but slow loops for these. */
static void our_kernels_run_when_the_library_declines(void **state) {
    (void)state;
    conv_case c = {2,
                   2,
                   3,
                   5,
                   {9, 9, 0},
                   {3, 3, 1},
                   {.stride = {1, 1, 1},
                    .padding = {4, 4},
                    .padding_end = {4, 4},
                    .dilation = {1, 1, 1},
                    .groups = 3,
                    .n_spatial = 2,
                    .flip = 0}};
    kn__conv_sizes s = plain_sizes;
    s.groups = 3, s.channels = 3, s.outputs = 5;
    s.in[1] = s.in[2] = 9, s.out[1] = s.out[2] = 15, s.padding[1] = s.padding[2] = 4;
    s.padding_end[1] = s.padding_end[2] = 4;
    int declined = 0;
    for (int pass_i = KN_PASS_FORWARD; pass_i <= KN_PASS_WEIGHT; pass_i++) {
        kn__host_conv_plan *plan = NULL;
        assert_int_equal(kn__conv_plan_get(&plan, (kn__conv_pass)pass_i, &s, 1, false), KN_OK);
        declined += plan->primitive == NULL;
        kn__conv_plan_drop(plan);
    }
    assert_int_equal(declined, 3);
    check_way(&c, KN_F32, KN_CONV_DNNL);
}

static void plans_are_shared_and_their_number_is_bounded(void **state) {
    (void)state;
    kn__conv_sizes s = plain_sizes;
    kn__host_conv_plan *first = NULL, *again = NULL;
    assert_int_equal(kn__conv_plan_get(&first, KN_PASS_FORWARD, &s, 1, false), KN_OK);
    assert_int_equal(kn__conv_plan_get(&again, KN_PASS_FORWARD, &s, 1, false), KN_OK);
    assert_ptr_equal(first, again);
    kn__conv_plan_drop(again);
    for (int64_t images = 2; images < KN__HOST_CONV_PLANS + 20; images++) {
        kn__host_conv_plan *plan = NULL;
        assert_int_equal(kn__conv_plan_get(&plan, KN_PASS_FORWARD, &s, images, false), KN_OK);
        assert_ptr_not_equal(plan, first);
        kn__conv_plan_drop(plan);
        assert_true(kn__conv_plans() <= KN__HOST_CONV_PLANS);
    }
    assert_int_equal(kn__conv_plans(), KN__HOST_CONV_PLANS);
    assert_non_null(first->primitive); /* evicted from the cache, still valid for its holder */
    assert_int_equal(kn__conv_plan_get(&again, KN_PASS_FORWARD, &s, 1, false), KN_OK);
    assert_ptr_not_equal(first, again);
    kn__conv_plan_drop(again);
    kn__conv_plan_drop(first);
}

/* Whether the library has a primitive of its own depends on the processor alone. */
static bool has_primitive(int64_t images) {
    kn__conv_sizes s = plain_sizes;
    kn__host_conv_plan *plan = NULL;
    assert_int_equal(kn__conv_plan_get(&plan, KN_PASS_DATA, &s, images, false), KN_OK);
    bool has = plan->primitive;
    kn__conv_plan_drop(plan);
    return has;
}

enum { PLANS = 5 };
typedef struct plan_user {
    bool has_primitive[PLANS];
    int failures;
} plan_user;

static void *use_plans(void *ctx) {
    kn__conv_sizes s = plain_sizes;
    plan_user *user = ctx;
    for (int i = 0; i < 40; i++) {
        kn__host_conv_plan *plan = NULL;
        user->failures += kn__conv_plan_get(&plan, KN_PASS_DATA, &s, 1 + i % PLANS, false) != KN_OK;
        user->has_primitive[i % PLANS] = plan && plan->primitive;
        kn__conv_plan_drop(plan);
    }
    return NULL;
}

static void threads_share_the_cache(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    plan_user user[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, use_plans, &user[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(user[i].failures, 0);
        for (int plan = 0; plan < PLANS; plan++)
            assert_int_equal(user[i].has_primitive[plan], has_primitive(1 + plan));
    }
}

static atomic_bool is_over;

static bool makes_plan(int64_t images) {
    kn__conv_sizes s = plain_sizes;
    kn__host_conv_plan *plan = NULL;
    bool made = kn__conv_plan_get(&plan, KN_PASS_DATA, &s, images, false) == KN_OK;
    kn__conv_plan_drop(plan);
    return made;
}

static void *make_plans(void *ctx) {
    for (int64_t i = 1000; !is_over; i++) *(bool *)ctx &= makes_plan(i);
    return NULL;
}

static void a_child_of_a_fork_makes_plans_while_another_thread_does(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its child of several threads ends */
#endif
    bool works = true;
    pthread_t thread;
    KN_FRAME();
    assert_int_equal(pthread_create(&thread, NULL, make_plans, &works), 0);
    int n_right = 0, n = 40;
    for (int i = 0; i < n; i++) {
        int how = 0;
        usleep(1000);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            _exit(makes_plan(100 + i) && makes_plan(200 + i) ? 7 : 1);
        }
        n_right += waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 7;
        if (n_right <= i) break;
    }
    is_over = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(n_right, n);
    assert_true(works);
}

static void the_gradient_of_an_empty_batch_is_zero(void **state) {
    (void)state;
    KN_FRAME();
    const kn_attr_conv attr = {
        .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1, .n_spatial = 2};
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(0, 2, 4, 4)),
              *dy = random_tensor(KN_F32, KN_SHAPE(0, 3, 2, 2));
    kn_tensor *dw = op_conv_weight(x, dy, KN_SHAPE(3, 2, 3, 3), &attr, NULL);
    for (int64_t i = 0; i < kn_tensor_numel(dw); i++) assert_close(ops_at(dw, i), 0, 0, 0);
}

/* As ops of their own, to the bit; `way`: who convolves. */
static void check_finish(kn__conv_route way, kn_dtype dtype, kn_shape xs, kn_shape ws, kn_shape ys,
                         int64_t padding) {
    KN_FRAME(.dtype = dtype, .threads = 2);
    kn_tensor *x = random_tensor(dtype, xs), *w = random_tensor(dtype, ws);
    kn_tensor *b = random_tensor(dtype, KN_SHAPE(ys.dim[1])), *r = random_tensor(dtype, ys);
    kn_conv_options plain = {.padding = {padding, padding}}, acts = plain;
    kn__conv_prefer(way);
    kn_tensor *y = kn_conv(x, w, b, &plain), *sum = kn_add(y, r);
    kn_tensor *bare = kn_conv(x, w, KN_NONE, &plain);
    for (int act = KN_ACT_NONE; act < KN_ACTS; act++) {
        acts.act = (kn_act)act;
        assert_same_bits(kn_conv(x, w, b, &acts), ops_activated(y, acts.act));
        assert_same_bits(kn_conv_add(x, w, b, r, &acts), ops_activated(sum, acts.act));
        assert_same_bits(kn_conv(x, w, KN_NONE, &acts), ops_activated(bare, acts.act));
    }
    kn__conv_prefer(KN_CONV_TABLED);
}

static void residual_and_activation_run_inside(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        check_finish(KN_CONV_OURS, dtype, KN_SHAPE(2, 3, 19, 21), KN_SHAPE(5, 3, 3, 3),
                     KN_SHAPE(2, 5, 19, 21), 1); /* pieces of an image */
        check_finish(KN_CONV_OURS, dtype, KN_SHAPE(17, 3, 9, 18), KN_SHAPE(5, 3, 3, 3),
                     KN_SHAPE(17, 5, 7, 16), 0); /* whole images */
        check_finish(KN_CONV_OURS, dtype, KN_SHAPE(3, 7, 40, 5), KN_SHAPE(4, 7, 3, 3),
                     KN_SHAPE(3, 4, 38, 3), 0); /* columns, in blocks of rows */
    }
    check_finish(KN_CONV_DNNL, KN_F32, KN_SHAPE(19, 16, 9, 9), KN_SHAPE(32, 16, 3, 3),
                 KN_SHAPE(19, 32, 9, 9), 1);
}

static void a_wrong_residual_or_activation_is_an_error(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F32);
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(2, 3, 5, 5));
    kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(4, 3, 3, 3));
    assert_op_fails(kn_conv(x, w, KN_NONE, &(kn_conv_options){.act = (kn_act)8}), KN_ERR_INVALID,
                    "kn_conv: act is 8; activations are 0 (KN_ACT_NONE) to 7 (KN_ACT_HARDSWISH)");
    assert_op_fails(kn_conv_add(x, w, KN_NONE, x, NULL), KN_ERR_SHAPE,
                    "the residual must be [2,4,3,3]");
    assert_op_fails(kn_conv(x, kn_cast(w, KN_F64), KN_NONE, NULL), KN_ERR_DTYPE,
                    "kn_conv: x is f32, w is f64");
}

/* --- transposed --- */

/* The sum of y·conv(x) is that of x·deconv(y), and sizes are those that a convolution undoes. */
static void check_deconv(kn_shape x, kn_shape w, const kn_conv_options *o, kn_shape wanted) {
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *y = random_tensor(KN_F64, x), *filter = random_tensor(KN_F64, w);
    kn_tensor *z = kn_deconv(y, filter, KN_NONE, o);
    kn_shape got = kn_tensor_shape(z);
    double a = 0, b = 0;
    assert_ok(kn_check());
    assert_int_equal(got.n_dims, wanted.n_dims);
    for (int i = 0; i < wanted.n_dims; i++) assert_int_equal(got.dim[i], wanted.dim[i]);
    kn_tensor *t = random_tensor(KN_F64, wanted);
    assert_ok(kn_item(&a, kn_sum(kn_mul(kn_conv(t, filter, KN_NONE, o), y), KN_ALL, false)));
    assert_ok(kn_item(&b, kn_sum(kn_mul(t, z), KN_ALL, false)));
    assert_close(a, b, 1e-11, 1e-11);
}

static void a_transposed_convolution_is_the_adjoint(void **state) {
    (void)state;
    check_deconv(KN_SHAPE(2, 3, 5, 7), KN_SHAPE(3, 4, 3, 2), NULL, KN_SHAPE(2, 4, 7, 8));
    check_deconv(KN_SHAPE(2, 4, 5, 3), KN_SHAPE(4, 3, 4, 4),
                 &(kn_conv_options){.stride = {2, 2}, .padding = {1, 1}}, KN_SHAPE(2, 3, 10, 6));
    check_deconv(KN_SHAPE(1, 2, 4), KN_SHAPE(2, 1, 3),
                 &(kn_conv_options){.stride = {3}, .padding = {1}, .padding_extra = {-1}},
                 KN_SHAPE(1, 1, 11));
    check_deconv(KN_SHAPE(2, 6, 3, 2, 2), KN_SHAPE(6, 1, 2, 3, 2),
                 &(kn_conv_options){.groups = 2, .dilation = {1, 2, 1}}, KN_SHAPE(2, 2, 4, 6, 3));
}

/* PyTorch's output_padding above its padding: elements that no window reaches have the bias. */
static void a_transposed_convolution_may_end_beyond_its_windows(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F32);
    kn_tensor *x = F32(KN_SHAPE(1, 1, 3), 1, 2, 3), *w = F32(KN_SHAPE(1, 1, 3), 1, 10, 100);
    kn_tensor *b = F32(KN_SHAPE(1), 0.5);
    kn_conv_options o = {.stride = {2}, .padding_extra = {-2}};
    assert_values(kn_deconv(x, w, b, &o), 1.5, 10.5, 102.5, 20.5, 203.5, 30.5, 300.5, 0.5, 0.5);
    o.padding[0] = 1, o.act = KN_ACT_RELU;
    assert_values(kn_deconv(x, w, KN_NONE, &o), 10, 102, 20, 203, 30, 300, 0);
    o = (kn_conv_options){.stride = {2, 2}, .padding_extra = {-1}};
    x = kn_ones(KN_SHAPE(2, 3, 4, 5)), w = kn_ones(KN_SHAPE(3, 4, 2, 2));
    kn_tensor *y = kn_deconv(x, w, KN_NONE, &o);
    assert_shape(y, KN_SHAPE(2, 4, 9, 10));
    assert_same_bits(kn_slice(y, KN_SHAPE(0, 0, 8, 0), KN_SHAPE(2, 4, 9, 10)),
                     kn_zeros(KN_SHAPE(2, 4, 1, 10)));
    o.padding_extra[1] = INT64_MIN;
    assert_op_fails(kn_deconv(x, w, KN_NONE, &o), KN_ERR_INVALID, "padding_extra[1] is -9223");
    o.padding_extra[1] = -1;
    assert_op_fails(kn_conv(w, w, KN_NONE, &o), KN_ERR_INVALID,
                    "kn_conv: padding_extra[0] is -1; it must be at least 0");
}

static void a_transposed_convolution_adds_bias_and_activation(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F32);
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(2, 3, 4, 4)),
              *b = random_tensor(KN_F32, KN_SHAPE(5));
    kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(3, 5, 3, 3));
    kn_tensor *plain = kn_add(kn_deconv(x, w, KN_NONE, NULL), kn_reshape(b, KN_SHAPE(5, 1, 1)));
    assert_same_bits(kn_deconv(x, w, b, NULL), plain);
    for (int act = KN_ACT_RELU; act < KN_ACTS; act++)
        assert_same_bits(kn_deconv(x, w, b, &(kn_conv_options){.act = (kn_act)act}),
                         ops_activated(plain, (kn_act)act));
    assert_op_fails(kn_deconv(x, w, x, NULL), KN_ERR_SHAPE, "an element for each channel");
    assert_op_fails(kn_deconv(x, w, b, &(kn_conv_options){.groups = 2}), KN_ERR_SHAPE,
                    "channels and groups don't fit (x [2,3,4,4], w [3,5,3,3])");
    assert_op_fails(kn_deconv(x, w, b, &(kn_conv_options){.padding = {9, 9}}), KN_ERR_SHAPE,
                    "kn_deconv: dimension 2 of the result would be empty or too large: stride 1, "
                    "padding 9 and 9, dilation 1");
    assert_op_fails(kn_deconv(x, w, b, &(kn_conv_options){.padding = {9}, .padding_extra = {-12}}),
                    KN_ERR_SHAPE, "stride 1, padding 9 and -3, dilation 1");
    assert_op_fails(kn_deconv(x, w, b, &(kn_conv_options){.stride = {-1}}), KN_ERR_INVALID,
                    "kn_deconv: stride[0] is -1");
    assert_op_fails(kn_deconv(x, b, b, NULL), KN_ERR_SHAPE, "x must be [B,O,spatial…]");
    assert_op_fails(kn_deconv(x, w, NULL, NULL), KN_ERR_INVALID, "b is NULL");
    kn_tensor *vast = kn_zeros(KN_SHAPE(0, 1, 42128471624)), *one = kn_ones(KN_SHAPE(1, 1, 1));
    assert_op_fails(kn_deconv(vast, one, KN_NONE, &(kn_conv_options){.stride = {218934409}}),
                    KN_ERR_SHAPE, "empty or too large"); /* 2^63 elements */
    const kn_conv_options end = {.padding_extra = {-2000000000, -2000000000}};
    assert_op_fails(kn_deconv(x, w, b, &end), KN_ERR_SHAPE,
                    "kn_deconv: dimension 3 of the result would be empty or too large: stride 1, "
                    "padding 0 and -2000000000");
    vast = kn_zeros(KN_SHAPE(1, 0, 4)), one = kn_zeros(KN_SHAPE(0, 3, 3));
    assert_op_fails(kn_deconv(vast, one, KN_NONE, &(kn_conv_options){.groups = INT64_MAX}),
                    KN_ERR_SHAPE, "channels and groups don't fit");
}

int main(void) {
    return RUN_TESTS(OPS_TEST(a_transposed_convolution_is_the_adjoint),
                     OPS_TEST(a_transposed_convolution_may_end_beyond_its_windows),
                     OPS_TEST(a_transposed_convolution_adds_bias_and_activation),
                     OPS_TEST(random_convolutions_match_the_definition),
                     OPS_TEST(a_window_of_one_needs_no_copy_and_matches),
                     OPS_TEST(many_channels_match), OPS_TEST(large_weights_sum_over_runs_of_images),
                     OPS_TEST(the_bias_is_added_to_each_output_plane),
                     OPS_TEST(the_number_of_threads_changes_no_bit),

                     OPS_TEST(our_kernels_run_when_the_library_declines),
                     OPS_TEST(plans_are_shared_and_their_number_is_bounded),
                     OPS_TEST(threads_share_the_cache),
                     OPS_TEST(a_child_of_a_fork_makes_plans_while_another_thread_does),
                     OPS_TEST(the_gradient_of_an_empty_batch_is_zero),
                     OPS_TEST(residual_and_activation_run_inside),
                     OPS_TEST(a_wrong_residual_or_activation_is_an_error));
}
