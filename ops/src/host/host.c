#include "host/host.h"

#include "host/conv/conv_layout.h"
#include "host/conv/conv_weights.h"
#include "host/reduce/reduce_fused.h"

const kn__host_module kn__host = {
    .fused_run = kn__fused_run,
    .reduce = kn__host_reduce,
    .reduce_fuses = kn__host_reduce_fuses,
    .reduce_fused = kn__host_reduce_fused,
    .reduce_row = kn__host_reduce_row,
    .layout_takes = kn__layout_takes,
    .layout_run = kn__layout_run,
    .layout_plain = kn__layout_plain,
    .kept_weights_drop = kn__conv_weights_drop,
    .kept_weights_close = kn__conv_weights_close,
    .forks_watch = kn__host_forks_watch,
};
