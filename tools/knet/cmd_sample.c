/* knet sample: what a trained model makes. */
#include <errno.h>
#include <inttypes.h>
#include <knet/models.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "file.h"
#include "model_data.h"
#include "output.h"
#include "ranks.h"
#include "utf8.h"
#include "write.h"

typedef struct options {
    kn__common common;
    const char *model[2];
    const char *weights, *data, *picture;
    int64_t count;
    double heat;
    uint64_t seed;
} options;

static const char *const models[] = {"char_lstm", "char_lstm_steps", "lstm_lm", "gpt",
                                     "vae",       "connect4"};
enum { N_MODELS = sizeof models / sizeof *models };
static const char *model_at(int i) { return i < N_MODELS ? models[i] : NULL; }

#define AT(member) offsetof(options, member)
static const kn__opt table[] = {
    {"weights", KN__OPT_FILE, AT(weights), .value_name = "FILE",
     .help = "checkpoint of knet train; without it the model is untrained",
     .remark = "the averages of --ema where it has them"},
    {"data", KN__OPT_FILE, AT(data), .value_name = "FILE", .initial_shown = "as knet train",
     .help = "the text that the model was trained on, for its words",
     .remark = "of a checkpoint that has no vocabulary"},
    {"count", KN__OPT_COUNT, AT(count), .value_name = "N", .max = 1000000, .initial_shown = "400",
     .help = "words or characters"},
    {"temperature", KN__OPT_NUMBER, AT(heat), .value_name = "T", .initial_shown = "0.7",
     .help = "1 draws by the model's probabilities, less prefers likely words"},
    {"seed", KN__OPT_SEED, AT(seed), .value_name = "N", .initial = "1",
     .help = "seed of the draws"},
    {"picture", KN__OPT_FILE, AT(picture), .value_name = "FILE",
     .help = "where vae writes its images, as PNG"},
};
static const kn__operand operand = {"MODEL", 1, 1, AT(model), .choice_at = model_at};
#undef AT

typedef struct session {
    const options *options;
    kn_params *params;
    kn_model *model;
    kn__output report;
    kn__text text; /* the sample so far, for JSON */
    bool spaced;   /* words instead of characters */
    bool averaged; /* the weights are the averages of --ema */
} session;

static void json_end(session *s) {
    kn__text_printf(&s->report.text, ",\"averaged\":%s}\n", s->averaged ? "true" : "false");
}

/* --- text --- */

/* A word without characters is the zero byte. */
static void word_put(void *ctx, const char *word) {
    session *s = ctx;
    kn__text_add(&s->text, word, *word ? strlen(word) : 1);
    if (s->spaced) kn__text_puts(&s->text, " ");
}

/* The checkpoint's vocabulary, or that of a text. */
static kn_status vocab_open(kn_vocab **out, const session *s) {
    const options *o = s->options;
    const kn_model_facts *f = kn_model_kind_of(s->model)->facts;
    const char *path = o->data ? o->data : kn__model_path(o->model[0]);
    kn_dataset *text = NULL;
    const kn_vocab_options wanted = {.unit = s->spaced ? KN_WORDS : KN_CHARACTERS,
                                     .size = f->words};
    if (o->weights) KN_TRY(kn__model_vocab(out, o->weights));
    if (*out) return KN_OK;
    kn_status status = kn_dataset_read_text(&text, out, path, f->x.dim[0], &wanted);
    kn_dataset_destroy(text);
    return status;
}

/* A terminal obeys control characters, and a vocabulary from elsewhere may have any: it gets '?'
 * for them, except for newlines and tabs. Files and pipes get the text as it is. */
static void text_add(kn__output *report, const char *text, size_t length) {
    const char *end = text + length;
    if (report->path || !isatty(STDOUT_FILENO)) {
        kn__text_add(&report->text, text, length);
        return;
    }
    for (size_t n; text < end; text += n ? n : 1) {
        n = kn__utf8_bytes(text);
        bool shown = *text == '\n' || *text == '\t' || kn__utf8_is_shown(text);
        kn__text_add(&report->text, shown ? text : "?", shown ? n : 1);
    }
}

static kn_status text_write(session *s) {
    const options *o = s->options;
    kn_vocab *vocab = NULL;
    s->spaced = strcmp(o->model[0], "lstm_lm") == 0;
    kn_status status = vocab_open(&vocab, s);
    if (status == KN_OK)
        status = kn__sample_text(s->model, vocab, o->count, o->heat, o->seed, word_put, s);
    kn_vocab_destroy(vocab);
    if (status < 0) return status;
    const char *text = s->text.data ? s->text.data : "";
    if (!o->common.json) {
        s->report.live = false; /* lines end at a zero byte */
        text_add(&s->report, text, s->text.length);
        kn__text_puts(&s->report.text, "\n");
        return KN_OK;
    }
    kn__text_puts(&s->report.text, "{\"text\":");
    kn__text_json_bytes(&s->report.text, text, s->text.length);
    json_end(s);
    return KN_OK;
}

/* --- pictures --- */

static kn_status picture_write(session *s) {
    enum { SIDE = 8 };
    const char *path = s->options->picture;
    char *bytes = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&bytes, &n_bytes);
    if (!file) return KN_FAIL(KN_ERR_OOM, "no host memory for the picture");
    kn_status status = kn__write_vae(s->model, file, SIDE, s->options->seed);
    bool is_whole = fclose(file) == 0;
    int error = status < 0 ? 0 : is_whole ? kn__file_write(path, bytes, n_bytes) : ENOMEM;
    free(bytes);
    if (status < 0) return status;
    if (error) return KN_FAIL(KN_ERR_IO, "%s can't be written: %s", path, strerror(error));
    if (s->options->common.json) {
        kn__text_puts(&s->report.text, "{\"picture\":");
        kn__text_json(&s->report.text, path);
        json_end(s);
    }
    kn__output_line(&s->report, "wrote %s: %d images\n", path, SIDE * SIDE);
    return KN_OK;
}

/* --- games --- */

static kn_status game_write(session *s) {
    enum { ROWS = 6, COLUMNS = 7 };
    static const char *const ends[] = {"a draw", "x wins", "o wins"};
    kn__board b;
    kn__text *out = &s->report.text;
    KN_TRY(kn__write_game(&b, s->model, s->options->heat, s->options->seed));
    if (s->options->common.json) {
        kn__text_puts(out, "{\"moves\":[");
        for (int i = 0; i < b.n_moves; i++) kn__text_printf(out, "%s%d", i ? "," : "", b.move[i]);
        kn__text_printf(out, "],\"winner\":%d", b.winner);
        json_end(s);
        return KN_OK;
    }
    for (int i = 0; i < b.n_moves; i++)
        kn__output_line(&s->report, "%s%d", i ? " " : "", b.move[i]);
    for (int cell = 0; cell < ROWS * COLUMNS; cell++) {
        int row = ROWS - 1 - cell / COLUMNS, column = cell % COLUMNS;
        kn__output_line(&s->report, "%s %c", column ? "" : "\n",
                        ".xo"[b.cell[row * COLUMNS + column]]);
    }
    kn__output_line(&s->report, "\n%s\n", ends[b.winner]);
    return KN_OK;
}

/* --- the command --- */

static kn_status session_run(session *s) {
    const options *o = s->options;
    KN_TRY(kn_params_create(&s->params, &(kn_params_options){.seed = o->seed}));
    KN_TRY(kn_model_create(&s->model, o->model[0], s->params));
    if (o->weights) KN_TRY(kn__model_weights(&s->averaged, s->model, o->weights));
    if (strcmp(o->model[0], "vae") == 0) return picture_write(s);
    return strcmp(o->model[0], "connect4") == 0 ? game_write(s) : text_write(s);
}

/* Which options a model's sample has no use for. */
static int options_check(const options *o) {
    bool is_vae = strcmp(o->model[0], "vae") == 0, is_game = strcmp(o->model[0], "connect4") == 0;
    const char *wrong = o->count && (is_vae || is_game)  ? "count"
                        : o->data && (is_vae || is_game) ? "data"
                        : o->heat > 0 && is_vae          ? "temperature"
                        : o->picture && !is_vae          ? "picture"
                                                         : NULL;
    if (wrong) return kn__fail_usage("--%s does not apply to %s", wrong, o->model[0]);
    if (is_vae && !o->picture)
        return kn__fail_usage("--picture FILE is needed: where vae writes its images");
    return KN__EXIT_OK;
}

static int run(void *options_of) {
    options *o = options_of;
    session s = {.options = o};
    int exit_code = options_check(o);
    if (exit_code != KN__EXIT_OK) return exit_code;
    kn__ranks_unused();
    if (!o->count) o->count = 400;
    if (!(o->heat > 0)) o->heat = 0.7;
    s.report = kn__output_begin(&o->common);
    KN_FRAME(.device = kn_device_host(), .record = KN_OFF);
    kn_status status = kn_check();
    if (status == KN_OK) status = session_run(&s);
    if (status < 0) kn__fail_last();
    kn_model_destroy(s.model);
    kn_params_destroy(s.params);
    kn__text_release(&s.text);
    return kn__output_end(&s.report, status == KN_ERR_OOM ? KN__EXIT_OOM
                                     : status < 0         ? KN__EXIT_FAILURE
                                                          : KN__EXIT_OK);
}

const kn__command kn__cmd_sample = {
    .name = "sample",
    .summary = "print what a trained model makes: text, images, a game",
    .description =
        "Prints text that a language model writes after a new line, or a game of connect-four that "
        "connect4 plays against itself; vae writes images of random codes.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .examples = (const kn__pair[]){{"knet train gpt --epochs 20 --checkpoint gpt.safetensors",
                                    "learns a licence by heart"},
                                   {"knet sample gpt --weights gpt.safetensors", "and writes one"},
                                   {"knet sample vae --weights vae.safetensors --picture vae.png",
                                    "images of clothes that are not in the data"},
                                   {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
