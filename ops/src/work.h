/* How much an op computes and moves, for the timer. */
#ifndef KN_WORK_H
#define KN_WORK_H

#include <knet/op_watch.h>
#include <knet/prof.h>

/* Closes the scope of a call, and tells the timer how much it computed and moved. */
void kn__end_scope(kn_scope *scope, const kn_op_call *call);
/* The same; a watcher gets the event with the storages that `names` puts in it. */
typedef void (*kn__event_names_fn)(void *ctx, kn_op_event *event);
void kn__end_scope_as(kn_scope *scope, const kn_op_call *call, kn__event_names_fn names, void *ctx);
/* For the watcher, if there is one, with names and moved bytes of the event. */
bool kn__is_watched(void);
void kn__watch(const kn_op_event *event);

#endif
