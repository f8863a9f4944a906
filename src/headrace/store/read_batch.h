// Many objects, read together: the unit in which callers ask and the engine answers.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/may_block.h"
#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/crc32c.h"

namespace headrace {

inline constexpr uint64_t kUnknownSize = UINT64_MAX;

// One object, or a range of one, to be read.
struct ReadTarget {
  std::string_view name = {};
  std::string_view generation = {};     // "": whichever is live
  uint64_t size_bytes = kUnknownSize;   // of the object, where a listing told it
  std::optional<Crc32c> crc32c = {};    // of the object, where a listing told it
  std::optional<ByteRange> range = {};  // none: all of it. `end` may lie beyond the object's end
  std::span<std::byte> into = {};       // the caller's memory; empty: the engine's
  bool has_into = false;                // `into` is meant, though it may be empty
};

class ObjectStore;
class ReadBatch;

// A generation as text, without a heap allocation.
class GenerationText {
 public:
  static constexpr size_t kMaxBytes = 95;
  void assign(std::string_view text) {
    size_ = static_cast<uint8_t>(text.size() < text_.size() ? text.size() : text_.size());
    text.copy(text_.data(), size_);
  }
  std::string_view view() const { return {text_.data(), size_}; }
  bool empty() const { return size_ == 0; }

 private:
  std::array<char, kMaxBytes> text_{};
  uint8_t size_ = 0;
};

// A contiguous part of one slot that one request reads. Queued intrusively.
struct ReadPiece {
  ReadBatch* batch = nullptr;
  ObjectStore* store = nullptr;
  uint32_t slot_index = 0;
  ByteRange range;  // within the object; end == kUnknownSize until the size is known
  Crc32c crc32c;    // of what has arrived
  uint64_t received_bytes = 0;
  ReadPiece* next = nullptr;
};

// One target and its outcome. Until the slot is done the engine owns it, afterwards the caller.
struct ReadSlot {
  uint32_t name_begin = 0, name_size = 0;  // in the batch's text
  uint32_t generation_begin = 0, generation_size = 0;
  uint64_t object_bytes = kUnknownSize;
  std::optional<Crc32c> expected = {};
  uint64_t listed_bytes = kUnknownSize;  // what add() was told of both, for restart()
  std::optional<Crc32c> listed_crc32c = {};
  ByteRange asked;  // what add() was told; [0, kUnknownSize) for a whole object
  ByteRange range;  // the same, ending with the object once its size is known
  bool whole = true;
  bool has_into = false;
  bool gzip = false;               // the bytes are gzip's (Content-Encoding), as stored
  uint32_t restarts = 0;           // after a failed checksum or a change of the object
  std::span<std::byte> into = {};  // where the bytes go: the caller's memory or `block`
  Block block;
  bool in_flight_charged = false;
  uint64_t reserved_bytes = 0;      // BlockPool::reserve(), until it has its memory
  GenerationText found_generation;  // the one that was read
  std::optional<Error> error = {};  // the first; see ReadBatch::set_error()
  std::atomic<bool> failed = false;
  ReadPiece first_piece;
  std::unique_ptr<ReadPiece[]> more_pieces;
  uint32_t piece_count = 1;
  std::atomic<uint32_t> pieces_left = 1;
};

// Filled with targets, handed to a store once, waited for, then looked at.
// A batch that was handed over completes always: every slot ends with its bytes or with an error.
// When it is done no I/O thread will touch the targets' memory any more, whatever the reason.
// Thread: any; add() before the batch is handed over, slots after it is done.
class ReadBatch : public std::enable_shared_from_this<ReadBatch> {
 public:
  static std::shared_ptr<ReadBatch> create(size_t slot_count, size_t text_bytes_hint = 0);
  ~ReadBatch();
  ReadBatch(const ReadBatch&) = delete;
  ReadBatch& operator=(const ReadBatch&) = delete;

  // At most `slot_count` times. Copies name and generation.
  void add(const ReadTarget& target);

  // True when every slot is done. Marks the batch as waited for: from then on it is read even when
  // the memory budget is used up by what the user holds.
  bool wait_until(std::chrono::steady_clock::time_point until, MayBlock may_block);
  bool done() const { return slots_left_.load(std::memory_order_acquire) == 0; }
  // Marks it as waited for, without waiting.
  void want();
  // Asks for an early end; the batch still completes, soon, with kCancelled where it was not done.
  void cancel();

  size_t size() const { return size_; }
  ReadSlot& slot(size_t index) { return slots_[index]; }
  std::string_view name(const ReadSlot& slot) const {
    return std::string_view(text_).substr(slot.name_begin, slot.name_size);
  }
  std::string_view generation(const ReadSlot& slot) const {
    return std::string_view(text_).substr(slot.generation_begin, slot.generation_size);
  }
  // Bytes of the targets whose size is known, plus `unknown_bytes` for each of the others.
  uint64_t expected_bytes(uint64_t unknown_bytes) const;

  // The store's end ---------------------------------------------------------------------------
  bool waited_for() const { return waited_for_.load(std::memory_order_seq_cst); }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Its place among the batches of one host, and how many of its slots wait there to begin.
  uint64_t order = 0;
  std::atomic<size_t> queued_slots = 0;
  // `then` runs once, when every slot is done, on the thread that was last, which it must not hold
  // up. For who does not wait; before the batch is handed over.
  void then(std::function<void(ReadBatch&)> then);
  // Keeps the batch alive until its last slot is done. `on_attention` is called when the batch is
  // first waited for, and when it is cancelled: the store looks at its queues again.
  void hand_over(std::function<void()> on_attention);
  // Keeps the first error of a slot whose pieces fail on several threads.
  void set_error(ReadSlot& slot, Error error);
  // Back to the state before the first attempt, but for `restarts`: what answers told of size and
  // checksum may be what was wrong. `forget_listing` drops what the listing told, too.
  void restart(ReadSlot& slot, bool forget_listing);
  // Once per slot.
  void slot_done();

 private:
  explicit ReadBatch(size_t slot_count);

  std::string text_ = {};
  std::unique_ptr<ReadSlot[]> slots_;
  const size_t capacity_;
  size_t size_ = 0;
  std::atomic<size_t> slots_left_ = 0;
  std::atomic<bool> waited_for_ = false, cancelled_ = false;
  Mutex mutex_;
  CondVar changed_;
  bool complete_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ReadBatch> self_ HEADRACE_GUARDED_BY(mutex_);
  std::function<void()> on_attention_ HEADRACE_GUARDED_BY(mutex_);
  std::function<void(ReadBatch&)> then_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
