#include "utf8.h"

#include <stdint.h>

size_t kn__utf8_bytes(const char *s) {
    const unsigned char *c = (const unsigned char *)s;
    if (c[0] < 0x80) return 1;
    size_t n = c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0;
    }
    bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    bool beyond = (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf4 && c[1] > 0x8f);
    return overlong || beyond ? 0 : n;
}

bool kn__utf8_is_valid(const char *text) {
    for (size_t n = 1; *text && n; text += n) n = kn__utf8_bytes(text);
    return !*text;
}

typedef struct range {
    uint32_t first, last;
} range;

/* Of Unicode 15, EastAsianWidth.txt: W and F, joined over unassigned code points between them. */
static const range wide[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x23e9, 0x23ec},   {0x2e80, 0x303e},
    {0x3041, 0x33ff},   {0x3400, 0x4dbf},   {0x4e00, 0xa4cf},   {0xa960, 0xa97f},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe10, 0xfe19},   {0xfe30, 0xfe6f},
    {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff},
    {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
};
/* The common ones. */
static const range combining[] = {
    {0x300, 0x36f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};

/* They control the terminal or the direction of the text: what is shown beside them would change.
 */
static const range controls[] = {
    {0, 0x1f}, {0x7f, 0x9f}, {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfffe, 0xffff}};

static bool is_in(uint32_t c, const range *ranges, int n) {
    for (int i = 0; i < n; i++) {
        if (c >= ranges[i].first && c <= ranges[i].last) return true;
    }
    return false;
}

/* Of n bytes. */
static uint32_t code_point(const char *s, size_t n) {
    uint32_t c = (unsigned char)s[0];
    if (n > 1) c &= 0x7fu >> n;
    for (size_t i = 1; i < n; i++) c = c << 6 | ((unsigned char)s[i] & 0x3f);
    return c;
}

bool kn__utf8_is_shown(const char *s) {
    size_t n = kn__utf8_bytes(s);
    return n && !is_in(code_point(s, n), controls, (int)(sizeof controls / sizeof *controls));
}

int kn__utf8_columns(const char *s) {
    size_t n = kn__utf8_bytes(s);
    if (n < 2) return 1;
    uint32_t c = code_point(s, n);
    if (is_in(c, combining, (int)(sizeof combining / sizeof *combining))) return 0;
    return is_in(c, wide, (int)(sizeof wide / sizeof *wide)) ? 2 : 1;
}
