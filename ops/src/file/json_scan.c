#include "json_scan.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

static void skip_spaces(kn__json_scan *j) {
    while (j->at < j->end && strchr(" \t\r\n", *j->at) && *j->at) j->at++;
}

bool kn__json_take(kn__json_scan *j, char c) {
    skip_spaces(j);
    if (j->at == j->end || *j->at != c) return false;
    j->at++;
    return true;
}

/* Four hexadecimal digits, or -1. */
static int take_hex(kn__json_scan *j) {
    int code = 0;
    if (j->end - j->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = *j->at++;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* The character of \uXXXX, or of two of them; 0: invalid. */
static uint32_t take_code(kn__json_scan *j) {
    int high = take_hex(j);
    if (high <= 0 || (high >= 0xDC00 && high < 0xE000)) return 0;
    if (high < 0xD800 || high >= 0xE000) return (uint32_t)high;
    if (j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u') return 0;
    j->at += 2;
    int low = take_hex(j);
    if (low < 0xDC00 || low >= 0xE000) return 0;
    return 0x10000 + (((uint32_t)high - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
}

static char *put_code(char *out, uint32_t code) {
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    *out++ = (char)(lead[more] | code >> (6 * more));
    while (more-- > 0) *out++ = (char)(0x80 | (code >> (6 * more) & 0x3F));
    return out;
}

/* NULL: invalid. */
static char *take_escape(kn__json_scan *j, char *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (j->at == j->end) return NULL;
    char c = *j->at++;
    if (c == 'u') {
        uint32_t code = take_code(j);
        return code ? put_code(out, code) : NULL;
    }
    const char *which = c ? strchr(from, c) : NULL;
    if (!which) return NULL;
    *out++ = to[which - from];
    return out;
}

char *kn__json_string(kn__json_scan *j) {
    if (!kn__json_take(j, '"')) return NULL;
    const char *end = j->at;
    while (end < j->end && *end != '"') end += *end == '\\' && end + 1 < j->end ? 2 : 1;
    if (end >= j->end) return NULL;
    char *text = malloc((size_t)(end - j->at) + 1), *out = text;
    if (!text) j->no_memory = true;
    while (out && j->at < end) {
        char c = *j->at;
        if ((unsigned char)c < 0x20) break;
        j->at++;
        if (c != '\\')
            *out++ = c;
        else
            out = take_escape(j, out);
    }
    bool good = out && j->at == end;
    if (good) *out = 0;
    if (!good || !kn__utf8_is_valid(text)) {
        free(text);
        return NULL;
    }
    j->at = end + 1;
    return text;
}

bool kn__json_number(kn__json_scan *j, uint64_t *out) {
    skip_spaces(j);
    const char *begin = j->at;
    *out = 0;
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, (uint64_t)(*j->at - '0'), out))
            return false;
    return j->at > begin && (j->at == begin + 1 || *begin != '0');
}
