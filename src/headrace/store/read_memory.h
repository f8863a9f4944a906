// The memory that a read fills.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "headrace/base/block_pool.h"
#include "headrace/store/scatter.h"

namespace headrace {

// A block of the engine's, once it has been allocated; or memory of the caller's; or the places of
// a Scatter, which belong to either.
// Thread: confined.
class ReadMemory {
 public:
  ReadMemory() = default;  // the engine's
  explicit ReadMemory(Block block) : memory_(std::move(block)) {}
  explicit ReadMemory(std::span<std::byte> callers) : memory_(callers) {}
  explicit ReadMemory(std::unique_ptr<Scatter> places) : memory_(std::move(places)) {}

  bool is_callers() const {
    return scatter() != nullptr ? scatter()->own_sizes.empty()
                                : !std::holds_alternative<Block>(memory_);
  }
  // Whether the engine's memory is yet to be allocated.
  bool is_lacking() const {
    if (scatter() != nullptr) return scatter()->lacks_blocks();
    const Block* const own = std::get_if<Block>(&memory_);
    return own != nullptr && own->data() == nullptr;
  }
  // Null unless there are several places.
  Scatter* scatter() {
    const auto* const places = std::get_if<std::unique_ptr<Scatter>>(&memory_);
    return places != nullptr ? places->get() : nullptr;
  }
  const Scatter* scatter() const { return const_cast<ReadMemory*>(this)->scatter(); }
  // The engine's. Only if it is neither the caller's nor several places.
  Block& block() { return std::get<Block>(memory_); }
  // Of one place, if there is memory. Otherwise empty.
  std::span<std::byte> bytes() const {
    if (const Block* const own = std::get_if<Block>(&memory_)) return own->bytes();
    const auto* const callers = std::get_if<std::span<std::byte>>(&memory_);
    return callers != nullptr ? *callers : std::span<std::byte>();
  }
  // As a range of bytes.
  std::byte* data() const { return bytes().data(); }
  size_t size() const { return bytes().size(); }
  bool empty() const { return bytes().empty(); }
  std::byte* begin() const { return data(); }
  std::byte* end() const { return data() + size(); }
  // Gives the engine's memory back.
  void release() {
    if (Block* const own = std::get_if<Block>(&memory_)) own->release();
    if (scatter() != nullptr) scatter()->release_blocks();
  }

 private:
  std::variant<Block, std::span<std::byte>, std::unique_ptr<Scatter>> memory_;
};

}  // namespace headrace
