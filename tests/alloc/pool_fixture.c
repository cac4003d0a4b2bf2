#include "pool_fixture.h"

#include <knet/device_driver.h>
#include <stdatomic.h>

static fixture make(const kn_sim_options *sim_options, const kn_pool_options *options) {
    static atomic_int n_made;
    fixture f = {0};
    char name[16];
    snprintf(name, sizeof name, "sim:%d", atomic_fetch_add(&n_made, 1));
    assert_ok(kn_sim_create(&f.sim, sim_options));
    assert_ok(kn_device_register(&f.device, name, kn_sim_driver(f.sim), f.sim));
    assert_ok(kn_pool_create(&f.pool, f.device, options));
    return f;
}

fixture fixture_make(uint64_t capacity_bytes, bool plain, const kn_pool_options *options) {
    return make(&(kn_sim_options){.capacity_bytes = capacity_bytes, .plain = plain}, options);
}

fixture fixture_instant(uint64_t capacity_bytes, const kn_pool_options *options) {
    return make(&(kn_sim_options){.capacity_bytes = capacity_bytes, .instant = true}, options);
}

void assert_no_violation(kn_sim *sim) {
    char text[256];
    if (kn_sim_violations(sim, text, sizeof text) == 0) return;
    fail_msg("the simulated device saw a rule broken: %s", text);
}

void fixture_end(fixture *f) {
    assert_ok(kn_pool_check(f->pool));
    kn_pool_destroy(f->pool);
    assert_no_violation(f->sim);
    assert_int_equal(kn_sim_bytes(f->sim), 0);
}

void *must_alloc(kn_pool *pool, size_t size, kn_stream stream) {
    void *ptr = NULL;
    assert_ok(kn_alloc(&ptr, pool, size, stream));
    assert_non_null(ptr);
    return ptr;
}

kn_pool_stats stats_of(const kn_pool *pool) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats;
}

kn_stream new_stream(fixture *f) {
    kn_stream stream = NULL;
    assert_ok(kn_stream_create(&stream, f->device));
    return stream;
}

void order_after(kn_device *device, kn_stream later, kn_stream earlier) {
    kn_event *event = NULL;
    assert_ok(kn_event_create(&event, device));
    assert_ok(kn_event_record(event, earlier));
    assert_ok(kn_event_wait(event, later));
    kn_event_destroy(event);
}

void destroy_unannounced(fixture *f, kn_stream stream) {
    void *impl = NULL;
    kn_device_driver_get(f->device, &impl)->stream_destroy(impl, stream);
}
