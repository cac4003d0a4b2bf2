/* knet version: version, commit, compiler and features. */
#include <stdio.h>

#include "cmd.h"
#include "commit.h"
#include "output.h"

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* The build sets these to 0 or 1. */
static const struct {
    const char *name, *meaning;
    bool on;
} features[] = {
    {"cuda", "kernels for NVIDIA GPUs", KNET_WITH_CUDA},
    {"cupti", "the timer measures GPU work", KNET_WITH_CUPTI},
    {"profiles", "report and diff read profiles (cJSON)", KNET_WITH_CJSON},
    {"jemalloc", "host memory from jemalloc", KNET_WITH_JEMALLOC},
    {"shared", "shared libraries", KNET_WITH_SHARED},
    {"assertions", "checks of programmer errors", KNET_WITH_CHECKED},
};
enum { N_FEATURES = sizeof features / sizeof *features };

static void add_json(kn__text *text) {
    kn__text_puts(text, "{\"version\":\"" KNET_VERSION "\",\"commit\":");
    kn__text_json(text, KNET_COMMIT);
    kn__text_puts(text, ",\"compiler\":");
    kn__text_json(text, COMPILER);
    kn__text_puts(text, ",\"build_type\":");
    kn__text_json(text, KNET_BUILD_TYPE);
    kn__text_puts(text, ",\"sanitizers\":");
    kn__text_json(text, KNET_SANITIZERS);
    kn__text_puts(text, ",\"features\":{");
    for (int i = 0; i < N_FEATURES; i++)
        kn__text_printf(text, "%s\"%s\":%s", i ? "," : "", features[i].name,
                        features[i].on ? "true" : "false");
    kn__text_puts(text, "}}\n");
}

int kn__version_print_line(void) {
    kn__output out = kn__output_begin(&(kn__common){.json = false});
    kn__output_line(&out, "knet %s\n", KNET_VERSION);
    return kn__output_end(&out, KN__EXIT_OK);
}

static int run(void *options) {
    kn__output out = kn__output_begin(options);
    kn__output_line(&out, "%sknet %s%s\n", kn__output_style(&out, KN__STYLE_BOLD), KNET_VERSION,
                    kn__output_style(&out, KN__STYLE_PLAIN));
    kn__output_line(&out, "  %-11s %s\n", "commit", *KNET_COMMIT ? KNET_COMMIT : "unknown");
    kn__output_line(&out, "  %-11s %s, %s\n", "compiler", COMPILER, KNET_BUILD_TYPE);
    kn__output_line(&out, "  %-11s %s\n", "sanitizers", *KNET_SANITIZERS ? KNET_SANITIZERS : "no");
    for (int i = 0; i < N_FEATURES; i++)
        kn__output_line(&out, "  %-11s %-4s %s\n", features[i].name, features[i].on ? "yes" : "no",
                        features[i].meaning);
    if (out.json) add_json(&out.text);
    return kn__output_end(&out, KN__EXIT_OK);
}

const kn__command kn__cmd_version = {
    .name = "version",
    .summary = "show version, commit, compiler and features",
    .description =
        "Shows the version, the commit and the compiler that this command was built "
        "from, and which features are built in.",
    .has_result = true,
    .options_bytes = sizeof(kn__common),
    .run = run,
};
