/* Tests of the timer in their own process. */
#ifndef KNET_TIMER_FIXTURE_H
#define KNET_TIMER_FIXTURE_H

#include "report_maker.h"

/* Set-up and teardown of tests of the timer in this process: switches it on; ends the source of GPU
 * records, gives the timer its memory back and releases `report`. */
extern kn__report report;
int timer_setup(void **state);
int timer_teardown(void **state);

#endif
