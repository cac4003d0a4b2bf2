#include "replay_page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "file.h"
#include "html_page.h"
#include "output.h"

/* replay.html, which the build puts here; ends in a zero byte. */
extern const unsigned char kn__replay_html[];

static const char placeholder[] = "@DATA@";
static const uint64_t GAP_BYTES = (uint64_t)2 << 20; /* addresses without blocks that are cut out */
enum { BLOCK_BYTES = 40, DATA_BYTES = 960000, PLAYS_BYTES = 4096 };

/* Bytes times steps. */
static double weight(const kn__block_life *p) {
    return (double)p->size * (double)(p->to - p->from);
}

static int by_weight(const void *a, const void *b) {
    double x = weight(a), y = weight(b);
    return (x < y) - (x > y);
}

static int by_address(const void *a, const void *b) {
    const kn__block_life *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* Blocks as [step, steps, place, size], places from 0 without the gaps; and where the pieces
 * between gaps are, as [place, address]. */
static void add_blocks(kn__text *text, const kn__block_life *places, size_t n) {
    kn__text pieces = {0};
    uint64_t end = 0, shift = 0;
    kn__text_puts(text, ",\"blocks\":[");
    for (size_t i = 0; i < n; i++) {
        const kn__block_life *p = &places[i];
        if (i == 0 || p->at > end + GAP_BYTES) {
            uint64_t place = i ? end - shift + GAP_BYTES / 2 : 0;
            shift = p->at - place;
            kn__text_printf(&pieces, "%s[%" PRIu64 ",%" PRIu64 "]", i ? "," : "", place, p->at);
        }
        if (p->at + p->size > end) end = p->at + p->size;
        kn__text_printf(text, "%s[%zu,%zu,%" PRIu64 ",%" PRIu64 "]", i ? "," : "", p->from,
                        p->to - p->from, p->at - shift, p->size);
    }
    kn__text_printf(text, "],\"height\":%" PRIu64 ",\"pieces\":[", n ? end - shift : 0);
    if (pieces.data) kn__text_puts(text, pieces.data);
    kn__text_puts(text, "]");
    text->failed |= pieces.failed;
    kn__text_release(&pieces);
}

static void add_samples(kn__text *text, const kn__played *p) {
    kn__text_puts(text, ",\"samples\":[");
    for (int i = 0; i < p->n_samples; i++) {
        kn__text_printf(text, "%s[%zu,%" PRIu64 ",%" PRIu64 "]", i ? "," : "", p->samples[i].at,
                        p->samples[i].live_bytes, p->samples[i].reserved_bytes);
    }
    kn__text_puts(text, "]");
}

static void add_numbers(kn__text *text, const kn__trace *t, const kn__played *p, double driver_us) {
    const kn__counts *c = &p->counts;
    kn__text_printf(text,
                    ",\"events\":%zu,\"peak\":%" PRIu64 ",\"reserved\":%" PRIu64
                    ",\"device\":%" PRIu64 ",\"allocs\":%" PRIu64 ",\"frees\":%" PRIu64
                    ",\"syncs\":%" PRIu64 ",\"waits\":%" PRIu64 ",\"driver\":",
                    t->n_steps, p->peak_live_bytes, c->reserved_bytes_max, p->device_bytes,
                    c->device_allocs, c->device_frees, c->syncs, c->calls.n[KN__CALL_WAIT]);
    kn__output_number(text, driver_us);
    if (!p->oom) return;
    kn__text_puts(text, ",\"oom\":");
    kn__page_string(text, p->oom_text);
}

/* Keeps the blocks that were placed and can be drawn; returns their number. */
static size_t choose(kn__block_life *places, uint32_t n_blocks, size_t n_max) {
    size_t n = 0;
    for (uint32_t i = 0; i < n_blocks; i++) {
        if (places[i].size && places[i].to > places[i].from) places[n++] = places[i];
    }
    qsort(places, n, sizeof *places, by_weight);
    if (n > n_max) n = n_max;
    qsort(places, n, sizeof *places, by_address);
    return n;
}

void kn__replay_page_add(kn__replay_page *page, const char *file, const kn__trace *trace,
                         const kn__played *played, kn__block_life *places, double driver_us) {
    int n_plays = page->plays_max > 0 ? page->plays_max : 1;
    size_t room = DATA_BYTES / (size_t)n_plays;
    size_t n_max = room > PLAYS_BYTES ? (room - PLAYS_BYTES) / BLOCK_BYTES : 0;
    size_t n = choose(places, trace->n_blocks, n_max);
    kn__text *text = &page->plays;
    kn__text_puts(text, page->n_plays++ ? ",\n{\"file\":" : "{\"file\":");
    kn__page_string(text, file);
    kn__text_puts(text, ",\"policy\":");
    kn__page_string(text, played->policy);
    add_numbers(text, trace, played, driver_us);
    add_samples(text, played);
    kn__text_printf(text, ",\"n_blocks\":%" PRIu32, trace->n_blocks);
    add_blocks(text, places, n);
    kn__text_puts(text, "}");
}

bool kn__replay_page_write(const kn__replay_page *page, const char *path) {
    kn__text text = {0};
    char expanded[KN__PATH_EXPANDED_BYTES];
    const char *html = (const char *)kn__replay_html, *at = strstr(html, placeholder);
    kn__text_add(&text, html, (size_t)(at - html));
    kn__text_puts(&text, "[");
    if (page->plays.data) kn__text_puts(&text, page->plays.data);
    kn__text_puts(&text, "]");
    kn__text_puts(&text, at + strlen(placeholder));
    bool failed = text.failed || page->plays.failed;
    int error = failed ? ENOMEM
                : kn__path_expand(expanded, sizeof expanded, path)
                    ? kn__file_write(expanded, text.data, text.length)
                    : ENAMETOOLONG;
    kn__text_release(&text);
    if (error) kn__fail("cannot write %s: %s", path, strerror(error));
    return !error;
}

void kn__replay_page_release(kn__replay_page *page) { kn__text_release(&page->plays); }
