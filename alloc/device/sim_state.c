#include "device/sim_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/observe.h"

void *kn__sim_grown(void *ptr, size_t size_bytes) {
    void *p = realloc(ptr, size_bytes);
    if (!p) __builtin_trap();
    return p;
}

void *kn__sim_roomy(void *ptr, size_t n, size_t *room, size_t item_bytes) {
    if (n < *room) return ptr;
    *room = *room ? 2 * *room : 64;
    return kn__sim_grown(ptr, *room * item_bytes);
}

const char *const kn__sim_call_names[KN_SIM_CALLS] = {
    "any",          "segment_alloc", "range_reserve", "handle_create", "handle_map",
    "handle_unmap", "range_access",  "copy",          "stream_create", "stream_sync",
    "stream_check", "device_sync",   "event_create",  "event_record",  "event_query",
    "event_wait",   "event_sync",    "info_read",     "pinned_alloc"};

void kn__sim_violate(kn_sim *sim, const char *fmt, ...) {
    if (sim->n_violations++) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(sim->violation, sizeof sim->violation, fmt, args);
    va_end(args);
}

kn_sim_call kn__sim_call_begin(kn_sim_call call) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_call_begin) observer->on_call_begin(kn__sim_call_names[call]);
    return call;
}

void kn__sim_call_end(const kn_sim_call *call) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_call_end) observer->on_call_end(kn__sim_call_names[*call]);
}

kn_status kn__sim_scripted(kn_sim *sim, kn_sim_call call) {
    sim->calls[call]++;
    sim->calls[KN_SIM_ANY]++;
    if (!sim->fail_in || (sim->fail_call != KN_SIM_ANY && sim->fail_call != call)) return KN_OK;
    if (sim->fail_in > 1) {
        sim->fail_in--;
        return KN_OK;
    }
    if (!sim->fail_forever) sim->fail_in = 0;
    bool memory =
        call == KN_SIM_SEGMENT_ALLOC || call == KN_SIM_HANDLE_CREATE || call == KN_SIM_PINNED_ALLOC;
    return KN_FAIL(memory ? KN_ERR_OOM : KN_ERR_CUDA, "sim: scripted failure of %s",
                   kn__sim_call_names[call]);
}
