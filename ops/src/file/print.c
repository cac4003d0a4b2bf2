/* Elements as NumPy's str(array) lays them out: numpy/core/arrayprint.py describes the rules. */
#include <inttypes.h>
#include <knet/print.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "digits.h"
#include "entries.h"
#include "run.h"
#include "text.h"

enum { WORD_BYTES = 400 };

typedef struct printer {
    const uint8_t *data;
    kn_dtype dtype;
    kn_shape shape;
    int precision, edge, width;
    bool shortened;
    /* how wide words are */
    bool scientific;
    int left, right, exponent; /* digits before and after the point, and of the exponent */
    kn__text text, line;
    size_t covered; /* of the line: already in the text */
} printer;

static const void *element(const printer *p, int64_t i) {
    return p->data + (size_t)i * kn_dtype_bytes(p->dtype);
}

static double value(const printer *p, int64_t i) { return kn__as_double(element(p, i), p->dtype); }

static bool is_float(kn_dtype dtype) { return dtype <= KN_BF16; }

/* --- words --- */

static int exponent_digits(int exponent) { return abs(exponent) >= 100 ? 3 : 2; }

static void word_special(const printer *p, char *out, double x) {
    const char *name = isnan(x) ? "nan" : x < 0 ? "-inf" : "inf";
    int columns = p->left + p->right + 1;
    snprintf(out, WORD_BYTES, "%*s", columns, name);
}

static int put_digit(char *out, const kn__digits *d, int i) {
    *out = i >= 0 && i < d->n ? d->digit[i] : '0';
    return 1;
}

static void word_fixed(const printer *p, char *out, double x) {
    kn__digits d = kn__digits_fixed(x, p->dtype, p->precision);
    if (d.n - 1 < d.exponent && x == trunc(x)) d = kn__digits_rounded(x, d.exponent); /* exact */
    char word[WORD_BYTES];
    int n = 0, whole = d.exponent > 0 ? d.exponent : 0;
    bool negative = signbit(x);
    for (int i = 0; i <= whole; i++) n += put_digit(word + n, &d, i + d.exponent - whole);
    word[n] = 0;
    n = snprintf(out, WORD_BYTES, "%*s%s.", p->left - n - negative + negative, negative ? "-" : "",
                 word);
    for (int i = 1; i <= p->right; i++) {
        bool has = i + d.exponent < d.n;
        n += has ? put_digit(out + n, &d, i + d.exponent) : snprintf(out + n, 2, " ");
    }
    out[n] = 0;
}

static void word_scientific(const printer *p, char *out, double x) {
    bool negative = signbit(x);
    int places = p->right - p->exponent - 2;
    kn__digits d = kn__digits_of(x, p->dtype);
    if (d.n - 1 != places) d = kn__digits_rounded(x, places); /* all words have as many */
    int n = snprintf(out, WORD_BYTES, "%*s%c.", p->left - 1, negative ? "-" : "", d.digit[0]);
    for (int i = 1; i <= places; i++) n += put_digit(out + n, &d, i);
    snprintf(out + n, WORD_BYTES - (size_t)n, "e%c%0*d", d.exponent < 0 ? '-' : '+', p->exponent,
             abs(d.exponent));
}

static void word_integer(const printer *p, char *out, int64_t i) {
    int64_t x = 0;
    if (p->dtype == KN_I64) memcpy(&x, element(p, i), sizeof x);
    if (p->dtype != KN_I64) x = (int64_t)value(p, i);
    snprintf(out, WORD_BYTES, "%*" PRId64, p->left, x);
}

static void word_of(const printer *p, char *out, int64_t i) {
    double x = value(p, i);
    if (p->dtype == KN_BOOL)
        snprintf(out, WORD_BYTES, "%*s", p->shape.n_dims ? 5 : 0, x != 0 ? "True" : "False");
    else if (!is_float(p->dtype))
        word_integer(p, out, i);
    else if (!isfinite(x))
        word_special(p, out, x);
    else
        (p->scientific ? word_scientific : word_fixed)(p, out, x);
}

/* --- the shape of words: of all elements that are shown --- */

typedef void (*visit_fn)(printer *p, void *ctx, int64_t i);

static bool is_cut(const printer *p, int64_t n) { return p->shortened && n > 2 * p->edge; }

static void visit(printer *p, visit_fn fn, void *ctx, int axis, int64_t at) {
    if (axis == p->shape.n_dims) {
        fn(p, ctx, at);
        return;
    }
    int64_t n = p->shape.dim[axis];
    for (int64_t i = 0; i < n; i++) {
        if (i == p->edge && is_cut(p, n)) i = n - p->edge;
        visit(p, fn, ctx, axis + 1, at * n + i);
    }
}

typedef struct extremes {
    double most, least; /* of the absolute values that are not 0 */
    bool infinite, minus_infinite;
} extremes;

static void find_extremes(printer *p, void *ctx, int64_t i) {
    extremes *e = ctx;
    double x = value(p, i), size = fabs(x);
    if (!isfinite(x)) {
        e->infinite = true;
        e->minus_infinite |= x < 0;
    } else if (size != 0) {
        e->most = fmax(e->most, size);
        e->least = fmin(e->least, size);
    }
}

static void most(int *out, int n) {
    if (n > *out) *out = n;
}

static void widen_float(printer *p, void *ctx, int64_t i) {
    double x = value(p, i);
    (void)ctx;
    if (!isfinite(x)) return;
    kn__digits d =
        (p->scientific ? kn__digits_scientific : kn__digits_fixed)(x, p->dtype, p->precision);
    if (p->scientific) {
        most(&p->left, 1 + (signbit(x) != 0));
        most(&p->right, d.n - 1);
        most(&p->exponent, exponent_digits(d.exponent));
    } else {
        most(&p->left, (d.exponent > 0 ? d.exponent : 0) + 1 + (signbit(x) != 0));
        most(&p->right, d.n - 1 - d.exponent);
    }
}

static void widen_integer(printer *p, void *ctx, int64_t i) {
    char word[WORD_BYTES];
    (void)ctx;
    int before = p->left;
    p->left = 0;
    word_integer(p, word, i);
    p->left = before;
    most(&p->left, (int)strlen(word));
}

/* As a division of the array's elements rounds it. */
static double ratio(const extremes *e, kn_dtype dtype) {
    double rounded = 0;
    kn__from_double(&rounded, e->most / e->least, dtype);
    return kn__as_double(&rounded, dtype);
}

static void find_widths(printer *p) {
    extremes e = {.least = INFINITY};
    if (p->dtype == KN_BOOL) return;
    if (!is_float(p->dtype)) {
        visit(p, widen_integer, NULL, 0, 0);
        return;
    }
    visit(p, find_extremes, &e, 0, 0);
    p->scientific = e.most >= 1e8 || e.least < 1e-4 || ratio(&e, p->dtype) > 1000;
    visit(p, widen_float, NULL, 0, 0);
    if (p->scientific) p->right += p->exponent + 2;
    if (e.infinite) most(&p->left, 3 + e.minus_infinite - (p->right + 1));
}

/* --- lines --- */

/* Moves the line into the text; the first one of a row follows brackets, without its indent. */
static void put_line(printer *p, bool strip) {
    size_t n = p->line.length;
    while (strip && n && p->line.data[n - 1] == ' ') n--;
    if (n > p->covered) kn__text_add(&p->text, p->line.data + p->covered, n - p->covered);
    p->covered = 0;
}

static void start_line(printer *p, int indent) {
    p->line.length = 0;
    kn__text_repeat(&p->line, " ", indent);
}

static void add_word(printer *p, const char *word, int columns, int indent) {
    bool has_words = p->line.length > (size_t)indent;
    if (has_words && (int)(p->line.length + strlen(word)) > columns) { /* columns may be below 0 */
        put_line(p, true);
        kn__text_puts(&p->text, "\n");
        start_line(p, indent);
    }
    kn__text_puts(&p->line, word);
}

static void add_row(printer *p, int64_t at, int axis, int columns) {
    int64_t n = p->shape.dim[axis];
    int indent = axis + 1;
    char word[WORD_BYTES];
    start_line(p, indent);
    p->covered = (size_t)indent;
    for (int64_t i = 0; i < n; i++) {
        if (i) kn__text_puts(&p->line, " ");
        if (i == p->edge && is_cut(p, n)) {
            add_word(p, "...", columns - 1, indent);
            kn__text_puts(&p->line, " ");
            i = n - p->edge;
        }
        word_of(p, word, at * n + i);
        add_word(p, word, columns - 1, indent);
    }
    put_line(p, false);
}

static void add_axis(printer *p, int64_t at, int axis, int columns) {
    int64_t n = p->shape.dim[axis];
    int left = p->shape.n_dims - axis;
    kn__text_puts(&p->text, "[");
    if (left == 1) add_row(p, at, axis, columns);
    for (int64_t i = 0; i < n && left > 1; i++) {
        if (i) kn__text_repeat(&p->text, "\n", left - 1);
        if (i) kn__text_repeat(&p->text, " ", axis + 1);
        if (i == p->edge && is_cut(p, n)) {
            kn__text_puts(&p->text, "...");
            kn__text_repeat(&p->text, "\n", left - 1);
            kn__text_repeat(&p->text, " ", axis + 1);
            i = n - p->edge;
        }
        add_axis(p, at * n + i, axis + 1, columns - 1);
    }
    kn__text_puts(&p->text, "]");
}

static void add_tensor(printer *p, bool bare, const kn_tensor *t) {
    char shape[256], word[WORD_BYTES];
    if (!bare)
        kn__text_printf(&p->text, "%s %s %s\n", kn_dtype_name(p->dtype),
                        kn_shape_text(shape, sizeof shape, p->shape),
                        kn_device_name(kn_tensor_device(t)));
    if (!t->n) {
        kn__text_puts(&p->text, "[]");
        return;
    }
    find_widths(p);
    if (p->shape.n_dims) {
        add_axis(p, 0, 0, p->width);
    } else {
        word_of(p, word, 0);
        kn__text_puts(&p->text, word);
    }
}

/* --- options --- */

static int option(int value, int otherwise) {
    return value == KN_OFF ? 0 : value > 0 ? value : otherwise;
}

static kn_status check_options(const char *who, const kn_print_options *o) {
    const struct {
        const char *name;
        int value, least;
    } options[] = {{"precision", o->precision, KN_OFF},
                   {"threshold", o->threshold, KN_OFF},
                   {"edge_items", o->edge_items, 0},
                   {"width", o->width, 0}};
    for (int i = 0; i < 4; i++)
        if (options[i].value < options[i].least)
            return KN_FAIL(KN_ERR_INVALID, "%s: %s is %d", who, options[i].name, options[i].value);
    int bare = o->bare;
    if (kn__flag_read(&bare)) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "%s: bare is %d; it must be 0, 1 or KN_OFF", who, bare);
}

static kn_status print(kn__text *out, const char *who, kn_tensor *t, const kn_print_options *o) {
    static const kn_print_options defaults = {0};
    char name[32];
    void *copied = NULL;
    KN_TRY(kn_check());
    snprintf(name, sizeof name, "%s: t", who);
    if (!kn__is_whole(t)) return kn__fail_unreadable(name, t);
    if (!o) o = &defaults;
    KN_TRY(check_options(who, o));
    printer p = {.dtype = kn_tensor_dtype(t), .shape = kn_tensor_shape(t)};
    p.data = kn__host_bytes(&copied, t);
    if (!p.data) return kn_last_error()->status;
    p.precision = option(o->precision, 8);
    p.edge = option(o->edge_items, 3);
    p.width = option(o->width, 75);
    p.shortened = o->threshold != KN_OFF && t->n > option(o->threshold, 1000);
    add_tensor(&p, o->bare == 1, t);
    free(copied);
    bool failed = p.text.failed || p.line.failed;
    kn__text_release(&p.line);
    *out = p.text;
    if (!failed) return KN_OK;
    kn__text_release(out);
    return KN_FAIL(KN_ERR_OOM, "%s: no memory for the text", who);
}

kn_status kn_print(FILE *out, kn_tensor *t, const kn_print_options *options) {
    kn__text text = {0};
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_print: out is NULL");
    KN_TRY(print(&text, "kn_print", t, options));
    bool good = fwrite(text.data, 1, text.length, out) == text.length && fputc('\n', out) != EOF;
    kn__text_release(&text);
    return good ? KN_OK : KN_FAIL(KN_ERR_IO, "kn_print: the stream takes no more");
}

kn_status kn_print_text(char *out, size_t out_bytes, size_t *length, kn_tensor *t,
                        const kn_print_options *options) {
    kn__text text = {0};
    if (!out && out_bytes) return KN_FAIL(KN_ERR_INVALID, "kn_print_text: out is NULL");
    KN_TRY(print(&text, "kn_print_text", t, options));
    if (out_bytes) snprintf(out, out_bytes, "%s", text.data);
    if (length) *length = text.length;
    kn__text_release(&text);
    return KN_OK;
}
