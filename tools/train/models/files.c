/* Texts, reviews and tables as the models want them. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

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

/* --- a table of numbers: UCI's housing.data, or a CSV file of it --- */

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* Blanks between numbers become one comma, those at the ends of a line none. */
static size_t blanks_to_commas(char *text, size_t n_bytes) {
    char *to = text;
    for (const char *from = text, *end = text + n_bytes; from < end;) {
        bool begins = to == text || to[-1] == '\n' || to[-1] == '\r', blank = is_blank(*from);
        while (from < end && is_blank(*from)) from++;
        bool ends = from == end || *from == '\n' || *from == '\r';
        if (blank && !begins && !ends) *to++ = ',';
        if (from < end) *to++ = *from++;
    }
    *to = 0;
    return (size_t)(to - text);
}

/* scikit-learn's files begin with a line of the numbers of rows and columns, "506,13,,,,": the
 * bytes before its end; else 0. */
static size_t sizes_bytes(const char *text) {
    size_t line = strcspn(text, "\r\n"), sizes = strspn(text, "0123456789,");
    return sizes == line && line >= 2 && text[line - 1] == ',' && text[line - 2] == ',' ? line : 0;
}

/* x minus the mean of its column, by its standard deviation of n - 1, as Knet.jl's example. A
 * column of equal numbers becomes zeros. */
static void columns_normalize(float *x, int64_t n, int64_t width) {
    for (int64_t j = 0; j < width; j++) {
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) mean += (double)x[i * width + j] / (double)n;
        for (int64_t i = 0; i < n; i++) squares += pow((double)x[i * width + j] - mean, 2);
        double deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
        double scale = deviation > 1e-6 * fabs(mean) ? 1 / deviation : 0;
        for (int64_t i = 0; i < n; i++)
            x[i * width + j] = (float)(((double)x[i * width + j] - mean) * scale);
    }
}

static kn_status table_parse(kn_dataset **out, const kn_model_facts *facts, char *text,
                             size_t n_bytes, const char *path) {
    const kn_csv_options options = {.regression = 1};
    kn_dataset *d = NULL;
    KN_TRY(kn__text_check(text, n_bytes, path)); /* while the places are those of the file */
    size_t mark = kn__mark_bytes(text, n_bytes), skipped = mark + sizes_bytes(text + mark);
    text += skipped; /* the end of a line of sizes is left: it counts as a line */
    n_bytes -= skipped;
    if (!memchr(text, ',', n_bytes)) n_bytes = blanks_to_commas(text, n_bytes);
    KN_TRY(kn__csv_parse(&d, text, n_bytes, path, &options, true));
    int64_t width = d->x_shape.dim[0], wanted = facts->x.dim[0];
    kn_status status = KN_OK;
    if (width != wanted)
        status =
            KN_FAIL(KN_ERR_FORMAT,
                    "%s: %" PRId64 " columns; expected %" PRId64 ", the last one the target (%s)",
                    path, width + 1, wanted + 1, facts->data);
    else if (d->n < 2)
        status = KN_FAIL(KN_ERR_FORMAT, "%s: 1 row; normalized columns want 2 or more", path);
    else
        columns_normalize(d->x, d->n, width);
    return kn__dataset_give(out, d, status);
}

kn_status kn__read_table(kn_dataset **out, const kn_model_facts *facts, const char *path,
                         kn_split split) {
    char *text = NULL;
    size_t n_bytes = 0;
    (void)split;
    KN_TRY(kn__file_whole(&text, &n_bytes, path));
    kn_status status = table_parse(out, facts, text, n_bytes, path);
    free(text);
    return status;
}
