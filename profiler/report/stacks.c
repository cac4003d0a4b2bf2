#include "stacks.h"

#include <inttypes.h>

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static uint64_t own_of(const kn__row *row, bool gpu) {
    uint64_t own = gpu ? row->gpu_ns : row->time_ns;
    for (const kn__row *child = row->first; child; child = child->next) {
        own = less(own, gpu ? child->gpu_ns : child->time_ns);
    }
    return row->is_extra && !gpu ? 0 : own; /* no time of the program */
}

/* --- speedscope: a frame is a row, numbered in the order of the rows --- */

typedef struct samples {
    kn__text *text;
    bool gpu, weights; /* weights: of the samples, else their stacks */
    uint64_t n_frames, n_samples;
} samples;

static void add_frames(kn__text *text, const kn__row *row, bool *first) {
    for (; row; row = row->next) {
        kn__text_puts(text, *first ? "\n{\"name\":" : ",\n{\"name\":");
        *first = false;
        kn__text_json(text, row->label);
        kn__text_puts(text, "}");
        add_frames(text, row->first, first);
    }
}

/* `stack`: the numbers of the frames above, each with a comma after it. */
static void add_samples(samples *s, const kn__row *row, const char *stack) {
    for (; row; row = row->next) {
        uint64_t frame = s->n_frames++, own = own_of(row, s->gpu);
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

static uint64_t sum_of(const kn__row *row, bool gpu) {
    uint64_t sum = 0;
    for (; row; row = row->next) sum += own_of(row, gpu) + sum_of(row->first, gpu);
    return sum;
}

static void add_profile(kn__text *text, const kn__report *report, bool gpu) {
    samples stacks = {.text = text, .gpu = gpu}, weights = {.text = text, .gpu = gpu};
    const kn__row *first = report->root.first;
    weights.weights = true;
    kn__text_printf(text,
                    "{\"type\":\"sampled\",\"name\":\"%s\",\"unit\":\"nanoseconds\","
                    "\"startValue\":0,\"endValue\":%" PRIu64 ",\"samples\":[",
                    gpu ? "GPU time" : "time", sum_of(first, gpu));
    add_samples(&stacks, first, "");
    kn__text_puts(text, "],\n\"weights\":[");
    add_samples(&weights, first, "");
    kn__text_puts(text, "]}");
}

void kn__speedscope_add(kn__text *text, const kn__report *report) {
    bool first = true;
    kn__text_puts(text,
                  "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
                  "\"exporter\":\"Knet.c\",\"shared\":{\"frames\":[");
    add_frames(text, report->root.first, &first);
    kn__text_puts(text, "]},\n\"profiles\":[");
    add_profile(text, report, false);
    if (report->root.gpu_ns) {
        kn__text_puts(text, ",\n");
        add_profile(text, report, true);
    }
    kn__text_puts(text, "]}\n");
}

/* --- Hatchet --- */

static void add_nodes(kn__text *text, const kn__row *row) {
    kn__text_puts(text, "[");
    for (const kn__row *first = row; row; row = row->next) {
        kn__text_puts(text, row == first ? "\n{\"frame\":{\"name\":" : ",\n{\"frame\":{\"name\":");
        kn__text_json(text, row->label);
        kn__text_printf(text, ",\"type\":\"%s\"},\"metrics\":{",
                        row->is_kernel ? "kernel" : "function");
        kn__text_printf(text, "\"count\":%" PRIu64, row->is_kernel ? row->n_gpu : row->n_calls);
        kn__text_printf(text, ",\"cpu_time (ns)\":%" PRIu64 ",\"cpu_time (ns) (inc)\":%" PRIu64,
                        own_of(row, false), row->time_ns);
        kn__text_printf(text, ",\"time (ns)\":%" PRIu64 ",\"time (ns) (inc)\":%" PRIu64,
                        own_of(row, true), row->gpu_ns);
        kn__text_printf(text,
                        ",\"alloc (bytes) (inc)\":%" PRIu64 "},\"children\":", row->alloc_bytes);
        add_nodes(text, row->first);
        kn__text_puts(text, "}");
    }
    kn__text_puts(text, "]");
}

void kn__hatchet_add(kn__text *text, const kn__report *report) {
    add_nodes(text, report->root.first);
    kn__text_puts(text, "\n");
}
