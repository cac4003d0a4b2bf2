/* Fuzzing of what the timer reads and writes, one program for each: the words of KNET_TIMER
 * (FUZZ_TIMER), profiles read back (FUZZ_PROFILE), and the writers, for rows made of the fuzzer's
 * bytes (FUZZ_FORMAT). */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff.h"
#include "env.h"
#include "export.h"
#include "file.h"
#include "holders.h"
#include "json.h"
#include "name.h"
#include "read.h"
#include "select.h"
#include "table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

#ifdef FUZZ_TIMER

static void check(const kn__config *c) {
    must(c->depth >= 0 && c->depth <= KN__DEPTH_MAX, "depth");
    must(c->width >= -1 && c->first_step >= 1, "width or step");
    must(!c->last_step || c->last_step >= c->first_step, "steps");
    must(!c->every_ns || !c->every_steps, "every");
    must(c->buffer_bytes >= KN__BUFFER_BYTES_MIN, "buf");
    const char *const paths[] = {c->out,    c->json,  c->trace,  c->csv,
                                 c->folded, c->flame, c->record, c->cupti};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        must(memchr(paths[i], '\0', KN__PATH_BYTES) != NULL, "a path without end");
        char full[64];
        (void)kn__path_expand(full, sizeof full, paths[i]);
        must(strlen(full) < sizeof full, "an expanded path without end");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *words = malloc(size + 1); /* so that a byte too far is seen */
    must(words != NULL, "malloc");
    if (size) memcpy(words, data, size);
    words[size] = '\0';
    size_t way = size % 3; /* one variable, the other, both */
    kn__text messages = {0};
    kn__config config;
    kn__config_read(&config, way ? words : NULL, way != 1 ? words : NULL, way == 2, &messages);
    check(&config);
    kn__text_release(&messages);
    free(words);
    return 0;
}

#else

/* Everything that shows a report, of whatever values. */
static void show_all(kn__report *report, uint8_t how) {
    static const char *const patterns[] = {"a", "[", "^.*/b", "(x|y)+", ""};
    kn__table_options options = {.width = how % 3 ? how : 0,
                                 .depth = how % 5,
                                 .ascii = how & 1,
                                 .columns_2018 = (how & 6) == 2,
                                 .spread = (how & 6) == 4};
    kn__text text = {0};
    kn__report_sort(report, (kn__sort)(how % 7));
    kn__table_add(&text, report, &options);
    kn__csv_add(&text, report);
    kn__folded_add(&text, report, (kn__weight)(how % 3));
    kn__flame_add(&text, report, (kn__weight)(how % 3));
    kn__memory_add(&text, report, &(kn__memory_view){.width = how, .ascii = how & 1});
    kn__report flat;
    must(kn__report_flatten(&flat, report) >= 0, "flatten");
    kn__diff diff;
    must(kn__diff_make(&diff, report, &flat,
                       &(kn__diff_options){
                           .threshold = 0.05, .share = 0.005, .top = how % 4, .ascii = true}) >= 0,
         "diff");
    kn__diff_add_table(
        &text, &diff, report, &flat,
        &(kn__diff_options){.threshold = 0.05, .share = 0.005, .top = how % 4, .ascii = true});
    kn__diff_add_json(&text, &diff, report, &flat);
    kn__diff_release(&diff);
    kn__report_release(&flat);
    (void)kn__report_filter(report, patterns[how % 5]);
    must(kn__report_top(report, 1 + how % 4) >= 0, "top");
    kn__table_add(&text, report, &options);
    must(!text.failed, "no memory");
    kn__text_release(&text);
}

/* Text that was written reads back, and writes the same text again. */
static void check_round_trip(const kn__report *report) {
    kn__text first = {0}, second = {0};
    kn__json_add(&first, report);
    kn__report again;
    if (kn__report_parse(&again, "again", first.data, first.length) >= 0) {
        kn__json_add(&second, &again);
        kn__report third;
        must(kn__report_parse(&third, "third", second.data, second.length) >= 0, "third reading");
        kn__report_release(&third);
    }
    kn__report_release(&again);
    kn__text_release(&first);
    kn__text_release(&second);
}

#ifdef FUZZ_PROFILE

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size ? size : 1);
    must(text != NULL, "malloc");
    if (size) memcpy(text, data, size);
    kn__report report;
    if (kn__report_parse(&report, "input", text, size) >= 0) {
        check_round_trip(&report);
        show_all(&report, size ? data[size / 2] : 0);
    } else {
        must(strncmp(kn_last_error()->message, "input ", 6) == 0, "a message without the name");
    }
    kn__report_release(&report);
    free(text);
    return 0;
}

#else /* FUZZ_FORMAT */

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

static uint8_t take(bytes *b) { return b->at < b->end ? *b->at++ : 0; }

/* Few bytes for small numbers and for the largest there are. */
static uint64_t take_number(bytes *b) {
    uint8_t how = take(b);
    uint64_t x = take(b);
    return how >= 0xf0 ? UINT64_MAX >> (how & 3) : x << how % 57;
}

static void take_label(bytes *b, char *out, size_t size) {
    size_t n = take(b) % size, i = 0;
    for (; i < n && b->at < b->end; i++) {
        out[i] = (char)take(b);
        if (!out[i]) break;
    }
    out[i] = '\0';
}

static void fill_row(kn__row *row, bytes *b) {
    uint8_t flags = take(b);
    row->is_kernel = flags & 1;
    row->open = flags & 2;
    row->is_extra = (flags & 24) == 24;
    row->n_calls = take_number(b);
    row->time_ns = take_number(b);
    row->min_ns = take_number(b);
    row->max_ns = take_number(b);
    row->alloc_bytes = take_number(b);
    row->freed_bytes = take_number(b);
    row->peak = (int64_t)(take_number(b) >> 1);
    row->peak_most = flags & 4 ? INT64_MAX : row->peak;
    row->held_at_peak = (int64_t)take_number(b);
    row->gpu_ns = take_number(b);
    row->n_gpu = take_number(b);
    row->n_ended = row->n_calls;
    row->ended_ns = (double)row->time_ns;
    row->squares_ns2 = (double)take_number(b) * 1e9;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bytes b = {data, data + size};
    kn__report report;
    kn__report_init(&report);
    uint8_t how = take(&b);
    report.has_memory = how & 1;
    report.wall_ns = take_number(&b);
    report.steps.n = take(&b) % 3;
    report.memory.live_max = (int64_t)(take_number(&b) >> 1);
    for (int i = take(&b) % 8; i > 0; i--) {
        report.live.bins[report.live.n++] =
            (kn__series_bin){take_number(&b), (int64_t)take_number(&b), (int64_t)take_number(&b)};
    }
    kn__row *row = &report.root;
    while (b.at < b.end) {
        char label[300], name[64];
        uint8_t up = take(&b) % 4;
        while (up-- && row->parent) row = row->parent;
        take_label(&b, label, sizeof label);
        kn__name_short(name, sizeof name, label);
        must(strlen(name) < sizeof name, "a name without end");
        if (row->depth >= KN__READ_DEPTH_MAX) row = &report.root;
        const char *kept = kn__report_keep(&report, label);
        row = kept ? kn__report_row(&report, row, kept) : NULL;
        must(row != NULL, "no memory");
        fill_row(row, &b);
    }
    kn__report_sum(&report);
    check_round_trip(&report);
    show_all(&report, how);
    kn__report_release(&report);
    return 0;
}

#endif
#endif
