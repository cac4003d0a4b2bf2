/* Tables of numbers in text. */
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "checked.h"
#include "dataset.h"

typedef struct table {
    kn_csv_options o;
    const char *name;
    char *at, *end;                  /* the text that is left */
    int64_t line;                    /* from 1, of the record */
    int64_t next;                    /* of the text that is left */
    char **field;                    /* [n_columns] of the record, in the text */
    int64_t n_columns, room, target; /* target: -1: none */
    float *x;                        /* [n,n_columns without the target] */
    char **y;                        /* [n]: the texts of the targets */
    int64_t n, n_room;
    const char *no_class;  /* the first class that would be a missing number, or NULL */
    int64_t no_class_line; /* its line */
    bool has_texts;        /* a class is neither a number nor missing */
    bool is_finite;        /* infinite numbers are errors */
} table;

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* With a decimal point alone, whatever the locale's is. The text changes only while it is read. */
static bool number_read(double *out, char *text) {
    char *point = strchr(text, '.'), *end = NULL, radix = nl_langinfo(RADIXCHAR)[0];
    if (radix != '.' && strchr(text, radix)) return false;
    if (point) *point = radix;
    *out = strtod(text, &end);
    if (point) *point = '.';
    if (end == text) return false;
    while (is_blank(*end)) end++;
    return !*end;
}

typedef enum field_kind { A_NUMBER, A_MISSING, A_TEXT } field_kind;

/* Missing: nothing but blanks, NA, or any form of NaN. */
static field_kind field_read(double *out, char *text) {
    bool is_number = number_read(out, text);
    if (is_number && !isnan(*out)) return A_NUMBER;
    while (is_blank(*text)) text++;
    size_t n = strlen(text);
    while (n && is_blank(text[n - 1])) n--;
    if (!is_number && n && (n != 2 || strncasecmp(text, "NA", 2) != 0)) return A_TEXT;
    *out = (double)NAN;
    return A_MISSING;
}

/* --- records --- */

static kn_status field_add(table *t, int64_t n, char *begin) {
    if (n == t->room) {
        int64_t room = t->room ? 2 * t->room : 64;
        char **more = realloc(t->field, (size_t)room * sizeof *more);
        if (!more)
            return KN_FAIL(KN_ERR_OOM, "%s: no memory for %" PRId64 " fields", t->name, room);
        t->field = more;
        t->room = room;
    }
    t->field[n] = begin;
    return KN_OK;
}

/* Cuts a field off, in place, and returns what ended it: the delimiter, '\n' for any end of a line
 * ("\n", "\r\n", "\r"), or 0. */
static kn_status field_cut(table *t, char *ended) {
    char *to = t->at, *from = t->at;
    bool quoted = from < t->end && *from == '"';
    if (quoted) from++;
    while (from < t->end) {
        if (quoted && *from == '"' && from + 1 < t->end && from[1] == '"') {
            from++;
        } else if (quoted && *from == '"') {
            quoted = false;
            from++;
            continue;
        } else if (!quoted && (*from == t->o.delimiter || *from == '\n' || *from == '\r')) {
            break;
        }
        if (*from == '\n') t->next++;
        *to++ = *from++;
    }
    if (quoted)
        return KN_FAIL(KN_ERR_FORMAT, "%s: line %" PRId64 ": a quote has no end", t->name, t->line);
    *ended = from < t->end ? *from++ : 0;
    if (*ended == '\r') {
        *ended = '\n';
        if (from < t->end && *from == '\n') from++;
    }
    if (*ended == '\n') t->next++;
    t->at = from;
    *to = 0;
    return KN_OK;
}

/* *n: the fields of the next record that has any; 0: the end. */
static kn_status record_next(table *t, int64_t *n) {
    for (*n = 0; t->at < t->end && *n == 0;) {
        char ended = t->o.delimiter;
        t->line = t->next;
        while (ended == t->o.delimiter) {
            KN_TRY(field_add(t, *n, t->at));
            KN_TRY(field_cut(t, &ended));
            ++*n;
        }
        if (*n == 1 && !t->field[0][0]) *n = 0; /* an empty line */
    }
    return KN_OK;
}

/* --- the header --- */

static kn_status columns_set(table *t, int64_t n) {
    t->n_columns = n;
    t->target = -1;
    if (t->o.no_target) return KN_OK;
    t->target = t->o.target > 0 ? t->o.target - 1 : t->o.target ? n + t->o.target : n - 1;
    if (t->target < 0 || t->target >= n)
        return KN_FAIL(KN_ERR_INVALID,
                       "%s: column %d is the target; the file has %" PRId64 " column%s", t->name,
                       t->o.target, n, n == 1 ? "" : "s");
    if (n == 1) {
        const char text[] = {'\'', t->o.delimiter, '\'', 0};
        const char *what = t->o.delimiter == '\t' ? "tab" : text;
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s: line %" PRId64
                       " has no %s; fields are separated by %s, and one besides "
                       "the target is needed",
                       t->name, t->line, what, t->o.delimiter == '\t' ? "tabs" : text);
    }
    return KN_OK;
}

/* The field of x that is a text, and makes the record a header unless the options tell; -1: none
 * does. */
static int64_t name_find(const table *t) {
    double x;
    for (int64_t i = 0; i < t->n_columns; i++)
        if (i != t->target && field_read(&x, t->field[i]) == A_TEXT) return i;
    return -1;
}

/* --- rows --- */

static kn_status rows_reserve(table *t) {
    if (t->n < t->n_room) return KN_OK;
    int64_t room = t->n_room ? 2 * t->n_room : 256;
    float *x = realloc(t->x, (size_t)room * (size_t)t->n_columns * sizeof *x);
    if (x) t->x = x;
    char **y = realloc(t->y, (size_t)room * sizeof *y);
    if (y) t->y = y;
    if (!x || !y) return KN_FAIL(KN_ERR_OOM, "%s: no memory for %" PRId64 " rows", t->name, room);
    t->n_room = room;
    return KN_OK;
}

static kn_status value_read(double *out, const table *t, int64_t i) {
    bool is_target = i == t->target;
    errno = 0;
    field_kind kind = field_read(out, t->field[i]);
    bool is_beyond = isinf((float)*out) && (isfinite(*out) || errno == ERANGE);
    bool is_infinite = t->is_finite && isinf((float)*out);
    if (kind == A_MISSING && t->o.missing && !is_target) return KN_OK;
    if (kind == A_NUMBER && !is_beyond && !is_infinite) return KN_OK;
    const char *what = kind == A_NUMBER ? (is_beyond ? "beyond the range of f32" : "infinite")
                       : kind == A_TEXT ? "not a number"
                       : is_target || t->is_finite
                           ? "a missing value: leave out its line"
                           : "a missing value: leave out its line, or set missing of "
                             "kn_csv_options, which reads it as NaN";
    return KN_FAIL(KN_ERR_FORMAT, "%s: line %" PRId64 ", field %" PRId64 ": %s'%.40s' is %s",
                   t->name, t->line, i + 1, is_target ? "the target " : "", t->field[i], what);
}

static char *trim(char *text) {
    while (is_blank(*text)) text++;
    for (char *end = text + strlen(text); end > text && is_blank(end[-1]);) *--end = 0;
    return text;
}

/* A class that is missing has no place among the others. NA and NaN are names among texts. */
static kn_status class_read(table *t) {
    double number = 0;
    char *text = t->y[t->n] = trim(t->field[t->target]);
    if (!*text) return value_read(&number, t, t->target);
    field_kind kind = field_read(&number, text);
    t->has_texts |= kind == A_TEXT;
    if (kind == A_MISSING && !t->no_class) {
        t->no_class = text;
        t->no_class_line = t->line;
    }
    return KN_OK;
}

static kn_status classes_check(const table *t) {
    if (!t->no_class || t->has_texts) return KN_OK;
    return KN_FAIL(KN_ERR_FORMAT,
                   "%s: line %" PRId64 ", field %" PRId64
                   ": the target '%.40s' is a missing value, as all others are numbers: leave out "
                   "its line",
                   t->name, t->no_class_line, t->target + 1, t->no_class);
}

static kn_status row_add(table *t, int64_t n) {
    if (n != t->n_columns)
        return KN_FAIL(KN_ERR_FORMAT,
                       "%s: line %" PRId64 " has %" PRId64 " field%s, the first has %" PRId64,
                       t->name, t->line, n, n == 1 ? "" : "s", t->n_columns);
    KN_TRY(rows_reserve(t));
    float *x = t->x + t->n * (n - (t->target >= 0));
    for (int64_t i = 0; i < n; i++) {
        double value = 0;
        bool is_class = i == t->target && !t->o.regression;
        KN_TRY(is_class ? class_read(t) : value_read(&value, t, i));
        if (i != t->target) *x++ = (float)value;
    }
    if (t->o.regression && t->target >= 0) t->y[t->n] = t->field[t->target];
    t->n++;
    return KN_OK;
}

static kn_status rows_read(table *t) {
    int64_t n = 0;
    KN_TRY(record_next(t, &n));
    if (n == 0) return KN_FAIL(KN_ERR_FORMAT, "%s: the file has no rows", t->name);
    KN_TRY(columns_set(t, n));
    int64_t name = t->o.header ? -1 : name_find(t), line = t->line;
    const char *text = name >= 0 ? t->field[name] : NULL;
    if (t->o.header > 0 || text) KN_TRY(record_next(t, &n));
    for (; n;) {
        KN_TRY(row_add(t, n));
        KN_TRY(record_next(t, &n));
    }
    if (t->n) return classes_check(t);
    if (!text) return KN_FAIL(KN_ERR_FORMAT, "%s: the file has a header and no rows", t->name);
    return KN_FAIL(KN_ERR_FORMAT,
                   "%s: the file has a header and no rows: line %" PRId64
                   " is one by its field %" PRId64 ", '%.40s', which is not a number",
                   t->name, line, name + 1, text);
}

/* --- targets --- */

typedef struct class_name {
    char *text;
    double number;
    bool is_number;
} class_name;

static int by_class(const void *a, const void *b) {
    const class_name *x = a, *y = b;
    if (!x->is_number) return strcmp(x->text, y->text);
    return (x->number > y->number) - (x->number < y->number);
}

/* Of one number the first text in this order names the class. */
static int by_class_and_text(const void *a, const void *b) {
    const class_name *x = a, *y = b;
    int order = by_class(x, y);
    return order ? order : strcmp(x->text, y->text);
}

/* Whether a double tells the decimal from all others: up to DBL_DIG digits, in its range. */
static bool decimal_read(double *out, char *text) {
    int n = 0, digits = 0;
    if (text[strspn(text, "+-.0123456789eE")]) return false;
    for (const char *c = text; *c && *c != 'e' && *c != 'E'; c++) {
        if (*c < '0' || (*c == '0' && n == 0)) continue;
        n++;
        if (*c != '0') digits = n;
    }
    errno = 0;
    return digits <= DBL_DIG && number_read(out, text) && errno != ERANGE;
}

/* Sorts the targets of all rows and drops those that occur twice; returns how many stay. Numbers
 * count as such if all are. */
static int64_t classes_sort(const table *t, class_name *names) {
    bool all = true;
    for (int64_t i = 0; i < t->n; i++) {
        double number = 0;
        all = all && decimal_read(&number, t->y[i]);
        names[i] = (class_name){t->y[i], number, false};
    }
    for (int64_t i = 0; i < t->n; i++) names[i].is_number = all;
    qsort(names, (size_t)t->n, sizeof *names, by_class_and_text);
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++)
        if (n == 0 || by_class(&names[n - 1], &names[i]) != 0) names[n++] = names[i];
    return n;
}

static kn_status classes_set(kn_dataset *d, const table *t, const class_name *names, int64_t n) {
    int64_t *labels = malloc((size_t)t->n * sizeof *labels);
    char **list = calloc((size_t)n, sizeof *list);
    bool enough = labels && list;
    for (int64_t i = 0; enough && i < n; i++) enough = (list[i] = strdup(names[i].text)) != NULL;
    for (int64_t i = 0; enough && i < t->n; i++) {
        class_name key = {t->y[i], 0, names[0].is_number};
        if (key.is_number) (void)number_read(&key.number, key.text);
        const class_name *at = bsearch(&key, names, (size_t)n, sizeof *names, by_class);
        labels[i] = at - names;
    }
    kn_status status = enough ? kn__dataset_label(d, labels, n)
                              : KN_FAIL(KN_ERR_OOM, "%s: no memory for the classes", t->name);
    d->n_classes = n; /* the names are the set's now */
    d->class_name = list;
    free(labels);
    return status;
}

static kn_status classes_take(kn_dataset *d, const table *t) {
    class_name *names = malloc((size_t)t->n * sizeof *names);
    if (!names) return KN_FAIL(KN_ERR_OOM, "%s: no memory for the classes", t->name);
    kn_status status = classes_set(d, t, names, classes_sort(t, names));
    free(names);
    return status;
}

static kn_status numbers_take(kn_dataset *d, const table *t) {
    float *y = malloc((size_t)t->n * sizeof *y);
    if (!y) return KN_FAIL(KN_ERR_OOM, "%s: no memory for %" PRId64 " rows", t->name, t->n);
    d->y = y;
    for (int64_t i = 0; i < t->n; i++) {
        double value = 0;
        (void)number_read(&value, t->y[i]); /* checked when its row was read */
        y[i] = (float)value;
    }
    d->y_dtype = KN_F32;
    d->y_shape = KN_SHAPE(1);
    d->y_bytes = sizeof *y;
    return KN_OK;
}

static kn_status table_give(kn_dataset **out, table *t) {
    kn_dataset *d = kn__dataset_new();
    if (!d) return KN_ERR_OOM;
    int64_t width = t->n_columns - (t->target >= 0);
    d->n = t->n;
    d->x = t->x;
    t->x = NULL;
    d->x_dtype = KN_F32;
    d->x_shape = KN_SHAPE(width);
    d->x_bytes = (size_t)width * sizeof(float);
    kn_status status = KN_OK;
    if (t->target >= 0) status = t->o.regression ? numbers_take(d, t) : classes_take(d, t);
    return kn__dataset_give(out, d, status);
}

static kn_status flags_check(const kn_csv_options *o) {
    const int flag[] = {o->no_target, o->regression, o->missing};
    for (int i = 0; i < 3; i++)
        if (flag[i] != 0 && flag[i] != 1)
            return KN_FAIL(KN_ERR_INVALID, "kn_csv_options: %s is %d; 0 or 1 are possible",
                           (const char *[]){"no_target", "regression", "missing"}[i], flag[i]);
    return KN_OK;
}

kn_status kn__csv_parse(kn_dataset **out, char *text, size_t n_bytes, const char *name,
                        const kn_csv_options *options, bool is_finite) {
    table t = {.is_finite = is_finite,
               .name = name,
               .at = text + kn__mark_bytes(text, n_bytes),
               .end = text + n_bytes,
               .next = 1};
    if (options) t.o = *options;
    if (!t.o.delimiter) t.o.delimiter = ',';
    for (int i = 0; i < 4; i++)
        if (t.o.reserved[i]) return KN_FAIL(KN_ERR_INVALID, "kn_csv_options: reserved is not zero");
    KN_TRY(flags_check(&t.o));
    if (strchr("\n\r\"", t.o.delimiter))
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_csv_options: delimiter %d, an end of lines or a quote, can't be one",
                       t.o.delimiter);
    kn_status status = kn__text_check(text, n_bytes, name);
    if (status == KN_OK) status = rows_read(&t);
    if (status == KN_OK) status = table_give(out, &t);
    free(t.field);
    free(t.x);
    free(t.y);
    return status;
}

kn_status kn_dataset_read_csv(kn_dataset **out, const char *path, const kn_csv_options *options) {
    char *text = NULL;
    size_t n_bytes = 0;
    if (!path) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_read_csv: path is NULL");
    KN_TRY(kn__file_whole(&text, &n_bytes, path));
    kn_status status = kn__csv_parse(out, text, n_bytes, path, options, false);
    free(text);
    return status;
}
