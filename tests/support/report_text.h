/* The timer's report of this process, for tests that read it. */
#ifndef TEST_REPORT_TEXT_H
#define TEST_REPORT_TEXT_H

#include <knet/prof.h>
#include <unistd.h>

#include "test.h"

/* In the format of a file's ending, of 1 to 8 characters: ".json". Until the next call. */
static inline const char *report_text(const char *ending) {
    static char text[1 << 20];
    char path[64];
    snprintf(path, sizeof path, "/tmp/knet_report_XXXXXX%s", ending);
    int fd = mkstemps(path, (int)strlen(ending));
    assert_true(fd >= 0);
    close(fd);
    assert_ok(kn_prof_report(path));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    return text;
}

#endif
