/* Counters of NVTX: numbers, groups, batches, and samples that have no value; knows nothing of the
 * timer. */
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtSemanticsCounters.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 64, ROUNDS = 1000, STATIC_ID = NVTX_COUNTER_ID_STATIC_START + 7 };

static uint64_t add(nvtxDomainHandle_t domain, const char *name, uint64_t type, uint64_t scope,
                    const nvtxSemanticsCounter_t *semantics, uint64_t id) {
    const nvtxCounterAttr_t attr = {.structSize = sizeof attr,
                                    .schemaId = type,
                                    .name = name,
                                    .scopeId = scope,
                                    .semantics = semantics ? &semantics->header : NULL,
                                    .counterId = id};
    return nvtxCounterRegister(domain, &attr);
}

static nvtxSemanticsCounter_t meaning(const char *unit, uint64_t flags) {
    return (nvtxSemanticsCounter_t){.header = {.structSize = sizeof(nvtxSemanticsCounter_t),
                                               .semanticId = NVTX_SEMANTIC_ID_COUNTERS_V1,
                                               .version = NVTX_COUNTER_SEMANTIC_VERSION},
                                    .flags = flags,
                                    .unit = unit,
                                    .unitScaleNumerator = 1,
                                    .unitScaleDenominator = 1};
}

static void numbers(void) {
    nvtxSemanticsCounter_t watt = meaning("W", NVTX_COUNTER_FLAG_LIMITS);
    watt.limitType = NVTX_COUNTER_LIMIT_I64;
    watt.max.i64 = 300;
    uint64_t power = add(NULL, "power", NVTX_PAYLOAD_ENTRY_TYPE_INT64, 0, &watt, 0);
    nvtxCounterSampleInt64(NULL, power, 100);
    nvtxCounterSampleInt64(NULL, power, 310);
    nvtxCounterSampleInt64(NULL, power, -10);
    nvtxCounterSampleNoValue(NULL, power, NVTX_COUNTER_SAMPLE_UNAVAILABLE);
    nvtxCounterSampleNoValue(NULL, power, NVTX_COUNTER_SAMPLE_UNCHANGED);
    nvtxCounterSampleNoValue(NULL, power, NVTX_COUNTER_SAMPLE_ZERO);

    nvtxSemanticsCounter_t plain = meaning(NULL, NVTX_COUNTER_FLAG_VALUETYPE_ABSOLUTE);
    uint64_t loss = add(NULL, "loss", NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE, 0, &plain, 0);
    nvtxCounterSampleFloat64(NULL, loss, 2.5);
    nvtxCounterSampleFloat64(NULL, loss, 0.25);

    /* Thousands, and changes: 2000, then 500 less. */
    nvtxSemanticsCounter_t scaled = meaning("B", NVTX_COUNTER_FLAG_VALUETYPE_DELTA);
    scaled.unitScaleNumerator = 1000;
    uint64_t held = add(NULL, "held", NVTX_PAYLOAD_ENTRY_TYPE_INT64, 0, &scaled, 0);
    nvtxCounterSampleInt64(NULL, held, 2);
    nvtxCounterSampleFloat64(NULL, held, -0.5);

    nvtxSemanticsCounter_t part = meaning(NULL, NVTX_COUNTER_FLAG_NORMALIZE);
    uint64_t fill = add(NULL, "fill", NVTX_PAYLOAD_ENTRY_TYPE_UINT8, 0, &part, 0);
    nvtxCounterSample(NULL, fill, &(uint8_t){255}, 1);
    nvtxCounterSample(NULL, fill, &(uint8_t){51}, 1);
}

/* A scope's path precedes a name; ids that the program chose are of their domains. */
static void scopes(void) {
    nvtxScopeAttr_t attr = {.structSize = sizeof attr, .path = "node", .parentScope = 0};
    attr.parentScope = nvtxScopeRegister(NULL, &attr);
    attr.path = "gpu[0]";
    uint64_t scope = nvtxScopeRegister(NULL, &attr);
    nvtxDomainHandle_t one = nvtxDomainCreateA("one"), two = nvtxDomainCreateA("two");
    add(one, "clock", NVTX_PAYLOAD_ENTRY_TYPE_INT64, scope, NULL, STATIC_ID);
    add(two, "clock of two", NVTX_PAYLOAD_ENTRY_TYPE_INT64, 0, NULL, STATIC_ID);
    add(two, "ignored", NVTX_PAYLOAD_ENTRY_TYPE_INT64, 0, NULL, STATIC_ID); /* the id is taken */
    nvtxCounterSampleInt64(one, STATIC_ID, 7);
    nvtxCounterSampleInt64(two, STATIC_ID, 8);
    nvtxCounterSampleInt64(two, STATIC_ID, 10);
}

typedef struct sample {
    int8_t low;
    float ratio;
    int64_t when;
    uint16_t unknown, high; /* no entry of the schema tells of the first one */
} sample;

static void groups(void) {
    nvtxSemanticsCounter_t percent = meaning("%", NVTX_COUNTER_FLAGS_NONE);
    nvtxSemanticsCounter_t others = meaning("u", NVTX_COUNTER_FLAGS_NONE);
    const nvtxPayloadSchemaEntry_t entries[] = {
        {.type = NVTX_PAYLOAD_ENTRY_TYPE_INT8, .name = "low"},
        {.type = NVTX_PAYLOAD_ENTRY_TYPE_FLOAT, .name = "ratio", .semantics = &percent.header},
        {.type = NVTX_PAYLOAD_ENTRY_TYPE_INT64,
         .name = "when",
         .flags = NVTX_PAYLOAD_ENTRY_FLAG_TIMESTAMP},
        {.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT16, .name = "high", .offset = offsetof(sample, high)}};
    const nvtxPayloadSchemaAttr_t attr = {.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                                                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                                                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                                                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE,
                                          .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC,
                                          .entries = entries,
                                          .numEntries = 4,
                                          .payloadStaticSize = sizeof(sample)};
    uint64_t schema = nvtxPayloadSchemaRegister(NULL, &attr);
    uint64_t group = add(NULL, "group", schema, 0, &others, 0);
    const sample batch[3] = {{-1, 0.5f, 1, 9, 65535}, {-3, 1.5f, 2, 9, 1}, {2, 1.0f, 3, 9, 2}};
    nvtxCounterSample(NULL, group, &batch[0], sizeof batch[0]);
    nvtxCounterSample(NULL, group, &batch[1], offsetof(sample, high)); /* is too short */
    const nvtxCounterBatch_t all = {
        .counterId = group, .counters = batch, .countersSize = sizeof batch};
    nvtxCounterBatchSubmit(NULL, &all);
    nvtxCounterSampleInt64(NULL, group, 5); /* which of them? */
    const double doubles[] = {1, 2, 6};
    const nvtxCounterBatch_t plain = {
        .counterId = add(NULL, "batch", NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE, 0, NULL, 0),
        .counters = doubles,
        .countersSize = sizeof doubles};
    nvtxCounterBatchSubmit(NULL, &plain);
}

/* Whole numbers that no double has. */
static void extremes(void) {
    uint64_t id = add(NULL, "extremes", NVTX_PAYLOAD_ENTRY_TYPE_INT64, 0, NULL, 0);
    nvtxCounterSampleInt64(NULL, id, INT64_MIN);
    nvtxCounterSample(NULL, id, &(int64_t){INT64_MAX}, sizeof(int64_t));
    uint64_t wide = add(NULL, "wide \"\xff\"", NVTX_PAYLOAD_ENTRY_TYPE_UINT64, 0, NULL, 0);
    nvtxCounterSample(NULL, wide, &(uint64_t){UINT64_MAX}, sizeof(uint64_t));
    add(NULL, "never", NVTX_PAYLOAD_ENTRY_TYPE_INT64, 0, NULL, 0);
}

/* Nowhere to go: six samples. */
static void lost(void) {
    uint64_t text = add(NULL, "text", NVTX_PAYLOAD_ENTRY_TYPE_CSTRING, 0, NULL, 0);
    nvtxCounterSample(NULL, text, "abc", 4);
    nvtxCounterSampleInt64(NULL, text, 1);
    nvtxCounterSampleInt64(NULL, 12345, 1);
    nvtxCounterSampleNoValue(NULL, 12345, NVTX_COUNTER_SAMPLE_ZERO);
    nvtxCounterSample(NULL, 0, &(double){1}, sizeof(double));
    const nvtxCounterBatch_t batch = {.counterId = 12345, .counters = "abc", .countersSize = 4};
    nvtxCounterBatchSubmit(NULL, &batch);
}

static uint64_t shared;

static void *sample_shared(void *arg) {
    for (int i = 0; i < ROUNDS; i++) nvtxCounterSampleInt64(NULL, shared, i);
    return arg;
}

static void threads(void) {
    pthread_t all[THREADS];
    shared = add(NULL, "shared", NVTX_PAYLOAD_ENTRY_TYPE_INT64, 0, NULL, 0);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&all[i], NULL, sample_shared, NULL) != 0) exit(8);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
}

static void child(void) {
    pid_t pid = fork();
    if (pid == 0) {
        numbers();
        groups();
        lost();
        _exit(0);
    }
    int status = 1;
    if (waitpid(pid, &status, 0) != pid || status != 0) exit(6);
}

/* More than the timer has room for, each with one sample. */
static void many(int n) {
    char name[24];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "many %d", i);
        uint64_t id = add(NULL, name, NVTX_PAYLOAD_ENTRY_TYPE_INT64, 0, NULL, 0);
        nvtxCounterSampleInt64(NULL, id, i);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "many") == 0) {
        many(argc > 2 ? atoi(argv[2]) : 259);
        return 0;
    }
    numbers();
    scopes();
    extremes();
    groups();
    lost();
    threads();
    child();
    return 0;
}
