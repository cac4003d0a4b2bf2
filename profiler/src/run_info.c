#include "run_info.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "peaks.h"
#include "text.h"

enum { TEXT_BYTES = 512 };

/* The arguments, each ended by a zero byte there. Of this thread: the initial one has none once it
 * has ended. */
static const char *read_command(kn__report *report) {
    char text[TEXT_BYTES];
    int fd = open("/proc/thread-self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return NULL;
    text[n] = '\0';
    for (ssize_t i = 0; i < n - 1; i++) {
        if (!text[i]) text[i] = ' ';
    }
    return kn__report_keep(report, text);
}

static const char *read_host(kn__report *report) {
    char text[TEXT_BYTES];
    if (gethostname(text, sizeof text) != 0) return NULL;
    text[sizeof text - 1] = '\0';
    return kn__report_keep(report, text);
}

static const char *words_of(kn__report *report, const kn__config *config) {
    static const char *const tiers[] = {
        [KN__TIER_OFF] = "off",           [KN__TIER_NVTX] = "nvtx", [KN__TIER_CPU] = "cpu",
        [KN__TIER_GPU_LITE] = "gpu-lite", [KN__TIER_GPU] = "gpu",   [KN__TIER_FULL] = "full"};
    char text[TEXT_BYTES], steps[64] = "";
    if (config->first_step > 1 || config->last_step) {
        snprintf(steps, sizeof steps, ",steps=%llu-", (unsigned long long)config->first_step);
    }
    snprintf(text, sizeof text, "%s%s%s", tiers[config->tier], config->memory ? "" : ",nomem",
             steps);
    return kn__report_keep(report, text);
}

/* --- notes --- */

enum { N_NOTES = 16, KEY_BYTES = 32, VALUE_BYTES = 128 };
_Static_assert(KN__NOTES_BYTES >= N_NOTES * (KEY_BYTES + VALUE_BYTES + 3), "all notes fit");
typedef struct note {
    char key[KEY_BYTES], value[VALUE_BYTES];
} note;
static pthread_mutex_t notes_lock = PTHREAD_MUTEX_INITIALIZER;
static note notes[N_NOTES];
static int n_notes;

/* Its place; n_notes: a new one. */
static int find_note(const char *key) {
    int i = 0;
    while (i < n_notes && strcmp(notes[i].key, key) != 0) i++;
    return i;
}

static bool set_note(const char *key, const char *value) {
    int i = find_note(key);
    if (!value) {
        if (i < n_notes) memmove(&notes[i], &notes[i + 1], (size_t)(--n_notes - i) * sizeof *notes);
        return true;
    }
    if (i == N_NOTES) return false;
    if (i == n_notes) n_notes++;
    snprintf(notes[i].key, sizeof notes[i].key, "%s", key);
    snprintf(notes[i].value, sizeof notes[i].value, "%s", value);
    return true;
}

static bool is_key(const char *key) {
    size_t n = key ? strlen(key) : 0;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)key[i] < 0x20 || key[i] == 0x7f || strchr("=,", key[i])) return false;
    }
    return n > 0 && n < KEY_BYTES;
}

kn_status kn_prof_note(const char *key, const char *value) {
    if (!is_key(key)) {
        char shown[64] = "NULL";
        kn__text text = kn__text_in(shown, sizeof shown);
        kn__text_shown(&text, key ? key : "NULL", 40);
        return KN_FAIL(KN_ERR_INVALID, "kn_prof_note: the key %s is %s", shown,
                       "not of 1 to 31 bytes without '=', ',' and control characters");
    }
    if (value && strlen(value) >= VALUE_BYTES) {
        return KN_FAIL(KN_ERR_INVALID, "kn_prof_note: the value of %s has %zu bytes, at most 127",
                       key, strlen(value));
    }
    pthread_mutex_lock(&notes_lock);
    bool is_set = set_note(key, value);
    pthread_mutex_unlock(&notes_lock);
    if (is_set) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "kn_prof_note: %s is one key more than 16", key);
}

bool kn__notes_read(char out[KN__NOTES_BYTES]) {
    size_t at = 0;
    pthread_mutex_lock(&notes_lock);
    for (int i = 0; i < n_notes; i++)
        at += (size_t)snprintf(out + at, KN__NOTES_BYTES - at, "%s%s=%s", i ? ", " : "",
                               notes[i].key, notes[i].value);
    pthread_mutex_unlock(&notes_lock);
    return at > 0;
}

static const char *keep_notes(kn__report *report) {
    char text[KN__NOTES_BYTES];
    return kn__notes_read(text) ? kn__report_keep(report, text) : NULL;
}

void kn__run_info_read(kn__report *report, const kn__config *config) {
    if (report->root.flops || report->root.moved_bytes) report->peaks = kn__peaks_read();
    report->run = (kn__run_info){.command = read_command(report),
                                 .host = read_host(report),
                                 .version = KNET_VERSION,
                                 .words = words_of(report, config),
                                 .notes = keep_notes(report)};
}
