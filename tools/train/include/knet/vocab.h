/* Vocabularies: words or characters of a text, and their numbers.
 *
 *     kn_vocab *vocab = NULL;
 *     KN_TRY(kn_vocab_create(&vocab, text, strlen(text), &(kn_vocab_options){.unit = KN_WORDS}));
 *     int64_t n = 0, *index = NULL;
 *     KN_TRY(kn_vocab_encode(&index, &n, vocab, "the cat", 7));   // free(index)
 *
 * Number 0 is padding, "<pad>", and 1 what the vocabulary lacks, "<unk>"; the others follow from
 * the most frequent one down, those of equal frequency by their bytes. A word is a run of letters,
 * digits and bytes beyond ASCII, in lower case, with the apostrophes inside it; any other character
 * that is no space is a word of its own. A character is one of UTF-8, or a byte that isn't valid.
 * Threads: any number may read.
 */
#ifndef KNET_VOCAB_H
#define KNET_VOCAB_H

#include <knet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A vocabulary. */
typedef struct kn_vocab kn_vocab;
/* The unit that is counted. */
typedef enum kn_vocab_unit { KN_CHARACTERS = 0, KN_WORDS } kn_vocab_unit;
/* Options of kn_vocab_create; may be NULL. */
typedef struct kn_vocab_options {
    kn_vocab_unit unit;   /* characters or words */
    int64_t size;         /* at most so many numbers, the two special ones included; 0: all */
    int64_t least;        /* rarer words have none of their own; 0: 1 */
    uint64_t reserved[4]; /* zero */
} kn_vocab_options;

/* Makes a vocabulary of a text. */
KN_API KN_MUST_CHECK kn_status kn_vocab_create(kn_vocab **out, const char *text, size_t text_bytes,
                                               const kn_vocab_options *options);
/* Destroys it. No-op on NULL. */
KN_API void kn_vocab_destroy(kn_vocab *vocab);
KN_API int64_t kn_vocab_size(const kn_vocab *vocab); /* numbers */
/* The word with number i, "" for that of a zero byte; NULL if i is out of range. Borrowed. */
KN_API const char *kn_vocab_word(const kn_vocab *vocab, int64_t i);
/* The number of a word; 1 if the vocabulary lacks it. */
KN_API int64_t kn_vocab_find(const kn_vocab *vocab, const char *word, size_t word_bytes);
/* The vocabulary as a line of printable ASCII, malloc'd, which kn_vocab_parse reads: for files.
 * NULL: no memory, an error that is pending. */
KN_API char *kn_vocab_text(const kn_vocab *vocab);
/* Makes the vocabulary of such a line. Errors: FORMAT, also for what kn_vocab_encode never cuts a
 * text into, such as a word with capitals or a blank, and for two characters as one. */
KN_API KN_MUST_CHECK kn_status kn_vocab_parse(kn_vocab **out, const char *text);
/* The numbers of a text: *index is malloc'd, the caller frees it. */
KN_API KN_MUST_CHECK kn_status kn_vocab_encode(int64_t **index, int64_t *n, const kn_vocab *vocab,
                                               const char *text, size_t text_bytes);

#include <knet/sites/vocab.h>

#ifdef __cplusplus
}
#endif
#endif
