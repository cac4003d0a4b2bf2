/* A plug-in with a scope: PLUGIN_LABEL. Of two that differ in it alone, all addresses are the same.
 */
#include <knet/prof.h>

void plugin_run(void);

__attribute__((visibility("default"))) void plugin_run(void) { KN_SCOPE(PLUGIN_LABEL); }
