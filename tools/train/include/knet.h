/* Everything for programs. By themselves are <knet/observer.h>, <knet/device_driver.h> and
 * <knet/sim.h>, for profilers and devices, and <knet/op.h>, <knet/op_act.h>, <knet/op_watch.h> and
 * <knet/rule.h>, for new ops. */
#ifndef KNET_H
#define KNET_H

#include <knet/capture.h>
#include <knet/checkpoint.h>
#include <knet/comm.h>
#include <knet/data.h>
#include <knet/dataset.h>
#include <knet/device.h>
#include <knet/dlpack.h>
#include <knet/file.h>
#include <knet/forecast.h>
#include <knet/frame.h>
#include <knet/image.h>
#include <knet/layer.h>
#include <knet/linalg.h>
#include <knet/models.h>
#include <knet/norm.h>
#include <knet/ops.h>
#include <knet/optim.h>
#include <knet/parallel.h>
#include <knet/param.h>
#include <knet/pause.h>
#include <knet/pipeline.h>
#include <knet/plan.h>
#include <knet/pool.h>
#include <knet/pool_graph.h>
#include <knet/print.h>
#include <knet/prof.h>
#include <knet/prof_call.h>
#include <knet/prof_counter.h>
#include <knet/prof_heap.h>
#include <knet/prof_metric.h>
#include <knet/prof_range.h>
#include <knet/prof_read.h>
#include <knet/progress.h>
#include <knet/scale.h>
#include <knet/search.h>
#include <knet/sequence.h>
#include <knet/share.h>
#include <knet/stacks.h>
#include <knet/statistics.h>
#include <knet/status.h>
#include <knet/tape.h>
#include <knet/tensor.h>
#include <knet/trace.h>
#include <knet/train.h>
#include <knet/vocab.h>

#endif
