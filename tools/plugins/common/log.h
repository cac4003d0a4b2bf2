/* The log of a plug-in: its errors and warnings on stderr.
 *
 * Libraries never print. A plug-in is loaded into a program that does not know Knet, which attaches
 * no callback: its messages would be lost, and it has no other way to report them. So where no
 * callback is attached when the plug-in is loaded, it attaches one that writes levels 0 and 1 to
 * stderr. kn_log_attach replaces it, or detaches it.
 *
 * One file of each plug-in includes this one. The plug-in is linked with -z nodelete: the callback
 * may run after dlclose. */
#ifndef KN_PLUGINS_LOG_H
#define KN_PLUGINS_LOG_H

#include <knet/status.h>
#include <stdio.h>
#include <unistd.h>

/* One write for a line, so that lines of several threads do not mix; it takes no lock. */
static void plugin_log(void *ctx, int level, const char *text) {
    char line[2100];
    (void)ctx;
    if (level > 1) return;
    int n = snprintf(line, sizeof line, "knet: %s: %s\n", level > 0 ? "warning" : "error", text);
    bool whole = n > 0 && (size_t)n < sizeof line;
    if (whole && write(STDERR_FILENO, line, (size_t)n) < 0) return; /* stderr is closed */
}

__attribute__((constructor)) static void plugin_log_attach(void) {
    (void)kn_log_try_attach(plugin_log, NULL);
}

#endif
