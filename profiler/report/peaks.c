#include "peaks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "c_locale.h"
#include "file.h"
#include "text.h"

enum { LINE_BYTES = 512, HOST_BYTES = 256 };

bool kn__peaks_path(char *out, size_t out_bytes) { return kn__cache_path(out, out_bytes, "peaks"); }

/* The machine: a home may be shared, and a container may have fewer processors. */
static void add_machine(char *out, size_t out_bytes) {
    char host[HOST_BYTES] = "";
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    snprintf(out, out_bytes, "knet-peaks 1 %s %ld ", host, sysconf(_SC_NPROCESSORS_ONLN));
}

kn__rates kn__peaks_read(void) {
    char path[KN__PEAKS_PATH_BYTES], machine[LINE_BYTES], line[LINE_BYTES];
    kn__rates peaks = {0};
    if (!kn__peaks_path(path, sizeof path)) return peaks;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0) close(fd);
    if (n <= 0 || line[n - 1] != '\n') return peaks;
    line[n] = '\0';
    add_machine(machine, sizeof machine);
    size_t length = strlen(machine);
    if (strncmp(line, machine, length) != 0) return peaks;
    locale_t before = kn__c_locale_enter();
    int n_read = sscanf(line + length, "%lf %lf", &peaks.flops, &peaks.bytes);
    kn__c_locale_leave(before);
    if (n_read != 2) return (kn__rates){0};
    bool valid = peaks.flops > 0 && peaks.flops < 1e18 && peaks.bytes > 0 && peaks.bytes < 1e18;
    return valid ? peaks : (kn__rates){0};
}

kn_status kn__peaks_write(kn__rates peaks) {
    char path[KN__PEAKS_PATH_BYTES], line[LINE_BYTES];
    if (!kn__peaks_path(path, sizeof path)) {
        return KN_FAIL(KN_ERR_INVALID,
                       "no directory to keep the peaks in: XDG_CACHE_HOME or HOME must name one");
    }
    int error = kn__make_parents(path, 0700); /* for the user alone */
    add_machine(line, sizeof line);
    size_t n = strlen(line);
    kn__text rates = kn__text_in(line + n, sizeof line - n);
    kn__text_printf(&rates, "%.4g %.4g\n", peaks.flops, peaks.bytes);
    n += rates.length;
    if (rates.failed) return KN_FAIL(KN_ERR_INVALID, "the name of the machine is too long");
    if (!error) error = kn__file_write(path, line, n);
    if (!error) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "could not write %s: %s", path, strerror(error));
}
