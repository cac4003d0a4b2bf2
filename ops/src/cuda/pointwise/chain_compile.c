/* NVRTC: loaded if it is there, and fed with the files that hold the formulas. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/pointwise/chain_kernel.h"
#include "kernel.h"
#include "mix.h"

/* --- the files, as they lie in the source tree --- */

#define EMBED(symbol, path)                                                                        \
    __asm__(".pushsection .rodata\n" #symbol ":\n.incbin \"" path "\"\n.byte 0\n.popsection\n");   \
    extern const char symbol[] __attribute__((visibility("hidden")))
EMBED(kn__text_std, KN_CHAIN_SRC "/cuda/pointwise/chain_std.cuh");
EMBED(kn__text_chain_cuh, KN_CHAIN_SRC "/cuda/pointwise/chain.cuh");
EMBED(kn__text_chain, KN_CHAIN_SRC "/chain.h");
EMBED(kn__text_functions, KN_CHAIN_SRC "/cuda/base/functions.cuh");
EMBED(kn__text_convert, KN_CHAIN_SRC "/cuda/movement/convert.cuh");
EMBED(kn__text_erfcx, KN_CHAIN_SRC "/erfcx.h");
EMBED(kn__text_formulas, KN_CHAIN_SRC "/cuda/pointwise/formulas.cuh");
EMBED(kn__text_needs, KN_CHAIN_SRC "/needs.h");
EMBED(kn__text_polygamma, KN_CHAIN_SRC "/polygamma.h");
EMBED(kn__text_rounded, KN_CHAIN_SRC "/rounded.h");
EMBED(kn__text_sigm, KN_CHAIN_SRC "/sigm.h");
EMBED(kn__text_ops, KN_CHAIN_SRC "/../include/knet/ops.def");

/* Those of others are in chain_std.cuh. */
const kn__chain_file kn__chain_files[] = {
    {"cuda/pointwise/chain.cuh", kn__text_chain_cuh},
    {"chain.h", kn__text_chain},
    {"cuda/base/functions.cuh", kn__text_functions},
    {"cuda/movement/convert.cuh", kn__text_convert},
    {"erfcx.h", kn__text_erfcx},
    {"cuda/pointwise/formulas.cuh", kn__text_formulas},
    {"needs.h", kn__text_needs},
    {"polygamma.h", kn__text_polygamma},
    {"rounded.h", kn__text_rounded},
    {"sigm.h", kn__text_sigm},
    {"knet/ops.def", kn__text_ops},
    {"stdint.h", ""},
    {"stdbool.h", ""},
    {"math.h", ""},
    {"type_traits", ""},
    {"cuda_fp16.h", ""},
    {"cuda_bf16.h", ""},
    {"knet/tensor.h",
     "enum kn_dtype { KN_F32 = 1, KN_F64, KN_F16, KN_BF16, KN_I64, KN_I32, KN_U8, KN_BOOL };\n"},
    {NULL, NULL}};
enum { FILES = sizeof kn__chain_files / sizeof *kn__chain_files - 1 };
_Static_assert(KN_F32 == 1 && KN_F64 == 2 && KN_F16 == 3 && KN_BF16 == 4 && KN_I64 == 5 &&
                   KN_I32 == 6 && KN_U8 == 7 && KN_BOOL == 8,
               "the text above");

/* --- the library --- */

static struct {
    __typeof__(nvrtcVersion) *version;
    __typeof__(nvrtcCreateProgram) *create;
    __typeof__(nvrtcCompileProgram) *compile;
    __typeof__(nvrtcGetCUBINSize) *code_size;
    __typeof__(nvrtcGetCUBIN) *code;
    __typeof__(nvrtcGetProgramLogSize) *log_size;
    __typeof__(nvrtcGetProgramLog) *log;
    __typeof__(nvrtcDestroyProgram) *destroy;
} nvrtc;
static bool is_there;
static uint64_t compiler_hash;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find(void *library, void *fn, const char *name) {
    void *symbol = dlsym(library, name);
    memcpy(fn, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Of the toolkit's major version alone: its mathematical functions are those of our kernels. */
static void load(void) {
    char name[32];
    snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    int major = 0, minor = 0;
    is_there = find(library, &nvrtc.version, "nvrtcVersion") &&
               find(library, &nvrtc.create, "nvrtcCreateProgram") &&
               find(library, &nvrtc.compile, "nvrtcCompileProgram") &&
               find(library, &nvrtc.code_size, "nvrtcGetCUBINSize") &&
               find(library, &nvrtc.code, "nvrtcGetCUBIN") &&
               find(library, &nvrtc.log_size, "nvrtcGetProgramLogSize") &&
               find(library, &nvrtc.log, "nvrtcGetProgramLog") &&
               find(library, &nvrtc.destroy, "nvrtcDestroyProgram") &&
               nvrtc.version(&major, &minor) == NVRTC_SUCCESS;
    compiler_hash = (uint64_t)major * 1000 + (uint64_t)minor;
    for (int i = 0; i < FILES; i++)
        compiler_hash = kn__fnv_text(compiler_hash, kn__chain_files[i].text);
    compiler_hash = kn__fnv_text(compiler_hash, kn__text_std);
}

bool kn__chain_can_compile(void) {
    pthread_once(&once, load);
    return is_there;
}

uint64_t kn__chain_compiler_hash(void) { return kn__chain_can_compile() ? compiler_hash : 0; }

/* --- a program --- */

static void copy_log(kn__text *log, nvrtcProgram program) {
    size_t bytes = 0;
    if (nvrtc.log_size(program, &bytes) != NVRTC_SUCCESS || bytes <= 1) return;
    char *text = malloc(bytes);
    if (text && nvrtc.log(program, text) == NVRTC_SUCCESS) kn__text_puts(log, text);
    free(text);
}

/* Products and sums stay apart, as in the kernels of single rows. */
static void *run_compiler(size_t *bytes, kn__text *log, nvrtcProgram program, int arch) {
    char option[48];
    snprintf(option, sizeof option, "--gpu-architecture=sm_%d", arch);
    const char *const options[] = {option, "--fmad=false", "--std=c++17"};
    nvrtcResult result = nvrtc.compile(program, (int)(sizeof options / sizeof *options), options);
    if (result != NVRTC_SUCCESS) {
        kn__text_printf(log, "NVRTC: error %d for sm_%d\n", (int)result, arch);
        copy_log(log, program);
        return NULL;
    }
    void *code = NULL;
    if (nvrtc.code_size(program, bytes) == NVRTC_SUCCESS && *bytes && (code = malloc(*bytes)) &&
        nvrtc.code(program, code) == NVRTC_SUCCESS) {
        return code;
    }
    kn__text_puts(log, "NVRTC made no code");
    free(code);
    return NULL;
}

void *kn__chain_compile(size_t *bytes, kn__text *log, const char *source, int arch) {
    if (!kn__chain_can_compile()) {
        kn__text_puts(log, "NVRTC can't be loaded");
        return NULL;
    }
    const char *names[FILES], *texts[FILES];
    for (int i = 0; i < FILES; i++) {
        names[i] = kn__chain_files[i].name, texts[i] = kn__chain_files[i].text;
    }
    kn__text whole = {0};
    kn__text_puts(&whole, kn__text_std);
    kn__text_puts(&whole, source);
    nvrtcProgram program = NULL;
    void *code = NULL;
    if (!whole.failed && nvrtc.create(&program, whole.data, KN__CHAIN_KERNEL ".cu", FILES, texts,
                                      names) == NVRTC_SUCCESS) {
        code = run_compiler(bytes, log, program, arch);
        nvrtc.destroy(&program);
    } else {
        kn__text_puts(log, "no memory for a program");
    }
    kn__text_release(&whole);
    return code;
}
