/* A plug-in with a scope: PLUGIN_LABEL. Of two that differ in it alone, all addresses are the same.
 */
#include <knet/prof.h>
#include <setjmp.h>

void plugin_run(void);
void plugin_jump(jmp_buf *way_out);

__attribute__((visibility("default"))) void plugin_run(void) { KN_SCOPE(PLUGIN_LABEL); }

__attribute__((visibility("default"))) void plugin_jump(jmp_buf *way_out) {
    KN_SCOPE(PLUGIN_LABEL);
    if (way_out) longjmp(*way_out, 1);
}
