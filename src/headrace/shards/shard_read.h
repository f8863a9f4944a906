// One shard, read from its beginning or from a sample on, while its samples are used.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/may_block.h"
#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/base/thread_pool.h"
#include "headrace/base/units.h"
#include "headrace/dataset/shard_parser.h"
#include "headrace/format/checksum.h"
#include "headrace/format/compression.h"
#include "headrace/format/running_sum.h"
#include "headrace/shards/piece_window.h"
#include "headrace/store/generation_text.h"
#include "headrace/store/object_store.h"

namespace headrace {

// A shard whose size is known, and what of it is wanted.
struct ShardToRead {
  std::shared_ptr<ObjectStore> store = {};
  std::string name = {};
  std::string generation = {};  // "": the one that the first read finds
  uint64_t size_bytes = 0;
  Checksum checksum = {};
  // Whether the whole is compared with its checksum, and whether one that a listing left out is
  // asked for.
  bool verify = true, asks_checksum = false;
  uint64_t first = 0;  // the first sample
  // Of a plain tar: ShardSample::next_offset of the one before, or, with `first_key`, a byte
  // between two members before it. 0: not known.
  uint64_t offset = 0;
  std::string first_key = {};
  uint64_t end = UINT64_MAX;             // one behind the last sample
  uint64_t count = UINT64_MAX;           // how many samples the shard has, if that is known
  std::vector<std::string> fields = {};  // the wanted ones; empty: all
  // Where it is likely that `end` is reached: what follows is read once it is needed.
  uint64_t likely_end_offset = UINT64_MAX;
  uint64_t piece_bytes = 2 * kMiB;  // of one read
  // What reads have under way, together with those of other shards. Null: 16 MiB of its own.
  std::shared_ptr<PieceWindow> window = {};
  uint64_t max_ready_bytes = 8 * kMiB;  // of samples that wait to be taken
};

// Reads a shard by pieces, several at a time, decompresses it if it is compressed, and takes it
// apart into samples, on a thread of its own. At most the bytes under way and the ready samples
// that are allowed are held, and one sample. If it is read as a whole, its checksum is compared at
// its end.
// Thread: any. Owns its thread, which the destructor ends and joins.
// Errors: those of reading and of ShardParser and Decompressor, with the URL of the shard, after
// the samples before; kPreconditionFailed if the shard changes meanwhile; kInvalidArgument for a
// compression that cannot be read, and if there are not `count` samples; kCancelled.
class ShardRead {
 public:
  static std::shared_ptr<ShardRead> start(ShardToRead shard);
  ~ShardRead();
  ShardRead(const ShardRead&) = delete;
  ShardRead& operator=(const ShardRead&) = delete;

  // True once take() has something to give.
  bool wait_until(std::chrono::steady_clock::time_point until, MayBlock may_block);
  // The samples that are ready, in their order. None: it has ended.
  Result<std::vector<ShardSample>> take();
  // Asks for an early end.
  void cancel();
  // Also waits until it has ended.
  void close(MayBlock may_block);

  // Once it has ended.
  std::vector<std::string> warnings();
  const ShardToRead& shard() const { return shard_; }
  // That was read; "" where the store knows none. Valid once there are samples.
  const GenerationText& generation() const { return generation_; }

 private:
  explicit ShardRead(ShardToRead shard);

  void run();
  Result<void> read();
  Result<void> ask_checksum();
  Result<void> start_pieces();
  Result<std::shared_ptr<ReadBatch>> next_piece();
  Result<void> take_piece(std::span<const std::byte> bytes);
  Result<void> decompress(std::span<const std::byte> bytes);
  Result<void> parse(std::span<const std::byte> bytes);
  Result<void> finish();
  Result<void> check_count(bool ended) const;
  Result<void> compare();
  Result<void> publish();
  void begin(std::span<const std::byte> head);
  bool is_done() const { return parser_ && parser_->number() >= shard_.end; }

  struct Piece {
    std::shared_ptr<ReadBatch> batch;
    uint64_t size_bytes = 0;
  };

  const ShardToRead shard_;
  // Of the reading thread.
  std::optional<ShardParser> parser_;  // since the first bytes
  Compression compression_ = Compression::kNone;
  std::unique_ptr<Decompressor> decompressor_;
  std::vector<std::byte> plain_;  // decompressed bytes
  uint64_t next_begin_ = 0;
  bool sums_ = false;  // the whole is compared
  RunningSum in_order_;
  Checksum whole_, sum_;
  uint64_t summed_bytes_ = 0;
  std::vector<ShardSample> parsed_;
  GenerationText generation_;
  bool knows_generation_;  // it does not change any more
  PieceWindow::Turn turn_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Piece> pieces_ HEADRACE_GUARDED_BY(mutex_);
  std::shared_ptr<Pending<ObjectInfo>> stat_ HEADRACE_GUARDED_BY(mutex_);  // for the checksum
  std::vector<ShardSample> ready_ HEADRACE_GUARDED_BY(mutex_);
  uint64_t ready_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool cancelled_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool ended_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::string> warnings_ HEADRACE_GUARDED_BY(mutex_);

  ThreadPool thread_{1};
};

}  // namespace headrace
