/* Samples of counters: counted, and events of the trace. */
#include <math.h>

#include "counter.h"
#include "trace.h"

void kn_prof_counters_take_(const kn_prof_sample_ *samples, int n) {
    uint64_t at = kn__trace_is_on() ? kn__clock_now() : 0;
    for (int i = 0; i < n; i++) {
        kn__trace_event event;
        if (kn__counter_sample(&event, &samples[i], at))
            kn__trace_counter_sample(kn__tree_get(), event);
    }
}

void kn_prof_counter_sample(kn_prof_counter *counter, double value) {
    kn_prof_counters_take_(&(kn_prof_sample_){counter, false, value}, 1);
}

void kn_prof_counter_add(kn_prof_counter *counter, double by) {
    kn_prof_counters_take_(&(kn_prof_sample_){counter, true, by}, 1);
}

void kn_prof_counter_sample_int64(kn_prof_counter *counter, int64_t value) {
    kn_prof_counters_take_(&(kn_prof_sample_){counter, false, (long double)value}, 1);
}

void kn_prof_counter_add_int64(kn_prof_counter *counter, int64_t by) {
    kn_prof_counters_take_(&(kn_prof_sample_){counter, true, (long double)by}, 1);
}

void kn_prof_counter_miss(kn_prof_counter *counter) { kn_prof_counter_sample(counter, NAN); }
