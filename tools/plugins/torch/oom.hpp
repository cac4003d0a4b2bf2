/* What a failed allocation throws. */
#ifndef KNET_PLUGINS_OOM_HPP
#define KNET_PLUGINS_OOM_HPP

#ifdef KNET_WITH_TORCH
#include <c10/util/Exception.h>
#else
#include <cstdio>
#include <new>
#endif

namespace knet_plugin {

#ifdef KNET_WITH_TORCH

constexpr const char *oom_type = "c10::OutOfMemoryError"; /* in Python: torch.OutOfMemoryError */

[[noreturn]] inline void throw_oom(const char *message) {
    throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message);
}

#else

constexpr const char *oom_type = "std::bad_alloc";

/* Its text is copied: the thread's last error changes. */
class out_of_memory : public std::bad_alloc {
  public:
    explicit out_of_memory(const char *message) noexcept {
        std::snprintf(text_, sizeof text_, "%s", message);
    }
    const char *what() const noexcept override { return text_; }

  private:
    char text_[2048];
};

[[noreturn]] inline void throw_oom(const char *message) { throw out_of_memory(message); }

#endif

} /* namespace knet_plugin */
#endif
