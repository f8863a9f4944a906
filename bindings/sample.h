// A sample, as Python has it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "convert.h"
#include "headrace/base/block_pool.h"
#include "headrace/store/read_batch.h"

namespace headrace::python {

inline constexpr size_t kNoPosition = SIZE_MAX;

// The bytes of one object (or of a range of one) and where they came from. The memory is a block of
// the engine, the caller's own or, after unpickling, from the heap.
// Thread: confined (the GIL).
class Sample {
 public:
  // `origin` is what the caller requested: a name, an ObjectInfo, or entry `position` of an
  // ObjectIndex. Name and URL are made from it on demand; `url_prefix` is the store's.
  Sample(nb::object url_prefix, nb::object origin, size_t position,
         const GenerationText& generation)
      : url_prefix_(std::move(url_prefix)),
        origin_(std::move(origin)),
        position_(position),
        generation_(generation) {}
  // A copy of `data`.
  Sample(nb::handle data, nb::str url, std::string_view generation, nb::str name,
         std::optional<size_t> position, std::optional<uint64_t> seed, nb::object label);

  // A part of the bytes of `whole`, which it keeps.
  Sample(const Sample& whole, nb::object keep, std::span<std::byte> bytes)
      : url_prefix_(whole.url_prefix_),
        url_(whole.url_),
        origin_(whole.origin_),
        position_(whole.position_),
        generation_(whole.generation_),
        seed_(whole.seed_),
        label_(whole.label_),
        bytes_(bytes),
        whole_(std::move(keep)) {}

  void own(Block block) {
    block_ = std::move(block);
    bytes_ = block_.bytes();
  }
  void hold(std::shared_ptr<HeldBuffer> buffer, std::span<std::byte> bytes) {
    held_ = std::move(buffer);
    bytes_ = bytes;
  }

  std::span<std::byte> bytes() const { return bytes_; }
  const nb::object& origin() const { return origin_; }
  std::string_view generation() const { return generation_.view(); }
  nb::object url() const;
  nb::object name() const;
  std::optional<size_t> position() const {
    return position_ == kNoPosition ? std::nullopt : std::optional(position_);
  }
  std::optional<uint64_t> seed() const { return seed_; }
  void set_seed(uint64_t seed) { seed_ = seed; }
  const nb::object& label() const { return label_.get(); }
  void set_label(nb::object label) { label_ = UserObject(std::move(label)); }
  // The generators started from the seed; made on first use.
  nb::object rng();

 private:
  nb::object url_prefix_;  // null: `origin_` is the name, `url_` the URL
  nb::object url_;
  nb::object origin_;
  size_t position_ = kNoPosition;
  GenerationText generation_;
  std::optional<uint64_t> seed_;
  UserObject label_;
  nb::object rng_;  // null until first used
  std::span<std::byte> bytes_;
  Block block_;
  std::shared_ptr<HeldBuffer> held_;  // one per object, or one for the whole batch
  std::unique_ptr<std::byte[]> copy_;
  nb::object whole_;  // the sample whose memory this is
};

}  // namespace headrace::python
