/* The result of knet train. */
#include <inttypes.h>
#include <knet/comm.h>
#include <math.h>

#include "train_session.h"
#include "units.h"

static void epochs_json(const kn__train_session *s, kn__text *out) {
    for (int64_t i = 0; i < s->n_epochs; i++) {
        if (i) kn__text_puts(out, ",");
        kn__epoch_json(out, &s->epochs[i]);
    }
}

static void result_json(kn__train_session *s, const char *status, const char *message) {
    const kn__train_options *o = &s->options;
    kn__text *out = &s->report.text;
    kn_pool_stats stats = {0};
    uint64_t hash = 0;
    kn_pool_stats_read(&stats, sizeof stats, s->pool);
    kn__text_printf(out, "{\"model\":\"%s\",\"parameters\":%" PRId64 ",\"data\":", o->model[0],
                    kn_params_numel(s->params));
    kn__text_json(out, o->synthetic ? "synthetic" : o->data_dir);
    kn__text_printf(
        out,
        ",\"images\":%" PRId64 ",\"ranks\":%d,\"batch\":%" PRId64
        ",\"optimizer\":\"%s\",\"lr\":%.17g,\"schedule\":\"%s\""
        ",\"seed\":%" PRIu64
        ",\"device\":\"%s\",\"threads\":%d,\"math\":\"%s\",\"dtype\":\"%s\",\"epochs\":[",
        kn_loader_images(s->train), s->comm ? kn_comm_size(s->comm) : 1, o->batch, o->optimizer,
        o->update.lr, o->update.schedule, o->seed, s->stages.text, kn_frame_threads(), o->math,
        o->dtype);
    epochs_json(s, out);
    kn__text_printf(out, "],\"steps\":%" PRId64 ",\"resumed\":%" PRId64 ",\"seconds\":%.6f",
                    s->result.n_steps, s->result.resumed, s->result.seconds);
    if (kn__weights_hash(&hash, s->params) == KN_OK)
        kn__text_printf(out, ",\"weights_fnv1a\":\"%016" PRIx64 "\"", hash);
    kn__text_printf(out,
                    ",\"memory\":{\"live_bytes_max\":%" PRIu64 ",\"reserved_bytes_max\":%" PRIu64
                    "},\"status\":\"%s\"",
                    stats.live_bytes_max, stats.reserved_bytes_max, status);
    if (message) {
        kn__text_puts(out, ",\"error\":");
        kn__text_json(out, message);
    }
    kn__text_puts(out, "}\n");
}

/* The checkpoint of a run with more epochs, or with as many. */
static void nothing_left(kn__train_session *s) {
    const kn_epoch *last = &s->result.last;
    bool trained = s->result.n_steps > s->result.resumed || s->n_epochs; /* or tested */
    if (trained || !s->result.resumed || s->result.stopped || s->result.converged) return;
    kn__output_line(&s->report,
                    "nothing left to train: the checkpoint is %s epoch %" PRId64
                    ", --epochs is %" PRId64 "\n",
                    isnan(last->loss) ? "in" : "at the end of", last->index, s->options.epochs);
}

static void result_text(kn__train_session *s, bool failed) {
    const kn_epoch *last = s->n_epochs ? &s->epochs[s->n_epochs - 1] : NULL;
    kn_pool_stats stats = {0};
    kn_pool_stats_read(&stats, sizeof stats, s->pool);
    if (s->result.resumed)
        kn__output_line(&s->report, "resumed after %" PRId64 " steps\n", s->result.resumed);
    if (!failed) nothing_left(s);
    if (s->result.converged)
        kn__output_line(&s->report, "stopped: no better loss in %" PRId64 " epochs\n",
                        s->options.patience);
    if (s->result.stopped && !s->result.last.index)
        kn__output_line(&s->report, "interrupted in the search of a rate\n");
    else if (s->result.stopped)
        kn__output_line(&s->report, "interrupted in epoch %" PRId64 " after %" PRId64 " steps\n",
                        s->result.last.index, s->result.n_steps);
    bool scores = kn_model_is_classifier(s->model);
    if (s->options.quiet && last)
        kn__output_line(&s->report, "loss %.4f  test %s %.*f%s  %.2f s\n", last->loss,
                        scores ? "accuracy" : "loss", scores ? 2 : 4,
                        scores ? 100 * last->accuracy : last->test_loss, scores ? " %" : "",
                        s->result.seconds);
    kn__output_line(&s->report, "memory: at most %s live, %s reserved (pool %s)\n",
                    kn__bytes_text((double)stats.live_bytes_max).text,
                    kn__bytes_text((double)stats.reserved_bytes_max).text, kn_pool_name(s->pool));
}

void kn__train_report(kn__train_session *s, const char *message) {
    if (s->options.common.json)
        result_json(s, message ? "failed" : s->result.stopped ? "interrupted" : "ok", message);
    else
        result_text(s, message != NULL);
}
