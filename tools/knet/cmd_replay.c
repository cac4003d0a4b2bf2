/* knet replay: reads allocation traces, plays them, and shows what each policy makes of them. */
#include <inttypes.h>
#include <knet/progress.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "input.h"
#include "output.h"
#include "replay.h"
#include "units.h"

enum { FILES_MAX = 256, POLICIES_MAX = 3, MAP_COLUMNS = 64, PROGRESS_STEPS = 1000 };

typedef struct options {
    kn__common common;
    const char *files[FILES_MAX + 1];
    const char *policy_text;
    const char *policies[POLICIES_MAX + 1];
    int64_t device_bytes, repeats;
    bool partial, fits;
} options;

typedef struct result {
    kn__played played;
    /* 0: not searched for, or not found. */
    uint64_t fits_bytes;
} result;

/* --- options --- */
#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"policy", KN__OPT_TEXT, AT(policy_text), .value_name = "LIST", .initial = "arena",
     .help = "policies to play",
     .remark = "arena, classes or bestfit, some of them with commas, or all"},
    {"device-bytes", KN__OPT_BYTES, AT(device_bytes), .value_name = "BYTES",
     .initial_shown = "8 times the peak, at least 1GiB", .help = "memory of the simulated device"},
    {"repeats", KN__OPT_COUNT, AT(repeats), .value_name = "N", .max = 51,
     .initial_shown = "5 or more, by their time", .help = "timed plays of each policy"},
    {"partial", KN__OPT_FLAG, AT(partial),
     .help = "accept a trace that begins late, ends early or has gaps"},
    {"fits", KN__OPT_FLAG, AT(fits), .help = "find the smallest device on which a trace completes"},
};
static const kn__operand operand = {"TRACE...", 1, FILES_MAX, AT(files), NULL, true};
#undef AT

static int policy_add(options *o, const char *name, size_t n) {
    for (int i = 0; kn__policy_names[i]; i++) {
        if (strlen(kn__policy_names[i]) != n || memcmp(kn__policy_names[i], name, n) != 0) continue;
        int at = 0;
        while (o->policies[at] && o->policies[at] != kn__policy_names[i]) at++;
        o->policies[at] = kn__policy_names[i];
        return KN__EXIT_OK;
    }
    char typed[32];
    snprintf(typed, sizeof typed, "%.*s", (int)n, name);
    return kn__choice_unknown("policy", typed, kn__policy_names);
}

static int policies_parse(options *o) {
    const char *at = strcmp(o->policy_text, "all") == 0 ? "arena,classes,bestfit" : o->policy_text;
    for (;; at++) {
        size_t n = strcspn(at, ",");
        int code = policy_add(o, at, n);
        if (code != KN__EXIT_OK) return code;
        at += n;
        if (!*at) return KN__EXIT_OK;
    }
}

/* --- text --- */
static double ratio_of(const kn__played *p) {
    return p->peak_live_bytes ? (double)p->counts.reserved_bytes_max / (double)p->peak_live_bytes
                              : 0;
}

/* NAN: unknown. */
static double fits_of(const result *x) {
    bool known = x->fits_bytes && x->played.peak_live_bytes;
    return known ? (double)x->fits_bytes / (double)x->played.peak_live_bytes : (double)NAN;
}

static void trace_text(kn__output *r, const options *o, const char *path, const kn__trace *t) {
    char steps[32], blocks[32];
    kn__output_line(r, "%s: %s, %s events, %s blocks, %s in all, %u stream%s\n", path, t->format,
                    kn__count_text(steps, sizeof steps, (int64_t)t->n_steps),
                    kn__count_text(blocks, sizeof blocks, t->n_blocks),
                    kn__bytes_text((double)t->total_bytes).text, t->n_streams,
                    t->n_streams == 1 ? "" : "s");
    kn__output_line(r, "  peak live %s at event %zu\n",
                    kn__bytes_text((double)t->peak_live_bytes).text, t->peak_at + 1);
    if (t->about[0]) kn__output_line(r, "  played: %s\n", t->about);
    if (t->n_before) {
        kn__output_line(r, "  %zu blocks were live before it begins\n", t->n_before);
    }
    if (t->n_passed_over) {
        kn__output_line(r, "  %" PRIu64 " events fit no block and were passed over\n",
                        t->n_passed_over);
    }
    if (t->n_ooms) {
        kn__output_line(r, "  %" PRIu64 " allocations failed when it was recorded\n", t->n_ooms);
    }
    kn__output_line(r, "%s  %-8s %13s %7s", kn__output_style(r, KN__STYLE_BOLD), "policy",
                    "peak reserved", "ratio");
    if (o->fits) kn__output_line(r, " %7s", "fits");
    kn__output_line(r, " %8s %8s %8s %7s %9s %9s%s\n", "allocs", "frees", "maps", "syncs", "ns/op",
                    "first", kn__output_style(r, KN__STYLE_PLAIN));
}

static void policy_text(kn__output *r, const options *o, const result *x) {
    char fits[16] = "-";
    const kn__played *p = &x->played;
    const kn__counts *c = &p->counts;
    kn__output_line(r, "  %-8s %13s %7.4f", p->policy,
                    kn__bytes_text((double)c->reserved_bytes_max).text, ratio_of(p));
    if (x->fits_bytes) snprintf(fits, sizeof fits, "%.4f", fits_of(x));
    if (o->fits) kn__output_line(r, " %7s", fits);
    kn__output_line(r, " %8" PRIu64 " %8" PRIu64 " %8" PRIu64 " %7" PRIu64, c->device_allocs,
                    c->device_frees, c->maps, c->syncs);
    if (p->oom) {
        kn__output_line(r, "  out of memory at event %zu\n", p->n_steps + 1);
    } else {
        kn__output_line(r, " %9.1f %9.1f\n", p->ns_per_op, p->ns_per_op_first);
    }
}

/* Ten levels of grey; any amount above nothing shows. */
static char shade(double share) {
    static const char levels[] = " .:-=+*#%@";
    int level = (int)(share * 9.0 + 0.5);
    if (level < 1 && share > 0) level = 1;
    return levels[level < 0 ? 0 : level > 9 ? 9 : level];
}

/* Rows over time: what is live, of the highest that is reserved; what is reserved and not live, of
 * what is reserved then. */
static void timeline_text(kn__output *r, const kn__played *p) {
    char live[KN__SAMPLES + 1] = "", waste[KN__SAMPLES + 1] = "";
    double most = 0;
    uint64_t high = p->counts.reserved_bytes_max;
    for (int i = 0; i < p->n_samples; i++) {
        const kn__sample *s = &p->samples[i];
        double held = (double)s->reserved_bytes, used = (double)s->live_bytes;
        double unused = held > used ? 1 - used / held : 0;
        live[i] = shade(high ? used / (double)high : 0);
        waste[i] = shade(unused);
        if (unused > most) most = unused;
    }
    kn__output_line(r, "    live over time    |%s|\n", live);
    kn__output_line(r, "    unused over time  |%s| of the reserved memory; at most %.1f %%\n",
                    waste, 100 * most);
}

static void map_text(kn__output *r, const kn__played *p) {
    if (!p->n_map) return;
    kn__output_line(r, "    addresses %s, from 0x%" PRIx64 ", %s a cell:\n",
                    p->oom ? "when memory ran out" : "at the peak", p->map_base,
                    kn__bytes_text((double)p->map_cell_bytes).text);
    for (int i = 0; i < p->n_map; i += MAP_COLUMNS) {
        char row[MAP_COLUMNS + 1] = "";
        for (int k = 0; k < MAP_COLUMNS && i + k < p->n_map; k++) {
            row[k] = p->map[i + k] == 0    ? '.'
                     : p->map[i + k] >= 95 ? '#'
                     : p->map[i + k] >= 50 ? '+'
                                           : '-';
        }
        kn__output_line(r, "    |%-*s|\n", MAP_COLUMNS, row);
    }
}

static void pictures_text(kn__output *r, const kn__played *p) {
    kn__output_line(r, "  %s\n", p->policy);
    timeline_text(r, p);
    map_text(r, p);
    if (p->oom) kn__output_line(r, "    out of memory: %s\n", p->oom_text);
}

/* --- JSON --- */
static void number_json(kn__text *out, const char *key, uint64_t value) {
    kn__text_printf(out, ",\"%s\":%" PRIu64, key, value);
}

static void pictures_json(kn__text *out, const kn__played *p) {
    kn__text_puts(out, ",\"samples\":[");
    for (int i = 0; i < p->n_samples; i++) {
        kn__text_printf(out, "%s[%zu,%" PRIu64 ",%" PRIu64 "]", i ? "," : "", p->samples[i].at,
                        p->samples[i].live_bytes, p->samples[i].reserved_bytes);
    }
    kn__text_printf(out,
                    "],\"map\":{\"base\":%" PRIu64 ",\"cell_bytes\":%" PRIu64 ",\"live_percent\":[",
                    p->map_base, p->map_cell_bytes);
    for (int i = 0; i < p->n_map; i++) kn__text_printf(out, "%s%d", i ? "," : "", p->map[i]);
    kn__text_puts(out, "]}");
}

static void result_json(kn__text *out, const char *path, const kn__trace *t, const result *x) {
    const kn__played *p = &x->played;
    const kn__counts *c = &p->counts;
    kn__text_puts(out, "{\"file\":");
    kn__text_json(out, path);
    kn__text_printf(out, ",\"format\":\"%s\",\"policy\":\"%s\"", t->format, p->policy);
    number_json(out, "events", t->n_steps);
    number_json(out, "events_played", p->n_steps);
    number_json(out, "events_passed_over", t->n_passed_over);
    number_json(out, "blocks", t->n_blocks);
    number_json(out, "blocks_before", t->n_before);
    number_json(out, "streams", t->n_streams);
    number_json(out, "device_bytes", p->device_bytes);
    number_json(out, "peak_live_bytes", p->peak_live_bytes);
    number_json(out, "peak_reserved_bytes", c->reserved_bytes_max);
    kn__text_puts(out, ",\"ratio\":");
    kn__json_number(out, ratio_of(p));
    kn__text_puts(out, ",\"fits\":");
    kn__json_number(out, fits_of(x));
    number_json(out, "device_allocs", c->device_allocs);
    number_json(out, "device_frees", c->device_frees);
    number_json(out, "maps", c->maps);
    number_json(out, "syncs", c->syncs);
    number_json(out, "stream_events", c->events);
    kn__text_puts(out, ",\"ns_per_op\":");
    kn__json_number(out, p->ns_per_op);
    kn__text_puts(out, ",\"ns_per_op_first\":");
    kn__json_number(out, p->ns_per_op_first);
    kn__text_printf(out, ",\"oom\":%s", p->oom ? "true" : "false");
    if (p->oom) {
        kn__text_puts(out, ",\"oom_text\":");
        kn__text_json(out, p->oom_text);
    }
    pictures_json(out, p);
    kn__text_puts(out, "}\n");
}

/* --- work --- */
static void progress_show(void *ctx, double share) {
    kn_progress *bar = ctx;
    if (kn_progress_due(bar)) kn_progress_show(bar, (int64_t)(share * PROGRESS_STEPS), "");
}

/* Reports the error of a trace, also as JSON. */
static int fail(kn__output *r, const char *path) {
    const kn_error *error = kn_last_error();
    const char *name = kn__input_name(path);
    bool named = strncmp(error->message, name, strlen(name)) == 0;
    kn__fail("%s%s%s", named ? "" : name, named ? "" : ": ", error->message);
    if (r->json) {
        kn__text_puts(&r->text, "{\"file\":");
        kn__text_json(&r->text, path);
        kn__text_puts(&r->text, ",\"status\":\"failed\",\"error\":");
        kn__text_json(&r->text, error->message);
        kn__text_puts(&r->text, "}\n");
    }
    return error->status == KN_ERR_OOM ? KN__EXIT_OOM : KN__EXIT_FAILURE;
}

static kn_status play(result *x, const options *o, const kn__trace *t, const char *policy) {
    kn_progress bar = kn_progress_begin(stderr, PROGRESS_STEPS);
    kn__play_options how = {.device_bytes = (uint64_t)o->device_bytes,
                            .repeats = (int)o->repeats,
                            .progress = progress_show,
                            .ctx = &bar};
    kn_status status = kn__play(&x->played, t, policy, &how);
    if (status == KN_OK && o->fits && !x->played.oom) {
        status = kn__play_fits(&x->fits_bytes, t, policy, &how);
    }
    kn_progress_end(&bar);
    return status;
}

static int play_policies(kn__output *r, const options *o, const char *path, const kn__trace *t) {
    result *results = calloc(POLICIES_MAX, sizeof *results);
    int exit_code = KN__EXIT_OK, n = 0;
    if (!results) {
        kn__fail("no memory for the results");
        return KN__EXIT_OOM;
    }
    trace_text(r, o, kn__input_name(path), t);
    for (; o->policies[n]; n++) {
        const kn__played *p = &results[n].played;
        if (play(&results[n], o, t, o->policies[n]) < 0) {
            exit_code = fail(r, path);
            break;
        }
        policy_text(r, o, &results[n]);
        if (r->json) result_json(&r->text, path, t, &results[n]);
        if (!p->oom) continue;
        exit_code = KN__EXIT_OOM;
        kn__fail("%s: policy %s: out of memory at %s", kn__input_name(path), p->policy,
                 p->oom_text);
    }
    for (int i = 0; i < n; i++) pictures_text(r, &results[i].played);
    free(results);
    return exit_code;
}

static int replay_file(kn__output *r, const options *o, const char *path) {
    kn__trace trace;
    if (kn__trace_read(&trace, path, o->partial) < 0) return fail(r, path);
    int exit_code = play_policies(r, o, path, &trace);
    kn__trace_release(&trace);
    return exit_code;
}

/* Every file is played; the exit code is the worst: a failure, then out of memory. */
static int run(void *options_of) {
    options *o = options_of;
    int exit_code = policies_parse(o);
    if (exit_code != KN__EXIT_OK) return exit_code;
    kn__output report = kn__output_begin(&o->common);
    for (int i = 0; o->files[i]; i++) {
        int code = replay_file(&report, o, o->files[i]);
        if (code == KN__EXIT_FAILURE || exit_code == KN__EXIT_OK) exit_code = code;
    }
    return kn__output_end(&report, exit_code);
}

const kn__command kn__cmd_replay = {
    .name = "replay",
    .summary = "play allocation traces against the pool and other policies",
    .description =
        "Plays allocation traces on a simulated device, as a policy would serve them.\n"
        "Traces are those of KNET_ALLOC=trace=FILE, RMM's CSV logs and PyTorch's pickled memory "
        "snapshots. They may be gzip'd; - is standard input.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "Policies: arena is the pool of libknet_alloc; classes caches by size class alone; "
        "bestfit is exact best fit in one range of addresses. The last two are references.\n"
        "--fits: the smallest device on which a policy completes the trace, divided by the peak of "
        "live bytes. The search is a bisection in steps of 2 MiB, from the peak to the device's "
        "memory. A policy may fail on a device and complete on a smaller one, so the result is the "
        "smallest size such that it and all larger sizes tried complete; the next 15 steps are "
        "always tried.\n"
        "--json prints one object for each trace and policy, on a line each.",
    .exits =
        (const kn__pair[]){{"3", "a trace needs more memory than the device has"}, {NULL, NULL}},
    .examples =
        (const kn__pair[]){
            {"KNET_ALLOC=trace=run.kntrace ./program", "records a trace of a program"},
            {"knet replay run.kntrace --policy all --fits", "compares policies on it"},
            {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
