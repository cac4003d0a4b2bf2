/* Everything. */
#ifndef KNET_H
#define KNET_H

#include <knet/checkpoint.h>
#include <knet/data.h>
#include <knet/dataset.h>
#include <knet/device.h>
#include <knet/dlpack.h>
#include <knet/file.h>
#include <knet/frame.h>
#include <knet/layer.h>
#include <knet/models.h>
#include <knet/ops.h>
#include <knet/optim.h>
#include <knet/param.h>
#include <knet/pipeline.h>
#include <knet/pool.h>
#include <knet/pool_graph.h>
#include <knet/print.h>
#include <knet/prof.h>
#include <knet/prof_read.h>
#include <knet/progress.h>
#include <knet/scale.h>
#include <knet/search.h>
#include <knet/status.h>
#include <knet/tape.h>
#include <knet/tensor.h>
#include <knet/trace.h>
#include <knet/train.h>
#include <knet/vocab.h>

#endif
