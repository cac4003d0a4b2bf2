/* In place of top_screen.c, where this is built without ncurses. */
#include "top.h"

kn_status kn__top_screen(kn__text *last, bool *program_ended, const kn__live *live,
                         kn__top_view *view, double every_s) {
    (void)last, (void)program_ended, (void)live, (void)view, (void)every_s;
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "this program was built without ncurses (Debian: libncurses-dev): use --once");
}
