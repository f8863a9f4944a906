// Immutable bytes in memory that processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/result.h"

namespace headrace {

// Read-only bytes. From kSharedFromBytes on they are in a sealed memfd: a forked process shares its
// pages, and a spawned one maps it through its copy of the descriptor. Since it has no name in any
// file system, nothing is left behind, however the processes end. Smaller ones are not worth a
// descriptor.
// Thread: any (immutable). Owns mapping and descriptor; a fork affects neither.
class SharedBytes {
 public:
  static constexpr uint64_t kSharedFromBytes = 256 * 1024;

  // Of parts: one behind the other.
  // Errors: kExhausted if the system has no memory.
  static Result<SharedBytes> copy_of(std::span<const std::span<const std::byte>> parts);
  static Result<SharedBytes> copy_of(std::span<const std::byte> bytes) {
    return copy_of(std::span(&bytes, 1));
  }
  // Opens the bytes of another process by its descriptor(). Takes over the descriptor, even on
  // failure.
  // Errors: kInvalidArgument if it was not made by copy_of(); kExhausted.
  static Result<SharedBytes> map(int descriptor);

  SharedBytes() = default;
  SharedBytes(SharedBytes&& other) noexcept;
  SharedBytes& operator=(SharedBytes&& other) noexcept;
  ~SharedBytes();
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  int descriptor() const { return descriptor_; }  // -1 if there is none

 private:
  void swap(SharedBytes& other) noexcept;
  Result<void> map_descriptor(size_t size);

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
  bool mapped_ = false;  // otherwise on the heap
};

}  // namespace headrace
