// Reads batches of files, on threads that may block.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/block_pool.h"
#include "headrace/base/metrics.h"
#include "headrace/base/result.h"
#include "headrace/base/thread_pool.h"
#include "headrace/store/file/file_io.h"
#include "headrace/store/file/file_root.h"
#include "headrace/store/options.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/slot_memory.h"

namespace headrace {

// Why a pool takes no job.
Error stopped_error_of(const ThreadPool& threads);

// The threads take the files of a batch one by one. A large file is read in pieces by all of them.
//
// A file counts as unchanged if it is the same before and after its bytes are read. If a listing
// has told what it was, a small file is looked at only afterwards; if it is something else then,
// what was read is dropped, and the file is read again with a look before.
// Thread: any. Its jobs keep it alive, not the store.
class FileReader : public std::enable_shared_from_this<FileReader> {
 public:
  FileReader(FileRoot root, const StoreOptions& options, std::shared_ptr<BlockPool> pool,
             std::shared_ptr<ThreadPool> threads, std::shared_ptr<Metrics> metrics);

  void read(std::shared_ptr<ReadBatch> batch);
  // An average of what was read.
  uint64_t expected_object_bytes() const;

 private:
  struct BatchRead;
  struct SlotRead;
  struct LargeRead;
  class Ended;
  enum class Outcome : uint8_t { kComplete, kChanged };

  void run(const std::shared_ptr<BatchRead>& read, std::optional<SlotRead> current);
  // Takes a slot one step further, the next one if there is none. False once nothing is left to do
  // here: no slot is left, or the slot waits for memory, and goes on elsewhere.
  bool advance(const std::shared_ptr<BatchRead>& read, std::optional<SlotRead>& current,
               Ended& ended);
  Result<void> open(ReadBatch& batch, SlotRead& current);
  bool is_read_as_listed(const ReadBatch& batch, const SlotRead& current) const;
  Result<void> take_size(ReadBatch& batch, const SlotRead& current);
  Result<Room> admit(ReadBatch& batch, ReadSlot& slot);
  Result<Outcome> transfer(ReadBatch& batch, SlotRead& current, Ended& ended);
  Result<Outcome> check_unchanged(const ReadBatch& batch, ReadSlot& slot, const SlotRead& current);
  // Makes the slot one piece of all that it asks for.
  void begin_pieces(ReadSlot& slot) const;
  // False if the file has fewer bytes.
  Result<bool> read_piece(const ReadBatch& batch, const ReadSlot& slot, int descriptor,
                          ReadPiece& piece);
  void begin_large(const std::shared_ptr<BatchRead>& read, SlotRead current);
  void run_large(const std::shared_ptr<LargeRead>& large);
  // Ends the slot, or prepares it to be read again and returns true.
  bool conclude(ReadBatch& batch, SlotRead& current, Result<Outcome> outcome, Ended& ended);
  void finish(ReadBatch& batch, ReadSlot& slot, std::optional<Error> error, Ended& ended);

  const FileRoot root_;
  const uint64_t range_threshold_bytes_, range_bytes_;
  const OnChange on_change_;
  const Verify verify_;
  const std::shared_ptr<BlockPool> pool_;
  const std::shared_ptr<ThreadPool> threads_;
  const std::shared_ptr<Metrics> metrics_;
  std::atomic<uint64_t> read_bytes_ = 0, read_count_ = 0;
};

}  // namespace headrace
