/* For programs whose main ends by pthread_exit. */
#ifndef KN_MAIN_END_H
#define KN_MAIN_END_H

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A test that runs one, as TEST. Under ThreadSanitizer each program has a thread more, which keeps
 * its process: there it is left out. A test whose own child is one is a TEST_LONG: to
 * AddressSanitizer what main's stack held leaks. */
#ifdef __SANITIZE_THREAD__
#define TEST_MAIN_END(fn) TEST_LONG(fn)
#else
#define TEST_MAIN_END(fn) TEST(fn)
#endif

/* Kills this process after a minute. Not by alarm: its signal has no effect where all threads that
 * are left block it. */
static inline void end_in_a_minute(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return;
    timer_settime(timer, 0, &(struct itimerspec){.it_value.tv_sec = 60}, NULL);
}

/* In another thread: until main has ended. */
static inline void wait_for_main_end(void) {
    char text[512], state = 0;
    while (state != 'Z') {
        usleep(1000);
        FILE *file = fopen("/proc/self/stat", "r");
        if (!file) continue;
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        const char *name_end = strrchr(text, ')');
        if (name_end) state = name_end[2];
    }
}

#endif
