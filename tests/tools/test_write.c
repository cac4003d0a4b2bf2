/* What trained models make: moves of connect-four that are legal, whatever the model prefers. */
#include <math.h>

#include "test.h"
#include "write.h"

enum { ROWS = 6, COLUMNS = 7, CELLS = ROWS * COLUMNS };

/* --- the board --- */

/* Drops stones into these columns, from 1; the last one's cell. */
static int64_t play(kn__board *b, const char *columns) {
    int64_t cell = -1;
    *b = (kn__board){.n_moves = 0};
    for (; *columns; columns++) {
        cell = kn__board_drop(b, *columns - '1');
        assert_true(cell >= 0);
    }
    return cell;
}

static void stones_fall_on_each_other_in_turns(void **state) {
    (void)state;
    kn__board b;
    assert_int_equal(play(&b, "4"), 3);
    assert_int_equal(b.cell[3], 1);
    assert_int_equal(kn__board_drop(&b, 3), COLUMNS + 3);
    assert_int_equal(b.cell[COLUMNS + 3], 2);
    assert_int_equal(kn__board_drop(&b, 0), 0);
    assert_int_equal(b.cell[0], 1);
    assert_int_equal(b.n_moves, 3);
    assert_int_equal(b.height[3], 2);
}

static void a_full_column_and_one_outside_take_no_stone(void **state) {
    (void)state;
    kn__board b, before;
    assert_int_equal(play(&b, "444444"), (ROWS - 1) * COLUMNS + 3);
    before = b;
    assert_int_equal(kn__board_drop(&b, 3), -1);
    assert_int_equal(kn__board_drop(&b, -1), -1);
    assert_int_equal(kn__board_drop(&b, COLUMNS), -1);
    assert_memory_equal(&b, &before, sizeof b);
}

static void four_in_a_line_win_in_each_direction(void **state) {
    (void)state;
    static const char *const won[] = {
        "1122334",     /* a row */
        "1212121",     /* a column */
        "12233434464", /* up */
        "76655454424", /* down */
        "7766554",     /* at the edge */
        "1122443",     /* the last stone in between */
    };
    static const char *const open[] = {
        "11223",      "112233",  "121212",  "1223343446",
        "7665545442", "5162731", "5112627", /* cells 4 to 7, of two rows */
    };
    kn__board b;
    for (size_t i = 0; i < sizeof won / sizeof *won; i++)
        if (!kn__board_won(&b, play(&b, won[i]))) fail_msg("%s is no line", won[i]);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (kn__board_won(&b, play(&b, open[i]))) fail_msg("%s is a line", open[i]);
}

/* --- games --- */

/* Prefers the columns in this order. */
typedef struct stubborn {
    int order[COLUMNS];
    bool sure; /* gives the others a probability of 0 */
} stubborn;

static kn_status no_layers(void *model, kn_layer *net) {
    (void)model, (void)net;
    return KN_OK;
}

static kn_tensor *prefer(void *model, kn_layer *net, const kn_batch *batch) {
    const stubborn *s = model;
    float y[COLUMNS + 1] = {0};
    (void)net, (void)batch;
    for (int i = 0; i < COLUMNS; i++) y[s->order[i]] = s->sure ? !i : powf(0.01f, (float)i);
    return kn_tensor_from(y, KN_F32, KN_SHAPE(1, COLUMNS + 1));
}

/* The game is one by the rules: each move on a board made anew is legal, none follows a line, and
 * the end is one. */
static void assert_legal(const kn__board *game) {
    kn__board b = {.n_moves = 0};
    int winner = 0;
    for (int i = 0; i < game->n_moves; i++) {
        assert_int_equal(winner, 0);
        int64_t cell = kn__board_drop(&b, game->move[i] - 1);
        assert_true(cell >= 0);
        if (kn__board_won(&b, cell)) winner = 1 + i % 2;
    }
    assert_true(winner || b.n_moves == CELLS);
    assert_int_equal(winner, game->winner);
    assert_memory_equal(b.cell, game->cell, sizeof b.cell);
}

static void game_of(kn__board *out, const stubborn *sizes, double heat, uint64_t seed) {
    const kn_model_kind kind = {.name = "stubborn",
                                .size_bytes = sizeof *sizes,
                                .sizes = sizes,
                                .init = no_layers,
                                .predict = prefer};
    kn_params *params = NULL;
    kn_model *model = NULL;
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_model_create_kind(&model, &kind, params));
    assert_ok(kn__write_game(out, model, heat, seed));
    kn_model_destroy(model);
    kn_params_destroy(params);
}

/* The stones of both players fill column 3, without a line. */
static void a_full_column_is_not_chosen(void **state) {
    (void)state;
    static const double heats[] = {0, 0.7, 1};
    kn__board b;
    for (size_t i = 0; i < sizeof heats / sizeof *heats; i++) {
        for (int k = 0; k < 2; k++) {
            game_of(&b, &(stubborn){.order = {2, 0, 4, 6, 1, 3, 5}, .sure = k == 1}, heats[i], 7);
            assert_legal(&b);
            assert_true(b.n_moves > ROWS);
            for (int j = 0; j < ROWS; j++) assert_int_equal(b.move[j], 3);
            assert_int_not_equal(b.move[ROWS], 3);
        }
    }
}

static void connect4_plays_by_the_rules(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_model *model = NULL;
    kn__board b;
    int n_lines = 0;
    assert_ok(kn_params_create(&params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create(&model, "connect4", params));
    for (uint64_t seed = 0; seed < 6; seed++) {
        assert_ok(kn__write_game(&b, model, seed ? 100 : 0, seed)); /* 100: any column */
        assert_legal(&b);
        n_lines += b.winner != 0;
    }
    assert_true(n_lines > 0);
    kn_model_destroy(model);
    kn_params_destroy(params);
}

int main(void) {
    return RUN_TESTS(TEST(stones_fall_on_each_other_in_turns),
                     TEST(a_full_column_and_one_outside_take_no_stone),
                     TEST(four_in_a_line_win_in_each_direction), TEST(a_full_column_is_not_chosen),
                     TEST(connect4_plays_by_the_rules));
}
