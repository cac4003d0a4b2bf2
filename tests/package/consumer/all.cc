// The training step of all.c, in C++11 and, with options for frames, in C++20.
#include <knet.h>

#include <cstdio>

static kn_status step(kn_params *params, kn_optim *sgd, double *out) {
    static const float pixels[4] = {1, 2, 3, 4};
    int n_images = 1;
    std::size_t n_pixels = sizeof pixels / sizeof *pixels;
    KN_TAPE();
    KN_SCOPE("step");
    kn_tensor *w = kn_params_at(params, 0, nullptr);
    kn_tensor *x = kn_tensor_from(pixels, KN_F32, KN_SHAPE(n_images, n_pixels));
    kn_tensor *y = kn_linear(x, w, KN_NONE);
    kn_tensor *loss = kn_sum(kn_mul(y, y), KN_ALL, false);
    KN_TRY(kn_backward(loss));
    KN_TRY(kn_item(out, loss));
    return kn_optim_step(sgd);
}

// Frames inherit and end with their blocks.
static bool frames_work() {
    KN_FRAME();
    bool ok = true;
#if __cplusplus >= 202002L
    KN_FRAME(.dtype = KN_F64, .threads = 3);
    ok = kn_frame_threads() == 3 && kn_frame_dtype() == KN_F64;
    {
        KN_TAPE(.device = kn_device_host(), .threads = 2);
        ok = ok && kn_frame_threads() == 2 && kn_frame_dtype() == KN_F64;
    }
    ok = ok && kn_frame_threads() == 3;
#endif
    KN_SLOT(slot);
    if (kn_hold(&slot, kn_zeros(KN_SCALAR)) < 0) return false;
    return ok && kn_tensor_shape(slot).n_dims == 0;
}

int main() {
    kn_params *params = nullptr;
    kn_optim *sgd = nullptr;
    double first = 0, second = 0;
    if (!frames_work() || kn_params_create(&params, nullptr) < 0 ||
        !kn_param(params, KN_SHAPE(2, 4), kn_init_xavier(), "w") ||
        kn_sgd_create(&sgd, params, 1e-3, nullptr) < 0 || step(params, sgd, &first) < 0 ||
        step(params, sgd, &second) < 0) {
        std::fprintf(stderr, "%s\n", kn_last_error()->message);
        return 1;
    }
    kn_optim_destroy(sgd);
    kn_params_destroy(params);
    std::printf("loss %g, then %g\n", first, second);
    return second < first ? 0 : 1;
}
