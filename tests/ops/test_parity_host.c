/* The table of parity cases on the host alone: every op has a case, and f32 kernels, which have
 * fast paths of their own, agree with the f64 ones. */
#include "ops_test.h"
#include "parity.h"

static parity_table table;

static void every_op_but_views_has_a_case(void **state) {
    (void)state;
    bool seen[KN_OP_COUNT] = {0};
    int n_missing = 0;
    for (int i = 0; i < table.n; i++) seen[table.cases[i].op] = true;
    for (int op = 0; op < KN_OP_COUNT; op++) {
        if (seen[op] || op == KN_OP_reshape || op == KN_OP_to) continue;
        print_error("%s has no parity case\n", kn_op_name((kn_op)op));
        n_missing++;
    }
    assert_int_equal(n_missing, 0);
}

static bool agrees(const parity_case *c, int guard) {
    parity_mode mode = {kn_device_host(), KN_F32, KN_F32, guard, NULL, NULL};
    parity_result single, twice;
    if (!parity_run(&single, c, &mode)) return false;
    mode.dtype = KN_F64;
    bool same = parity_run(&twice, c, &mode);
    if (same && !c->one_dtype) same = parity_same(c, &single, &twice, 1e-10);
    parity_result_free(&single);
    parity_result_free(&twice);
    return same;
}

static void f32_agrees_with_f64_and_guards_stay_intact(void **state) {
    (void)state;
    int n_failed = 0;
    for (int i = 0; i < table.n; i++) n_failed += !agrees(&table.cases[i], i % 2 ? 3 : 64);
    assert_int_equal(n_failed, 0);
}

/* For docs/catalogue.md. */
static int list_cases(void) {
    for (int i = 0; i < table.n; i++)
        printf("%s %s\n", kn_op_name(table.cases[i].op),
               table.cases[i].compare == COMPARE_EXACT ? "exact" : "close");
    return 0;
}

int main(int argc, char **argv) {
    parity_table_make(&table);
    if (argc == 2 && strcmp(argv[1], "list") == 0) return list_cases();
    int n_failed = RUN_TESTS(TEST(every_op_but_views_has_a_case),
                             OPS_TEST(f32_agrees_with_f64_and_guards_stay_intact));
    parity_table_free(&table);
    return n_failed;
}
