// Small objects that the server composes, read as one and split.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "headrace/base/block_pool.h"
#include "headrace/base/metrics.h"
#include "headrace/base/mutex.h"
#include "headrace/base/warnings.h"
#include "headrace/store/object_store.h"
#include "headrace/store/reading/grouped_reads.h"
#include "headrace/store/root.h"
#include "headrace/store/temporary_names.h"

namespace headrace {

// Objects whose size, generation and CRC32C are known are composed, group by group, into one object
// with a unique name, which is read, split and deleted. Nothing is handed out until the composed
// object's size, component count and CRC32C have been verified, and then each part's CRC32C.
//
// Composed objects are always deleted, even if their batch is cancelled, and during stop().
// A process that is killed leaves some behind; the next process that composes deletes them.
// Thread: any.
class ComposeFetcher final : public Fetcher {
 public:
  // What the engine lends. `compute` runs a computation off the I/O threads; it returns false once
  // the engine has stopped.
  struct Resources {
    std::shared_ptr<BlockPool> pool;
    std::function<bool(std::move_only_function<void()>)> compute;
    std::shared_ptr<Warnings> warnings;
    std::shared_ptr<Metrics> metrics;
  };

  // Where composed objects are: the bucket, by full names. A store that does not read in these
  // groups, which would own it.
  struct Bucket {
    std::shared_ptr<ObjectStore> store;
    Root root;  // of the store whose objects are read
  };

  ComposeFetcher(Bucket bucket, Resources resources, const StoreOptions& options);

  bool is_ready() const override;
  Limits limits() const override {
    return {.max_size_bytes = max_size_bytes_,
            .max_objects = options_.max_objects,
            .max_in_flight = options_.max_in_flight};
  }
  bool takes(const ReadBatch& batch, const ReadSlot& slot) const override;
  std::shared_ptr<FetchGroup> make_group(std::shared_ptr<ReadBatch> batch,
                                         std::shared_ptr<ObjectStore> store,
                                         PlannedGroup parts) const override;
  void begin(const std::shared_ptr<GroupedReads>& reads,
             const std::shared_ptr<FetchGroup>& group) override;
  void left_behind(size_t group_count) override;

 private:
  struct Group;
  using Reads = std::shared_ptr<GroupedReads>;
  enum class Notice : uint8_t { kNoPermission, kRefused, kNotDeleted };

  void composed(const Reads& reads, const std::shared_ptr<Group>& group, Result<ObjectInfo> result);
  static void end_alone(const Group& group, const Error& why);
  void read_whole(const Reads& reads, const std::shared_ptr<Group>& group,
                  const ObjectInfo& composite);
  void arrived(const Reads& reads, const std::shared_ptr<Group>& group);
  void split(const Reads& reads, const std::shared_ptr<Group>& group);
  void remove_composite(const Reads& reads, const std::shared_ptr<Group>& group);
  void note_refusal(const Error& error);
  void warn_once(Notice notice, const std::string& text);

  const Bucket bucket_;
  const Resources resources_;
  const ComposeOptions options_;
  const uint64_t max_size_bytes_;  // of a group; also within the memory budget
  const bool decompresses_;
  const TemporaryNames temporaries_;
  const std::string name_prefix_;  // of the composites of this store only

  std::atomic<bool> enabled_ = true;
  std::atomic<std::chrono::steady_clock::time_point> paused_until_ =
      std::chrono::steady_clock::time_point::min();
  std::atomic<uint8_t> warned_ = 0;  // bits by Notice
  std::atomic<bool> swept_ = false;
  std::atomic<uint64_t> last_number_ = 0;
};

}  // namespace headrace
