/* The open tape as text. */
#include <inttypes.h>
#include <knet/tape.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"
#include "tape.h"
#include "text.h"
#include "units.h"

static int by_address(const void *a, const void *b) {
    const kn__node *x = *(kn__node *const *)a, *y = *(kn__node *const *)b;
    return (x > y) - (x < y);
}

/* The nodes by address, beside their numbers in the order of execution. */
typedef struct numbered {
    kn__node *node;
    int64_t number;
} numbered;

static int64_t number_of(const numbered *list, int64_t n, const kn__node *node) {
    numbered key = {.node = (kn__node *)(uintptr_t)node};
    const numbered *found = bsearch(&key, list, (size_t)n, sizeof *list, by_address);
    return found ? found->number : -1;
}

static void add_edge(kn__text *text, kn_edge edge, const numbered *list, int64_t n) {
    const kn__param *param = kn__edge_param(edge);
    if (!edge)
        kn__text_puts(text, "-");
    else if (param)
        kn__text_puts(text, param->name);
    else
        kn__text_printf(text, "%" PRId64, number_of(list, n, kn__edge_node(edge)));
}

static size_t saved_bytes(kn__node *node) {
    size_t bytes = 0;
    for (int i = 0; i < node->n_saved; i++) {
        const kn_tensor *t = kn__node_saved(node)[i].t;
        bool is_whole = t && t->storage;
        if (is_whole) bytes += (size_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
    }
    return bytes;
}

/* "3 relu in fc1 (mlp.c:12): f32 [100,64] of 2; saves 25.6 KiB" */
static void add_node(kn__text *text, kn__node *node, int64_t number, const numbered *list,
                     int64_t n) {
    char what[256], shape[128];
    kn__text_printf(text, "%3" PRId64 " %s:", number, kn__node_text(what, sizeof what, node));
    const char *before = "";
    for (int r = 0; r < node->n_out; r++) {
        const kn__result *result = kn__node_results(node) + r;
        if (!result->dtype) continue; /* it was not asked for */
        kn_shape s = {.n_dims = result->n_dims};
        memcpy(s.dim, result->dim, (size_t)s.n_dims * sizeof s.dim[0]);
        kn__text_printf(text, "%s %s %s", before, kn_dtype_name((kn_dtype)result->dtype),
                        kn_shape_text(shape, sizeof shape, s));
        before = ",";
    }
    for (int i = 0; i < node->n_in; i++) {
        kn__text_puts(text, i ? ", " : " of ");
        add_edge(text, kn__node_edges(node)[i], list, n);
    }
    size_t bytes = saved_bytes(node);
    if (bytes) kn__text_printf(text, "; saves %s", kn__bytes_text((double)bytes).text);
    kn__text_puts(text, "\n");
}

static void add_tape(kn__text *text, const kn__tape *tape) {
    int64_t n = 0;
    for (kn__node *node = tape->first; node; node = node->next) n++;
    numbered *list = malloc((size_t)n * sizeof *list + 1);
    if (!list) {
        text->failed = true;
        return;
    }
    int64_t i = 0;
    for (kn__node *node = tape->first; node; node = node->next, i++)
        list[i] = (numbered){node, i + 1};
    qsort(list, (size_t)n, sizeof *list, by_address);
    i = 0;
    for (kn__node *node = tape->first; node; node = node->next) add_node(text, node, ++i, list, n);
    free(list);
}

size_t kn_tape_text(char *out, size_t out_bytes) {
    const kn__tape *tape = kn_frame_tape();
    kn__text text = {0};
    if (out_bytes) out[0] = 0;
    if (tape) add_tape(&text, tape);
    size_t length = text.failed ? 0 : text.length;
    size_t kept = length < out_bytes ? length : out_bytes ? out_bytes - 1 : 0;
    if (kept) memcpy(out, text.data, kept);
    if (out_bytes) out[kept] = 0;
    kn__text_release(&text);
    return length;
}
