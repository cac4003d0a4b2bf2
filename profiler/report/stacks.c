#include "stacks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "hash.h"

/* --- speedscope: rows of one label and place are one frame, so that its views of functions have
 * their sum --- */

typedef struct frame_slot {
    uint64_t key;
    const kn__row *row; /* one of the frame's */
    uint64_t n;         /* in the order of the rows */
} frame_slot;

enum { FRAMES_MIN = 64 };

typedef struct samples {
    kn__text *text;
    const kn__hash *frames;
    kn__weight weight;
    bool weights; /* of the samples, else their stacks */
    uint64_t n_samples;
} samples;

static const char *where_of(const kn__row *row) { return row->where ? row->where : ""; }

/* The frame of a row, or the free slot where it belongs; there are slots. */
static frame_slot *find_frame(const kn__hash *frames, const kn__row *row, uint64_t *key) {
    *key = kn__hash_text(kn__hash_text(0, where_of(row)), row->label);
    frame_slot *at = kn__hash_find(frames, sizeof *at, *key);
    while (at->key && (strcmp(at->row->label, row->label) != 0 ||
                       strcmp(where_of(at->row), where_of(row)) != 0)) {
        at = kn__hash_after(frames, sizeof *at, at);
    }
    return at;
}

static void add_frame(kn__text *text, const kn__row *row) {
    const char *colon = row->where ? strrchr(row->where, ':') : NULL;
    kn__text_puts(text, "{\"name\":");
    kn__text_json(text, row->label);
    if (colon && colon[1] >= '1' && colon[1] <= '9') {
        kn__text file = {0};
        kn__text_printf(&file, "%.*s", (int)(colon - row->where), row->where);
        kn__text_puts(text, ",\"file\":");
        kn__text_json(text, file.failed ? "" : file.data);
        kn__text_printf(text, ",\"line\":%lu", strtoul(colon + 1, NULL, 10));
        kn__text_release(&file);
    }
    kn__text_puts(text, "}");
}

static void add_frames(kn__text *text, kn__hash *frames, const kn__row *row) {
    for (; row; row = row->next) {
        if (kn__hash_is_full(frames) && !kn__hash_grow(frames, sizeof(frame_slot), FRAMES_MIN)) {
            text->failed = true;
            return;
        }
        uint64_t key;
        frame_slot *at = find_frame(frames, row, &key);
        if (!at->key) {
            *at = (frame_slot){.row = row, .n = frames->n_used};
            kn__text_puts(text, at->n ? ",\n" : "\n");
            add_frame(text, row);
            kn__hash_use(frames, at, key);
        }
        add_frames(text, frames, row->first);
    }
}

/* `stack`: the numbers of the frames above, each with a comma after it. */
static void add_samples(samples *s, const kn__row *row, const char *stack) {
    for (; row; row = row->next) {
        uint64_t key, frame = find_frame(s->frames, row, &key)->n,
                      own = kn__row_own(row, s->weight);
        if (own) {
            kn__text_puts(s->text, s->n_samples++ ? "," : "");
            if (s->weights) {
                kn__text_printf(s->text, "%" PRIu64, own);
            } else {
                kn__text_printf(s->text, "[%s%" PRIu64 "]", stack, frame);
            }
        }
        if (!row->first) continue;
        kn__text inner = {0};
        kn__text_printf(&inner, "%s%" PRIu64 ",", stack, frame);
        s->text->failed |= inner.failed;
        if (!inner.failed) add_samples(s, row->first, inner.data);
        kn__text_release(&inner);
    }
}

static uint64_t sum_of(const kn__row *row, kn__weight weight) {
    uint64_t sum = 0;
    for (; row; row = row->next) sum += kn__row_own(row, weight) + sum_of(row->first, weight);
    return sum;
}

static void add_profile(kn__text *text, const kn__report *report, const kn__hash *frames,
                        kn__weight weight) {
    static const char *const names[] = {"time", "GPU time", "allocated bytes"};
    samples stacks = {.text = text, .frames = frames, .weight = weight}, weights = stacks;
    const kn__row *first = report->root.first;
    weights.weights = true;
    kn__text_printf(text,
                    "%s{\"type\":\"sampled\",\"name\":\"%s\",\"unit\":\"%s\","
                    "\"startValue\":0,\"endValue\":%" PRIu64 ",\"samples\":[",
                    weight == KN__WEIGHT_TIME ? "" : ",\n", names[weight],
                    weight == KN__WEIGHT_ALLOC ? "bytes" : "nanoseconds", sum_of(first, weight));
    add_samples(&stacks, first, "");
    kn__text_puts(text, "],\n\"weights\":[");
    add_samples(&weights, first, "");
    kn__text_puts(text, "]}");
}

void kn__speedscope_add(kn__text *text, const kn__report *report) {
    kn__hash frames = {0};
    kn__text_puts(text,
                  "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
                  "\"exporter\":\"Knet.c\",");
    if (report->run.notes) {
        kn__text_puts(text, "\"name\":");
        kn__text_json(text, report->run.notes);
        kn__text_puts(text, ",");
    }
    kn__text_puts(text, "\"shared\":{\"frames\":[");
    add_frames(text, &frames, report->root.first);
    kn__text_puts(text, "]},\n\"profiles\":[");
    const uint64_t all[] = {1, report->root.gpu_ns, report->root.alloc_bytes};
    for (kn__weight w = KN__WEIGHT_TIME; w <= KN__WEIGHT_ALLOC && !text->failed; w++) {
        if (all[w]) add_profile(text, report, &frames, w);
    }
    kn__text_puts(text, "]}\n");
    kn__hash_release(&frames);
}

/* --- Hatchet --- */

typedef struct metrics {
    uint64_t count, time, gpu, alloc; /* own */
    uint64_t all_time, all_gpu, all_alloc;
} metrics;

/* A reader that looks for "time" by its start takes the one of the GPU, as in Proton's files. */
static void add_metrics(kn__text *text, const metrics *m) {
    kn__text_printf(text, "\"count\":%" PRIu64, m->count);
    kn__text_printf(text, ",\"cpu_time (ns)\":%" PRIu64 ",\"cpu_time (ns) (inc)\":%" PRIu64,
                    m->time, m->all_time);
    kn__text_printf(text, ",\"time (ns)\":%" PRIu64 ",\"time (ns) (inc)\":%" PRIu64, m->gpu,
                    m->all_gpu);
    kn__text_printf(text, ",\"alloc (bytes)\":%" PRIu64 ",\"alloc (bytes) (inc)\":%" PRIu64,
                    m->alloc, m->all_alloc);
    kn__text_printf(text, ",\"time\":%" PRIu64 ",\"time (inc)\":%" PRIu64, m->time, m->all_time);
}

static void add_nodes(kn__text *text, const kn__row *row) {
    for (const kn__row *first = row; row; row = row->next) {
        kn__text_puts(text, row == first ? "\n{\"frame\":{\"name\":" : ",\n{\"frame\":{\"name\":");
        kn__text_json(text, row->label);
        kn__text_printf(text, ",\"type\":\"%s\"},\"metrics\":{",
                        row->is_kernel ? "kernel" : "function");
        add_metrics(text, &(metrics){.count = row->is_kernel ? row->n_gpu : row->n_calls,
                                     .time = kn__row_own(row, KN__WEIGHT_TIME),
                                     .gpu = kn__row_own(row, KN__WEIGHT_GPU),
                                     .alloc = kn__row_own(row, KN__WEIGHT_ALLOC),
                                     .all_time = row->time_ns,
                                     .all_gpu = row->gpu_ns,
                                     .all_alloc = row->alloc_bytes});
        kn__text_puts(text, "},\"children\":[");
        add_nodes(text, row->first);
        kn__text_puts(text, "]}");
    }
}

void kn__hatchet_add(kn__text *text, const kn__report *report) {
    const kn__row *first = report->root.first;
    kn__text_puts(text, "[{\"frame\":{\"name\":\"ROOT\",\"type\":\"function\"},\"metrics\":{");
    add_metrics(text, &(metrics){.all_time = sum_of(first, KN__WEIGHT_TIME),
                                 .all_gpu = sum_of(first, KN__WEIGHT_GPU),
                                 .all_alloc = sum_of(first, KN__WEIGHT_ALLOC)});
    kn__text_puts(text, "},\"children\":[");
    add_nodes(text, first);
    kn__text_puts(text, "]}]\n");
}
