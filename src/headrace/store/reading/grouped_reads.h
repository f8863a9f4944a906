// A store that fetches several objects of a batch together.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/mutex.h"
#include "headrace/store/object_store.h"
#include "headrace/store/reading/fetcher.h"

namespace headrace {

// Cuts batches into groups for a fetcher, and reads the rest one by one. It keeps what all fetchers
// need: memory for the groups before they begin, their order, cancelling, and the end. Whatever
// goes wrong with a group, its objects are read one by one, and the caller gets those results,
// including errors.
// Thread: any. Owns the store and the fetcher; keeps itself alive while a group is in progress.
class GroupedReads final : public ObjectStore, public std::enable_shared_from_this<GroupedReads> {
 public:
  GroupedReads(std::shared_ptr<ObjectStore> store, std::unique_ptr<Fetcher> fetcher);
  ~GroupedReads() override;

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
  std::shared_ptr<Pending<ObjectInfo>> rename(CopyRequest request) override {
    return store_->rename(std::move(request));
  }
  std::shared_ptr<Pending<ObjectInfo>> compose(ComposeRequest request) override {
    return store_->compose(std::move(request));
  }
  std::shared_ptr<Pending<std::string>> presigned_url(UrlRequest request) override {
    return store_->presigned_url(std::move(request));
  }
  void not_compared(std::string_view name, ChecksumKind kind) override {
    store_->not_compared(name, kind);
  }
  std::string url_of(std::string_view name) const override { return store_->url_of(name); }
  uint64_t expected_object_bytes() const override { return store_->expected_object_bytes(); }
  uint64_t useful_in_flight() const override;
  uint64_t useful_ahead() const override;
  uint32_t useful_pages_in_flight() const override { return store_->useful_pages_in_flight(); }
  std::shared_ptr<BlockPool> pool() const override { return store_->pool(); }
  void expect_reads(uint32_t count) override { store_->expect_reads(count); }
  uint32_t max_compose_sources() const override { return store_->max_compose_sources(); }

  // Starts the groups for which there is room now.
  void pump();
  // Starts no more groups, and interrupts those in progress.
  void stop();
  // After stop(): true once all groups are retired.
  bool wait_retired(std::chrono::steady_clock::time_point until, MayBlock);

  // For the fetcher -------------------------------------------------------------------------
  // From now on the fetcher writes to the slots' memory, or ends slots. Until then cancelling ends
  // them at once. False if that has happened.
  bool touch(FetchGroup& group);
  // Gives back all but this much of what was reserved for the group.
  void keep_reserved(FetchGroup& group, uint64_t bytes);
  void release(FetchGroup& group) { keep_reserved(group, 0); }
  // How to end what is in progress. Called at once if that is wanted already.
  void set_interrupt(FetchGroup& group, std::function<void()> interrupt);
  // The slots end with kCancelled.
  void give_up(const FetchGroup& group, std::span<const uint32_t> slots, const std::string& why);
  void read_alone(const std::shared_ptr<FetchWork>& work, std::vector<uint32_t> slots);
  // Starts a batch that reads part of another: being waited for or cancelled passes on to it.
  void start(ObjectStore& store, const std::shared_ptr<FetchWork>& work,
             const std::shared_ptr<ReadBatch>& inner);
  // Nothing of the group is in progress any more.
  void retire(const std::shared_ptr<FetchGroup>& group);

 private:
  // A batch whose way is not chosen yet.
  struct Undecided {
    std::shared_ptr<FetchWork> work;
    std::vector<std::shared_ptr<FetchGroup>> groups;
  };

  Fetcher::Choice choose(const Undecided& undecided);
  void decide();
  void decide_again();
  void enqueue(const std::shared_ptr<FetchWork>& work,
               std::vector<std::shared_ptr<FetchGroup>> groups);
  void on_wait_or_cancel(const std::shared_ptr<FetchWork>& work);
  std::vector<std::shared_ptr<FetchGroup>> make_groups(const std::shared_ptr<FetchWork>& work);
  std::shared_ptr<FetchGroup> next();
  bool reserve(FetchGroup& group) HEADRACE_REQUIRES(mutex_);
  void begin(const std::shared_ptr<FetchGroup>& group);

  const std::shared_ptr<ObjectStore> store_;
  const std::unique_ptr<Fetcher> fetcher_;
  const std::shared_ptr<BlockPool> pool_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<FetchGroup>> queue_ HEADRACE_GUARDED_BY(mutex_);
  // A batch that is being decided is not in it.
  std::deque<Undecided> undecided_ HEADRACE_GUARDED_BY(mutex_);
  uint64_t askings_ HEADRACE_GUARDED_BY(mutex_) = 0;  // how often a fetcher has called `again`
  // Groups that have begun and are not retired.
  std::unordered_set<std::shared_ptr<FetchGroup>> active_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
