/* Messages of protobuf, written by hand: fields are added to the end of a text. */
#ifndef KN_REPORT_PROTOBUF_H
#define KN_REPORT_PROTOBUF_H

#include <string.h>

#include "text.h"

enum { KN__VARINT_BYTES = 10 };

/* Seven bits a byte, the lowest first; returns the end. */
static inline unsigned char *kn__pb_varint(unsigned char *at, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *at++ = (unsigned char)(value | 0x80);
    *at++ = (unsigned char)value;
    return at;
}

/* How the value of a field is written. */
typedef enum kn__pb_wire {
    KN__PB_VARINT,
    KN__PB_FIXED64,
    KN__PB_BYTES,
    KN__PB_FIXED32 = 5
} kn__pb_wire;

static inline unsigned char *kn__pb_tag(unsigned char *at, uint32_t field, kn__pb_wire wire) {
    return kn__pb_varint(at, field << 3 | wire);
}

static inline unsigned char *kn__pb_number(unsigned char *at, uint32_t field, uint64_t value) {
    return kn__pb_varint(kn__pb_tag(at, field, KN__PB_VARINT), value);
}

static inline unsigned char *kn__pb_fixed64(unsigned char *at, uint32_t field, uint64_t value) {
    at = kn__pb_tag(at, field, KN__PB_FIXED64);
    for (int i = 0; i < 8; i++) *at++ = (unsigned char)(value >> 8 * i);
    return at;
}

static inline unsigned char *kn__pb_float(unsigned char *at, uint32_t field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    at = kn__pb_tag(at, field, KN__PB_FIXED32);
    for (int i = 0; i < 4; i++) *at++ = (unsigned char)(bits >> 8 * i);
    return at;
}

/* --- at the end of a text --- */

static inline void kn__pb_add(kn__text *out, const unsigned char *from, const unsigned char *to) {
    kn__text_add(out, (const char *)from, (size_t)(to - from));
}

static inline void kn__pb_add_number(kn__text *out, uint32_t field, uint64_t value) {
    unsigned char bytes[2 * KN__VARINT_BYTES];
    kn__pb_add(out, bytes, kn__pb_number(bytes, field, value));
}

static inline void kn__pb_add_fixed64(kn__text *out, uint32_t field, uint64_t value) {
    unsigned char bytes[KN__VARINT_BYTES + 8];
    kn__pb_add(out, bytes, kn__pb_fixed64(bytes, field, value));
}

static inline void kn__pb_add_double(kn__text *out, uint32_t field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    kn__pb_add_fixed64(out, field, bits);
}

static inline void kn__pb_add_float(kn__text *out, uint32_t field, float value) {
    unsigned char bytes[KN__VARINT_BYTES + 4];
    kn__pb_add(out, bytes, kn__pb_float(bytes, field, value));
}

static inline void kn__pb_add_bytes(kn__text *out, uint32_t field, const char *data, size_t n) {
    unsigned char bytes[2 * KN__VARINT_BYTES];
    kn__pb_add(out, bytes, kn__pb_varint(kn__pb_tag(bytes, field, KN__PB_BYTES), n));
    if (n) kn__text_add(out, data, n);
}

/* A string of protobuf is UTF-8. */
static inline void kn__pb_add_text(kn__text *out, uint32_t field, const char *string) {
    kn__text clean = {0};
    kn__text_utf8(&clean, string);
    kn__pb_add_bytes(out, field, clean.data, clean.length);
    out->failed |= clean.failed;
    kn__text_release(&clean);
}

/* A message that was built in `inner`, which is empty then. */
static inline void kn__pb_add_message(kn__text *out, uint32_t field, kn__text *inner) {
    kn__pb_add_bytes(out, field, inner->data, inner->length);
    out->failed |= inner->failed;
    inner->length = 0;
}

#endif
