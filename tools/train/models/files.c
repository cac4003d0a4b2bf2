/* Texts and reviews as the models want them. */
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
    return text_read(out, f, path ? path : f->path, split, has_words ? KN_WORDS : KN_CHARACTERS,
                     vocab);
}

kn_status kn__read_reviews(kn_dataset **out, const kn_model_facts *facts, const char *path,
                           kn_split split) {
    const kn_imdb_options options = {.words = facts->words - 3, .length = facts->x.dim[0]};
    return kn_dataset_read_imdb(out, path, split, &options);
}
