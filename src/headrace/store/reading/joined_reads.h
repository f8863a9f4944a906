// Small objects that the server joins, read as one and split.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/metrics.h"
#include "headrace/base/mutex.h"
#include "headrace/base/warnings.h"
#include "headrace/store/object_store.h"
#include "headrace/store/root.h"
#include "headrace/store/temporary_names.h"

namespace headrace {

// A store that reads batches with fewer requests. Objects whose size, generation and CRC32C are
// known are composed, group by group, into one object with a unique name, which is read, split and
// deleted. Nothing is handed out until the composed object's size, component count and CRC32C have
// been verified, and then each part's CRC32C. If anything goes wrong with a group, its objects are
// read one by one, and the caller gets those results, including errors.
//
// Composed objects are always deleted, even if their batch is cancelled, and during stop().
// A process that is killed leaves some behind; the next process that joins objects deletes them.
// Thread: any. Owns the store; keeps itself alive while a group is in progress.
class JoinedReads final : public ObjectStore, public std::enable_shared_from_this<JoinedReads> {
 public:
  // What the engine lends. `compute` runs a computation off the I/O threads; it returns false once
  // the engine has stopped.
  struct Resources {
    std::shared_ptr<BlockPool> pool;
    std::function<bool(std::move_only_function<void()>)> compute;
    std::shared_ptr<Warnings> warnings;
    std::shared_ptr<Metrics> metrics;
  };

  // Where composed objects are: the store's bucket, by full names.
  struct Bucket {
    std::shared_ptr<ObjectStore> store;
    Root root;  // of the store whose objects are read
  };

  JoinedReads(std::shared_ptr<ObjectStore> store, Bucket bucket, Resources resources,
              const StoreOptions& options);
  ~JoinedReads() override;

  void read(std::shared_ptr<ReadBatch> batch) override;

  std::shared_ptr<Pending<ObjectPage>> list(ListRequest request) override {
    return store_->list(std::move(request));
  }
  std::shared_ptr<Pending<ColumnPage>> list_columns(ListRequest request) override {
    return store_->list_columns(std::move(request));
  }
  std::shared_ptr<Pending<ObjectInfo>> stat(std::string name) override {
    return store_->stat(std::move(name));
  }
  std::shared_ptr<Pending<ObjectInfo>> write(WriteRequest request,
                                             std::span<const std::byte> bytes) override {
    return store_->write(std::move(request), bytes);
  }
  Result<std::shared_ptr<ObjectWriter>> open_writer(WriterOptions options) override {
    return store_->open_writer(std::move(options));
  }
  std::shared_ptr<Pending<UploadsPage>> list_multipart(std::string prefix, std::string after_name,
                                                       std::string after_upload_id) override {
    return store_->list_multipart(std::move(prefix), std::move(after_name),
                                  std::move(after_upload_id));
  }
  std::shared_ptr<Pending<bool>> abort_multipart(std::string name, std::string upload_id) override {
    return store_->abort_multipart(std::move(name), std::move(upload_id));
  }
  std::shared_ptr<Pending<bool>> remove(std::string name, Precondition precondition) override {
    return store_->remove(std::move(name), std::move(precondition));
  }
  std::shared_ptr<Pending<ObjectInfo>> copy(CopyRequest request) override {
    return store_->copy(std::move(request));
  }
  std::shared_ptr<Pending<ObjectInfo>> compose(ComposeRequest request) override {
    return store_->compose(std::move(request));
  }
  std::shared_ptr<Pending<std::string>> presigned_url(UrlRequest request) override {
    return store_->presigned_url(std::move(request));
  }
  std::string url_of(std::string_view name) const override { return store_->url_of(name); }
  uint64_t expected_object_bytes() const override { return store_->expected_object_bytes(); }
  uint64_t useful_in_flight() const override;
  uint32_t useful_pages_in_flight() const override { return store_->useful_pages_in_flight(); }
  std::shared_ptr<BlockPool> pool() const override { return resources_.pool; }
  uint32_t max_compose_sources() const override { return store_->max_compose_sources(); }

  // Starts the groups for which there is room now.
  void pump();
  // Starts no more groups, cancels those in progress, and deletes their objects.
  void stop();
  // After stop(): true once everything is deleted.
  bool wait_deleted(std::chrono::steady_clock::time_point until, MayBlock);

 private:
  struct Work;   // one batch
  struct Group;  // one composed object
  enum class Notice : uint8_t { kNoPermission, kRefused, kNotDeleted };

  bool may_join() const;
  void on_wait_or_cancel(const std::shared_ptr<Work>& work);
  std::vector<std::shared_ptr<Group>> make_groups(const std::shared_ptr<Work>& work);
  std::shared_ptr<Group> next();
  bool reserve(Group& group) HEADRACE_REQUIRES(mutex_);
  void release(Group& group);

  void begin(const std::shared_ptr<Group>& group);
  void composed(const std::shared_ptr<Group>& group, Result<ObjectInfo> result);
  void read_whole(const std::shared_ptr<Group>& group, const ObjectInfo& composite);
  void arrived(const std::shared_ptr<Group>& group);
  void split(const std::shared_ptr<Group>& group);
  void give_up(const Group& group, const std::string& why);
  void remove_composite(const std::shared_ptr<Group>& group);
  void retire(const std::shared_ptr<Group>& group);

  void read_alone(const std::shared_ptr<Work>& work, std::vector<uint32_t> slots);
  void start(ObjectStore& store, const std::shared_ptr<Work>& work,
             const std::shared_ptr<ReadBatch>& inner);
  void note_refusal(const Error& error);
  void warn_once(Notice notice, const std::string& text);

  const std::shared_ptr<ObjectStore> store_;
  const Bucket bucket_;
  const Resources resources_;
  const JoinOptions options_;
  const uint64_t max_size_bytes_;  // of a group; also within the memory budget
  const bool decompresses_;
  const TemporaryNames temporaries_;
  const std::string name_prefix_;  // of the composites of this store only

  std::atomic<bool> enabled_ = true;
  std::atomic<std::chrono::steady_clock::time_point> paused_until_ =
      std::chrono::steady_clock::time_point::min();
  std::atomic<uint8_t> warned_ = 0;  // bits by Notice

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool swept_ HEADRACE_GUARDED_BY(mutex_) = false;
  uint64_t last_number_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<Group>> queue_ HEADRACE_GUARDED_BY(mutex_);
  // Groups that have started and whose composed object still exists.
  std::unordered_set<std::shared_ptr<Group>> active_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
