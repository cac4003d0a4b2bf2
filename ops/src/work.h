/* How much an op computes and moves, for the timer. */
#ifndef KN_WORK_H
#define KN_WORK_H

#include <knet/op_watch.h>
#include <knet/prof.h>

/* Closes the scope of a call, and tells the timer how much it computed and moved. */
void kn__end_scope(kn_scope *scope, const kn_op_call *call);
/* For the watcher, if there is one, with names and moved bytes of the event. */
bool kn__is_watched(void);
void kn__watch(const kn_op_event *event);

#endif
