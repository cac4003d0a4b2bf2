/* knet run: any program under the timer. */
#include <dlfcn.h>
#include <errno.h>
#include <knet/prof.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc_words.h"
#include "cmd.h"
#include "timer_words.h"

enum { PATH_BYTES = 4096, EXIT_NOT_FOUND = 127, EXIT_NOT_RUN = 126 };

typedef struct options {
    kn__common common;
    const char *timer, *alloc;
    bool malloc;
    char **words;
} options;

static const kn__opt table[] = {
    {"timer", KN__OPT_TEXT, offsetof(options, timer), .value_name = "WORDS",
     .help = "words of KNET_TIMER, which KNET_TIMER=help lists",
     .initial_shown = "the variable, or 1"},
    {"alloc", KN__OPT_TEXT, offsetof(options, alloc), .value_name = "WORDS",
     .help =
         "words of KNET_ALLOC; cudaMalloc, cuMemAlloc and their kin then allocate from the pools"},
    {"malloc", KN__OPT_FLAG, offsetof(options, malloc),
     .help = "count the memory that the program takes by malloc, in each range"},
};

static const kn__operand operand = {"PROGRAM [WORD]...", 1, 1, offsetof(options, words),
                                    .is_program = true};

static int no_memory(void) {
    kn__fail("no memory for the environment");
    return KN__EXIT_OOM;
}

/* A library beside that of the timer. */
static bool library_find(char *out, size_t out_bytes, const char *name) {
    Dl_info timer;
    if (!dladdr((void *)(uintptr_t)kn_scope_end_on_, &timer) || !timer.dli_fname) return false;
    const char *slash = strrchr(timer.dli_fname, '/');
    int n = slash ? (int)(slash - timer.dli_fname) + 1 : 0;
    char near[PATH_BYTES];
    if (snprintf(near, sizeof near, "%.*s%s", n, timer.dli_fname, name) >= (int)sizeof near) {
        return false;
    }
    char *whole = realpath(near, NULL);
    bool fits = whole && snprintf(out, out_bytes, "%s", whole) < (int)out_bytes;
    free(whole);
    return fits;
}

/* Up to the end of the last word that names the library of AddressSanitizer, which ends a program
 * that has another library before it. */
static size_t sanitizer_bytes(const char *words) {
    size_t last = 0;
    for (size_t at = 0, n; words[at]; at += n + (words[at + n] != 0)) {
        n = strcspn(words + at, " :");
        const char *gcc = strstr(words + at, "libasan"), *clang = strstr(words + at, "rt.asan");
        bool is_one = (gcc && gcc < words + at + n) || (clang && clang < words + at + n);
        if (is_one) last = at + n;
    }
    return last;
}

/* Before the words that the variable has already. */
static bool variable_prepend(const char *name, const char *word) {
    const char *others = getenv(name) ? getenv(name) : "";
    size_t first = sanitizer_bytes(others);
    const char *rest = others + first;
    kn__text text = {0};
    kn__text_printf(&text, "%.*s%s%s", (int)first, others, first ? ":" : "", word);
    kn__text_printf(&text, "%s%s", *rest && *rest != ':' && *rest != ' ' ? ":" : "", rest);
    bool set = !text.failed && setenv(name, text.data, 1) == 0;
    kn__text_release(&text);
    return set;
}

/* Before the libraries that are preloaded already: it calls theirs. A blank or a colon ends a word
 * of LD_PRELOAD, a colon or a semicolon one of LD_LIBRARY_PATH. */
static int preload(const char *library) {
    bool has_blank = strchr(library, ' ');
    const char *end = strpbrk(library, has_blank ? ":;" : ":");
    if (end) {
        kn__fail("cannot preload from \"%s\": the path contains '%c'", library, *end);
        return KN__EXIT_FAILURE;
    }
    const char *slash = strrchr(library, '/'), *word = has_blank ? slash + 1 : library;
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - library), library);
    bool done = !has_blank || variable_prepend("LD_LIBRARY_PATH", folder);
    return done && variable_prepend("LD_PRELOAD", word) ? KN__EXIT_OK : no_memory();
}

/* Another tool that is there already stays. Libraries of NVIDIA's tell each call from level 2 on.
 */
static bool variables_set(const options *o, const char *library) {
    static const char *const levels[] = {"CUBLAS_NVTX_LEVEL", "CUBLASLT_NVTX_LEVEL",
                                         "CUDNN_NVTX_LEVEL"};
    char pid[24];
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    bool done = setenv("NVTX_INJECTION64_PATH", library, 0) == 0 &&
                setenv("CUDA_INJECTION64_PATH", library, 0) == 0 && setenv("KNET_RUN", pid, 1) == 0;
    for (int i = 0; i < 3; i++) done = done && setenv(levels[i], "2", 0) == 0;
    const char *before = getenv("KNET_TIMER"), *words = before && *before ? before : "1";
    done = done && setenv("KNET_TIMER", o->timer ? o->timer : words, 1) == 0;
    return done && (!o->alloc || setenv("KNET_ALLOC", o->alloc, 1) == 0);
}

static void warn_of_other_tool(const options *o, const char *library) {
    const char *other = getenv("NVTX_INJECTION64_PATH");
    if (!other || strcmp(other, library) == 0 || (o->timer && strcmp(o->timer, "0") == 0)) return;
    kn__warn(
        "NVTX_INJECTION64_PATH is \"%s\": NVTX ranges go to that tool, and the report has none; "
        "unset the variable to have them",
        other);
}

static int library_missing(const char *option, const char *name, const char *needs) {
    kn__fail("%s%s is not beside libknet_profiler; it needs a build with %s", option, name, needs);
    return KN__EXIT_FAILURE;
}

/* Of the library that an option needs, which a build with `needs` has. */
static int option_preload(const char *option, const char *name, const char *needs) {
    char library[PATH_BYTES];
    if (library_find(library, sizeof library, name)) return preload(library);
    return library_missing(option, name, needs);
}

/* A mistyped word would show when the program has ended. One of a variable was shown already, with
 * all words that there are, by the library that read it as this command began. */
static int words_refuse(bool from_option) {
    const char *why = kn_last_error()->message;
    return kn__fail_usage("%.*s", (int)(from_option ? strlen(why) : strcspn(why, ";")), why);
}

static int words_check(const options *o) {
    const char *timer = o->timer ? o->timer : getenv("KNET_TIMER");
    const char *alloc = o->alloc ? o->alloc : getenv("KNET_ALLOC");
    if (timer && kn__timer_words_check(timer, o->timer ? "--timer" : "KNET_TIMER") < 0)
        return words_refuse(o->timer);
    if (alloc && kn__alloc_words_check(alloc, o->alloc ? "--alloc" : "KNET_ALLOC") < 0)
        return words_refuse(o->alloc);
    return KN__EXIT_OK;
}

static int run(void *options_of) {
    options *o = options_of;
    char library[PATH_BYTES];
    int code = words_check(o);
    if (code != KN__EXIT_OK) return code;
    if (!library_find(library, sizeof library, "libknet_run.so")) {
        return library_missing("", "libknet_run.so", "shared libraries and the headers of NVTX");
    }
    code = preload(library);
    if (!code && o->alloc)
        code = option_preload("--alloc: ", "libknet_cudart.so", "a C++ compiler");
    if (!code && o->malloc)
        code = option_preload("--malloc: ", "libknet_malloc.so", "shared libraries");
    if (code != KN__EXIT_OK) return code;
    warn_of_other_tool(o, library);
    if (!variables_set(o, library)) return no_memory();
    kn__signals_restore();
    execvp(o->words[0], o->words);
    int error = errno;
    kn__fail("cannot run \"%s\": %s", o->words[0], strerror(error));
    return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN;
}

const kn__command kn__cmd_run = {
    .name = "run",
    .summary = "run a program under the timer, unchanged",
    .description =
        "Runs a program with the timer, though it knows nothing of it. Its NVTX ranges, those of "
        "Python packages and of cuBLAS and cuDNN among them, are the rows of the table; with "
        "--timer gpu kernels are below the ranges that launched them. What the program prints and "
        "its exit code are its own. Options come before PROGRAM; all words after it are the "
        "program's. Ranges of nvtxRangeStart have the time from start to end, in rows marked "
        "(range); kernels and memory belong to ranges of nvtxRangePush alone, and a pop ends the "
        "ranges of other domains that were pushed after its own.",
    .operand = &operand,
    .opts = table,
    .n_opts = sizeof table / sizeof *table,
    .notes =
        "Programs that the program starts are timed too, but no child of fork that runs no other "
        "program (workers of Python's multiprocessing, with its start method fork). A program that "
        "another one started writes nothing if it opens no range, and files are written by the "
        "first process alone, unless their names have %p, the process id. The program gets "
        "LD_PRELOAD, NVTX_INJECTION64_PATH "
        "and CUDA_INJECTION64_PATH, and LD_LIBRARY_PATH where Knet's libraries lie in a folder "
        "whose path contains a space; programs that are linked statically or run with other rights "
        "than their caller's ignore them. With --malloc every block that malloc, calloc, realloc, "
        "memalign and their kin return belongs to the range that is open on its thread, a block "
        "that realloc changed to the one that changed it; a malloc with its free takes some 40 ns "
        "more, and 16 bytes more a block. Programs that contain a malloc of their own, as "
        "those with a sanitizer do, are not seen. A program that gcc built with "
        "-fsanitize=address needs its library first: LD_PRELOAD=$(gcc "
        "-print-file-name=libasan.so) knet run. With --alloc the pools serve cudaMalloc and "
        "cudaMallocAsync of programs that link "
        "libcudart dynamically (nvcc -cudart shared; Python packages), and cuMemAlloc and "
        "cuMemAllocAsync of programs that link libcuda; cudaFree and cuMemFree still wait for "
        "the device, and blocks can't be shared by cudaIpcGetMemHandle. After cudaDeviceReset the "
        "pools no longer serve the device. Python programs make "
        "ranges of their own with knetc.scope.",
    .exits = (const kn__pair[]){{"126", "the program cannot be run"},
                                {"127", "there is no such program"},
                                {NULL, NULL}},
    .examples =
        (const kn__pair[]){{"knet run python3 train.py", "a table of the ranges of the script"},
                           {"knet run --timer gpu,html=prof.html ./solver --size 100",
                            "with kernels, and a page for a browser"},
                           {"knet run --malloc ./parser big.xml",
                            "memory of each range, its high-water mark and its leaks"},
                           {"knet run --alloc stats,limit=8GiB ./simulate",
                            "cudaMalloc from a pool, with its table at exit"},
                           {NULL, NULL}},
    .options_bytes = sizeof(options),
    .run = run,
};
