/* A progress bar for loops of known length, on a terminal.
 *
 *     kn_progress bar = kn_progress_begin(stderr, n);          // off where stderr is no terminal
 *     for (int64_t i = 0; i < n; i++) {
 *         work(i);
 *         if (kn_progress_due(&bar)) kn_progress_show(&bar, i + 1, "loss 0.31");
 *     }
 *     kn_progress_end(&bar);
 *
 * Threads: one at a time.
 */
#ifndef KNET_PROGRESS_H
#define KNET_PROGRESS_H

#include <knet/status.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_progress { /* caller's storage */
    FILE *out;               /* NULL: off */
    int64_t total;
    uint64_t begin_ns, shown_ns;
} kn_progress;

KN_API kn_progress kn_progress_begin(FILE *out, int64_t total);
/* Whether it is on, and an eighth of a second went by since it was last shown. */
KN_API bool kn_progress_due(const kn_progress *progress);
/* In place, on one line of the terminal, whatever its width; the bar is of '#' where the locale has
 * no UTF-8. message may be ""; it has no line
 * breaks. */
KN_API void kn_progress_show(kn_progress *progress, int64_t done, const char *message);
/* Takes the bar off the screen, to make room for a line of yours; the next show brings it back. */
KN_API void kn_progress_clear(kn_progress *progress);
KN_API void kn_progress_end(kn_progress *progress); /* clears it for good */

/* The line itself: a bar of 20 cells in eighths, then share, count, elapsed/expected time and rate:
 * "┣█████████████████▎  ┫ [86.83%, 903/1040, 01:36/01:50, 9.42i/s] loss 0.31". Below one a second
 * the rate is in seconds an iteration. Where that is more than `columns` characters (0: no limit),
 * the bar shrinks, then rate, times and count go, then the bar, then the message's end. Returns
 * out. */
KN_API char *kn_progress_text(char *out, size_t out_bytes, int columns, int64_t done, int64_t total,
                              double seconds, const char *message);

#ifdef __cplusplus
}
#endif
#endif
