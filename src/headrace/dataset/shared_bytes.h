// Bytes that never change again, in memory that processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/result.h"

namespace headrace {

// Read-only bytes. From kSharedFromBytes on they lie in a sealed memfd: a forked process shares
// them page by page, a spawned one maps them through its copy of the descriptor, and since nothing
// has a name in any file system, nothing is left behind, however the processes end. Smaller ones
// are not worth a descriptor.
// Thread: any (immutable). Owns mapping and descriptor; a fork changes nothing about either.
class SharedBytes {
 public:
  static constexpr uint64_t kSharedFromBytes = 256 * 1024;

  // Errors: kExhausted where the system has no memory.
  static Result<SharedBytes> copy_of(std::span<const std::byte> bytes);
  // What descriptor() of another process stands for. Takes the descriptor over, also on failure.
  // Errors: kInvalidArgument if it is nothing that copy_of() made; kExhausted.
  static Result<SharedBytes> map(int descriptor);

  SharedBytes() = default;
  SharedBytes(SharedBytes&& other) noexcept;
  SharedBytes& operator=(SharedBytes&& other) noexcept;
  ~SharedBytes();
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  int descriptor() const { return descriptor_; }  // -1 where there is none

 private:
  void swap(SharedBytes& other) noexcept;
  Result<void> map_descriptor(size_t size);

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
  bool mapped_ = false;  // else from the heap
};

}  // namespace headrace
