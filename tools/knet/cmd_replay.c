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
#include "replay_page.h"
#include "units.h"

enum { POLICIES_MAX = 9, MAP_COLUMNS = 64, PROGRESS_STEPS = 1000 };

enum { AUTO = -1 }; /* of device_bytes */

typedef struct options {
    kn__common common;
    const char *policy_text;
    const char *policies[POLICIES_MAX + 1];
    const char *costs_file, *html;
    int64_t device_bytes, repeats; /* device_bytes: AUTO, or 0: the default */
    bool partial, fits, tune;
    kn__costs costs;
    kn__replay_page page;
    const char *files[];
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
     .remark =
         "arena or knet, plan, pytorch, expandable, bfc, naive, cuda-async, classes or bestfit, "
         "some of them with commas, or all, which is all but plan"},
    {"device-bytes", KN__OPT_BYTES, AT(device_bytes), .value_name = "BYTES", .word = "auto",
     .initial_shown = "8 times the peak, at least 1GiB", .help = "memory of the simulated device",
     .remark = "auto: for each policy, the least with which the trace completes"},
    {"costs", KN__OPT_FILE, AT(costs_file), .value_name = "FILE",
     .help = "take the times of driver calls from FILE, which bench_gpu_costs wrote on a card",
     .initial_shown = "published figures"},
    {"tune", KN__OPT_FLAG, AT(tune), .help = "propose options of the pool for the trace"},
    {"html", KN__OPT_FILE, AT(html), .value_name = "FILE",
     .help = "write a page that shows the addresses over time"},
    {"repeats", KN__OPT_COUNT, AT(repeats), .value_name = "N", .max = 51,
     .initial_shown = "5 or more, by their time", .help = "timed plays of each policy"},
    {"partial", KN__OPT_FLAG, AT(partial),
     .help = "accept a trace that begins late, ends early or has gaps"},
    {"fits", KN__OPT_FLAG, AT(fits), .help = "find the smallest device on which a trace completes"},
};
static const kn__operand operand = {"TRACE...", 1, 0, AT(files), .is_file = true};
#undef AT

static int policy_add(options *o, const char *name, size_t n) {
    if (n == 4 && memcmp(name, "knet", n) == 0) name = "arena", n = strlen(name);
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
    const char *at = o->policy_text;
    if (strcmp(at, "all") == 0) {
        int n = 0;
        for (int i = 0; kn__policy_names[i]; i++) {
            bool slow = strcmp(kn__policy_names[i], "plan") == 0; /* it searches for a placement */
            if (!slow) o->policies[n++] = kn__policy_names[i];
        }
        return KN__EXIT_OK;
    }
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
    kn__output_line(r, "%s  %-10s %10s %6s", kn__output_style(r, KN__STYLE_BOLD), "policy",
                    "reserved", "ratio");
    if (o->fits || o->device_bytes == AUTO) kn__output_line(r, " %7s", "fits");
    if (o->device_bytes == AUTO) kn__output_line(r, " %9s", "device");
    kn__output_line(r, " %7s %6s %7s %5s %5s %6s %6s%s\n", "allocs", "frees", "driver", "syncs",
                    "waits", "ns/op", "first", kn__output_style(r, KN__STYLE_PLAIN));
}

static double driver_us(const options *o, const kn__played *p) {
    return kn__costs_us(&o->costs, &p->counts.calls);
}

static void policy_text(kn__output *r, const options *o, const result *x) {
    char fits[16] = "-";
    const kn__played *p = &x->played;
    const kn__counts *c = &p->counts;
    kn__output_line(r, "  %-10s %10s %6.4f", p->policy,
                    kn__bytes_text((double)c->reserved_bytes_max).text, ratio_of(p));
    if (x->fits_bytes) snprintf(fits, sizeof fits, "%.4f", fits_of(x));
    if (o->fits || o->device_bytes == AUTO) kn__output_line(r, " %7s", fits);
    if (o->device_bytes == AUTO) {
        kn__output_line(r, " %9s", kn__bytes_cell((double)p->device_bytes).text);
    }
    kn__output_line(r, " %7" PRIu64 " %6" PRIu64 " %7s %5" PRIu64 " %5" PRIu64, c->device_allocs,
                    c->device_frees, kn__time_cell(1e3 * driver_us(o, p), true).text, c->syncs,
                    c->calls.n[KN__CALL_WAIT]);
    if (p->oom) {
        kn__output_line(r, "  out of memory at event %zu\n", p->n_steps + 1);
    } else if (isnan(p->ns_per_op)) { /* a device that is just large enough for one play */
        kn__output_line(r, " %6s %6s\n", "-", "-");
    } else {
        kn__output_line(r, " %6.1f %6.1f\n", p->ns_per_op, p->ns_per_op_first);
    }
}

/* --- tuning --- */
static void try_text(kn__output *r, const kn__try *x, const kn__try *plain, bool is_best) {
    const kn__counts *c = &x->counts;
    double more = (double)c->reserved_bytes_max - (double)plain->counts.reserved_bytes_max;
    char words[sizeof x->words + 16];
    snprintf(words, sizeof words, "%s%s%s", x->plan ? "plan mode" : "",
             x->plan && x->words[0] ? "," : "", x->plan || x->words[0] ? x->words : "defaults");
    kn__output_line(r, "  %c %-40s %10s", is_best ? '*' : ' ', words,
                    kn__bytes_text((double)c->reserved_bytes_max).text);
    if (x->oom) {
        kn__output_line(r, "  out of memory\n");
        return;
    }
    kn__output_line(
        r, " %+7.2f %% %8s %6" PRIu64 " %6" PRIu64 "\n",
        plain->counts.reserved_bytes_max ? 100 * more / (double)plain->counts.reserved_bytes_max
                                         : 0,
        kn__time_cell(1e3 * x->driver_us, true).text, c->syncs, c->calls.n[KN__CALL_WAIT]);
}

static void tuned_text(kn__output *r, const kn__tuned *t) {
    const kn__try *plain = &t->tries[0], *best = &t->tries[t->best];
    kn__output_line(r, "%s    %-40s %10s %9s %8s %6s %6s%s\n", kn__output_style(r, KN__STYLE_BOLD),
                    "options of arena", "reserved", "more", "driver", "syncs", "waits",
                    kn__output_style(r, KN__STYLE_PLAIN));
    for (int i = 0; i < t->n; i++) try_text(r, &t->tries[i], plain, i == t->best);
    if (!t->best) {
        kn__output_line(r, "  proposed: the defaults; nothing that was tried is better\n");
        return;
    }
    double bytes =
        (double)plain->counts.reserved_bytes_max - (double)best->counts.reserved_bytes_max;
    double us = plain->driver_us - best->driver_us;
    if (best->words[0]) kn__output_line(r, "  proposed: KNET_ALLOC=%s\n", best->words);
    if (best->plan) {
        kn__output_line(r,
                        "  proposed: plan mode (<knet/plan.h>), if the program repeats this trace "
                        "as a step; figures from the second step on\n");
    }
    kn__output_line(r, "  %s %s of reserved memory", bytes >= 0 ? "saves" : "takes",
                    kn__bytes_text(fabs(bytes)).text);
    if (!best->plan) {
        kn__output_line(r, ", %s %s in driver calls", us >= 0 ? "saves" : "takes",
                        kn__time_cell(1e3 * fabs(us), true).text);
    }
    kn__output_line(r, "\n");
}

static void tuned_json(kn__text *out, const char *path, const kn__tuned *t) {
    kn__text_puts(out, "{\"file\":");
    kn__text_json(out, path);
    kn__text_puts(out, ",\"tuned\":");
    kn__text_json(out, t->tries[t->best].words);
    kn__text_printf(out, ",\"plan\":%s", t->tries[t->best].plan ? "true" : "false");
    kn__text_puts(out, ",\"tries\":[");
    for (int i = 0; i < t->n; i++) {
        const kn__try *x = &t->tries[i];
        kn__text_puts(out, i ? ",{\"options\":" : "{\"options\":");
        kn__text_json(out, x->words);
        kn__text_printf(out,
                        ",\"plan\":%s,\"oom\":%s,\"peak_reserved_bytes\":%" PRIu64
                        ",\"syncs\":%" PRIu64 ",\"stream_waits\":%" PRIu64 ",\"driver_us\":",
                        x->plan ? "true" : "false", x->oom ? "true" : "false",
                        x->counts.reserved_bytes_max, x->counts.syncs,
                        x->counts.calls.n[KN__CALL_WAIT]);
        kn__output_number(out, x->driver_us);
        kn__text_puts(out, "}");
    }
    kn__text_puts(out, "]}\n");
}

/* Ten levels of grey; any amount above nothing shows. */
static char shade(double share) {
    static const char levels[] = " .:-=+*#%@";
    int level = (int)(share * 9.0 + 0.5);
    if (level < 1 && share > 0) level = 1;
    return levels[level < 0 ? 0 : level > 9 ? 9 : level];
}

/* Rows over time: live bytes, as a share of the highest reserved; bytes reserved but not live, as a
 * share of those reserved then. */
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
    kn__output_line(r, "    live over time, as a share of the highest reserved:\n     |%s|\n",
                    live);
    kn__output_line(
        r, "    unused over time, as a share of the reserved memory, at most %.1f %%:\n     |%s|\n",
        100 * most, waste);
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

static void calls_json(kn__text *out, const options *o, const kn__played *p) {
    const char *separator = "";
    number_json(out, "stream_waits", p->counts.calls.n[KN__CALL_WAIT]);
    kn__text_puts(out, ",\"driver_us\":");
    kn__output_number(out, driver_us(o, p));
    kn__text_printf(out, ",\"costs_measured\":%d,\"driver_calls\":{", o->costs.n_measured);
    for (int i = 0; i < KN__CALLS; i++) {
        if (!p->counts.calls.n[i]) continue;
        kn__text_printf(out, "%s\"%s\":%" PRIu64, separator, kn__call_name((kn__driver_call)i),
                        p->counts.calls.n[i]);
        separator = ",";
    }
    kn__text_puts(out, "}");
}

static void result_json(kn__text *out, const options *o, const char *path, const kn__trace *t,
                        const result *x) {
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
    kn__output_number(out, ratio_of(p));
    kn__text_puts(out, ",\"fits\":");
    kn__output_number(out, fits_of(x));
    number_json(out, "device_allocs", c->device_allocs);
    number_json(out, "device_frees", c->device_frees);
    number_json(out, "maps", c->maps);
    number_json(out, "syncs", c->syncs);
    number_json(out, "stream_events", c->events);
    calls_json(out, o, p);
    kn__text_puts(out, ",\"ns_per_op\":");
    kn__output_number(out, p->ns_per_op);
    kn__text_puts(out, ",\"ns_per_op_first\":");
    kn__output_number(out, p->ns_per_op_first);
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

/* Once more, to write down where the blocks lie. */
static kn_status picture(options *o, const char *path, const kn__trace *t, const result *x) {
    kn__play_options how = {.device_bytes = x->played.device_bytes, .untimed = true};
    kn__played *again = calloc(1, sizeof *again);
    kn_status status = KN_OK;
    how.places = calloc((size_t)t->n_blocks + 1, sizeof *how.places);
    if (!again || !how.places) {
        status = KN_FAIL(KN_ERR_OOM, "no memory for the picture");
    } else {
        status = kn__play(again, t, x->played.policy, &how);
    }
    if (status == KN_OK) {
        kn__replay_page_add(&o->page, kn__input_name(path), t, again, how.places,
                            driver_us(o, again));
    }
    free(how.places);
    free(again);
    return status;
}

static kn_status play_by(result *x, const options *o, const kn__trace *t, const char *policy,
                         kn__play_options *how) {
    if (o->device_bytes == AUTO) {
        KN_TRY(kn__play_fits(&x->fits_bytes, t, policy, how));
        how->device_bytes = x->fits_bytes;
    }
    KN_TRY(kn__play(&x->played, t, policy, how));
    if (!o->fits || o->device_bytes == AUTO || x->played.oom) return KN_OK;
    return kn__play_fits(&x->fits_bytes, t, policy, how);
}

static kn_status play(result *x, options *o, const char *path, const kn__trace *t,
                      const char *policy) {
    kn_progress bar = kn_progress_begin(stderr, PROGRESS_STEPS);
    kn__play_options how = {.device_bytes = o->device_bytes > 0 ? (uint64_t)o->device_bytes : 0,
                            .repeats = (int)o->repeats,
                            .progress = progress_show,
                            .ctx = &bar};
    kn_status status = play_by(x, o, t, policy, &how);
    if (status == KN_OK && o->html) status = picture(o, path, t, x);
    kn_progress_end(&bar);
    return status;
}

static kn_status tune(kn__output *r, const options *o, const char *path, const kn__trace *t) {
    kn__play_options how = {.device_bytes = o->device_bytes > 0 ? (uint64_t)o->device_bytes : 0};
    kn__tuned *tuned = calloc(1, sizeof *tuned);
    if (!tuned) return KN_FAIL(KN_ERR_OOM, "no memory to tune");
    kn_status status = kn__tune(tuned, t, &how, &o->costs);
    if (status == KN_OK) tuned_text(r, tuned);
    if (status == KN_OK && r->json) tuned_json(&r->text, path, tuned);
    free(tuned);
    return status;
}

static int play_policies(kn__output *r, options *o, const char *path, const kn__trace *t) {
    result *results = calloc(POLICIES_MAX, sizeof *results);
    int exit_code = KN__EXIT_OK, n = 0;
    if (!results) {
        kn__fail("no memory for the results");
        return KN__EXIT_OOM;
    }
    trace_text(r, o, kn__input_name(path), t);
    for (; o->policies[n]; n++) {
        const kn__played *p = &results[n].played;
        if (play(&results[n], o, path, t, o->policies[n]) < 0) {
            exit_code = fail(r, path);
            break;
        }
        policy_text(r, o, &results[n]);
        if (r->json) result_json(&r->text, o, path, t, &results[n]);
        if (!p->oom) continue;
        exit_code = KN__EXIT_OOM;
        kn__fail("%s: policy %s: out of memory at %s", kn__input_name(path), p->policy,
                 p->oom_text);
    }
    if (o->tune && tune(r, o, path, t) < 0) exit_code = fail(r, path);
    for (int i = 0; i < n; i++) pictures_text(r, &results[i].played);
    free(results);
    return exit_code;
}

static int replay_file(kn__output *r, options *o, const char *path) {
    kn__trace trace;
    if (kn__trace_read(&trace, path, o->partial) < 0) return fail(r, path);
    int exit_code = play_policies(r, o, path, &trace);
    kn__trace_release(&trace);
    return exit_code;
}

static int costs_take(options *o) {
    o->costs = kn__costs_published();
    if (!o->costs_file || kn__costs_read(&o->costs, o->costs_file) == KN_OK) return KN__EXIT_OK;
    kn__fail("%s", kn_last_error()->message);
    return KN__EXIT_FAILURE;
}

static void page_prepare(options *o) {
    int n_files = 0, n_policies = 0;
    while (o->files[n_files]) n_files++;
    while (o->policies[n_policies]) n_policies++;
    o->page.plays_max = n_files * n_policies;
}

/* Every file is played; the exit code is the worst: a failure, then out of memory. */
static int run(void *options_of) {
    options *o = options_of;
    int exit_code = policies_parse(o);
    if (exit_code == KN__EXIT_OK) exit_code = costs_take(o);
    if (exit_code != KN__EXIT_OK) return exit_code;
    page_prepare(o);
    kn__output report = kn__output_begin(&o->common);
    for (int i = 0; o->files[i]; i++) {
        int code = replay_file(&report, o, o->files[i]);
        if (code == KN__EXIT_FAILURE || exit_code == KN__EXIT_OK) exit_code = code;
    }
    if (o->html && !kn__replay_page_write(&o->page, o->html)) exit_code = KN__EXIT_FAILURE;
    kn__replay_page_release(&o->page);
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
        "Policies: arena is the pool of libknet_alloc. pytorch, expandable and bfc follow the "
        "rules that PyTorch's allocator, the same with expandable segments, and TensorFlow's and "
        "JAX's publish; cuda-async is cudaMallocAsync with its memory kept; naive is cudaMalloc "
        "and cudaFree. plan is the pool in plan mode: the trace is a step that was recorded once "
        "and frees at its end all that is live; the figures are those of a later step. classes "
        "caches by size class alone; bestfit is exact best fit in one range of addresses. All "
        "but arena and plan take a stream's work to be done when a block is freed.\n"
        "Columns: reserved is the most that was reserved, ratio that to the most live. driver is "
        "the time in "
        "driver calls from an empty pool, of a model: calls and bytes times their costs, by "
        "published figures of several machines or by --costs; time that a call waits isn't in it. "
        "syncs are waits of the host, waits those of a stream for another. ns/op is the policy's "
        "own time, from an empty pool in the last column.\n"
        "--fits: the smallest device on which a policy completes the trace, divided by the peak of "
        "live bytes. The search is a bisection in steps of 2 MiB, from the peak to the device's "
        "memory. A policy may fail on a device and complete on a smaller one, so the result is the "
        "smallest size such that it and all larger sizes tried complete; the next 15 steps are "
        "always tried.\n"
        "--device-bytes auto plays each policy on that device, so that its driver time shows what "
        "the policy does when memory is short.\n"
        "--tune plays the trace with other values of slab_max, pressure and soft_limit, and "
        "proposes those that reserve less memory, or take less time, and add no wait. It also "
        "plays "
        "the trace in plan mode, as a step that the program repeats, and proposes that where it "
        "saves memory.\n"
        "To record a trace: here, KNET_ALLOC=trace=FILE ./program, or kn_trace_begin. In PyTorch, "
        "_record_memory_history(), a step, then _dump_snapshot('FILE'), both of "
        "torch.cuda.memory. In RMM, a LoggingResourceAdaptor of rmm.mr with log_file_name='FILE' "
        "as the current device resource, and its flush() at the end; in C++, "
        "rmm::mr::logging_resource_adaptor.\n"
        "--json prints one object for each trace and policy, on a line each; --tune "
        "adds one for each trace.",
    .exits =
        (const kn__pair[]){{"3", "a trace needs more memory than the device has"}, {NULL, NULL}},
    .examples =
        (const kn__pair[]){
            {"KNET_ALLOC=trace=run.kntrace ./program", "records a trace of a program"},
            {"knet replay run.kntrace --policy all --fits", "compares policies on it"},
            {"knet replay run.kntrace --tune --html run.html",
             "proposes options, and shows the addresses over time"},
            {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
