#include "host/pointwise/links.h"

#include "needs.h"

enum { NO_LINK = 0xFF, ALONE = 0xFE };

/* The one input that a derivative reads beside g: its place among g, the inputs, z. */
#define IN_OF(reads, n)                                                                            \
    ((reads) == A   ? 1                                                                            \
     : (reads) == B ? 2                                                                            \
     : (reads) == Z ? (n) + 1                                                                      \
                    : (((reads) & (A | B | Z | ZERO)) == 0 ? ALONE : NO_LINK))
#define READS(d) (READS_ d)
#define READS_(reads, formula) reads
#define FORWARD(name, second) (KN_LINK_HAS_F(name) ? (second) : NO_LINK)
#define BACK(name, d, n) (KN_LINK_HAS_D(name) ? IN_OF(READS(d), n) : NO_LINK)

/* The second input of each link: that of the row, and those of its derivatives. */
static const uint8_t second_of[KN__ROW_COMMON][KN__LINK_ORDERS] = {
#define KN_ROW1(name, s, domain, a, f, d0, ...)                                                    \
    [KN__ROW_##name] = {FORWARD(name, ALONE), BACK(name, d0, 1), NO_LINK},
#define KN_ROW2(name, s, domain, a, b, f, d0, d1, ...)                                             \
    [KN__ROW_##name] = {FORWARD(name, 1), BACK(name, d0, 2), BACK(name, d1, 2)},
#define KN_ROW3(name, ...) [KN__ROW_##name] = {NO_LINK, NO_LINK, NO_LINK},
#define KN_COMPARE(name, ...) [KN__ROW_##name] = {NO_LINK, NO_LINK, NO_LINK},
#define KN_COMPARE1(name, ...) [KN__ROW_##name] = {NO_LINK, NO_LINK, NO_LINK},
#define KN_RARE1(...)
#define KN_RARE2(...)
#include <knet/ops.def>
};

bool kn__link_of(int *what, int in[2], unsigned op, int k) {
    extern const uint8_t kn__row_places[KN_OP_COUNT][2] __attribute__((visibility("hidden")));
    const uint8_t *place = kn__row_places[op];
    if (place[0] || k >= KN__LINK_ORDERS) return false;
    uint8_t second = second_of[place[1]][k];
    if (second == NO_LINK) return false;
    *what = KN__LINK(place[1], k, 0);
    in[0] = 0;
    in[1] = second == ALONE ? -1 : second;
    return true;
}
