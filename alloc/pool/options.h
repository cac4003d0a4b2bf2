/* Options of a pool, when it is created. */
#ifndef KN_ALLOC_POOL_OPTIONS_H
#define KN_ALLOC_POOL_OPTIONS_H

#include "core/pool_state.h"

/* Of the memory that the options are about: the device's, or the host's. */
kn_status kn__options_info(kn_device_info *out, kn_device *device, bool pinned);
/* Errors: INVALID, with the function's name, the option and its value. */
kn_status kn__options_check(const kn_pool_options *o, const kn_device_info *info,
                            const char *function);
/* Errors: UNSUPPORTED, with the option and the device. */
kn_status kn__options_check_device(const kn_pool_options *o, const kn_device *device,
                                   const kn_device_info *info);
/* Of a new pool, whose device and driver are set. */
void kn__options_start(kn_pool *pool, const kn_pool_options *o, const kn_device_info *info);
/* Changes a pool's options as read_fn reads the words, under one hold of the pool's lock: no change
 * of another thread is lost. Errors: read_fn's; INVALID for options that contradict each other. */
kn_status kn__options_change(kn_pool *pool, const char *words,
                             kn_status (*read_fn)(kn_pool_options *out, const char *words),
                             const char *function);

#endif
