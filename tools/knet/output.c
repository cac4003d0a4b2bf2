#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "pipe.h"

static bool json_written, muted;
/* Of the command that runs; where its failure goes too. */
static const char *json_path;

static int path_fail(const char *path, int error) {
    kn__fail("cannot write %s: %s", path, strerror(error));
    return KN__EXIT_FAILURE;
}

int kn__output_check(const kn__common *common) {
    char path[KN__PATH_EXPANDED_BYTES], copy[KN__PATH_EXPANDED_BYTES];
    struct stat file;
    if (!common->output || strcmp(common->output, "-") == 0) return KN__EXIT_OK;
    if (!kn__path_expand(path, sizeof path, common->output))
        return path_fail(common->output, ENAMETOOLONG);
    bool is_there = stat(path, &file) == 0;
    if (is_there && S_ISDIR(file.st_mode)) return path_fail(path, EISDIR);
    if (is_there && access(path, W_OK) != 0) return path_fail(path, errno);
    memcpy(copy, path, sizeof copy);
    if (!is_there && access(dirname(copy), W_OK) != 0) return path_fail(path, errno);
    json_path = common->output;
    return KN__EXIT_OK;
}

void kn__output_cancel(void) { json_path = NULL; }

kn__output kn__output_begin(const kn__common *common) {
    bool to_file = !muted && common->output && strcmp(common->output, "-") != 0;
    return (kn__output){.path = to_file ? common->output : NULL,
                        .live = !to_file && !common->json && !muted,
                        .json = common->json,
                        .color = !common->json && kn__color_on(to_file ? NULL : stdout)};
}

const char *kn__output_style(const kn__output *o, kn__style style) {
    return kn__style_text(style, o->color);
}

/* A later failure may leave no errno. */
static void stdout_failed(kn__output *o) {
    if (!o->error) o->error = errno ? errno : EIO;
}

void kn__output_line(kn__output *o, const char *fmt, ...) {
    if (o->json) return;
    char *line = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&line, fmt, args);
    va_end(args);
    if (n < 0) {
        o->text.failed = true;
        return;
    }
    kn__text_puts(&o->text, line);
    errno = 0;
    if (o->live && (fputs(line, stdout) < 0 || fflush(stdout) != 0)) stdout_failed(o);
    free(line);
}

/* --- the end --- */
/* A signal that ends the program must not leave half a file beside the old one. */
static int file_write(const char *path, const kn__text *text) {
    sigset_t ends, before;
    char expanded[KN__PATH_EXPANDED_BYTES];
    const char *bytes = text->data ? text->data : "";
    if (!kn__path_expand(expanded, sizeof expanded, path)) return ENAMETOOLONG;
    if (kn__is_pipe(expanded)) return kn__pipe_write(expanded, bytes, text->length);
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, &before);
    int error = kn__file_write(expanded, bytes, text->length);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Returns 0 or an errno. */
static int stdout_write(kn__output *o) {
    errno = 0;
    if (!o->live && o->text.length) fwrite(o->text.data, 1, o->text.length, stdout);
    if (fflush(stdout) != 0 || ferror(stdout)) stdout_failed(o);
    return o->error;
}

int kn__output_end(kn__output *o, int exit_code) {
    if (muted) {
        kn__text_release(&o->text);
        return exit_code;
    }
    int error = o->path ? file_write(o->path, &o->text) : stdout_write(o);
    if (o->text.failed) {
        kn__fail("no memory for the whole result");
        exit_code = KN__EXIT_OOM;
    }
    if (error && o->error != EPIPE) {
        kn__fail("cannot write %s: %s", o->path ? o->path : "standard output",
                 kn__write_error(error));
        kn__warn("the result:");
        fwrite(o->text.data ? o->text.data : "", 1, o->text.length, stderr);
    }
    json_written |= !error && o->json && o->text.length;
    kn__text_release(&o->text);
    return error && exit_code == KN__EXIT_OK ? KN__EXIT_FAILURE : exit_code;
}

void kn__output_mute(void) { muted = json_written = true; }

bool kn__output_json_written(void) { return json_written; }

void kn__output_failure(const char *command, int exit_code) {
    kn__text text = {0};
    kn__text_puts(&text, "{\"command\":");
    kn__text_json(&text, command);
    kn__text_printf(&text, ",\"status\":\"failed\",\"exit_code\":%d,\"error\":", exit_code);
    kn__text_json(&text, kn__fail_message());
    kn__text_puts(&text, "}\n");
    bool to_file = json_path && strcmp(json_path, "-") != 0;
    if (!text.failed && (!to_file || file_write(json_path, &text) != 0)) {
        fwrite(text.data, 1, text.length, stdout);
        fflush(stdout);
    }
    kn__text_release(&text);
}

/* --- values --- */
void kn__output_number(kn__text *text, double value) {
    if (isfinite(value)) {
        kn__text_printf(text, "%.17g", value);
    } else {
        kn__text_puts(text, "null");
    }
}

char *kn__count_text(char *out, size_t out_bytes, int64_t count) {
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%" PRId64, count);
    size_t at = 0;
    for (int i = 0; i < n && at + 2 < out_bytes; i++) {
        if (i > 0 && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}
