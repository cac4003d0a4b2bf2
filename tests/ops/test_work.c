/* What ops tell the timer that they computed and moved. */
#include <cjson/cJSON.h>
#include <knet/ops.h>
#include <knet/prof.h>
#include <knet/sequence.h>
#include <stdlib.h>

#include "op_calls.h"
#include "report_text.h"
#include "test.h"

/* The row of this label at the top. */
static const cJSON *row_of(const cJSON *report, const char *label) {
    const cJSON *row = cJSON_GetObjectItem(report, "scopes")->child;
    while (row && strcmp(cJSON_GetObjectItem(row, "label")->valuestring, label) != 0)
        row = row->next;
    if (!row) fail_msg("no row %s", label);
    return row;
}

static double value(const cJSON *row, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(row, key);
    return item ? item->valuedouble : 0;
}

static kn_tensor *ones(kn_shape shape) { return kn_ones(shape); }

static void assert_work(const char *label, double flops, double bytes) {
    cJSON *report = cJSON_Parse(report_text(".json"));
    assert_non_null(report);
    const cJSON *row = row_of(report, label);
    if (value(row, "flops") != flops || value(row, "moved_bytes") != bytes)
        fail_msg("%s: %.0f flops, %.0f bytes; not %.0f, %.0f", label, value(row, "flops"),
                 value(row, "moved_bytes"), flops, bytes);
    cJSON_Delete(report);
}

static void products_and_convolutions_tell_their_flops(void **state) {
    (void)state;
    KN_FRAME();
    {
        KN_SCOPE("product");
        kn_matmul(ones(KN_SHAPE(3, 5, 7)), ones(KN_SHAPE(7, 11)), NULL);
        kn_matmul(ones(KN_SHAPE(7, 5)), ones(KN_SHAPE(7, 11)), &(kn_matmul_options){.trans_a = 1});
    }
    {
        KN_SCOPE("dense");
        kn_linear(ones(KN_SHAPE(5, 7)), ones(KN_SHAPE(11, 7)), ones(KN_SHAPE(11)));
    }
    {
        KN_SCOPE("window");
        kn_conv(ones(KN_SHAPE(2, 4, 8, 8)), ones(KN_SHAPE(6, 4, 3, 3)), KN_NONE, NULL);
    }
    assert_ok(kn_check());
    double made = 4.0 * (3 * 5 * 7 + 7 * 11 + 7 * 5 + 7 * 11); /* by ones() */
    assert_work("product", 2.0 * (3 * 5 * 7 * 11 + 5 * 7 * 11),
                2 * made + 4.0 * (3 * 5 * 11 + 5 * 11));
    assert_work("dense", 2.0 * 5 * 7 * 11, 4.0 * (2 * (5 * 7 + 11 * 7 + 11) + 5 * 11));
    double window = 2 * 4 * 8 * 8 + 6 * 4 * 3 * 3, result = 2 * 6 * 6 * 6;
    assert_work("window", 2 * result * 4 * 3 * 3, 4 * (2 * window + result));
}

static void gradients_of_convolutions_tell_theirs(void **state) {
    (void)state;
    KN_FRAME();
    static const kn_attr_conv attr = {
        .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1, .n_spatial = 2};
    kn_tensor *x = kn_ones(KN_SHAPE(2, 4, 8, 8)), *w = kn_ones(KN_SHAPE(6, 4, 3, 3));
    kn_tensor *dy = kn_ones(KN_SHAPE(2, 6, 6, 6)), *into = kn_zeros(KN_SHAPE(6, 4, 3, 3));
    {
        KN_SCOPE("data");
        op_conv_data(dy, w, KN_SHAPE(2, 4, 8, 8), &attr);
    }
    {
        KN_SCOPE("weight");
        op_conv_weight(x, dy, KN_SHAPE(6, 4, 3, 3), &attr, NULL);
    }
    {
        KN_SCOPE("weight added");
        op_conv_weight(x, dy, KN_SHAPE(6, 4, 3, 3), &attr, into);
    }
    assert_ok(kn_check());
    double of_x = 2 * 4 * 8 * 8, of_w = 6 * 4 * 3 * 3, of_y = 2 * 6 * 6 * 6;
    assert_work("data", 2 * of_y * 4 * 3 * 3, 4 * (of_x + of_w + of_y));
    assert_work("weight", 2 * of_y * 4 * 3 * 3, 4 * (of_x + of_w + of_y));
    assert_work("weight added", 2 * of_y * 4 * 3 * 3, 4 * (of_x + 2 * of_w + of_y));
}

static void attention_tells_its_two_products(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *q = kn_ones(KN_SHAPE(2, 3, 5, 8)), *k = kn_ones(KN_SHAPE(2, 3, 7, 8));
    kn_tensor *v = kn_ones(KN_SHAPE(2, 3, 7, 4));
    {
        KN_SCOPE("attend");
        kn_attention(q, k, v, NULL);
    }
    assert_ok(kn_check());
    cJSON *report = cJSON_Parse(report_text(".json"));
    assert_true(value(row_of(report, "attend"), "flops") == 2 * 2 * 3 * 5 * 7 * (8 + 4));
    cJSON_Delete(report);
}

static void other_ops_tell_what_they_move(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = kn_ones(KN_SHAPE(10, 100)), *y = kn_ones(KN_SHAPE(100));
    {
        KN_SCOPE("pointwise");
        kn_data(kn_add(x, y)); /* fused frames compute it now */
    }
    {
        KN_SCOPE("reduction");
        kn_sum(x, KN_ALL, false);
    }
    {
        KN_SCOPE("part");
        kn_slice(x, KN_SHAPE(0, 10), KN_SHAPE(10, 15)); /* not the whole of x */
    }
    assert_ok(kn_check());
    assert_work("pointwise", 0, 8.0 * (1000 + 100 + 1000));
    assert_work("reduction", 0, 8.0 * (1000 + 1));
    assert_work("part", 0, 8.0 * 2 * 50);
}

static void a_chain_that_a_reduction_reads_tells_its_own(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64, .fuse = 1);
    kn_tensor *x = kn_ones(KN_SHAPE(50, 100)), *y = kn_ones(KN_SHAPE(100));
    {
        KN_SCOPE("chain");
        kn_sum(kn_affine(kn_add(x, y), 2, 1), KN_ALL, false);
    }
    assert_ok(kn_check());
    assert_work("chain", 0, 8.0 * (5000 + 100 + 1));
}

int main(void) {
    return RUN_TESTS(TEST(products_and_convolutions_tell_their_flops),
                     TEST(gradients_of_convolutions_tell_theirs),
                     TEST(attention_tells_its_two_products), TEST(other_ops_tell_what_they_move),
                     TEST(a_chain_that_a_reduction_reads_tells_its_own));
}
