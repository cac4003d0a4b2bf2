/* A tool that listens to NVTX, as small as can be: counts ranges of the domain "knet" by name and
 * writes them, when the program ends, to the file that KNET_TEST_NVTX names. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 64 };

typedef struct name {
    char text[64];
    int n;
} name;

static name names[NAMES_MAX];
static int n_names, n_pushed, n_popped, n_registered, n_domains;

static nvtxDomainHandle_t NVTX_API on_domain(const char *text) {
    n_domains += strcmp(text, "knet") == 0;
    return (nvtxDomainHandle_t)(void *)&n_domains;
}

static nvtxStringHandle_t NVTX_API on_string(nvtxDomainHandle_t domain, const char *text) {
    (void)domain;
    n_registered++;
    for (int i = 0; i < n_names; i++) {
        if (strcmp(names[i].text, text) == 0) return (nvtxStringHandle_t)(void *)&names[i];
    }
    if (n_names == NAMES_MAX) return NULL;
    snprintf(names[n_names].text, sizeof names[0].text, "%s", text);
    return (nvtxStringHandle_t)(void *)&names[n_names++];
}

static int NVTX_API on_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    (void)domain;
    if (event->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
        ((name *)(void *)event->message.registered)->n++;
    }
    return n_pushed++;
}

static int NVTX_API on_pop(nvtxDomainHandle_t domain) {
    (void)domain;
    return n_popped++;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned n = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n))
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)on_domain;
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)on_string;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)on_push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)on_pop;
    return 1;
}

__attribute__((destructor)) static void write_counts(void) {
    const char *path = getenv("KNET_TEST_NVTX");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "domains %d\nregistered %d\npushed %d\npopped %d\n", n_domains, n_registered,
            n_pushed, n_popped);
    for (int i = 0; i < n_names; i++) fprintf(file, "%s: %d\n", names[i].text, names[i].n);
    fclose(file);
}
