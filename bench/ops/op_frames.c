/* op_frames MODE TAPES OPS: products of 16 elements, so many in each frame or tape, for op_instr.sh
 * to count. MODE: plain; recorded; backward and backward2: recorded, and differentiated by one
 * operand or by both. */
#include <knet/ops.h>
#include <knet/tape.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 16 };

static kn_tensor *vector(void) {
    float x[N];
    for (int i = 0; i < N; i++) x[i] = 1 + 0.01f * (float)i;
    return kn_tensor_from(x, KN_F32, KN_SHAPE(N));
}

static void plain(int n_ops) {
    KN_FRAME(.threads = 1);
    kn_tensor *a = vector(), *b = vector();
    for (int i = 0; i < n_ops; i++) kn_mul(a, b);
}

static kn_status taped(int n_ops, bool both, bool backward) {
    KN_TAPE(.threads = 1);
    kn_tensor *b = vector(), *x = kn_watch(b), *y = x, *dx = NULL;
    for (int i = 0; i < n_ops; i++) y = kn_mul(y, both ? x : b);
    return backward ? kn_gradients(&dx, kn_sum(y, KN_ALL, false), &x, 1, NULL) : KN_OK;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const char *mode = argv[1];
    int n_tapes = atoi(argv[2]), n_ops = atoi(argv[3]);
    bool both = strcmp(mode, "recorded2") == 0 || strcmp(mode, "backward2") == 0;
    kn_status status = KN_OK;
    for (int i = 0; i < n_tapes && status == KN_OK; i++) {
        if (strcmp(mode, "plain") == 0)
            plain(n_ops);
        else
            status = taped(n_ops, both, strncmp(mode, "backward", 8) == 0);
    }
    if (status == KN_OK) status = kn_check();
    if (status < 0) fprintf(stderr, "op_frames: %s\n", kn_last_error()->message);
    return status < 0;
}
