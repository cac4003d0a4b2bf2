#include "timer_fixture.h"

#include "activity.h"
#include "budget.h"

kn__report report;

int timer_setup(void **state) {
    (void)state;
    return kn_prof_owners_on() == KN_OK ? 0 : -1;
}

int timer_teardown(void **state) {
    (void)state;
    kn__activity_stop();
    kn__budget_set(KN__BUFFER_BYTES);
    kn__report_release(&report);
    return 0;
}
