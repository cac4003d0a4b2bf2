/* Reports of a program that runs: every so often, and when a signal asks.
 *
 * The signal's handler sets a flag and wakes a thread; that thread makes the report. There is no
 * such thread unless one of the two was asked for.
 */
#ifndef KN_PROFILER_WATCH_H
#define KN_PROFILER_WATCH_H

#include <knet/status.h>

/* `every_ns` 0: on the signal alone; `signal` 0: none. Calls `report` on a thread of its own. After
 * a report that SIGTERM, SIGINT or SIGHUP asked for, the signal takes its former action: where
 * that ends the program, `last_report` is called in place of `report`. The second Ctrl-C does
 * not wait for it. A handler that the program sets later takes the signal away. Errors:
 * UNSUPPORTED, when the system gives no thread.
 */
KN_MUST_CHECK kn_status kn__watch_start(uint64_t every_ns, int signal, void (*report)(void),
                                        void (*last_report)(void));
/* Ends the thread, after the report that it is at. */
void kn__watch_stop(void);
/* After the report at exit: a signal that came meanwhile takes its former action. */
void kn__watch_finish(void);
/* In a forked child: the thread doesn't exist, and the signal has its former action. */
void kn__watch_forget(void);

#endif
