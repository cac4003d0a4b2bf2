/* Reads pickles, protocols 2 to 5: containers, numbers and strings. It never runs code.
 *
 * It recognizes the strings of a given list of words and integers, and keeps only the entries of a
 * dict whose key is such a word. Readers of known layouts need no more, and this bounds the memory:
 * more than KN__PICKLE_BYTES_MAX is an error.
 */
#ifndef KN_REPLAY_PICKLE_H
#define KN_REPLAY_PICKLE_H

#include "replay_formats.h"

typedef enum kn__value_kind {
    KN__VALUE_OTHER, /* None, floats, bytes, integers of more than 64 bits */
    KN__VALUE_BOOL,
    KN__VALUE_INT,
    KN__VALUE_WORD, /* bits: its place in the list of words, n_words for all others */
    KN__VALUE_LIST, /* a tuple or a set too; bits: number of the container */
    KN__VALUE_DICT,
    KN__VALUE_MARK /* on the stack only */
} kn__value_kind;

typedef struct kn__value {
    uint16_t kind;
    uint16_t key; /* in a dict: the word that names it */
    bool negative;
    uint64_t bits;
} kn__value;

typedef struct kn__container {
    kn__value *items;
    uint32_t n, room;
} kn__container;

typedef struct kn__values { /* growable */
    kn__value *at;
    size_t n, room;
} kn__values;

typedef struct kn__pickle {
    kn__builder *b; /* for errors */
    kn__input *in;
    const char *const *words; /* ends in NULL */
    uint16_t n_words;
    kn__container *containers;
    size_t n_containers, containers_room;
    kn__values stack, memo;
    size_t held_bytes;
    kn__value root;
} kn__pickle;

/* Reads one pickle into `root`. b, in and words are set. Release it in any case. */
KN_MUST_CHECK kn_status kn__pickle_read(kn__pickle *p);
void kn__pickle_release(kn__pickle *p);

/* The items of a list or dict; n is 0 for anything else. */
const kn__value *kn__pickle_items(const kn__pickle *p, kn__value list, size_t *n);
/* The value that a dict has for the word; false: none, or no dict. */
bool kn__pickle_get(const kn__pickle *p, kn__value dict, uint16_t word, kn__value *out);

#endif
