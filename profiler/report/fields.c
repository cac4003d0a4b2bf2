#include "fields.h"

#define U(type, key, field)                                                                        \
    { key, offsetof(type, field), false }
#define S(type, key, field)                                                                        \
    { key, offsetof(type, field), true }
#define END                                                                                        \
    { NULL, 0, false }

/* clang-format off */
const kn__field kn__row_calls[] = {
    U(kn__row, "n_calls", n_calls), U(kn__row, "n_threads", n_threads),
    U(kn__row, "time_ns", time_ns), U(kn__row, "min_ns", min_ns),
    U(kn__row, "max_ns", max_ns), U(kn__row, "first_ns", first_ns), END};
const kn__field kn__row_work[] = {
    U(kn__row, "flops", flops), U(kn__row, "moved_bytes", moved_bytes), END};
const kn__field kn__row_amounts[] = {
    U(kn__row, "alloc_bytes", alloc_bytes), U(kn__row, "n_allocs", n_allocs),
    U(kn__row, "temporary_bytes", temporary_bytes), U(kn__row, "n_temporary", n_temporary),
    U(kn__row, "freed_bytes", freed_bytes), END};
const kn__field kn__row_holdings[] = {
    S(kn__row, "held_bytes", held), S(kn__row, "held_at_peak_bytes", held_at_peak),
    S(kn__row, "peak_bytes", peak), S(kn__row, "rise_bytes", rise), END};
const kn__field kn__row_gpu[] = {
    U(kn__row, "gpu_ns", gpu_ns), U(kn__row, "n_gpu", n_gpu), U(kn__row, "n_pending", n_pending),
    U(kn__row, "gpu_bytes", gpu_bytes), END};
const kn__field kn__row_runs[] = {
    U(kn__row, "n_runs", n_runs), U(kn__row, "run_min_ns", run_min_ns),
    U(kn__row, "run_max_ns", run_max_ns), U(kn__row, "slowest_run", slowest_run), END};
const kn__field kn__pool_fields[] = {
    S(kn__pool_use, "live_bytes", live), S(kn__pool_use, "live_bytes_max", live_max),
    U(kn__pool_use, "reserved_bytes", reserved),
    U(kn__pool_use, "reserved_bytes_max", reserved_max),
    U(kn__pool_use, "n_allocs", n_allocs), U(kn__pool_use, "n_ooms", n_ooms),
    S(kn__pool_use, "leaked_bytes", leaked), END};
const kn__field kn__pool_device[] = {
    U(kn__pool_use, "device_used_bytes", device_used),
    U(kn__pool_use, "device_total_bytes", device_total), END};
const kn__field kn__balance_fields[] = {
    U(kn__balance, "launched", launched), U(kn__balance, "timed", timed),
    U(kn__balance, "pending", pending), U(kn__balance, "dropped", dropped),
    U(kn__balance, "untimed", untimed), U(kn__balance, "unattributed_ns", unattributed_ns),
    U(kn__balance, "n_unattributed", n_unattributed), U(kn__balance, "n_lost", n_lost), END};
const kn__field kn__gpu_device_fields[] = {
    U(kn__gpu_device, "device", device), U(kn__gpu_device, "busy_ns", busy_ns),
    U(kn__gpu_device, "idle_ns", idle_ns), END};
const kn__field kn__gpu_stream_fields[] = {
    U(kn__gpu_stream, "stream", stream), U(kn__gpu_stream, "n", n),
    U(kn__gpu_stream, "busy_ns", busy_ns), END};
const kn__field kn__steps_fields[] = {
    U(kn__steps, "n", n), U(kn__steps, "n_timed", n_timed), U(kn__steps, "sum_ns", sum_ns),
    U(kn__steps, "min_ns", min_ns), U(kn__steps, "max_ns", max_ns), END};
const kn__field kn__run_fields[] = {
    U(kn__report, "n_threads", n_threads), U(kn__report, "n_unrecorded", n_unrecorded),
    U(kn__report, "buffer_bytes", buffer_bytes),
    U(kn__report, "events_skipped", n_events_skipped),
    U(kn__report, "events_unbuffered", n_events_unbuffered), END};
const kn__field kn__totals_fields[] = {
    S(kn__report, "live_bytes", memory.live), S(kn__report, "live_bytes_max", memory.live_max),
    U(kn__report, "live_bytes_max_at_ns", live.max_at),
    U(kn__report, "pools_left_out", memory.n_pools_left_out), END};
/* clang-format on */

static uint64_t *at(const void *of, const kn__field *f) {
    return (uint64_t *)(void *)((uintptr_t)of + f->offset);
}

void kn__fields_add(void *to, const void *from, const kn__field *fields) {
    for (const kn__field *f = fields; f->key; f++) {
        uint64_t *sum = at(to, f), n = *at(from, f);
        *sum = f->is_signed ? *sum + n : kn__sum_u64(*sum, n);
    }
}

void kn__fields_subtract(void *from, const void *what, const kn__field *fields) {
    for (const kn__field *f = fields; f->key; f++) {
        uint64_t *left = at(from, f), n = *at(what, f);
        *left = *left > n ? *left - n : 0;
    }
}
