// How a service treats the conditions of writes, as far as it was found out.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace headrace {

// Thread: any.
class WriteConditions {
 public:
  enum class Kept : uint8_t {
    kUnknown,
    kYes,
    kIgnored,
    kRefused,
  };

  // Of writes that must create the object (""), and of those that replace one generation.
  Kept of(const std::string& generation) const {
    return (generation.empty() ? create_ : replace_).load(std::memory_order_relaxed);
  }
  void set_create(Kept kept) { create_.store(kept, std::memory_order_relaxed); }
  void set_replace(Kept kept) { replace_.store(kept, std::memory_order_relaxed); }

 private:
  std::atomic<Kept> create_ = Kept::kUnknown, replace_ = Kept::kUnknown;
};

}  // namespace headrace
