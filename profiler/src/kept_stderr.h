/* The stderr of a program that closes it before its end, as coreutils do in an atexit handler: the
 * reports at exit come later. */
#ifndef KN_PROFILER_KEPT_STDERR_H
#define KN_PROFILER_KEPT_STDERR_H

/* At the program's start: keeps a duplicate. */
void kn__stderr_keep(void);
/* At its end: a closed stderr is opened again. */
void kn__stderr_reopen(void);
/* In a child of fork(), which has no report: it may outlive the program, and whoever reads its
 * stderr doesn't wait for it. */
void kn__stderr_forget(void);

#endif
