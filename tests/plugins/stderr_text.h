/* What a plug-in writes to stderr between two calls. */
#ifndef KNET_STDERR_TEXT_H
#define KNET_STDERR_TEXT_H

#include <stdio.h>
#include <unistd.h>

typedef struct stderr_text {
    FILE *file;
    int kept; /* the stderr before */
} stderr_text;

static inline stderr_text stderr_begin(void) {
    stderr_text text = {.file = tmpfile(), .kept = dup(STDERR_FILENO)};
    if (text.file) dup2(fileno(text.file), STDERR_FILENO);
    return text;
}

static inline void stderr_end(char *out, size_t out_bytes, stderr_text text) {
    out[0] = '\0';
    dup2(text.kept, STDERR_FILENO);
    close(text.kept);
    if (!text.file) return;
    rewind(text.file);
    out[fread(out, 1, out_bytes - 1, text.file)] = '\0';
    fclose(text.file);
}

#endif
