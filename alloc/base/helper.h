/* Threads of the libraries' own, which work for the program's threads. One that the program never
 * started must not keep its process: where main has ended by pthread_exit, the process ends when
 * helpers alone are left, as it would without them. */
#ifndef KN_BASE_HELPER_H
#define KN_BASE_HELPER_H

#include <knet/status.h>

/* The calling thread is a helper until it ends. Once for each, before its work; libknet_alloc has
 * it for all libraries. */
KN_API void kn__helper_enter(void);

#endif
