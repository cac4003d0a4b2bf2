/* What trained models make for people to look at: text, pictures, games. */
#include "write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "mix.h"

/* *out: the index of one of n scores, by softmax(score/heat); heat 0: the largest. */
static kn_status draw(int64_t *out, const float *score, int64_t n, double heat, uint64_t *state) {
    double sum = 0;
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(score[i])) return KN_FAIL(KN_ERR_INVALID, "the model's scores are NaN");
        if (score[i] > score[best]) best = i;
    }
    *out = best;
    if (heat <= 0) return KN_OK;
    for (int64_t i = 0; i < n; i++) sum += exp((double)(score[i] - score[best]) / heat);
    double at = kn__uniform(kn__splitmix(state)) * sum;
    for (int64_t i = 0; i < n; i++) {
        at -= exp((double)(score[i] - score[best]) / heat);
        if (at < 0) {
            *out = i;
            break;
        }
    }
    return KN_OK;
}

/* --- text --- */

/* The scores of the word after the last `length` of n words; in out [words]. */
static kn_status next_scores(float *out, const kn_model *model, const int64_t *word, int64_t n) {
    const kn_model_facts *f = kn_model_kind_of(model)->facts;
    int64_t used = n < f->x.dim[0] ? n : f->x.dim[0];
    KN_FRAME(.record = KN_OFF, .device = kn_params_device(kn_model_params(model)));
    kn_tensor *x = kn_tensor_from(word + n - used, KN_I64, KN_SHAPE(1, used));
    kn_tensor *scores = kn_model_predict(model, &(kn_batch){.x = x, .n = 1});
    /* Of one sequence, time first or last is the same. */
    scores = kn_select(kn_reshape(scores, KN_SHAPE(used, f->words)), -1, 0);
    return kn_copy_out(out, (size_t)f->words * sizeof *out, scores);
}

kn_status kn__sample_text(const kn_model *model, const kn_vocab *vocab, int64_t n, double heat,
                          uint64_t seed, void (*put)(void *ctx, const char *word), void *ctx) {
    const kn_model_facts *f = kn_model_kind_of(model)->facts;
    int64_t known = kn_vocab_size(vocab) < f->words ? kn_vocab_size(vocab) : f->words;
    float *scores = calloc((size_t)f->words, sizeof *scores);
    int64_t *word = calloc((size_t)n + 1, sizeof *word);
    kn_status status = KN_OK;
    if (!scores || !word) {
        status = KN_FAIL(KN_ERR_OOM, "no memory for %lld words", (long long)n);
        goto cleanup;
    }
    if (known < 3) {
        status = KN_FAIL(KN_ERR_INVALID, "the vocabulary has no words");
        goto cleanup;
    }
    word[0] = kn_vocab_find(vocab, "\n", 1);
    for (int64_t i = 0; i < n; i++) {
        KN_TRY_GOTO(status, next_scores(scores, model, word, i + 1));
        KN_TRY_GOTO(status, draw(&word[i + 1], scores + 2, known - 2, heat, &seed));
        word[i + 1] += 2; /* 0 and 1 are no text */
        put(ctx, kn_vocab_word(vocab, word[i + 1]));
    }
cleanup:
    free(word);
    free(scores);
    return status;
}

/* --- pictures --- */

static void big_endian(uint8_t out[4], uint64_t x) {
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(x >> (24 - 8 * i));
}

static bool chunk_write(FILE *file, const char *name, const uint8_t *data, size_t n) {
    uint8_t size[4], check[4];
    uint32_t crc = (uint32_t)crc32(0, (const uint8_t *)name, 4);
    if (n) crc = (uint32_t)crc32(crc, data, (uInt)n);
    big_endian(size, n);
    big_endian(check, crc);
    return fwrite(size, 1, 4, file) == 4 && fwrite(name, 1, 4, file) == 4 &&
           (!n || fwrite(data, 1, n, file) == n) && fwrite(check, 1, 4, file) == 4;
}

/* Source: PNG specification, W3C 2003: 8 bits grey, each row after a filter byte of 0. */
kn_status kn__write_png(FILE *file, const uint8_t *pixels, int64_t width, int64_t height) {
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    uint8_t head[13] = {[8] = 8};
    size_t row = (size_t)width + 1, all = row * (size_t)height;
    uLongf packed_bytes = compressBound((uLong)all);
    uint8_t *rows = calloc(1, all), *packed = malloc(packed_bytes);
    bool fits = rows && packed;
    for (int64_t i = 0; fits && i < height; i++)
        memcpy(rows + (size_t)i * row + 1, pixels + i * width, (size_t)width);
    fits = fits && compress(packed, &packed_bytes, rows, (uLong)all) == Z_OK;
    big_endian(head, (uint64_t)width);
    big_endian(head + 4, (uint64_t)height);
    bool written =
        fits && fwrite(signature, 1, 8, file) == 8 && chunk_write(file, "IHDR", head, 13) &&
        chunk_write(file, "IDAT", packed, packed_bytes) && chunk_write(file, "IEND", NULL, 0);
    free(packed);
    free(rows);
    if (!fits) return KN_FAIL(KN_ERR_OOM, "no memory for a picture");
    return written ? KN_OK : KN_FAIL(KN_ERR_IO, "the picture can't be written");
}

/* A grid of side x side images that the decoder makes of normal codes. */
kn_status kn__write_vae(const kn_model *model, FILE *file, int64_t side, uint64_t seed) {
    enum { PIXELS = 28 };
    kn_layer *net = kn_model_net(model);
    kn_layer *fc2 = kn_layer_find(net, "fc2"), *fc3 = kn_layer_find(net, "fc3");
    kn_rng *rng = NULL;
    int64_t latent = kn_tensor_shape(kn_layer_param(fc2, "weight")).dim[1];
    KN_TRY(kn_rng_create(&rng, seed));
    KN_FRAME(.record = KN_OFF, .device = kn_params_device(kn_model_params(model)));
    kn_tensor *code = kn_normal(KN_SHAPE(side * side, latent), 0, 1, rng);
    kn_tensor *y = kn_sigm(kn_layer_forward(fc3, kn_layer_forward(fc2, code)));
    y = kn_transpose(kn_reshape(y, KN_SHAPE(side, side, PIXELS, PIXELS)), KN_SHAPE(0, 2, 1, 3));
    y = kn_cast(kn_affine(y, 255, 0), KN_U8); /* [side,28,side,28] */
    kn_rng_destroy(rng);
    const uint8_t *pixels = kn_data(kn_to(y, kn_device_host()));
    return pixels ? kn__write_png(file, pixels, side * PIXELS, side * PIXELS) : kn_check();
}

/* --- connect-four --- */

enum { ROWS = 6, COLUMNS = 7, CELLS = ROWS * COLUMNS };

int64_t kn__board_drop(kn__board *b, int64_t column) {
    if (column < 0 || column >= COLUMNS || b->height[column] == ROWS) return -1;
    int64_t cell = b->height[column]++ * COLUMNS + column;
    b->cell[cell] = 1 + b->n_moves++ % 2;
    return cell;
}

bool kn__board_won(const kn__board *b, int64_t cell) {
    static const int step[4][2] = {{0, 1}, {1, 0}, {1, 1}, {1, -1}};
    int64_t row = cell / COLUMNS, column = cell % COLUMNS;
    for (int d = 0; d < 4; d++) {
        int n = 1;
        for (int way = -1; way <= 1; way += 2) {
            int64_t r = row + way * step[d][0], c = column + way * step[d][1];
            while (r >= 0 && r < ROWS && c >= 0 && c < COLUMNS &&
                   b->cell[r * COLUMNS + c] == b->cell[cell]) {
                n++;
                r += way * step[d][0];
                c += way * step[d][1];
            }
        }
        if (n >= 4) return true;
    }
    return false;
}

/* The model's scores of the columns: logarithms of their probabilities, -inf of illegal ones. */
static kn_status columns_score(float out[COLUMNS], const kn_model *model, const kn__board *b) {
    float x[3][CELLS] = {{0}}, y[COLUMNS + 1];
    int own = 1 + b->n_moves % 2;
    for (int i = 0; i < CELLS; i++) x[!b->cell[i] ? 0 : b->cell[i] == own ? 1 : 2][i] = 1;
    KN_FRAME(.record = KN_OFF, .device = kn_params_device(kn_model_params(model)));
    kn_tensor *board = kn_tensor_from(x, KN_F32, KN_SHAPE(1, 3, ROWS, COLUMNS));
    KN_TRY(kn_copy_out(y, sizeof y, kn_model_predict(model, &(kn_batch){.x = board, .n = 1})));
    for (int i = 0; i < COLUMNS; i++)
        out[i] = b->height[i] == ROWS ? -INFINITY : logf(y[i] + 1e-20f);
    return KN_OK;
}

kn_status kn__write_game(kn__board *b, const kn_model *model, double heat, uint64_t seed) {
    float score[COLUMNS];
    *b = (kn__board){.n_moves = 0};
    while (b->n_moves < CELLS && !b->winner) {
        int player = 1 + b->n_moves % 2;
        KN_TRY(columns_score(score, model, b));
        int64_t column = 0;
        KN_TRY(draw(&column, score, COLUMNS, heat, &seed));
        int64_t cell = kn__board_drop(b, column);
        if (cell < 0) return KN_FAIL(KN_ERR_INTERNAL, "move to column %lld", (long long)column + 1);
        b->move[b->n_moves - 1] = (int)column + 1;
        if (kn__board_won(b, cell)) b->winner = player;
    }
    return KN_OK;
}
