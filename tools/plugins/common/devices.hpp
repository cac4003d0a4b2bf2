/* The pools of the CUDA devices, by the numbers that frameworks call them. */
#ifndef KNET_PLUGINS_DEVICES_HPP
#define KNET_PLUGINS_DEVICES_HPP

#include <knet/pool.h>

#include <atomic>
#include <cstdio>

namespace knet_plugin {

constexpr int devices_max = 64;

/* The default pools of "cuda:0" …; each is created at first use. */
class device_pools {
  public:
    /* NULL if there is no such device; kn_last_error() says why. */
    kn_pool *get(int device) {
        if (device < 0 || device >= devices_max) return out_of_range(device);
        kn_pool *pool = pools_[device].load(std::memory_order_acquire);
        return __builtin_expect(pool != nullptr, 1) ? pool : open(device);
    }

    /* Only if it was used before. */
    kn_pool *known(int device) const { return pools_[device].load(std::memory_order_acquire); }

    /* The pool that has the block; NULL: none has. */
    kn_pool *find(kn_block_info *out, const void *ptr) const {
        for (int i = 0; i < devices_max; i++) {
            kn_pool *pool = known(i);
            if (pool && kn_block_find(out, sizeof *out, pool, ptr)) return pool;
        }
        return nullptr;
    }

  private:
    static kn_pool *out_of_range(int device) {
        KN_FAIL(KN_ERR_INVALID, "device %d is not in 0 … %d", device, devices_max - 1);
        return nullptr;
    }

    __attribute__((noinline)) kn_pool *open(int device) {
        char name[16];
        kn_device *found = nullptr;
        std::snprintf(name, sizeof name, "cuda:%d", device);
        if (kn_device_find(&found, name) < 0) return nullptr;
        bool older = kn_pending() < 0; /* another call's error, which stays pending */
        kn_pool *pool = kn_device_pool(found);
        if (!pool && (older || kn_check() < 0)) return nullptr; /* takes its own error */
        pools_[device].store(pool, std::memory_order_release);
        return pool;
    }

    std::atomic<kn_pool *> pools_[devices_max] = {};
};

} /* namespace knet_plugin */
#endif
