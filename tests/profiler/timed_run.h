/* timed_program under the timer, in a folder of its own. */
#ifndef KNET_TEST_TIMED_RUN_H
#define KNET_TEST_TIMED_RUN_H

#include <sys/resource.h>

#include "outcome.h"

extern char dir[]; /* where the program runs, and its files are */
/* Takes main's arguments (the program, two plug-ins); false: some are missing. */
bool timed_run_init(int argc, char **argv);
void timed_run_release(void);

/* Of the runs that follow. */
extern rlim_t file_bytes_max; /* a disk that fills up; 0: it doesn't */
extern bool no_reader;        /* of stderr */
extern bool no_stdout;        /* it is closed */
extern bool no_stderr;        /* likewise */

/* Runs the program with KNET_TIMER and AUTOGRAD_TIMER; NULL leaves the variable unset. */
outcome run_with(const char *way, const char *timer, const char *autograd);
outcome run(const char *way, const char *timer);

/* What the program wrote to its file; the file is removed. */
const char *written(const char *name);
/* The same as JSON, owned by the caller. */
cJSON *written_json(const char *name);

#endif
