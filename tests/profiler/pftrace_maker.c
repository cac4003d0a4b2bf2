/* Writes a trace of known events to the path given: four threads, GPU work, live bytes, counters.
 */
#include <knet/prof_counter.h>
#include <knet/prof_range.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "memory.h"
#include "now.h"
#include "trace.h"

enum { ROUNDS = 5000 }; /* more than one chunk of events */

static void *run_scopes(void *name) {
    kn_prof_counter *rounds = kn_prof_counter_get("rounds", NULL);
    if (name) prctl(PR_SET_NAME, name);
    KN_SCOPE("all");
    for (int i = 0; i < ROUNDS; i++) kn_prof_counter_add_int64(rounds, 1);
    for (int i = 0; i < ROUNDS; i++) {
        KN_SCOPE("outer");
        { KN_SCOPE("inner \"quoted\""); }
        {
            KN_SCOPE("second");
            { KN_SCOPE("deepest"); }
        }
    }
    return NULL;
}

static void add_gpu_work(void) {
    {
        KN_SCOPE("launching");
        kn__trace_launch(kn__tree_get(), 77);
    }
    uint64_t now = kn__now_ns(CLOCK_REALTIME);
    kn__record kernel = {.id = 78,
                         .name = "sgemm<a, b>",
                         .start_ns = now + 1000,
                         .end_ns = now + 5000,
                         .device = 1,
                         .stream = 7,
                         .grid = {4, 2, 1},
                         .block = {128, 1, 1},
                         .registers = 40,
                         .shared_bytes = 2048};
    kn__trace_record(&kernel, 77);
    kernel.name = "at the same time";
    kernel.start_ns += 1000;
    kn__trace_record(&kernel, 0);
    kn__record copy = {.name = "[memcpy HtoD]",
                       .start_ns = now,
                       .end_ns = now + 500,
                       .device = 1,
                       .stream = 8,
                       .bytes = 4096};
    kn__trace_record(&copy, 0);
    copy.start_ns = copy.end_ns; /* right after it: on the same line */
    copy.end_ns += 250;
    kn__trace_record(&copy, 0);
    copy.stream = 9;
    copy.end_ns = copy.start_ns - 100; /* clocks that differ */
    kn__trace_record(&copy, 0);
}

static void add_memory(void) {
    const kn_observer *observer = kn__memory_observer(true);
    static char block;
    KN_SCOPE("memory");
    uint32_t owner = observer->on_alloc((kn_pool *)&block, NULL, 4096, NULL);
    observer->on_free((kn_pool *)&block, NULL, 4096, owner);
}

static kn_prof_counter *counter(const char *name, const char *unit) {
    kn_prof_counter_options options = {.unit = unit};
    return kn_prof_counter_get(name, &options);
}

static void add_counters(void) {
    kn_prof_counter *power = counter("power", "W"), *loss = counter("loss", NULL);
    kn_prof_counter *held = counter("held", "B"),
                    *odd = counter("odd \"\\name\xff\t\xce\xbb", "\xfe");
    kn_prof_counter *parts[] = {counter("group/low", "u"), counter("group/ratio (old)", "%"),
                                counter("group/plain", NULL)};
    (void)counter("never sampled", "W");
    kn_prof_counter_sample(power, 100);
    kn_prof_counter_sample(power, -10);
    kn_prof_counter_sample(loss, 2.5);
    kn_prof_counter_sample(loss, NAN);
    kn_prof_counter_sample(loss, INFINITY);
    kn_prof_counter_miss(loss);
    kn_prof_counter_sample(loss, 1e-300);
    kn_prof_counter_sample_int64(held, INT64_MAX);
    kn_prof_counter_sample_int64(held, INT64_MIN);
    kn_prof_counter_add_int64(held, INT64_MAX);
    kn_prof_counter_sample(held, 1e300);
    kn_prof_counter_sample(odd, 1);
    for (int i = 0; i < 3; i++) {
        kn_prof_sample_ samples[3] = {{parts[0], false, -i},
                                      {parts[1], false, i + 0.5},
                                      {parts[2], false, i == 1 ? (double)NAN : i}};
        kn_prof_counters_take_(samples, 3);
    }
}

/* They overlap each other and the scopes. */
static void add_ranges(void) {
    uint64_t first = kn_prof_range_begin("first range"), second;
    {
        KN_SCOPE("beginning");
        { KN_SCOPE("inside"); }
        second = kn_prof_range_begin("second range");
        kn_prof_range_end(first);
    }
    { KN_SCOPE("after"); }
    kn_prof_range_end(second);
}

/* Two scopes that start together, with the end of a range between their ends. */
static void add_same_start(void) {
    kn__tree *tree = kn__tree_get();
    const kn__tree_node *outer = kn__tree_child(tree, tree->current, NULL, "outer at once"),
                        *inner = kn__tree_child(tree, tree->current, NULL, "inner at once"),
                        *range = kn__tree_child(tree, tree->current, NULL, "third range");
    uint64_t now = kn__clock_now();
    if (!outer || !inner || !range) exit(1);
    kn__trace_scope(tree, inner, now, now + 10000);
    kn__trace_scope(tree, range, now - 10000, (now + 20000) | KN__TRACE_RANGE);
    kn__trace_scope(tree, outer, now, now + 30000);
    while (kn__clock_now() < now + 30000) {
    }
}

/* More than the end of a trace has room for without its notes. */
static bool note_run(void) {
    static const char *const keys[] = {"k0", "k1", "k2", "k3", "k4"};
    char text[121];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 5; i++) {
        if (kn_prof_note(keys[i], text) < 0) return false;
    }
    return kn_prof_note("math", "tf32") >= 0 && kn_prof_note("data", "a \"b\"") >= 0;
}

int main(int argc, char **argv) {
    static char names[3][16] = {"loader", "trainer", "writer"};
    pthread_t threads[3];
    if (argc < 2 || kn_prof_owners_on() < 0) return 1;
    if (!note_run()) return 1;
    atomic_fetch_or(&kn__prof_extras, KN__PROF_TRACE);
    if (kn__trace_start(argv[1], argc > 2 ? (uint64_t)strtoull(argv[2], NULL, 10) : 0) < 0)
        return 1;
    for (int i = 0; i < 3; i++) {
        if (pthread_create(&threads[i], NULL, run_scopes, names[i]) != 0) return 1;
    }
    run_scopes(NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    add_gpu_work();
    add_ranges();
    add_same_start();
    add_memory();
    add_counters();
    return kn__trace_finish() < 0;
}
