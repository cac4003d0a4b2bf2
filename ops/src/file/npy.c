/* NPY: a magic number, a version, a Python literal that says dtype, order and shape, and the data.
 * numpy/lib/format.py describes it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"

enum { DATA_ALIGN = 64 };

static const struct {
    char kind;
    char bytes; /* as a digit */
    kn_dtype dtype;
    const char *name;
} dtypes[] = /* those that are widened come last: the writer takes the first with a dtype */
    {{'f', '4', KN_F32, "float32"}, {'f', '8', KN_F64, "float64"}, {'f', '2', KN_F16, "float16"},
     {'i', '8', KN_I64, "int64"},   {'i', '4', KN_I32, "int32"},   {'u', '1', KN_U8, "uint8"},
     {'b', '1', KN_BOOL, "bool"},   {'u', '8', KN_I64, "uint64"},  {'u', '4', KN_I64, "uint32"},
     {'i', '1', KN_I32, "int8"},    {'i', '2', KN_I32, "int16"},   {'u', '2', KN_I32, "uint16"}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

/* --- reading --- */

/* The literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } */
typedef struct literal {
    const kn_file *f;
    const char *place;
    const char *begin, *at, *end;
} literal;

static kn_status literal_bad(const literal *l, const char *wanted) {
    char near[16] = "the end";
    int left = l->end - l->at < 8 ? (int)(l->end - l->at) : 8;
    if (left) snprintf(near, sizeof near, "'%.*s'", left, l->at);
    return KN__BAD(l->f, "%sheader: byte %zu is %s; expected %s", l->place,
                   (size_t)(l->at - l->begin), near, wanted);
}

static void skip_spaces(literal *l) {
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\n' || *l->at == '\t')) l->at++;
}

static bool take(literal *l, char c) {
    skip_spaces(l);
    if (l->at == l->end || *l->at != c) return false;
    l->at++;
    return true;
}

static bool take_word(literal *l, const char *word) {
    size_t n = strlen(word);
    skip_spaces(l);
    if ((size_t)(l->end - l->at) < n || memcmp(l->at, word, n) != 0) return false;
    l->at += n;
    return true;
}

/* A string without escapes. */
static bool take_string(literal *l, char *out, size_t out_bytes) {
    skip_spaces(l);
    if (l->at == l->end || (*l->at != '\'' && *l->at != '"')) return false;
    const char *begin = l->at + 1, *end = memchr(begin, *l->at, (size_t)(l->end - begin));
    if (!end || (size_t)(end - begin) >= out_bytes) return false;
    memcpy(out, begin, (size_t)(end - begin));
    out[end - begin] = 0;
    if (strpbrk(out, "\\\n")) return false;
    l->at = end + 1;
    return true;
}

static bool take_number(literal *l, int64_t *out) {
    skip_spaces(l);
    const char *begin = l->at;
    *out = 0;
    for (; l->at < l->end && *l->at >= '0' && *l->at <= '9'; l->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *l->at - '0', out))
            return false;
    if (l->at > begin && l->at < l->end && *l->at == 'L') l->at++; /* Python 2 wrote longs so */
    return l->at > begin;
}

static kn_status take_shape(literal *l, kn__entry *e) {
    kn_shape *shape = &e->shape;
    if (!take(l, '(')) return literal_bad(l, "a tuple of sizes");
    while (!take(l, ')')) {
        int64_t size = 0;
        if (!take_number(l, &size)) return literal_bad(l, "a size");
        e->is_deep = e->is_deep || shape->n_dims == KN_DIMS_MAX;
        if (!e->is_deep) shape->dim[shape->n_dims++] = size;
        if (!take(l, ',')) {
            if (!take(l, ')')) return literal_bad(l, "',' or ')'");
            break;
        }
    }
    return KN_OK;
}

/* A list, whatever is in it. */
static bool take_list(literal *l) {
    size_t depth = 0;
    do {
        char c = l->at < l->end ? *l->at++ : 0;
        if (c == '[' || c == '(') depth++;
        if (c == ']' || c == ')') depth--;
        if (c != '\'' && c != '"') continue;
        while (l->at < l->end && *l->at != c) l->at += *l->at == '\\' && l->at + 1 < l->end ? 2 : 1;
        if (l->at < l->end) l->at++;
    } while (depth && l->at < l->end);
    return !depth;
}

static kn_status take_dtype(literal *l, kn__entry *e) {
    char *text = e->dtype_text;
    skip_spaces(l);
    if (l->at < l->end && *l->at == '[') {
        snprintf(text, sizeof e->dtype_text, "records");
        return take_list(l) ? KN_OK : literal_bad(l, "']'");
    }
    if (!take_string(l, text, sizeof e->dtype_text)) return literal_bad(l, "a dtype such as '<f4'");
    bool has_order = text[0] && strchr("<>|=", text[0]);
    const char *word = text + has_order;
    e->swapped = text[0] == '>' && text[2] != '1';
    for (int i = 0; i < N_DTYPES; i++) {
        const char code[] = {dtypes[i].kind, dtypes[i].bytes, 0};
        if (strcmp(word, code) != 0 && strcmp(text, dtypes[i].name) != 0) continue;
        e->dtype = dtypes[i].dtype;
        e->element_bytes = (uint8_t)(dtypes[i].bytes - '0');
        e->is_unsigned = dtypes[i].kind == 'u';
    }
    return KN_OK;
}

static kn_status take_pair(literal *l, kn__entry *e, unsigned *seen) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[32];
    int which = 3;
    const char *before = l->at;
    if (!take_string(l, key, sizeof key)) return literal_bad(l, "a key");
    for (int i = 0; i < 3; i++)
        if (strcmp(key, keys[i]) == 0) which = i;
    if (which == 3 || *seen >> which & 1) {
        l->at = before;
        return literal_bad(l, "each of descr, fortran_order and shape, once");
    }
    *seen |= 1u << which;
    if (!take(l, ':')) return literal_bad(l, "':'");
    if (which == 0) return take_dtype(l, e);
    if (which == 2) return take_shape(l, e);
    e->fortran = take_word(l, "True");
    return e->fortran || take_word(l, "False") ? KN_OK : literal_bad(l, "True or False");
}

static kn_status literal_read(literal *l, kn__entry *e) {
    unsigned seen = 0;
    if (!take(l, '{')) return literal_bad(l, "'{'");
    while (!take(l, '}')) {
        KN_TRY(take_pair(l, e, &seen));
        if (take(l, ',')) continue;
        if (!take(l, '}')) return literal_bad(l, "',' or '}'");
        break;
    }
    skip_spaces(l);
    if (l->at < l->end) return literal_bad(l, "the end");
    return seen == 7 ? KN_OK : literal_bad(l, "each of descr, fortran_order and shape, once");
}

size_t kn__npy_header_bytes(const uint8_t *at, size_t n) {
    if (n < 12) return 0;
    return at[6] == 1 ? 10 + (size_t)kn__u16(at + 8) : 12 + (size_t)kn__u32(at + 8);
}

kn_status kn__npy_header(kn__entry *e, const kn_file *f, const char *place, const uint8_t *at,
                         size_t n) {
    if (n < 10 || memcmp(at, "\x93NUMPY", 6) != 0)
        return KN__BAD(f, "%snot an array in NPY form", place);
    int version = at[6];
    if (version < 1 || version > 3 || at[7] != 0)
        return KN__BAD(f, "%sNPY version %d.%d; 1.0, 2.0 and 3.0 are known", place, version, at[7]);
    size_t fixed = version == 1 ? 10 : 12;
    if (n < fixed) return KN__BAD(f, "%sends after %zu bytes", place, n);
    size_t length = version == 1 ? kn__u16(at + 8) : kn__u32(at + 8);
    if (length > n - fixed)
        return KN__BAD(f, "%sa header of %zu bytes; %zu follow", place, length, n - fixed);
    const char *text = (const char *)at + fixed;
    literal l = {f, place, text, text, text + length};
    KN_TRY(literal_read(&l, e));
    e->skip = fixed + length;
    if (!e->is_deep) return KN_OK;
    e->dtype = 0;
    e->shape = KN_SCALAR;
    return KN_OK;
}

kn_status kn__npy_open(kn_file *f) {
    char *name = strdup("");
    kn__entry *e = name ? kn__file_add(f, name) : NULL;
    if (!e) return KN_FAIL(KN_ERR_OOM, "%s: no memory", f->path);
    KN_TRY(kn__npy_header(e, f, "", f->bytes->at, f->bytes->n));
    e->offset = e->skip;
    e->size_bytes = e->stored_bytes = f->bytes->n - e->offset;
    if (!e->dtype) return KN_OK;
    char shape[256];
    kn_shape_text(shape, sizeof shape, e->shape);
    if (!kn__file_size(&e->size_bytes, e->shape, e->element_bytes))
        return KN__BAD(f, "shape %s is too large", shape);
    if (e->size_bytes != e->stored_bytes)
        return KN__BAD(f, "%zu bytes follow the header; %s %s takes %zu", e->stored_bytes, shape,
                       e->dtype_text, e->size_bytes);
    return KN_OK;
}

/* --- writing --- */

size_t kn__npy_header_write(char out[KN__NPY_HEADER_BYTES], kn_dtype dtype, kn_shape shape) {
    int which = 0;
    while (which < N_DTYPES && dtypes[which].dtype != dtype) which++;
    if (which == N_DTYPES) return 0;
    static const char magic[8] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char sizes[KN_DIMS_MAX * 24] = "";
    size_t n = 0;
    for (int i = 0; i < shape.n_dims; i++)
        n += (size_t)snprintf(sizes + n, sizeof sizes - n, "%s%" PRId64, i ? ", " : "",
                              shape.dim[i]);
    char *text = out + 10;
    size_t room = KN__NPY_HEADER_BYTES - 10;
    size_t length = (size_t)snprintf(
        text, room, "{'descr': '%c%c%c', 'fortran_order': False, 'shape': (%s%s), }",
        dtypes[which].bytes == '1' ? '|' : '<', dtypes[which].kind, dtypes[which].bytes, sizes,
        shape.n_dims == 1 ? "," : "");
    size_t total = (10 + length + 1 + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    memset(text + length, ' ', total - 10 - length);
    out[total - 1] = '\n';
    memcpy(out, magic, sizeof magic);
    out[8] = (char)((total - 10) & 255);
    out[9] = (char)((total - 10) >> 8);
    return total;
}
