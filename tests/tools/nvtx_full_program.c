/* NVTX beyond pushes and pops: ranges that are started, marks, heaps, payloads; knows nothing of
 * the timer. */
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char memory[4096];

static void ranges(void) {
    nvtxDomainHandle_t domain = nvtxDomainCreateA("solver");
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message.ascii = "of a domain"};
    nvtxRangeId_t outer = nvtxRangeStartA("started"), wide = nvtxRangeStartW(L"wide \u03bb");
    nvtxRangePushA("pushed");
    nvtxRangePop();
    nvtxRangePop(); /* a pop ends no started range */
    nvtxMarkA("mark");
    nvtxMarkW(L"mark");
    nvtxRangeEnd(wide);
    nvtxRangeEnd(wide); /* again */
    nvtxRangeEnd(outer);
    nvtxRangeId_t a = nvtxDomainRangeStartEx(domain, &event);
    event.message.ascii = "domain's mark";
    nvtxDomainMarkEx(domain, &event);
    nvtxDomainRangeEnd(domain, a);
    nvtxRangeEnd(0);
    nvtxRangePushA("after all");
    nvtxRangePop();
}

static void *end_it(void *id) {
    nvtxRangeEnd(*(nvtxRangeId_t *)id);
    return id;
}

static void other_thread_ends(void) {
    pthread_t thread;
    nvtxRangeId_t id = nvtxRangeStartA("handed over");
    if (pthread_create(&thread, NULL, end_it, &id) != 0) exit(8);
    pthread_join(thread, NULL);
    nvtxRangePushA("next");
    nvtxRangePop();
    for (unsigned i = 1; i < 200; i++) nvtxRangeEnd(1000000 + i); /* ids of no range */
    nvtxRangePushA("still there");
    nvtxRangePop();
}

static nvtxMemHeapHandle_t make_heap(nvtxDomainHandle_t domain, const char *name) {
    nvtxMemVirtualRangeDesc_t all = {sizeof memory, memory};
    nvtxMemHeapDesc_t desc = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                              .structSize = sizeof desc,
                              .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
                              .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                              .typeSpecificDescSize = sizeof all,
                              .typeSpecificDesc = &all,
                              .messageType = NVTX_MESSAGE_TYPE_ASCII,
                              .message.ascii = name};
    return nvtxMemHeapRegister(domain, &desc);
}

static void add(nvtxMemHeapHandle_t heap, const nvtxMemVirtualRangeDesc_t *ranges, size_t n,
                nvtxMemRegionHandle_t *out) {
    nvtxMemRegionsRegisterBatch_t batch = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                                           .structSize = sizeof batch,
                                           .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                                           .heap = heap,
                                           .regionCount = n,
                                           .regionDescElementSize = sizeof *ranges,
                                           .regionDescElements = ranges,
                                           .regionHandleElementsOut = out};
    nvtxMemRegionsRegister(NULL, &batch);
}

static void resize(nvtxMemVirtualRangeDesc_t range) {
    nvtxMemRegionsResizeBatch_t batch = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                                         .structSize = sizeof batch,
                                         .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
                                         .regionDescCount = 1,
                                         .regionDescElementSize = sizeof range,
                                         .regionDescElements = &range};
    nvtxMemRegionsResize(NULL, &batch);
}

static void drop(uint32_t type, nvtxMemRegionRef_t ref) {
    nvtxMemRegionsUnregisterBatch_t batch = {.extCompatID = NVTX_EXT_COMPATID_MEM,
                                             .structSize = sizeof batch,
                                             .refType = type,
                                             .refCount = 1,
                                             .refElementSize = sizeof ref,
                                             .refElements = &ref};
    nvtxMemRegionsUnregister(NULL, &batch);
}

static void heaps(void) {
    nvtxMemHeapHandle_t heap = make_heap(NULL, "arena"), other = make_heap(NULL, "other");
    nvtxMemVirtualRangeDesc_t two[] = {{1000, memory}, {500, memory + 1000}};
    nvtxMemVirtualRangeDesc_t third = {100, memory + 2000}, fourth = {64, memory + 3000};
    nvtxMemRegionHandle_t handles[2];
    nvtxRangePushA("heap"); /* 1000 + 500 + 100 + 700, at most 1700 at once, 1600 at the end */
    add(heap, two, 2, handles);
    add(heap, &third, 1, NULL);
    drop(NVTX_MEM_REGION_REF_TYPE_HANDLE, (nvtxMemRegionRef_t){.handle = handles[1]});
    drop(NVTX_MEM_REGION_REF_TYPE_POINTER, (nvtxMemRegionRef_t){.pointer = memory + 2000});
    drop(NVTX_MEM_REGION_REF_TYPE_POINTER, (nvtxMemRegionRef_t){.pointer = memory + 77});
    resize((nvtxMemVirtualRangeDesc_t){700, memory});
    nvtxRangePop();
    nvtxRangePushA("reset"); /* 64 of another heap stay */
    add(other, &fourth, 1, NULL);
    nvtxMemHeapReset(NULL, heap);
    nvtxRangePop();
    nvtxRangePushA("again"); /* 200, which 300 at the same address replace */
    add(heap, &(nvtxMemVirtualRangeDesc_t){200, memory + 3500}, 1, NULL);
    add(heap, &(nvtxMemVirtualRangeDesc_t){300, memory + 3500}, 1, NULL);
    drop(NVTX_MEM_REGION_REF_TYPE_POINTER, (nvtxMemRegionRef_t){.pointer = memory + 3500});
    nvtxRangePop();
    nvtxRangePushA("many"); /* 3000 x 1, and all freed */
    for (size_t i = 0; i < 3000; i++)
        add(heap, &(nvtxMemVirtualRangeDesc_t){1, memory + i}, 1, NULL);
    nvtxMemHeapUnregister(NULL, heap);
    nvtxRangePop();
}

static void payloads(void) {
    const nvtxPayloadSchemaAttr_t attr = {
        .fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE,
        .name = "all reduce",
        .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC};
    uint64_t schema = nvtxPayloadSchemaRegister(NULL, &attr);
    uint64_t count = 7;
    nvtxPayloadData_t data = {schema, sizeof count, &count};
    for (int i = 0; i < 3; i++) {
        if (!nvtxDomainIsEnabled(NULL)) exit(7);
        nvtxRangePushPayload(NULL, &data, 1);
        nvtxRangePopPayload(NULL, &data, 1);
    }
    nvtxRangeEndPayload(NULL, nvtxRangeStartPayload(NULL, &data, 1), &data, 1);
}

static void child(void) {
    pid_t pid = fork();
    if (pid == 0) {
        ranges();
        heaps();
        payloads();
        _exit(0);
    }
    int status = 1;
    if (waitpid(pid, &status, 0) != pid || status != 0) exit(6);
}

int main(void) {
    ranges();
    other_thread_ends();
    heaps();
    payloads();
    child();
    return 0;
}
