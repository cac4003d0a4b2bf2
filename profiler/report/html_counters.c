#include "html_counters.h"

#include <inttypes.h>
#include <stdlib.h>

#include "counters.h"

static void start_counter(kn__page *p, const char *name, const char *unit) {
    kn__text_puts(p->text, p->first ? "\n[" : ",\n[");
    p->first = false;
    kn__page_string(p->text, name);
    kn__text_puts(p->text, ",");
    kn__page_string(p->text, unit);
}

void kn__html_counters_add(kn__page *p, const kn__report *report) {
    const kn__counters *counters = &report->counters;
    if (!counters->n) return;
    kn__text_printf(p->text, ",\n\"more_counters\":%" PRIu64 ",\"counters\":[",
                    counters->n_refused);
    p->first = true;
    for (int i = 0; i < counters->n; i++) {
        const kn__counter *c = &counters->all[i];
        const long double values[] = {c->min, c->mean, c->max, c->last};
        start_counter(p, c->name, c->unit);
        kn__text_printf(p->text, ",%" PRIu64 ",%" PRIu64, c->n, c->n_missed);
        for (int v = 0; c->n && v < 4; v++) {
            kn__text_puts(p->text, ",");
            kn__counter_value(p->text, values[v]);
        }
        kn__text_puts(p->text, "]");
    }
    kn__text_puts(p->text, "]");
}

/* --- samples --- */

/* One counter: the samples written, and those collected for its current grain. */
typedef struct series {
    const kn__trace_counter *counter; /* NULL: no sample yet */
    kn__text points;
    uint64_t written_ns, grain;
    const kn__timeline_point *least, *most, *last;
} series;

static long double value_of(const kn__timeline_point *s) { return kn__trace_value(&s->event); }

static void add_point(series *s, const kn__timeline_point *sample, uint64_t from_ns) {
    uint64_t at = sample->event.start - from_ns;
    if (s->points.length) kn__text_add(&s->points, ",", 1);
    kn__page_number(&s->points, at - s->written_ns);
    kn__text_add(&s->points, ",", 1);
    kn__counter_value(&s->points, value_of(sample));
    s->written_ns = at;
}

/* The points of the grain, each once and in order; samples lie in an array by their times. */
static void end_grain(series *s, uint64_t from_ns) {
    if (!s->last) return;
    bool least_first = s->least < s->most;
    const kn__timeline_point *first = least_first ? s->least : s->most;
    const kn__timeline_point *second = least_first ? s->most : s->least;
    add_point(s, first, from_ns);
    if (second != first) add_point(s, second, from_ns);
    if (s->last != second) add_point(s, s->last, from_ns);
    s->least = s->most = s->last = NULL;
}

static void add_sample(series *s, const kn__timeline_point *sample, uint64_t from_ns,
                       uint64_t grain_ns) {
    uint64_t grain = grain_ns ? (sample->event.start - from_ns) / grain_ns : s->grain + 1;
    if (grain != s->grain) end_grain(s, from_ns);
    s->grain = grain;
    s->counter = kn__trace_counter_of(&sample->event);
    if (!s->last) s->least = s->most = sample;
    if (value_of(sample) < value_of(s->least)) s->least = sample;
    if (value_of(sample) > value_of(s->most)) s->most = sample;
    s->last = sample;
}

/* Three points a grain at most. */
static uint64_t grain_of(const kn__timeline *line) {
    if (line->samples.n <= KN__HTML_SAMPLES_MAX) return 0;
    uint64_t grains = KN__HTML_SAMPLES_MAX / 3 / line->counters.n_used;
    return (line->until_ns - line->from_ns) / grains + 1;
}

static void add_series(kn__page *p, series *s) {
    start_counter(p, s->counter->name.label, s->counter->unit);
    kn__text_puts(p->text, ",[");
    kn__text_add(p->text, s->points.data, s->points.length);
    kn__text_puts(p->text, "]]");
    p->text->failed |= s->points.failed;
}

void kn__html_samples_add(kn__page *p, const kn__timeline *line) {
    const kn__timeline_point *all = line->samples.at;
    size_t n = line->samples.n, n_series = line->counters.n_used;
    if (!n) return;
    series *each = calloc(n_series, sizeof *each);
    if (!each) {
        p->text->failed = true;
        return;
    }
    uint64_t grain_ns = grain_of(line);
    for (size_t i = 0; i < n; i++) {
        series *s = &each[kn__trace_counter_of(&all[i].event)->number];
        add_sample(s, &all[i], line->from_ns, grain_ns);
    }
    kn__text_printf(p->text, ",\"samples\":%zu,\"samples_grain\":%" PRIu64 ",\"counters\":[", n,
                    grain_ns);
    p->first = true;
    for (size_t i = 0; i < n_series; i++) {
        end_grain(&each[i], line->from_ns);
        if (each[i].counter && each[i].points.length) add_series(p, &each[i]);
        kn__text_release(&each[i].points);
    }
    kn__text_puts(p->text, "]");
    free(each);
}
