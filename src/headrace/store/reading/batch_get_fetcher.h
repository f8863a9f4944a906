// Objects that one request gets, as one tar.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "headrace/base/block_pool.h"
#include "headrace/base/metrics.h"
#include "headrace/base/pending.h"
#include "headrace/base/warnings.h"
#include "headrace/store/batch_gets.h"
#include "headrace/store/options.h"
#include "headrace/store/reading/batch_get.h"
#include "headrace/store/reading/grouped_reads.h"

namespace headrace {

// Reads objects and ranges whose size is known by requests for many, wherever the service has such
// requests, which the first of them finds out, and, unless the options say otherwise, wherever they
// have been measured to be faster. Bytes go straight to the slots' memory, which is reserved before
// the request is sent.
//
// An answer tells neither generations nor checksums. So what is wanted in one generation is read
// this way only if its sum is known, which is compared; all else by itself.
// Thread: any.
class BatchGetFetcher final : public Fetcher {
 public:
  // Of the store that reads in these groups, or at least live as long.
  struct Service {
    const BatchGets* gets = nullptr;
    BatchGetRecord* record = nullptr;
    std::function<std::shared_ptr<Pending<bool>>(std::shared_ptr<BatchGet>)> send = {};
  };
  // What the engine lends.
  struct Resources {
    std::shared_ptr<BlockPool> pool;
    std::shared_ptr<Warnings> warnings;
    std::shared_ptr<Metrics> metrics;
  };

  BatchGetFetcher(Service service, Resources resources, const StoreOptions& options);

  bool is_ready() const override;
  Limits limits() const override;
  bool takes(const ReadBatch& batch, const ReadSlot& slot) const override;
  bool reads_alone(ReadBatch& batch, uint64_t object_count, uint64_t bytes) override;
  std::shared_ptr<FetchGroup> make_group(std::shared_ptr<ReadBatch> batch,
                                         std::shared_ptr<ObjectStore> store,
                                         PlannedGroup parts) const override;
  bool holds_back(const FetchGroup& group) const override;
  FetchWay choose(FetchGroup& group) override;
  void begin(const std::shared_ptr<GroupedReads>& reads,
             const std::shared_ptr<FetchGroup>& group) override;
  void retired(FetchGroup& group) override;

 private:
  struct Group;

  void ended(const std::shared_ptr<GroupedReads>& reads, const std::shared_ptr<FetchGroup>& group,
             BatchGet& get, const Result<bool>& result);
  void judge(const ObjectStore& store, const Result<bool>& result, size_t came, size_t asked);
  void warn_once(const std::string& text);

  const Service service_;
  const Resources resources_;
  const GetBatchOptions options_;
  const Verify verify_;
  const uint64_t max_size_bytes_;  // of a group; also within the memory budget
  std::atomic<bool> is_allowed_ = true;
  std::atomic<bool> warned_ = false;
};

}  // namespace headrace
