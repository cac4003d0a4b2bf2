/* In place of top_screen.c, where this is built without ncurses. */
#include "top.h"

kn_status kn__top_screen(kn__top_end *end, const kn__live *live, kn__top_view *view,
                         double every_s) {
    (void)end, (void)live, (void)view, (void)every_s;
    return KN_FAIL(KN_ERR_UNSUPPORTED,
                   "this program was built without ncurses (Debian: libncurses-dev): use --once");
}
