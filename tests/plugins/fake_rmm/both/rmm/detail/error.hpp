/* The names of RMM that <knet/rmm.hpp> uses, for machines without RMM. */
#pragma once
#include <new>
#include <string>

namespace rmm {

class bad_alloc : public std::bad_alloc {
  public:
    explicit bad_alloc(const std::string &text) : text_("std::bad_alloc: " + text) {}
    const char *what() const noexcept override { return text_.c_str(); }

  private:
    std::string text_;
};

class out_of_memory : public bad_alloc {
  public:
    explicit out_of_memory(const std::string &text) : bad_alloc("out_of_memory: " + text) {}
};

} /* namespace rmm */
