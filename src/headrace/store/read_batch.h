// Many objects that are read together: the unit in which callers request and the engine delivers.
#pragma once

#include <algorithm>
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
#include "headrace/format/checksum.h"
#include "headrace/format/object_info.h"
#include "headrace/format/running_sum.h"
#include "headrace/store/generation_text.h"
#include "headrace/store/read_memory.h"
#include "headrace/store/scatter.h"

namespace headrace {

// Up to this size, the CRC or XXH64 of bytes that are still in cache costs less than handing them
// to another thread. CRCs of larger objects are computed while their bytes arrive.
constexpr uint64_t kSumAtOnceBytes = 1 * kMiB;

// One object, or a range of one, to be read.
struct ReadTarget {
  std::string_view name = {};
  std::string_view generation = {};  // "": whichever is live
  // What is read is this file inside the shard of that name; the server gets it out. Its size is
  // the member's, and there is no generation. "": the object itself.
  std::string_view member = {};
  uint64_t size_bytes = kUnknownSize;   // of the object, if known from a listing
  Checksum checksum = {};               // of the object, if known from a listing
  std::optional<ByteRange> range = {};  // none: all of it. `end` may be beyond the object's end
  Checksum range_checksum = {};         // of the range, if known from an index
  std::span<std::byte> into = {};       // the caller's memory; empty: the engine's
  bool has_into = false;                // read into `into`, which may be empty
  // Read into these instead: `range` must be range_of() them, without a sum of its own. Copied.
  std::span<const Place> places = {};
  // Or read these parts, which `range` covers, as if each were read by itself: see join_ranges().
  // Their expected sums are of the kind that is wanted. Copied.
  std::span<const JoinedPart> parts = {};
  // Fill in ReadSlot::sum(), or Scatter::sums, with CRCs of this kind, even for a range; kNone: do
  // not.
  ChecksumKind wanted_sum = ChecksumKind::kNone;
};

class PieceReader;
class ReadBatch;

// A contiguous part of a slot, read by one request. Queued intrusively.
struct ReadPiece {
  ReadBatch* batch = nullptr;
  PieceReader* reader = nullptr;
  uint32_t slot_index = 0;
  ByteRange range;  // within the object; end == kUnknownSize until the size is known
  RunningSum sum;   // of the bytes that have arrived; of the slot's `running_kind`
  std::unique_ptr<PlaceFiller> filler;  // instead of `sum` if the slot is scattered
  uint64_t received_bytes = 0;
  ReadPiece* next = nullptr;

  // Forgets the bytes that have arrived.
  void reset(ChecksumKind kind) {
    received_bytes = 0;
    sum = RunningSum(kind);
    filler.reset();
  }
};

// Pieces in a row, linked by `next`.
struct PieceList {
  ReadPiece* first = nullptr;
  ReadPiece* last = nullptr;

  static PieceList linked(ReadPiece* first);
  bool empty() const { return first == nullptr; }
  size_t count() const;  // takes a look at each
  void append(const PieceList& others);
  void append(ReadPiece& piece);
  void prepend(const PieceList& others);
  // There must be one.
  ReadPiece& take_first();
  // Takes out those for which `which` is true. They keep their order.
  PieceList take_if(const std::function<bool(const ReadPiece&)>& which);
};

// One target and its outcome. Owned by the engine until the slot is done, then by the caller.
struct ReadSlot {
  // In the batch's text.
  struct Text {
    uint32_t begin = 0, size = 0;
    bool empty() const { return size == 0; }
  };
  // What few reads have.
  struct Rare {
    Text member;
    Checksum sum = {};                    // see ReadSlot::sum()
    uint64_t plain_bytes = kUnknownSize;  // after decompression, once counted
  };

  // What is read: what add() was given, and what is known by now.
  Text name, generation;
  uint64_t listed_bytes = kUnknownSize, object_bytes = kUnknownSize;  // of the whole object
  Checksum listed_sum = {}, expected = {};  // of what is read: the whole object, or the range
  std::optional<ByteRange> asked;           // none: all of it
  ByteRange range;  // the same, limited to the object once its size is known
  ReadMemory into;
  std::unique_ptr<Rare> rare;

  // Its outcome.
  GenerationText found_generation;  // the generation that was read
  std::optional<Error> error = {};  // the first; see ReadBatch::set_error()

  // How it is read.
  ReadPiece first_piece;
  std::unique_ptr<ReadPiece[]> more_pieces;
  uint64_t reserved_bytes = 0;  // by BlockPool::reserve(), until it has its memory
  static constexpr uint32_t kNoLane = UINT32_MAX;
  uint32_t lane = kNoLane;  // whose thread alone ends it
  uint32_t piece_count = 1;
  std::atomic<uint32_t> pieces_left = 1;
  uint32_t restarts = 0;  // after a checksum mismatch, or a change of the object
  std::atomic<bool> failed = false;
  bool in_flight_charged = false;
  bool gzip = false;  // the bytes are compressed (Content-Encoding: gzip), as stored
  ChecksumKind wanted_sum = ChecksumKind::kNone;
  // The kind of CRC that is computed while the bytes arrive; kNone: none is. Fixed once there is
  // more than one piece. Sums of other kinds are computed when all has arrived.
  ChecksumKind running_kind = ChecksumKind::kNone;

  // The CRC of the bytes that arrived of the kind that is wanted, if the store sums what it reads.
  Checksum sum() const { return rare ? rare->sum : Checksum(); }
  bool is_range() const { return asked.has_value(); }
  // What was asked for, of an object of this size.
  ByteRange asked_range(uint64_t size_bytes = kUnknownSize) const {
    const ByteRange all = asked.value_or(ByteRange{0, kUnknownSize});
    return {all.begin, std::min(all.end, size_bytes)};
  }
  // Whether the file of this name inside the object is read; see ReadTarget::member.
  bool has_member() const { return rare && !rare->member.empty(); }
  Rare& make_rare() {
    if (!rare) rare = std::make_unique<Rare>();
    return *rare;
  }
  // How many reads of callers it carries out.
  uint64_t read_count() const { return into.scatter() ? into.scatter()->read_count() : 1; }
  // Before any byte has arrived. `if_unknown`: for a whole object whose sum is yet to be told.
  void choose_running_kind(ChecksumKind if_unknown = ChecksumKind::kNone);
  // Cuts the range, whose end is known, into the first piece, of `first_bytes`, and more pieces of
  // `piece_bytes`, which are returned.
  PieceList split(uint64_t first_bytes, uint64_t piece_bytes);
  // Makes the range one piece again, without any bytes.
  void unsplit();
  // Memory for the next bytes of an incomplete piece. Never empty.
  std::span<std::byte> space(ReadPiece& piece) const;
  // `count` bytes have been put where space() said.
  void took(ReadPiece& piece, size_t count) const;
  // Joins the sums of the pieces, which must all have arrived: sets sum(), and returns the sum of
  // all bytes.
  Checksum join_sums();
  // Limits the range to an object of this size.
  // Errors: kInvalidArgument if there are no such bytes.
  Result<void> limit_to(uint64_t size_bytes);
  // Errors: kInvalidArgument if the caller's memory does not have the size of the range.
  Result<void> check_destination() const;
};

// Is filled with targets, handed to a store once, waited for, and then examined.
// A batch that was handed over always completes: every slot ends with its bytes or an error. Once
// it is done, no I/O thread touches the targets' memory any more, whatever the outcome.
// Thread: any; add() before the batch is handed over, slots after it is done.
class ReadBatch : public std::enable_shared_from_this<ReadBatch> {
 public:
  static std::shared_ptr<ReadBatch> create(size_t slot_count, size_t text_bytes_hint = 0);
  ~ReadBatch();
  ReadBatch(const ReadBatch&) = delete;
  ReadBatch& operator=(const ReadBatch&) = delete;

  // At most `slot_count` times. Copies name and generation.
  void add(const ReadTarget& target);

  // True once every slot is done. Marks the batch as waited for: from then on it is read even if
  // memory held by the user has used up the budget.
  bool wait_until(std::chrono::steady_clock::time_point until, MayBlock may_block);
  bool done() const { return slots_left_.load(std::memory_order_acquire) == 0; }
  // Marks it as waited for, without waiting.
  void want();
  // Asks for an early end. The batch still completes, soon, with kCancelled for slots that were not
  // done.
  void cancel();

  size_t size() const { return size_; }
  ReadSlot& slot(size_t index) { return slots_[index]; }
  const ReadSlot& slot(size_t index) const { return slots_[index]; }
  std::string_view name(const ReadSlot& slot) const { return text(slot.name); }
  std::string_view generation(const ReadSlot& slot) const { return text(slot.generation); }
  std::string_view member(const ReadSlot& slot) const {
    return slot.has_member() ? text(slot.rare->member) : std::string_view();
  }
  // The bytes of all targets, counting `unknown_bytes` for each target of unknown size.
  uint64_t expected_bytes(uint64_t unknown_bytes) const;
  // What add() was given for slot `i`, for another batch that reads it on behalf of this one ...
  ReadTarget target(size_t i) const;
  // ... and its outcome: moves the contents of `from`, and completes slot `i`.
  void take_outcome(size_t i, ReadSlot& from);
  // The same for slot `i` that was read as one of the parts of `from`, which is good.
  void take_part(size_t i, ReadSlot& from, size_t part);

  // For the store ---------------------------------------------------------------------------
  bool waited_for() const { return waited_for_.load(std::memory_order_seq_cst); }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Its number among all batches, in the order in which they were handed over.
  uint64_t order = 0;
  std::chrono::steady_clock::time_point handed_over{};
  // How far the reads of this batch are planned already, so that a store does not plan them again:
  // groups of objects come first, then ranges that lie close together.
  enum class Planned : uint8_t { kNothing, kGroups, kRanges };
  Planned planned = Planned::kNothing;
  // Makes what deal() needs, before hand_over(): afterwards nothing may be lacking.
  void make_shares(size_t lane_count) { shares_ = std::vector<LaneShare>(lane_count); }
  // Deals the slots out to the lanes: slot i to `lane_of(i)`, or to none if that is kNoLane. Each
  // lane counts its own slots, and the batch counts lanes, so that threads share little. The store
  // calls this once, before any lane may begin; slots of lanes count as queued from now on.
  void deal(const std::function<uint32_t(size_t)>& lane_of);
  // The slot is ended elsewhere, or by several threads: from now on it is counted by itself. Its
  // lane's thread.
  void take_from_lane(ReadSlot& slot);
  // One of these two for each slot; this one on the slot's lane's thread, if it has any. True if
  // that was the last of the lane: then slot_done() has to follow.
  bool ends_lane(const ReadSlot& slot);
  // Whether any of its slots are queued.
  bool queued() const { return queued_lanes_.load(std::memory_order_seq_cst) > 0; }
  // A slot is queued in that lane, or no longer. True if queued() may have changed.
  bool add_queued(uint32_t lane);
  bool remove_queued(uint32_t lane);
  // `then` runs once, when every slot is done, on the thread that finished last, which it must not
  // block. For callers who do not wait; call before the batch is handed over, or while one of its
  // slots is the caller's to end. If it is called again, both run.
  void then(std::function<void(ReadBatch&)> then);
  // Keeps the batch alive until its last slot is done. From now on its slots count against the
  // budget of `pool`, if there is one, as long as it exists: as what users hold. `on_attention` is
  // called when somebody first waits for the batch and when it is cancelled, so that the store
  // looks at its queues again.
  void hand_over(std::shared_ptr<BlockPool> pool = nullptr,
                 std::function<void()> on_attention = {});
  // `inner`, which was handed over, reads a part of this batch: until this one is done, `inner` is
  // waited for and cancelled with it. See inner_reads.h.
  void pass_on_to(const std::shared_ptr<ReadBatch>& inner);
  // Keeps the first error of a slot, whose pieces may fail on several threads.
  void set_error(ReadSlot& slot, Error error);
  // Returns the slot to its state before the first attempt, except for `restarts`: the size or
  // checksum that an answer reported may have been wrong. `and_listing` also drops what the
  // listing reported.
  void restart(ReadSlot& slot, bool and_listing);
  // Before it is read: what comes is not what the listing reported.
  void forget_listing(ReadSlot& slot);
  // Once per slot; or once for several.
  void slot_done() { slots_done(1); }
  void slots_done(size_t count);

 private:
  explicit ReadBatch(size_t slot_count);
  ReadSlot::Text keep(std::string_view text);
  std::string_view text(const ReadSlot::Text& at) const {
    return std::string_view(text_).substr(at.begin, at.size);
  }

  std::optional<Charge> charge_;
  std::string text_ = {};
  std::unique_ptr<ReadSlot[]> slots_;
  // What one lane's thread counts.
  struct alignas(64) LaneShare {
    size_t queued = 0, left = 0;
  };
  std::vector<LaneShare> shares_;
  std::atomic<size_t> queued_lanes_ = 0;
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
  std::vector<std::shared_ptr<ReadBatch>> inner_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
