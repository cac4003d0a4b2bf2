/* <knet/pool.hpp>, as a program uses it: on the simulated device and with pinned memory. */
#include <knet/sim.h>
#include <knet/pool.hpp>

#include <cstdio>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

static int n_failed;
#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) std::printf("line %d: not %s\n", __LINE__, #cond), n_failed++;                \
    } while (0)

template <typename E, typename F>
static bool throws(F call, const char *text) {
    try {
        call();
    } catch (const E &e) {
        return std::string(e.what()).find(text) != std::string::npos;
    }
    return false;
}

static knet::block<float> half(knet::pool_ref pool, std::size_t n, kn_stream stream) {
    knet::block<float> whole = knet::alloc<float>(pool, n, stream);
    knet::block<float> half = knet::alloc<float>(pool, n / 2, stream);
    return half; /* `whole` is freed */
}

static void blocks_free_themselves(knet::pool_ref pool, kn_stream s) {
    {
        auto x = half(pool, 1000, s);
        EXPECT(x && x.size() == 500 && x.size_bytes() == 2000);
        EXPECT(pool.stats().requested_bytes == 2000);
        knet::block<float> y = std::move(x);
        EXPECT(!x && !x.size() && y.size() == 500);
        x = knet::alloc<float>(pool, 10, s);
        y = std::move(x); /* the old memory is freed */
        EXPECT(y.size() == 10 && !x && !x.size() && pool.stats().requested_bytes == 40);
        auto &same = y;
        y = std::move(same);
        EXPECT(y.size() == 10 && pool.stats().requested_bytes == 40);
        y.reset();
        EXPECT(!y);
        y.reset();
    }
    EXPECT(pool.stats().live_bytes == 0);
    auto raw = knet::alloc(pool, 300, s);
    static_assert(std::is_same_v<decltype(raw), knet::block<std::byte>>);
    std::byte *kept = raw.release();
    EXPECT(kept && !raw && pool.stats().live_bytes > 0);
    knet::block<std::byte> again(pool, kept, 300);
    again.reset();
    EXPECT(pool.stats().live_bytes == 0 && pool.stats().n_misuses == 0);
    EXPECT(!knet::alloc<double>(pool, 0, s));
}

struct alignas(4096) page {
    char bytes[4096];
};

static void alignment_is_that_of_the_type(knet::pool_ref pool) {
    auto a = knet::alloc<char>(pool, 1), b = knet::alloc<char>(pool, 70000);
    auto p = knet::alloc<page>(pool, 20), q = knet::alloc<page>(pool, 1);
    EXPECT(reinterpret_cast<std::uintptr_t>(a.data()) % 256 == 0);
    EXPECT(reinterpret_cast<std::uintptr_t>(b.data()) % 256 == 0);
    EXPECT(reinterpret_cast<std::uintptr_t>(p.data()) % 4096 == 0);
    EXPECT(reinterpret_cast<std::uintptr_t>(q.data()) % 4096 == 0);
}

static void failures_are_exceptions(knet::pool_ref pool) {
    EXPECT(throws<std::bad_alloc>([&] { (void)knet::alloc<double>(pool, 1u << 30); }, "8.00 GiB"));
    EXPECT(throws<knet::out_of_memory>([&] { (void)knet::alloc<double>(pool, SIZE_MAX / 4); },
                                       "overflows"));
    EXPECT(throws<knet::error>([] { (void)knet::pool_ref::of("abacus"); }, "abacus"));
    try {
        (void)knet::pool_ref::of("abacus");
    } catch (const knet::error &e) {
        EXPECT(e.status() == KN_ERR_INVALID);
    }
}

static void another_streams_use_delays_reuse(knet::pool_ref pool, kn_sim *sim) {
    knet::stream s(pool.device()), other(pool.device());
    auto x = knet::alloc<float>(pool, 1 << 20, s);
    float *first = x.data();
    kn_sim_work(sim, other, x.data(), x.size_bytes(), 1);
    x.use(other);
    x.reset();
    EXPECT(knet::alloc<float>(pool, 1 << 20, s).data() != first);
    kn_sim_drain(sim);
    other.sync();
}

static void tags_count_blocks(knet::pool_ref pool) {
    knet::tag scope("weights");
    auto w = knet::alloc<float>(pool, 1000);
    kn_block_info info;
    EXPECT(kn_block_find(&info, sizeof info, pool.get(), w.data()));
    EXPECT(std::string(info.tag) == "weights");
}

static void containers_use_pinned_memory() {
    knet::pinned_resource pinned("cpu"), same("cpu");
    knet::pool_ref pool = pinned.pool();
    EXPECT(pinned.is_equal(pinned) && !pinned.is_equal(*std::pmr::new_delete_resource()));
#ifdef __cpp_rtti
    EXPECT(pinned.is_equal(same));
#else
    EXPECT(!pinned.is_equal(same));
#endif
    {
        std::pmr::vector<int> numbers(10000, &pinned);
        std::iota(numbers.begin(), numbers.end(), 0);
        EXPECT(pool.stats().requested_bytes == 40000 && numbers[9999] == 9999);
        pinned.use(numbers.data(), nullptr);
        std::pmr::string text("longer than any buffer inside of a string object is", &pinned);
        EXPECT(pool.stats().live_bytes > 40000 && text.size() == 51);
    }
    EXPECT(pool.stats().live_bytes == 0 && pool.stats().n_misuses == 0);
    void *none = pinned.allocate(0, 1), *page = pinned.allocate(100, 4096);
    EXPECT(none && reinterpret_cast<std::uintptr_t>(page) % 4096 == 0);
    pinned.deallocate(none, 0, 1);
    pinned.deallocate(page, 100, 4096);
}

/* `sim` makes no pool. */
static void exceptions_have_their_own_error(kn_sim *sim, const char *name) {
    kn_device *device = nullptr;
    knet::check(kn_device_register(&device, name, kn_sim_driver(sim), sim));
    kn_sim_fail(sim, KN_SIM_ANY, 1, true);
    EXPECT(throws<knet::error>([&] { (void)knet::pool_ref::of(name); }, "sim"));
    EXPECT(kn_check() == KN_OK); /* the exception has taken it */
    (void)KN_FAIL_NULL(KN_ERR_SHAPE, "of an op before");
    kn_status status = KN_OK;
    try {
        (void)knet::pool_ref::of(name);
    } catch (const knet::error &e) {
        status = e.status();
    }
    EXPECT(status != KN_OK && status != KN_ERR_SHAPE);
    EXPECT(kn_check() == KN_ERR_SHAPE); /* the program's to take */
}

int main() {
    kn_sim *sim = nullptr;
    kn_device *device = nullptr;
    kn_sim_options options{};
    char violation[256];
    options.capacity_bytes = std::uint64_t(1) << 30;
    knet::check(kn_sim_create(&sim, &options));
    knet::check(kn_device_register(&device, "sim:mine", kn_sim_driver(sim), sim));
    {
        knet::pool own(device);
        knet::stream s(device);
        blocks_free_themselves(own, s);
        alignment_is_that_of_the_type(own);
        failures_are_exceptions(own);
        another_streams_use_delays_reuse(own, sim);
        tags_count_blocks(own);
        EXPECT(knet::pool_ref(own).stats().live_bytes == 0);
        knet::pool moved = std::move(own);
        EXPECT(!own.get() && moved.get());
        own = knet::pool(device);
        moved = std::move(own); /* the old pool is destroyed */
        EXPECT(!own.get() && moved.get());
        knet::stream t(device);
        s = std::move(t);
        EXPECT(!t.get() && s.get());
    }
    containers_use_pinned_memory();
    kn_sim *failing = nullptr;
    knet::check(kn_sim_create(&failing, &options));
    exceptions_have_their_own_error(failing, "sim:failing");
    EXPECT(kn_sim_violations(sim, violation, sizeof violation) == 0);
    return n_failed != 0;
}
