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

/* A progress bar, in the caller's storage. */
typedef struct kn_progress {
    FILE *out;                   /* NULL: off */
    int64_t total;               /* steps of the loop */
    int64_t first;               /* of them, those that were done when the bar began */
    uint64_t begin_ns, shown_ns; /* start; last update */
} kn_progress;

/* Starts a bar of `total` steps; off if `out` is not a terminal, or TERM says "dumb" or nothing. */
KN_API kn_progress kn_progress_begin(FILE *out, int64_t total);
/* `done` steps were made before the bar began, as in a resumed run: its rate and times leave them
 * out. */
KN_API void kn_progress_from(kn_progress *progress, int64_t done);
/* True if the bar is on and was last shown more than an eighth of a second ago. */
KN_API bool kn_progress_due(const kn_progress *progress);
/* Redraws the bar on one line of the terminal, however wide; the bar is of '#' where the locale has
 * no UTF-8. message may be "" and has no line
 * breaks. */
KN_API void kn_progress_show(kn_progress *progress, int64_t done, const char *message);
/* Removes the bar from the screen, so that the program can print a line; the next show redraws it.
 */
KN_API void kn_progress_clear(kn_progress *progress);
KN_API void kn_progress_end(kn_progress *progress); /* removes it */

/* Writes the line to `out`: a bar of 20 cells in eighths, share, count, elapsed/expected time,
 * rate: "┣█████████████████▎  ┫ [86.83%, 903/1040, 01:36/01:50, 9.42i/s] loss 0.31". Below one a
 * second the rate is in seconds per iteration. If the line is longer than `columns` characters (0:
 * no limit), it shortens the bar, then drops rate, times, count and bar, then cuts the message.
 * Returns out. */
KN_API char *kn_progress_text(char *out, size_t out_bytes, int columns, int64_t done, int64_t total,
                              double seconds, const char *message);

#ifdef __cplusplus
}
#endif
#endif
