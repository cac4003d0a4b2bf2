/* Einstein's sum, and other ops made of views, permutations and products. */
#include <ctype.h>
#include <string.h>

#include "run.h"

enum { OPERANDS_MAX = 16, LETTERS_MAX = 52 };

/* An operand and the letters of its dimensions. Those of "..." are digits, 0 the last one. */
typedef struct term {
    kn_tensor *t;
    int n;
    int dots; /* where "..." stands, + 1; 0: nowhere */
    char letter[LETTERS_MAX];
} term;

static int find(const term *t, char letter) {
    for (int i = 0; i < t->n; i++) {
        if (t->letter[i] == letter) return i;
    }
    return -1;
}

static void append(term *t, char letter) {
    KN_ASSERT(t->n < LETTERS_MAX);
    t->letter[t->n++] = letter;
}

static int64_t size_of(const term *t, char letter) { return t->t->dim[find(t, letter)]; }

/* The terms of a sum. call: has the operands, for messages. */
typedef struct sum {
    kn_op_call call;
    const char *spec;
} sum;

/* Quotes n bytes, and more to the end of a character. */
static bool fail(const sum *s, const char *why, const char *at, int n) {
    const char *end = memchr(at, 0, (size_t)n);
    if (end) n = (int)(end - at);
    while (((unsigned char)at[n] & 0xC0) == 0x80) n++;
    return kn_op_call_fail(&s->call, KN_ERR_INVALID, "\"%s\": %s%.*s", s->spec, why, n, at);
}

/* --- reading the letters --- */

/* Letters up to ',' or "->" or the end. */
static bool read_term(term *out, const char **at, const sum *s) {
    out->n = out->dots = 0;
    for (; **at && **at != ',' && **at != '-'; ++*at) {
        if (**at == ' ') continue;
        if (strncmp(*at, "...", 3) == 0) {
            if (out->dots) return fail(s, "a term has ... twice", "", 0);
            out->dots = out->n + 1;
            *at += 2;
            continue;
        }
        if (!isalpha((unsigned char)**at)) return fail(s, "a letter is expected, not ", *at, 1);
        if (out->n == KN_DIMS_MAX) return fail(s, "more than 8 letters", "", 0);
        out->letter[out->n++] = **at;
    }
    return true;
}

/* Puts n digits in the place of "...". */
static bool expand_dots(term *t, int n, const sum *s) {
    if (!t->dots) return true;
    if (t->n + n > KN_DIMS_MAX) return fail(s, "... makes more than 8 dimensions", "", 0);
    char *at = t->letter + t->dots - 1;
    memmove(at + n, at, (size_t)(t->n - (t->dots - 1)));
    for (int i = 0; i < n; i++) at[i] = (char)('0' + n - 1 - i);
    t->n += n;
    return true;
}

/* Without "->": "..." and the letters that occur once, sorted. */
static void implicit(term *out, const sum *s) {
    int count[128] = {0};
    for (const char *c = s->spec; *c; c++) {
        if (isalpha((unsigned char)*c)) count[(unsigned char)*c]++;
    }
    out->n = 0;
    out->dots = strchr(s->spec, '.') ? 1 : 0;
    for (int c = 0; c < 128; c++) {
        if (count[c] == 1) append(out, (char)c);
    }
}

static bool read_result(term *out, const char *at, const sum *s) {
    if (!*at) {
        implicit(out, s);
        return true;
    }
    if (strncmp(at, "->", 2) != 0) return fail(s, "-> is expected at ", at, 8);
    at += 2;
    if (!read_term(out, &at, s)) return false;
    if (*at) return fail(s, "one result is expected, not ", at, 8);
    for (int i = 0; i < out->n; i++) {
        const char *arrow = strchr(s->spec, '-'), *used = strchr(s->spec, out->letter[i]);
        if (used > arrow) return fail(s, "no operand has the result's ", used, 1);
        for (int j = 0; j < i; j++) {
            if (out->letter[j] == out->letter[i]) return fail(s, "the result has twice ", used, 1);
        }
    }
    return true;
}

/* Dimensions that are 1 in one operand and not in another are left out of the one. */
static bool broadcast(term terms[], int n, char c) {
    bool wide = false;
    for (int i = 0; i < n; i++) wide |= find(&terms[i], c) >= 0 && size_of(&terms[i], c) != 1;
    for (int i = 0; i < n && wide; i++) {
        term *t = &terms[i];
        kn_shape shape = {.n_dims = 0};
        if (find(t, c) < 0 || size_of(t, c) != 1) continue;
        for (int d = 0; d < t->n; d++) {
            if (t->letter[d] == c) continue;
            t->letter[shape.n_dims] = t->letter[d];
            shape.dim[shape.n_dims++] = t->t->dim[d];
        }
        t->n = shape.n_dims;
        t->t = kn_reshape(t->t, shape);
        if (!t->t) return false;
    }
    return true;
}

/* Letters of one size throughout. */
static bool sizes_fit(const term *terms, int n, const sum *s) {
    int64_t size[128];
    memset(size, -1, sizeof size);
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < terms[i].n; d++) {
            unsigned char c = (unsigned char)terms[i].letter[d];
            if (size[c] >= 0 && size[c] != terms[i].t->dim[d]) {
                bool dots = isdigit(c);
                return kn_op_call_fail(&s->call, KN_ERR_SHAPE, "\"%s\": %s%c is %lld and %lld",
                                       s->spec,
                                       dots ? "from the last one on, dimension of ... number " : "",
                                       c, (long long)size[c], (long long)terms[i].t->dim[d]);
            }
            size[c] = terms[i].t->dim[d];
        }
    }
    return true;
}

static bool fail_terms(const sum *s) {
    const char *end = strchr(s->spec, '>');
    int n = 1;
    for (const char *c = s->spec; *c && c != end; c++) n += *c == ',';
    return kn_op_call_fail(&s->call, KN_ERR_INVALID, "\"%s\": %d terms, %d operands", s->spec, n,
                           s->call.n_in);
}

static bool read_all(term terms[], term *result, const sum *s) {
    const char *at = s->spec;
    kn_tensor *const *x = s->call.in;
    const int n_x = s->call.n_in;
    int n_dots = 0;
    for (int i = 0; i < n_x; i++) {
        if (!read_term(&terms[i], &at, s)) return false;
        if (*at == '-' && at[1] != '>') return fail(s, "-> is expected at ", at, 8);
        if ((*at == ',') != (i < n_x - 1)) return fail_terms(s);
        if (*at == ',') at++;
        terms[i].t = x[i];
        int dots = terms[i].dots && x[i]->n_dims > terms[i].n ? x[i]->n_dims - terms[i].n : 0;
        if (!expand_dots(&terms[i], dots, s)) return false;
        n_dots = dots > n_dots ? dots : n_dots;
        if (terms[i].n != x[i]->n_dims) {
            return kn_op_call_fail(&s->call, KN_ERR_SHAPE,
                                   "\"%s\": operand %d has %d dimensions and %d letters", s->spec,
                                   i, x[i]->n_dims, terms[i].n);
        }
        if (!sizes_fit(&terms[i], 1, s)) return false;
    }
    if (!read_result(result, at, s) || !expand_dots(result, n_dots, s)) return false;
    for (int c = '0'; c <= 'z'; c++)
        if (!broadcast(terms, n_x, (char)c)) return false;
    return sizes_fit(terms, n_x, s);
}

/* --- one operand --- */

static void permute(term *t, const term *order) {
    kn_attr_transpose attr = {{0}};
    bool same = true;
    for (int d = 0; d < order->n; d++) {
        attr.axis[d] = find(t, order->letter[d]);
        same = same && attr.axis[d] == d;
    }
    if (!same && t->t) t->t = KN_CALL(transpose, &attr, t->t);
    memcpy(t->letter, order->letter, sizeof t->letter);
}

/* Takes the diagonal of the first letter that occurs twice; false: no such letter, or an error. */
static bool take_diagonal(term *t) {
    for (int i = 0; i < t->n; i++) {
        char twice = t->letter[i];
        int first = find(t, twice);
        if (first == i) continue;
        term rest = {.n = 0};
        for (int d = 0; d < t->n; d++) {
            if (d != first && d != i) append(&rest, t->letter[d]);
        }
        append(&rest, twice);
        rest.t = kn_diagonal(t->t, 0, first, i);
        *t = rest;
        return rest.t != NULL;
    }
    return false;
}

/* Sums over the letters that neither `other` (may be NULL) nor the result has. */
static void sum_out(term *t, const term *other, const term *result) {
    uint32_t mask = 0;
    term rest = {.n = 0};
    for (int d = 0; d < t->n; d++) {
        char c = t->letter[d];
        if ((other && find(other, c) >= 0) || find(result, c) >= 0)
            append(&rest, c);
        else
            mask |= 1u << d;
    }
    if (!mask || !t->t) return;
    rest.t = kn_sum_mask(t->t, mask, false);
    *t = rest;
}

/* --- two operands --- */

typedef struct roles { /* the letters by their role */
    term batch, a_only, b_only, summed;
} roles;

static roles roles_of(const term *a, const term *b, const term *result) {
    roles r = {.batch = {.n = 0}};
    for (int i = 0; i < a->n; i++) {
        char c = a->letter[i];
        bool in_b = find(b, c) >= 0, kept = find(result, c) >= 0;
        append(in_b ? (kept ? &r.batch : &r.summed) : &r.a_only, c);
    }
    for (int i = 0; i < b->n; i++) {
        if (find(a, b->letter[i]) < 0) append(&r.b_only, b->letter[i]);
    }
    return r;
}

/* True if the result has a letter of p before those of q. */
static bool comes_first(const term *p, const term *q, const term *result) {
    for (int i = 0; i < result->n; i++) {
        if (find(q, result->letter[i]) >= 0) return false;
        if (find(p, result->letter[i]) >= 0) return true;
    }
    return false;
}

static term joined(const term *p, const term *q, const term *r) {
    term all = {.n = 0};
    for (int i = 0; i < p->n; i++) append(&all, p->letter[i]);
    for (int i = 0; i < q->n; i++) append(&all, q->letter[i]);
    for (int i = 0; i < r->n; i++) append(&all, r->letter[i]);
    return all;
}

static int64_t product_of(const term *letters, const term *sizes) {
    int64_t n = 1;
    for (int i = 0; i < letters->n; i++) n *= size_of(sizes, letters->letter[i]);
    return n;
}

static bool same_order(const term *t, const term *order) {
    return t->n == order->n && memcmp(t->letter, order->letter, (size_t)t->n) == 0;
}

/* t as [batch, rows, columns], or transposed where its dimensions lie so already. */
static kn_tensor *as_matrices(term *t, const roles *r, const term *rows, const term *columns,
                              uint32_t *is_transposed) {
    term order = joined(&r->batch, rows, columns), other = joined(&r->batch, columns, rows);
    int64_t n_batch = product_of(&r->batch, t), n_rows = product_of(rows, t),
            n_columns = product_of(columns, t);
    char last = t->n ? t->letter[t->n - 1] : 0; /* which stays last, if one of the two lets it */
    *is_transposed = !same_order(t, &order) &&
                     (same_order(t, &other) || (last && other.letter[other.n - 1] == last));
    permute(t, *is_transposed ? &other : &order);
    if (*is_transposed && t->t) return kn_reshape(t->t, KN_SHAPE(n_batch, n_columns, n_rows));
    return t->t ? kn_reshape(t->t, KN_SHAPE(n_batch, n_rows, n_columns)) : NULL;
}

static bool is_matmul(const roles *r) { return r->summed.n && (r->a_only.n || r->b_only.n); }

/* The checks of the op that multiplies them, before they get another shape. */
static bool factors_fit(kn_tensor *a, kn_tensor *b, bool by_matmul) {
    kn_op_call call;
    kn_op_call_init(&call, by_matmul ? KN_OP_matmul : KN_OP_mul, NULL, KN_LIST_(a, b), 2);
    return kn__check_inputs(&call);
}

/* a's letters (+) b's that the result or a later operand wants: [batch, a only, b only]. */
static void join(term *a, term *b, const term *result) {
    sum_out(a, b, result);
    sum_out(b, a, result);
    if (!a->t || !b->t) {
        a->t = NULL;
        return;
    }
    roles r = roles_of(a, b, result);
    if (!factors_fit(a->t, b->t, is_matmul(&r))) {
        a->t = NULL;
        return;
    }
    if (comes_first(&r.b_only, &r.a_only, result)) { /* then the result needs less moving */
        term t = *a;
        *a = *b, *b = t;
        r = roles_of(a, b, result);
    }
    term out = joined(&r.batch, &r.a_only, &r.b_only);
    if (out.n > KN_DIMS_MAX) {
        a->t = kn_op_fail(KN_OP_matmul, KN_ERR_UNSUPPORTED,
                          "two operands have %d letters that are not summed yet; at most "
                          "%d can be joined",
                          out.n, KN_DIMS_MAX);
        return;
    }
    kn_shape shape = {.n_dims = out.n};
    for (int d = 0; d < out.n; d++) {
        char c = out.letter[d];
        shape.dim[d] = find(a, c) >= 0 ? size_of(a, c) : size_of(b, c);
    }
    kn_attr_matmul attr = {0, 0};
    kn_tensor *p = as_matrices(a, &r, &r.a_only, &r.summed, &attr.trans_a);
    kn_tensor *q = p ? as_matrices(b, &r, &r.summed, &r.b_only, &attr.trans_b) : NULL;
    kn_tensor *c = NULL;
    if (q && r.summed.n == 0) {
        p = kn_reshape(p, KN_SHAPE(p->dim[0], p->n / (p->dim[0] ? p->dim[0] : 1), 1));
        q = kn_reshape(q, KN_SHAPE(q->dim[0], 1, q->n / (q->dim[0] ? q->dim[0] : 1)));
        c = kn_mul(p, q);
    } else if (q && !is_matmul(&r)) { /* faster than products of one element */
        kn_shape rows = KN_SHAPE(p->dim[0], p->n / (p->dim[0] ? p->dim[0] : 1));
        c = kn__sum_of_products(kn_reshape(p, rows), kn_reshape(q, rows), 2);
    } else if (q) {
        c = KN_CALL(matmul, &attr, p, q);
    }
    out.t = c ? kn_reshape(c, shape) : NULL;
    *a = out;
}

/* --- the whole --- */

/* The letters of the result and of operands i … n - 1: what a join before them must keep. */
static term wanted_after(const term *result, const term *terms, int i, int n) {
    term all = *result;
    for (; i < n; i++) {
        for (int d = 0; d < terms[i].n; d++) {
            if (find(&all, terms[i].letter[d]) < 0) append(&all, terms[i].letter[d]);
        }
    }
    return all;
}

kn_tensor *kn_einsum(const char *spec, kn_tensor *const x[], int n_x) {
    KN__AS("einsum");
    term terms[OPERANDS_MAX], result;
    if (kn_pending()) return NULL;
    if (!spec || !x) {
        return kn_op_fail(KN_OP_matmul, KN_ERR_INVALID, "%s is NULL", spec ? "x" : "spec");
    }
    if (n_x < 1 || n_x > OPERANDS_MAX) {
        return kn_op_fail(KN_OP_matmul, KN_ERR_INVALID, "n_x is %d; it must be 1 to %d", n_x,
                          OPERANDS_MAX);
    }
    sum s = {.spec = spec};
    kn_op_call_init(&s.call, KN_OP_concat, NULL, x, n_x);
    if (!kn__check_inputs(&s.call) || !read_all(terms, &result, &s)) return NULL;
    for (int i = 0; i < n_x; i++) {
        while (take_diagonal(&terms[i])) continue;
        if (!terms[i].t) return NULL;
    }
    for (int i = 1; i < n_x; i++) {
        term wanted = wanted_after(&result, terms, i + 1, n_x);
        join(&terms[0], &terms[i], &wanted);
        if (!terms[0].t) return NULL;
    }
    sum_out(&terms[0], NULL, &result);
    if (!terms[0].t) return NULL;
    permute(&terms[0], &result);
    return terms[0].t == x[0] ? kn__op_same(x[0]) : terms[0].t;
}

/* --- kron, trace --- */

bool kn__infer_kron(kn_op_call *call) {
    const kn_tensor *a = call->in[0], *b = call->in[1];
    int64_t dim[2];
    if (a->n_dims != 2 || b->n_dims != 2)
        return kn_op_call_fail(call, KN_ERR_SHAPE, "a and b must have two dimensions");
    for (int d = 0; d < 2; d++) {
        if (__builtin_mul_overflow(a->dim[d], b->dim[d], &dim[d]))
            return kn_op_call_fail(call, KN_ERR_SHAPE, "the result is too large");
    }
    return kn__shaped(call, 0, 2, dim);
}

kn_tensor *kn_kron(kn_tensor *a, kn_tensor *b) { return KN_CALL(kron, NULL, a, b); }

kn_tensor *kn_trace(kn_tensor *x) {
    KN__AS("trace");
    if (!kn__check_readable(KN_OP_sum, &x, 1)) return NULL;
    int n = x->n_dims;
    if (n < 2 || x->dim[n - 1] != x->dim[n - 2]) {
        char text[256];
        return kn_op_fail(KN_OP_sum, KN_ERR_SHAPE, "x must be [...,N,N], not %s",
                          kn_shape_text(text, sizeof text, kn_tensor_shape(x)));
    }
    kn_tensor *on = kn_diagonal(x, 0, n - 2, n - 1);
    return on ? kn_sum_mask(on, 1u << (n - 2), false) : NULL;
}
