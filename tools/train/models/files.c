/* Texts, reviews and tables as the models want them. */
#include <inttypes.h>

#include "dataset.h"
#include "model.h"

/* The first nine tenths of the samples, or the others. */
static kn_status part(kn_dataset **out, kn_dataset *all, kn_split split) {
    int64_t n = kn_dataset_size(all), train = n - (n + 9) / 10;
    kn_status status = split == KN_TEST ? kn_dataset_take(out, all, train, n - train)
                                        : kn_dataset_take(out, all, 0, train);
    kn_dataset_destroy(all);
    return status;
}

static kn_status text_read(kn_dataset **out, const kn_model_facts *facts, const char *path,
                           kn_split split, kn_vocab_unit unit, kn_vocab *given) {
    kn_dataset *all = NULL;
    kn_vocab *vocab = given;
    const kn_vocab_options options = {.unit = unit, .size = facts->words};
    kn_status status = kn_dataset_read_text(&all, &vocab, path, facts->x.dim[0], &options);
    if (!given) kn_vocab_destroy(vocab);
    return status < 0 ? status : part(out, all, split);
}

kn_status kn__read_characters(kn_dataset **out, const kn_model_facts *facts, const char *path,
                              kn_split split) {
    return text_read(out, facts, path, split, KN_CHARACTERS, NULL);
}

kn_status kn__read_words(kn_dataset **out, const kn_model_facts *facts, const char *path,
                         kn_split split) {
    return text_read(out, facts, path, split, KN_WORDS, NULL);
}

kn_status kn_model_data_read_text(kn_dataset **out, const kn_model_kind *kind, const char *path,
                                  kn_split split, kn_vocab *vocab) {
    const kn_model_facts *f = kind ? kind->facts : NULL;
    bool has_words = f && f->read == kn__read_words;
    if (!has_words && !(f && f->read == kn__read_characters))
        return KN_FAIL(KN_ERR_INVALID, "the model %s reads no text", kind ? kind->name : "NULL");
    return kn__dataset_where(text_read(out, f, path ? path : f->path, split,
                                       has_words ? KN_WORDS : KN_CHARACTERS, vocab),
                             f->source);
}

kn_status kn__read_reviews(kn_dataset **out, const kn_model_facts *facts, const char *path,
                           kn_split split) {
    const kn_imdb_options options = {.words = facts->words - 3, .length = facts->x.dim[0]};
    return kn_dataset_read_imdb(out, path, split, &options);
}

/* Columns of mean 0 and standard deviation 1, or 0 where all rows have one number. */
static kn_status rows_scale(kn_dataset **out, const kn_dataset *rows) {
    KN_FRAME(.device = kn_device_host(), .record = KN_OFF);
    kn_tensor *x = kn_dataset_x(rows);
    kn_tensor *from = kn_sub(x, kn_mean(x, KN_SHAPE(0), true));
    kn_tensor *deviation = kn_sqrt(kn_mean(kn_square(from), KN_SHAPE(0), true));
    kn_tensor *scale = kn_maximum(deviation, kn_full_like(deviation, 1e-12));
    kn_tensor *scaled = kn_div(from, scale), *y = kn_dataset_y(rows);
    KN_TRY(kn_check());
    return kn_dataset_create(out, scaled, y, 0);
}

kn_status kn__read_rows(kn_dataset **out, const kn_model_facts *facts, const char *path,
                        kn_split split) {
    kn_dataset *rows = NULL, *scaled = NULL, *mixed = NULL;
    int64_t want = facts->x.dim[0];
    kn_status status = kn_dataset_read_csv(&rows, path, &(kn_csv_options){.regression = 1});
    if (status < 0) return kn__dataset_read_failed(status, path);
    int64_t columns = kn_dataset_shape(rows).dim[0];
    status = columns == want ? rows_scale(&scaled, rows)
                             : KN_FAIL(KN_ERR_FORMAT,
                                       "%s: %" PRId64 " columns before the last; expected %" PRId64,
                                       path, columns, want);
    if (status == KN_OK) status = kn_dataset_shuffle(&mixed, scaled, 1);
    kn_dataset_destroy(rows);
    kn_dataset_destroy(scaled);
    return status < 0 ? status : part(out, mixed, split);
}
