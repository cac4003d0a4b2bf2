// Every macro of the public headers, in C++: scopes, frames, tapes, tags and slots end with their
// block, by an exception too.
#include <knet.h>
#include <knet/device_driver.h>
#include <knet/observer.h>
#include <knet/pool_graph.h>
#include <knet/prof_call.h>
#include <knet/prof_metric.h>
#include <knet/rule.h>
#include <knet/sim.h>
#include <knet/trace.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            std::printf("line %d: %s (%s)\n", __LINE__, #what, kn_last_error()->message);          \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static uint64_t live_bytes() {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(kn_device_host()));
    return stats.live_bytes;
}

static kn_status fails() { return KN_FAIL(KN_ERR_INVALID, "%d is odd", 3); }
static void *fails_null() { return KN_FAIL_NULL(KN_ERR_SHAPE, "as it should"); }
static kn_status passes_on() {
    KN_TRY(fails());
    return KN_OK;
}
static kn_status cleans_up(bool *cleaned) {
    kn_status status = KN_OK;
    KN_TRY_GOTO(status, fails());
cleanup:
    *cleaned = true;
    return status;
}

static void throws(bool tape) {
    KN_SCOPE("throws");
    KN_TAG("tagged");
    KN_SLOT(slot);
    if (tape) {
        KN_TAPE();
        kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(1000, 3)));
        if (kn_hold(&slot, kn_mul(x, x)) < 0) return;
        throw std::runtime_error("from a tape");
    }
    KN_FRAME();
    kn_ones(KN_SHAPE(1000));
    throw std::runtime_error("from a frame");
}

static int errors() {
    bool cleaned = false;
    CHECK(passes_on() == KN_ERR_INVALID);
    CHECK(std::strcmp(kn_last_error()->message, "3 is odd") == 0);
    CHECK(cleans_up(&cleaned) == KN_ERR_INVALID && cleaned);
    CHECK(!fails_null() && kn_pending() == KN_ERR_SHAPE && kn_check() == KN_ERR_SHAPE);
    return 0;
}

static int blocks() {
    uint64_t before = live_bytes();
    for (int i = 0; i < 4; i++) {
        bool caught = false;
        try {
            throws(i % 2 != 0);
        } catch (const std::exception &) {
            caught = true;
        }
        CHECK(caught);
    }
    CHECK(live_bytes() == before && kn_frame_dtype() == KN_F32);
    return 0;
}

static int options() {
    kn_frame_options wide{};
    wide.dtype = KN_F64;
    KN_FRAME(wide);
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 3));
    CHECK(kn_tensor_dtype(x) == KN_F64 && kn_tensor_numel(kn_sum(x, KN_ALL, false)) == 1);
    CHECK(kn_tensor_shape(kn_sum(x, KN_SHAPE(0), false)).dim[0] == 3);
    CHECK(kn_tensor_shape(kn_zeros(KN_SCALAR)).n_dims == 0);
    wide.threads = 2;
    {
        KN_TAPE(wide);
        CHECK(kn_frame_threads() == 2);
        kn_tensor *w = kn_watch(kn_ones(KN_SHAPE(3))), *dw = nullptr;
        double value = 0;
        CHECK(kn_gradients(&dw, kn_mul(w, w), &w, 1, nullptr) == KN_OK);
        CHECK(kn_item(&value, kn_mean(dw, KN_ALL, false)) == KN_OK && value == 2);
    }
#if __cplusplus >= 202002L
    KN_FRAME(.dtype = KN_F32, .threads = 3);
    CHECK(kn_frame_threads() == 3 && kn_frame_dtype() == KN_F32);
#endif
    return 0;
}

static int calls() {
    int n = 0;
    CHECK(KN_PROF_CALL("strlen", std::strlen("four")) == 4);
    CHECK(KN_PROF_FN(kn_dtype_bytes, KN_F64) == 8);
    KN_PROF_DO("increment", n++);
    CHECK(n == 1);
    kn_scope scope = kn_scope_begin_static("by hand");
    kn_scope_end(&scope);
    return 0;
}

int main() {
    // Of the trace: a record that a reader puts together.
    kn_trace_thread thread{};
    kn_trace_event event{};
    kn_trace_record record = {KN_TRACE_ALLOC | 0x100, 512};
    CHECK(kn_trace_event_read(&event, &thread, &record) && event.ptr == 0x100 && event.size == 512);
    int bad = errors() || blocks() || options() || calls();
    if (!bad) std::printf("all macros work in C++ %ld\n", static_cast<long>(__cplusplus));
    return bad;
}
