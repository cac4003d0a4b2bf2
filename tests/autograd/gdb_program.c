/* What knet.py prints: tensors, one of them without data, and the tape that recorded them. */
#include <knet/tape.h>

kn_tensor *looked_at, *forgotten;

__attribute__((noinline)) static void look(kn_tensor *t) {
    looked_at = t;
    __asm__ volatile("" : : "r"(t) : "memory");
}

int main(void) {
    KN_TAPE();
    kn_tensor *w = kn_watch(kn_full(KN_SHAPE(2, 3), 0.5));
    kn_tensor *h = NULL;
    {
        KN_TAPE_SCOPE("hidden");
        h = kn_tanh(kn_mul(w, kn_full(KN_SHAPE(2, 3), 2)));
    }
    look(kn_sum(h, KN_ALL, false));
    {
        KN_FRAME(.recompute = 1);
        forgotten = kn_gelu(kn_watch(kn_full(KN_SHAPE(128, 128), 0.5)));
        kn_mul(forgotten, forgotten);
    }
    return kn_check() < 0;
}
