/* knet info: devices, library versions, missing libraries and how to get them. */
#include <dlfcn.h>
#include <inttypes.h>
#include <knet/device.h>
#include <knet/frame.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "cells.h"
#include "cmd.h"
#include "fail.h"
#include "measure.h"
#include "output.h"
#include "peaks.h"
#include "units.h"

enum { DEVICES_MAX = 17, VERSION_BYTES = 192 };

typedef struct options {
    kn__common common;
    bool peaks;
} options;

static const kn__opt table[] = {
    {"peaks", KN__OPT_FLAG, offsetof(options, peaks),
     .help = "measure flop/s and memory bandwidth, for about a second, and keep them"},
};

/* --- libraries: looked up at run time, so that the command starts without any of them --- */
typedef struct library {
    const char *name;
    /* Tried in this order; ends in NULL; the first is "" for a library that is linked. */
    const char *file[4];
    bool (*version)(char *out, size_t out_bytes, void *handle);
    const char *use;
    /* How to get it. */
    const char *advice;
    /* Of use with a GPU only. */
    bool gpu;
} library;

/* dlsym's result is an object pointer; POSIX lets it hold a function's address. */
static bool symbol_find(void *fn_pointer, void *handle, const char *name) {
    void *at = dlsym(handle, name);
    memcpy(fn_pointer, &at, sizeof at);
    return at != NULL;
}

static bool version_of_onednn(char *out, size_t out_bytes, void *handle) {
    const struct {
        int major, minor, patch;
        const char *hash;
    } * v;
    const void *(*get)(void);
    if (!symbol_find(&get, handle, "dnnl_version")) return false;
    v = get();
    snprintf(out, out_bytes, "%d.%d.%d", v->major, v->minor, v->patch);
    return true;
}

static bool version_of_jemalloc(char *out, size_t out_bytes, void *handle) {
    int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    const char *version = NULL;
    size_t bytes = sizeof version;
    if (!symbol_find(&mallctl, handle, "mallctl")) return false;
    if (mallctl("version", &version, &bytes, NULL, 0) != 0) return false;
    snprintf(out, out_bytes, "%s", version);
    return true;
}

static bool version_of_zlib(char *out, size_t out_bytes, void *handle) {
    (void)handle;
    snprintf(out, out_bytes, "%s", zlibVersion());
    return true;
}

/* 13000 is 13.0 */
static bool cuda_number(char *out, size_t out_bytes, void *handle, const char *name) {
    int (*get)(int *);
    int version = 0;
    if (!symbol_find(&get, handle, name) || get(&version) != 0 || version == 0) return false;
    snprintf(out, out_bytes, "%d.%d", version / 1000, version % 1000 / 10);
    return true;
}

static bool version_of_driver(char *out, size_t out_bytes, void *handle) {
    return cuda_number(out, out_bytes, handle, "cuDriverGetVersion");
}

static bool version_of_runtime(char *out, size_t out_bytes, void *handle) {
    return cuda_number(out, out_bytes, handle, "cudaRuntimeGetVersion");
}

/* Three properties of library_types.h: major, minor, patch. */
static bool three_properties(char *out, size_t out_bytes, void *handle, const char *name) {
    int (*get)(int, int *);
    int part[3] = {0};
    if (!symbol_find(&get, handle, name)) return false;
    for (int i = 0; i < 3; i++)
        if (get(i, &part[i]) != 0) return false;
    snprintf(out, out_bytes, "%d.%d.%d", part[0], part[1], part[2]);
    return true;
}

static bool version_of_cublas(char *out, size_t out_bytes, void *handle) {
    return three_properties(out, out_bytes, handle, "cublasGetProperty");
}

static bool version_of_cusolver(char *out, size_t out_bytes, void *handle) {
    return three_properties(out, out_bytes, handle, "cusolverGetProperty");
}

static bool version_of_lapack(char *out, size_t out_bytes, void *handle) {
    void (*get)(int *, int *, int *);
    int part[3] = {0};
    if (!symbol_find(&get, handle, "ilaver_")) return false;
    get(&part[0], &part[1], &part[2]);
    snprintf(out, out_bytes, "%d.%d.%d", part[0], part[1], part[2]);
    return true;
}

/* 91900 is 9.19.0 */
static bool version_of_cudnn(char *out, size_t out_bytes, void *handle) {
    size_t (*get)(void);
    if (!symbol_find(&get, handle, "cudnnGetVersion")) return false;
    size_t v = get();
    snprintf(out, out_bytes, "%zu.%zu.%zu", v / 10000, v % 10000 / 100, v % 100);
    return true;
}

#define TOOLKIT "NVIDIA's CUDA toolkit (developer.nvidia.com/cuda-downloads); not a Debian package"
static const library libraries[] = {
    {"oneDNN",
     {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"},
     version_of_onednn,
     "f32 products and convolutions",
     "apt-get install libdnnl-dev",
     false},
    {"LAPACK",
     {"liblapack.so.3", "libopenblas.so.0", "liblapack.so"},
     version_of_lapack,
     "singular values and eigenvalues",
     "apt-get install libopenblas0-openmp, or liblapack3",
     false},
    {"jemalloc",
     {""},
     version_of_jemalloc,
     "host memory pools",
     "apt-get install libjemalloc-dev, then build again",
     false},
    {"zlib", {""}, version_of_zlib, "data files", "apt-get install zlib1g-dev", false},
    {"CUDA driver",
     {"libcuda.so.1"},
     version_of_driver,
     "CUDA devices",
     "apt-get install nvidia-driver (non-free-firmware)",
     true},
    {"CUDA runtime",
     {"libcudart.so.13", "libcudart.so.12", "libcudart.so"},
     version_of_runtime,
     "CUDA kernels",
     TOOLKIT,
     true},
    {"cuBLAS",
     {"libcublas.so.13", "libcublas.so.12", "libcublas.so"},
     version_of_cublas,
     "products on CUDA",
     TOOLKIT,
     true},
    {"cuSOLVER",
     {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"},
     version_of_cusolver,
     "factorisations on CUDA",
     TOOLKIT,
     true},
    {"cuDNN",
     {"libcudnn.so.9", "libcudnn.so"},
     version_of_cudnn,
     "convolutions on CUDA",
     "NVIDIA's cuDNN (developer.nvidia.com/cudnn); not a Debian package",
     true},
};
enum { N_LIBRARIES = sizeof libraries / sizeof *libraries };

typedef struct found {
    bool present;
    char version[VERSION_BYTES];
} found;

/* The module with the CUDA kernels knows where it was built against; loading it first lets the
 * names of its libraries resolve when the system's linker doesn't know them. */
static void kernels_load(void) { (void)dlopen("libknet_ops_cuda.so", RTLD_LAZY | RTLD_LOCAL); }

static found library_find(const library *l) {
    found f = {0};
    for (int i = 0; i < 4 && l->file[i] && !f.present; i++) {
        void *handle = *l->file[i] ? dlopen(l->file[i], RTLD_LAZY | RTLD_LOCAL) : RTLD_DEFAULT;
        if (!handle && *l->file[i]) continue;
        f.present = l->version(f.version, sizeof f.version, handle);
    }
    return f;
}

/* --- devices --- */
typedef struct devices {
    kn_device_info info[DEVICES_MAX];
    int n;
    /* "" when there is one. */
    char why_no_cuda[1024];
} devices;

static void devices_find(devices *d) {
    char name[16] = "cpu";
    int n_cuda = kn_device_cuda_count();
    *d = (devices){.n = 0};
    for (int i = -1; i < n_cuda && d->n < DEVICES_MAX; i++) {
        kn_device *device = NULL;
        if (i >= 0) snprintf(name, sizeof name, "cuda:%d", i);
        if (kn_device_find(&device, name) < 0) continue;
        if (kn_device_info_read(&d->info[d->n], sizeof d->info[0], device) == KN_OK) d->n++;
    }
    kn_device *cuda = NULL;
    if (n_cuda == 0 && kn_device_find(&cuda, "cuda") < 0)
        snprintf(d->why_no_cuda, sizeof d->why_no_cuda, "%.1000s", kn_last_error()->message);
}

/* --- output --- */
static void heading(kn__output *r, const char *text, kn__style style) {
    kn__output_line(r, "%s%s%s\n", kn__output_style(r, style), text,
                    kn__output_style(r, KN__STYLE_PLAIN));
}

static void devices_text(kn__output *r, const devices *d) {
    heading(r, "Devices", KN__STYLE_BOLD);
    for (int i = 0; i < d->n; i++) {
        const kn_device_info *info = &d->info[i];
        kn__output_line(r, "  %-12s %s, %s, %s free; %s\n", info->name, info->model,
                        kn__bytes_text((double)info->total_bytes).text,
                        kn__bytes_text((double)info->free_bytes).text, info->driver);
    }
    if (*d->why_no_cuda) kn__output_line(r, "  %-12s none: %s\n", "cuda", d->why_no_cuda);
}

static void libraries_text(kn__output *r, const found *f) {
    heading(r, "Libraries", KN__STYLE_BOLD);
    for (int i = 0; i < N_LIBRARIES; i++)
        if (f[i].present) kn__output_line(r, "  %-12s %s\n", libraries[i].name, f[i].version);
    bool headed = false;
    for (int i = 0; i < N_LIBRARIES; i++) {
        if (f[i].present) continue;
        if (!headed) heading(r, "Missing", KN__STYLE_YELLOW);
        headed = true;
        kn__output_line(r, "  %-12s for %s%s: %s\n", libraries[i].name, libraries[i].use,
                        libraries[i].gpu ? " (needs a GPU)" : "", libraries[i].advice);
    }
}

static void info_json(kn__text *out, const devices *d, const found *f, kn__rates peaks) {
    kn__text_printf(out, "{\"version\":\"%s\",\"math\":\"%s\",\"devices\":[", KNET_VERSION,
                    kn_math_mode_name(kn_math_mode_get()));
    for (int i = 0; i < d->n; i++) {
        const kn_device_info *info = &d->info[i];
        kn__text_printf(out, "%s{\"name\":\"%s\",\"model\":", i ? "," : "", info->name);
        kn__text_json(out, info->model);
        kn__text_puts(out, ",\"driver\":");
        kn__text_json(out, info->driver);
        kn__text_printf(out, ",\"total_bytes\":%" PRIu64 ",\"free_bytes\":%" PRIu64 "}",
                        info->total_bytes, info->free_bytes);
    }
    kn__text_puts(out, "],\"libraries\":{");
    for (int i = 0; i < N_LIBRARIES; i++) {
        kn__text_printf(out, "%s\"%s\":", i ? "," : "", libraries[i].name);
        if (f[i].present) {
            kn__text_json(out, f[i].version);
        } else {
            kn__text_puts(out, "null");
        }
    }
    kn__text_puts(out, "}");
    if (peaks.flops > 0) {
        kn__text_printf(out, ",\"peak_gflop_s\":%.6g,\"peak_gbyte_s\":%.6g", peaks.flops / 1e9,
                        peaks.bytes / 1e9);
    }
    kn__text_puts(out, ",\"why_no_cuda\":");
    kn__text_json(out, d->why_no_cuda);
    kn__text_puts(out, "}\n");
}

static void peaks_text(kn__output *r, kn__rates peaks) {
    if (peaks.flops <= 0) return;
    heading(r, "Measured peaks of the processors", KN__STYLE_BOLD);
    kn__output_line(r, "  %-12s %sflop/s\n", "f32 product", kn__rate_cell(peaks.flops).text);
    kn__output_line(r, "  %-12s %sB/s\n", "memory", kn__rate_cell(peaks.bytes).text);
}

/* Measured now where that is asked for, else those measured before. */
static int find_peaks(kn__rates *out, const options *o) {
    *out = kn__peaks_read();
    if (!o->peaks) return KN__EXIT_OK;
    if (kn__measure_peaks(out) >= 0 && kn__peaks_write(*out) >= 0) return KN__EXIT_OK;
    kn__fail_last();
    return KN__EXIT_FAILURE;
}

static int run(void *options_of) {
    const options *o = options_of;
    kn__rates peaks = {0};
    int code = find_peaks(&peaks, o);
    if (code) return code;
    kn__output report = kn__output_begin(&o->common);
    devices d;
    found f[N_LIBRARIES];
    kernels_load();
    devices_find(&d);
    for (int i = 0; i < N_LIBRARIES; i++) f[i] = library_find(&libraries[i]);
    kn__output_line(&report, "Knet.c %s\n", KNET_VERSION);
    kn__output_line(&report, "Math mode %s\n", kn_math_mode_name(kn_math_mode_get()));
    devices_text(&report, &d);
    libraries_text(&report, f);
    peaks_text(&report, peaks);
    if (report.json) info_json(&report.text, &d, f, peaks);
    return kn__output_end(&report, KN__EXIT_OK);
}

const kn__command kn__cmd_info = {
    .name = "info",
    .summary = "show devices, library versions, and missing libraries",
    .description =
        "Shows the devices of this machine, the versions of libraries, and which libraries "
        "are missing and how to get them. With --peaks, what the processors reach at most.",
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .has_result = true,
    .notes =
        "The peaks are kept in $XDG_CACHE_HOME/knet/peaks, or ~/.cache/knet/peaks: tables of "
        "KNET_TIMER=1 then show which part of them each op reaches (%peak). Measure on a "
        "machine that does nothing else.",
    .options_bytes = sizeof(options),
    .run = run,
};
