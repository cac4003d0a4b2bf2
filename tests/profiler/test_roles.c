/* Memory by role and layer, from the paths of scopes. */
#include "roles.h"

#include "report.h"
#include "test.h"

/* The row of a path whose own blocks held so many bytes at the peak. */
static kn__row *row_of(kn__report *report, const char *path, int64_t bytes) {
    char copy[256];
    kn__row *row = &report->root;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *at = strtok(copy, "/"); at; at = strtok(NULL, "/"))
        row = kn__report_row(report, row, kn__report_keep(report, at));
    row->held_at_peak = bytes;
    report->memory.live_max += bytes;
    return row;
}

static void assert_row(kn__report *report, const char *path, kn__role role, const char *layer) {
    char text[64];
    const kn__row *row = row_of(report, path, 0);
    assert_int_equal(kn__role_of(row), role);
    kn__role_layer(text, sizeof text, row);
    assert_string_equal(text, layer);
}

static void paths_say_role_and_layer(void **state) {
    (void)state;
    kn__report r;
    kn__report_init(&r);
    assert_row(&r, "create model/weights/uniform", KN__ROLE_WEIGHTS, "");
    assert_row(&r, "backward/gradients/fill", KN__ROLE_GRADIENTS, "gradients");
    assert_row(&r, "update/optim_step/optimizer state/fill", KN__ROLE_OPTIMIZER, "");
    assert_row(&r, "evaluate/load", KN__ROLE_DATA, "");
    assert_row(&r, "train/forward/block1/conv2/conv", KN__ROLE_ACTIVATIONS, "block1.conv2");
    assert_row(&r, "forward/relu", KN__ROLE_ACTIVATIONS, "");
    assert_row(&r, "backward/block1/conv2/conv  d weight/conv_weight", KN__ROLE_BACKWARD,
               "block1.conv2");
    assert_row(&r, "backward/block1/recompute/conv2/conv", KN__ROLE_BACKWARD, "conv2");
    assert_row(&r, "train/backward/blocks/mlp3/fc2/recompute/gelu", KN__ROLE_BACKWARD,
               "blocks.mlp3.fc2");
    assert_row(&r, "backward/fc2/linear  d x/recompute/gelu", KN__ROLE_BACKWARD, "fc2");
    assert_row(&r, "backward/recompute/gelu/work space", KN__ROLE_WORK, "");
    assert_row(&r, "evaluate/forward/relu", KN__ROLE_ACTIVATIONS, "");
    assert_row(&r, "forward/fc1/linear/work space", KN__ROLE_WORK, "fc1");
    assert_row(&r, "backward/conv2/conv  d weight/conv_weight/work space", KN__ROLE_WORK, "conv2");
    assert_row(&r, "my own", KN__ROLE_ACTIVATIONS, "");
    kn__report_release(&r);
}

/* A training that held 20000 bytes. */
static void report_init(kn__report *r) {
    kn__report_init(r);
    row_of(r, "weights/uniform", 4000);
    row_of(r, "backward/gradients/fill", 4000);
    row_of(r, "load", 1000);
    row_of(r, "forward/fc2/linear", 2000);
    row_of(r, "forward/fc1/linear", 3000);
    row_of(r, "backward/fc2/linear  d x/matmul", 2000);
    row_of(r, "other", 1000);
    row_of(r, "forward/fc1/linear/work space", 1000);
    r->memory.live_max += 2000; /* of blocks that no scope holds */
}

static void the_table_sums_up_roles_and_says_what_fits(void **state) {
    (void)state;
    kn__report r;
    kn__text text = {0};
    report_init(&r);
    assert_string_equal(kn__fit_lacks(&r), "batch size");
    r.run.notes = "data=x, batch=10";
    assert_null(kn__fit_lacks(&r));
    kn__roles_add(&text, &r, 48000, 0);
    assert_string_equal(text.data,
                        "\n live then, by role and layer\n"
                        "  3.91KiB  20.0%  weights\n"
                        "  3.91KiB  20.0%  gradients\n"
                        "  0.98KiB  5.00%  data\n"
                        "  1.95KiB  10.0%  values of backward fc2 1.95KiB\n"
                        "  0.98KiB  5.00%  work space         fc1 0.98KiB\n"
                        "  5.86KiB  30.0%  activations        fc1 2.93KiB, fc2 1.95KiB\n"
                        "  1.95KiB  10.0%  no scope\n"
                        " a batch of 10: 0.98 KiB a sample, 9.77 KiB that don't grow with it\n"
                        " in 46.9 KiB a batch of about 23 would fit\n");
    kn__text_release(&text);
    kn__roles_add(&text, &r, 48000, 44);
    assert_non_null(strstr(text.data,
                           "  1.95KiB  10.0%  values of backward fc2\n"
                           "                  1.95KiB\n"
                           "  0.98KiB  5.00%  work space fc1 0.98KiB\n"
                           "  5.86KiB  30.0%  activations fc1 2.93KiB,\n"
                           "                  fc2 1.95KiB\n"));
    assert_non_null(strstr(text.data,
                           " a batch of 10: 0.98 KiB a sample, 9.77 KiB\n"
                           " that don't grow with it\n"));
    kn__text_release(&text);
    r.run.notes = "rebatch=10";
    kn__roles_add(&text, &r, 48000, 0);
    assert_null(strstr(text.data, "would fit"));
    kn__text_release(&text);
    kn__report_release(&r);
}

static void assert_fits(const kn__report *r, uint64_t limit, int batch) {
    kn__text text = {0};
    char wanted[64];
    snprintf(wanted, sizeof wanted, " a batch of about %d would fit\n", batch);
    kn__roles_add(&text, r, limit, 0);
    if (!strstr(text.data, wanted)) fail_msg("no%s in: %s", wanted, text.data);
    kn__text_release(&text);
}

/* Of the limit a sixth is left, and for each sample a share of the largest block, 3000 bytes, or of
 * what the pool reserved and never used. */
static void what_fits_leaves_room_for_unused_memory(void **state) {
    (void)state;
    kn__report r;
    report_init(&r);
    r.run.notes = "batch=10";
    assert_fits(&r, 48000, 23);
    assert_fits(&r, 1000000, 630); /* 633 */
    assert_fits(&r, 11000, 0);
    r.memory.n_pools = 1;
    r.memory.pools[0].live_max = 20000;
    r.memory.pools[0].reserved_max = 20000 + (32 << 20); /* one segment */
    assert_fits(&r, 48000, 23);
    r.memory.pools[0].reserved_max += 5000;
    assert_fits(&r, 48000, 20);
    r.memory.pools[0].is_heap = true; /* of another allocator */
    assert_fits(&r, 48000, 23);
    kn__row *row = row_of(&r, "forward/fc3/linear", 6000); /* of six blocks */
    row->alloc_bytes = 60000, row->n_allocs = 60;
    assert_fits(&r, 48000, 15);
    row->n_allocs = 10;
    assert_fits(&r, 48000, 13);
    kn__report_release(&r);
}

static void programs_that_train_nothing_have_no_roles(void **state) {
    (void)state;
    kn__report r;
    kn__text text = {0};
    kn__report_init(&r);
    row_of(&r, "forward/fc1/linear", 3000);
    kn__roles_add(&text, &r, 0, 0);
    assert_int_equal(text.length, 0);
    r.run.notes = "batch=10";
    assert_string_equal(kn__fit_lacks(&r), "memory of a training");
    kn__report_release(&r);
}

int main(void) {
    return RUN_TESTS(TEST(paths_say_role_and_layer),
                     TEST(the_table_sums_up_roles_and_says_what_fits),
                     TEST(what_fits_leaves_room_for_unused_memory),
                     TEST(programs_that_train_nothing_have_no_roles));
}
