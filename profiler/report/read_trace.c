#include "read_trace.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_BYTES = 160 };

/* Later times, 126 years, are damage. */
static const double us_max = 4e15;

/* An event that began and has not ended yet. */
typedef struct begun {
    uint32_t thread;
    const char *label, *where;
    uint64_t at_ns;
} begun;

typedef struct reader {
    kn__timeline *line;
    const char *file;
    size_t number; /* of the event, from 1 */
    bool is_ours;
    uint64_t base_ns;
    kn_status status;
    begun *open;
    size_t n_open, room;
    /* The record that the event before was, for the arrow that ends at it. */
    const cJSON *last_work;
} reader;

static void wrong(reader *r, const char *key, const char *what) {
    if (r->status < 0) return;
    r->status = KN_FAIL(KN_ERR_FORMAT, "%s is damaged: \"%s\" of event %zu %s", r->file, key,
                        r->number, what);
}

static const cJSON *get(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *text_of(const cJSON *object, const char *key) {
    const cJSON *item = get(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

/* Microseconds as ns; a missing one is 0. */
static uint64_t ns_of(reader *r, const cJSON *event, const char *key) {
    const cJSON *item = get(event, key);
    if (!item) return 0;
    if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < us_max)
        return (uint64_t)(item->valuedouble * 1000 + 0.5);
    wrong(r, key, "is no time in microseconds");
    return 0;
}

static uint64_t start_of(reader *r, const cJSON *event) {
    if (!get(event, "ts")) wrong(r, "ts", "is missing");
    return r->base_ns + ns_of(r, event, "ts");
}

/* A whole number that fits, or 0. */
static uint64_t number_of(const cJSON *object, const char *key, double most) {
    const cJSON *item = get(object, key);
    double x = cJSON_IsNumber(item) ? item->valuedouble : 0;
    return x >= 0 && x <= most ? (uint64_t)x : 0;
}

/* Processes and threads have numbers or names. */
static int64_t id_of(const cJSON *event, const char *key) {
    const cJSON *item = get(event, key);
    if (cJSON_IsString(item)) return (int64_t)(kn__hash_text(0, item->valuestring) >> 1);
    return cJSON_IsNumber(item) && fabs(item->valuedouble) < 9e18 ? (int64_t)item->valuedouble : 0;
}

static uint32_t thread_of(reader *r, const cJSON *event) {
    return kn__timeline_thread_of(r->line, id_of(event, "pid"), id_of(event, "tid"));
}

/* --- GPU work --- */

static bool is_one_of(const char *text, const char *const *list) {
    for (; *list; list++) {
        if (strcasecmp(text, *list) == 0) return true;
    }
    return false;
}

static bool is_work(const char *category) {
    static const char *const of[] = {"kernel", "gpu_memcpy", "gpu_memset",
                                     "memcpy", "memset",     NULL};
    return is_one_of(category, of);
}

/* Of the tool itself, or shown again in another place. */
static bool is_left_out(const char *category) {
    static const char *const of[] = {"overhead", "trace", "gpu_user_annotation", NULL};
    return is_one_of(category, of);
}

static void read_sizes(uint32_t out[3], const cJSON *args, const char *key) {
    const cJSON *item = get(args, key);
    item = cJSON_IsArray(item) ? item->child : NULL;
    for (int i = 0; i < 3 && item; i++, item = item->next) {
        if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < UINT32_MAX)
            out[i] = (uint32_t)item->valuedouble;
    }
}

static uint32_t where_of(const cJSON *event, const cJSON *args, const char *key, const char *id) {
    uint64_t at = number_of(get(args, key) ? args : event, get(args, key) ? key : id, UINT32_MAX);
    return (uint32_t)at;
}

static void read_work(reader *r, const cJSON *event) {
    const cJSON *args = get(event, "args");
    uint64_t start = start_of(r, event);
    kn__record record = {
        .name = text_of(event, "name"),
        .start_ns = start,
        .end_ns = start + ns_of(r, event, "dur"),
        .device = where_of(event, args, "device", "pid"),
        .stream = where_of(event, args, "stream", "tid"),
        .bytes = number_of(args, "bytes", 1e19),
        .registers = (uint32_t)number_of(args, "registers per thread", UINT32_MAX),
        .shared_bytes = (uint32_t)number_of(args, "shared memory", UINT32_MAX),
    };
    uint64_t id = number_of(args, "correlation", UINT32_MAX);
    record.id = (uint32_t)id;
    read_sizes(record.grid, args, "grid");
    read_sizes(record.block, args, "block");
    if (r->status >= 0) r->status = kn__timeline_work(r->line, &record, r->is_ours ? 0 : id);
    r->last_work = event;
}

/* In our traces an arrow's end follows its record. */
static void read_arrow_end(reader *r, const cJSON *event) {
    kn__items *works = &r->line->works;
    if (!r->is_ours || !r->last_work || r->last_work->next != event || !works->n) return;
    ((kn__work_record *)works->at)[works->n - 1].launch = number_of(event, "id", UINT32_MAX);
}

static void read_arrow(reader *r, const cJSON *event, char phase) {
    if (strcmp(text_of(event, "cat"), "ac2g") != 0 || !r->is_ours) return;
    if (phase == 'f') {
        read_arrow_end(r, event);
    } else if (r->status >= 0) {
        uint64_t at = start_of(r, event), id = number_of(event, "id", UINT32_MAX);
        if (r->status >= 0) r->status = kn__timeline_launch(r->line, thread_of(r, event), id, at);
    }
}

/* --- spans --- */

/* "ProfilerStep#12": steps are calls of one row. */
static const char *step_label(kn__report *report, const char *label, uint64_t spent) {
    static const char step[] = "ProfilerStep";
    if (strncmp(label, step, sizeof step - 1) != 0 || label[sizeof step - 1] != '#') return label;
    kn__steps *steps = &report->steps;
    steps->n++;
    steps->n_timed++;
    steps->sum_ns += spent;
    steps->squares_ns2 += (double)spent * (double)spent;
    if (steps->n == 1 || spent < steps->min_ns) steps->min_ns = spent;
    if (spent > steps->max_ns) steps->max_ns = spent;
    return step;
}

static void add_span(reader *r, const begun *b, uint64_t end) {
    if (r->status < 0) return;
    const char *label = step_label(r->line->report, b->label, end > b->at_ns ? end - b->at_ns : 0);
    r->status = kn__timeline_span(r->line, b->thread, label, b->where, b->at_ns, end);
}

static begun begin_of(reader *r, const cJSON *event) {
    const char *where = text_of(get(event, "args"), "file");
    return (begun){thread_of(r, event), text_of(event, "name"), where, start_of(r, event)};
}

static void read_complete(reader *r, const cJSON *event) {
    const char *category = text_of(event, "cat");
    if (is_left_out(category)) return;
    if (is_work(category)) {
        read_work(r, event);
        return;
    }
    begun b = begin_of(r, event);
    add_span(r, &b, b.at_ns + ns_of(r, event, "dur"));
    uint64_t id = number_of(get(event, "args"), "correlation", UINT32_MAX);
    if (id && r->status >= 0) r->status = kn__timeline_launch(r->line, b.thread, id, b.at_ns);
}

static void read_begin(reader *r, const cJSON *event) {
    if (r->n_open == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        begun *more = realloc(r->open, room * sizeof *more);
        if (!more) {
            if (r->status >= 0) r->status = KN_FAIL(KN_ERR_OOM, "no memory to read %s", r->file);
            return;
        }
        r->open = more;
        r->room = room;
    }
    r->open[r->n_open++] = begin_of(r, event);
}

static void read_end(reader *r, const cJSON *event) {
    uint32_t thread = thread_of(r, event);
    uint64_t end = start_of(r, event);
    for (size_t i = r->n_open; i-- > 0;) {
        if (r->open[i].thread != thread) continue;
        add_span(r, &r->open[i], end);
        r->n_open--;
        memmove(&r->open[i], &r->open[i + 1], (r->n_open - i) * sizeof *r->open);
        return;
    }
}

/* --- the rest --- */

/* The notes of a run of ours; a profile has told them already. */
static void read_labels(reader *r, const cJSON *event) {
    kn__report *report = r->line->report;
    const char *labels = text_of(get(event, "args"), "labels");
    if (r->is_ours && *labels && !report->run.notes)
        report->run.notes = kn__report_keep(report, labels);
}

static void read_name(reader *r, const cJSON *event) {
    const char *kind = text_of(event, "name");
    if (strcmp(kind, "process_labels") == 0) read_labels(r, event);
    if (strcmp(kind, "thread_name") != 0) return;
    const char *name = text_of(get(event, "args"), "name");
    r->status = kn__timeline_name_thread(r->line, thread_of(r, event), name);
}

static void add_sample(reader *r, const char *name, const char *unit, uint64_t at, double value) {
    if (r->status >= 0 && isfinite(value))
        r->status = kn__timeline_sample(r->line, name, unit, at, value);
}

/* Of a group of ours, "part (unit)". */
static void read_part(reader *r, const char *group, const cJSON *item, uint64_t at) {
    char name[NAME_BYTES], unit[NAME_BYTES] = "";
    snprintf(name, sizeof name, "%s/%s", group, item->string);
    char *open = strrchr(name, '('), *close = open ? strchr(open, ')') : NULL;
    if (close && !close[1] && open > name && open[-1] == ' ') {
        *close = open[-1] = '\0';
        snprintf(unit, sizeof unit, "%s", open + 1);
    }
    add_sample(r, name, unit, at, item->valuedouble);
}

/* Our counters tell in which form they are; of other tools' the unit is not known. */
static void read_samples(reader *r, const cJSON *event) {
    const char *name = text_of(event, "name"), *category = text_of(event, "cat");
    const cJSON *args = get(event, "args"), *item = args ? args->child : NULL;
    uint64_t at = start_of(r, event);
    for (; item; item = item->next) {
        char both[NAME_BYTES];
        if (!cJSON_IsNumber(item) || !item->string) continue;
        if (r->is_ours && strcmp(category, "counter") == 0) {
            const char *unit = strcmp(item->string, "value") == 0 ? "" : item->string;
            add_sample(r, name, unit, at, item->valuedouble);
        } else if (r->is_ours && strcmp(category, "counters") == 0) {
            read_part(r, name, item, at);
        } else {
            bool is_alone = !args->child->next;
            snprintf(both, sizeof both, "%s%s%s", name, is_alone ? "" : "/",
                     is_alone ? "" : item->string);
            add_sample(r, both, "", at, item->valuedouble);
        }
    }
}

/* Live bytes of ours have no category. */
static void read_level(reader *r, const cJSON *event) {
    if (*text_of(event, "cat") || strcmp(text_of(event, "name"), "live bytes") != 0) {
        read_samples(r, event);
        return;
    }
    uint64_t at = start_of(r, event), bytes = number_of(get(event, "args"), "bytes", 9e18);
    if (r->status >= 0) r->status = kn__timeline_level(r->line, at, bytes);
}

static int64_t bytes_of(const cJSON *args, const char *key, int64_t otherwise) {
    static const double most = 4e15;
    const cJSON *item = get(args, key);
    double x = cJSON_IsNumber(item) ? item->valuedouble : most + 1;
    return fabs(x) <= most ? (int64_t)x : otherwise;
}

/* A block of PyTorch's allocators. */
static void read_block(reader *r, const cJSON *event) {
    if (strcmp(text_of(event, "name"), "[memory]") != 0) return;
    const cJSON *args = get(event, "args");
    int64_t type = bytes_of(args, "Device Type", 0), device = bytes_of(args, "Device Id", 0);
    kn__block_change change = {
        .at = {thread_of(r, event), number_of(args, "Addr", 1.8e19), start_of(r, event), NULL},
        .device = (uint64_t)type << 32 ^ (uint64_t)device,
        .bytes = bytes_of(args, "Bytes", 0),
        .total = bytes_of(args, "Total Allocated", -1)};
    if (r->status >= 0 && change.bytes) r->status = kn__timeline_change(r->line, &change);
}

static void read_event(reader *r, const cJSON *event) {
    const char *phase = text_of(event, "ph");
    switch (phase[0]) {
        case 'X':
            read_complete(r, event);
            break;
        case 'B':
            read_begin(r, event);
            break;
        case 'E':
            read_end(r, event);
            break;
        case 'M':
            read_name(r, event);
            break;
        case 'C':
            read_level(r, event);
            break;
        case 'i':
            read_block(r, event);
            break;
        case 's':
        case 'f':
            read_arrow(r, event, phase[0]);
            break;
        default:
            break;
    }
}

static const cJSON *events_of(const cJSON *json) {
    return cJSON_IsArray(json) ? json : get(json, "traceEvents");
}

bool kn__events_are(const cJSON *json) { return cJSON_IsArray(events_of(json)); }

kn_status kn__events_read(kn__timeline *line, const char *name, const cJSON *json) {
    reader r = {.line = line, .file = name, .is_ours = get(json, "knetEventsSkipped") != NULL};
    kn__report *report = line->report;
    report->n_events_skipped =
        kn__max_u64(report->n_events_skipped, number_of(json, "knetEventsSkipped", 9e18));
    r.base_ns = number_of(json, "baseTimeNanoseconds", 4e18);
    line->source = r.is_ours ? "trace" : "kineto";
    const cJSON *event = events_of(json)->child;
    for (; event && r.status >= 0; event = event->next) {
        r.number++;
        if (cJSON_IsObject(event)) read_event(&r, event);
    }
    free(r.open);
    return r.status >= 0 ? kn__timeline_count(line) : r.status;
}
