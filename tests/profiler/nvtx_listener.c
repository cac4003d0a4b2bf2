/* A tool that listens to NVTX, as small as can be: counts ranges of the domain "knet" by name and
 * writes them, when the program ends, to the file that KNET_TEST_NVTX names. NVIDIA's libraries
 * send their own ranges: for each call of the program it records whether one of our ranges with
 * that name was open. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 512, DEPTH_MAX = 64 };

typedef struct name {
    char text[64];
    int n, n_bare; /* n_bare: of a library, with no range of ours round it */
} name;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static name names[NAMES_MAX];
static int n_names, n_pushed, n_popped, n_registered, n_domains, n_calls, n_bare;
static char ours, theirs; /* domains, by their addresses */

static _Thread_local const name *open_ranges[DEPTH_MAX];
static _Thread_local int n_open, n_theirs_open;

static bool is_library(const char *domain) {
    return strncmp(domain, "cuBLAS", 6) == 0 || strncmp(domain, "cuDNN", 5) == 0;
}

static nvtxDomainHandle_t NVTX_API on_domain(const char *text) {
    n_domains += strcmp(text, "knet") == 0;
    if (strcmp(text, "knet") == 0) return (nvtxDomainHandle_t)(void *)&ours;
    return is_library(text) ? (nvtxDomainHandle_t)(void *)&theirs : NULL;
}

static bool is(nvtxDomainHandle_t domain, const char *which) {
    return (const void *)domain == (const void *)which;
}

static name *find_name(const char *text) {
    for (int i = 0; i < n_names; i++) {
        if (strcmp(names[i].text, text) == 0) return &names[i];
    }
    if (n_names == NAMES_MAX) return NULL;
    snprintf(names[n_names].text, sizeof names[0].text, "%s", text);
    return &names[n_names++];
}

static nvtxStringHandle_t NVTX_API on_string(nvtxDomainHandle_t domain, const char *text) {
    pthread_mutex_lock(&lock);
    n_registered += is(domain, &ours);
    name *found = find_name(text);
    pthread_mutex_unlock(&lock);
    return (nvtxStringHandle_t)(void *)found;
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* Functions of headers call one of this name and "_internal". */
static bool is_same(const char *called, const char *label) {
    size_t n = strlen(label);
    return starts_with(called, label) && (!called[n] || strcmp(called + n, "_internal") == 0);
}

/* The innermost range of ours bears the call's name; or it is a call of the other library, which
 * uses this one. */
static bool is_covered(const char *called) {
    const name *inner = n_open > 0 && n_open <= DEPTH_MAX ? open_ranges[n_open - 1] : NULL;
    if (!inner) return false;
    bool is_dnn = starts_with(called, "cudnn");
    return is_same(called, inner->text) || (!is_dnn && starts_with(inner->text, "cudnn"));
}

/* Under the lock. Ignores calls that a library makes itself, and those for texts of errors. */
static void see_call(name *called) {
    if (n_theirs_open++ > 0 || !called || starts_with(called->text, "cublasLtGetStatus")) return;
    n_calls++;
    if (is_covered(called->text)) return;
    n_bare++;
    called->n_bare++;
}

static int NVTX_API on_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    name *pushed = NULL;
    pthread_mutex_lock(&lock);
    if (event->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
        pushed = (name *)(void *)event->message.registered;
    } else if (event->messageType == NVTX_MESSAGE_TYPE_ASCII) {
        pushed = find_name(event->message.ascii);
    }
    if (is(domain, &theirs)) see_call(pushed);
    if (is(domain, &ours)) {
        if (pushed) pushed->n++;
        if (n_open < DEPTH_MAX) open_ranges[n_open] = pushed;
        n_open++;
        n_pushed++;
    }
    pthread_mutex_unlock(&lock);
    return n_open;
}

static int NVTX_API on_pop(nvtxDomainHandle_t domain) {
    if (is(domain, &theirs)) n_theirs_open -= n_theirs_open > 0;
    if (!is(domain, &ours)) return 0;
    pthread_mutex_lock(&lock);
    n_popped++;
    pthread_mutex_unlock(&lock);
    return n_open -= n_open > 0;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

/* Once for each library that sends ranges. */
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
    fprintf(file, "domains %d\nregistered %d\npushed %d\npopped %d\nlibrary calls %d\nbare %d\n",
            n_domains, n_registered, n_pushed, n_popped, n_calls, n_bare);
    for (int i = 0; i < n_names; i++) {
        if (names[i].n) fprintf(file, "%s: %d\n", names[i].text, names[i].n);
        if (names[i].n_bare) fprintf(file, "bare call of %s\n", names[i].text);
    }
    fclose(file);
}
