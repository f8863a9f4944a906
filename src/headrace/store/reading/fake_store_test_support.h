// A store that is a script.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/store/object_store.h"
#include "headrace/store/object_writer.h"
#include "headrace/store/slot_memory.h"

namespace headrace {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Reads at once what it has, or when it is told to.
class FakeStore final : public ObjectStore {
 public:
  explicit FakeStore(std::shared_ptr<BlockPool> pool) : pool_(std::move(pool)) {}

  void read(std::shared_ptr<ReadBatch> batch) override {
    batch->hand_over();
    if (post) {
      post([this, batch] { answer(batch); });
    } else if (holds) {
      held.push_back(std::move(batch));
    } else {
      answer(std::move(batch));
    }
  }
  void answer(std::shared_ptr<ReadBatch> batch) {
    for (size_t i = 0; i < batch->size(); ++i) {
      ReadSlot& slot = batch->slot(i);
      const std::string name(batch->name(slot));
      {
        const Lock lock(mutex_);
        names.push_back(name);
      }
      const auto found = objects.find(name);
      if (found == objects.end()) {
        batch->set_error(slot, Error(Code::kNotFound, "no such object").with_url(url_of(name)));
      } else if (Result<void> good = slot.limit_to(found->second.size()); !good) {
        batch->set_error(slot, std::move(good.error()));
      } else if (Result<void> fits = slot.check_destination(); !fits) {
        batch->set_error(slot, std::move(fits.error()));
      } else {
        slot.object_bytes = found->second.size();
        EXPECT_TRUE(make_room_for_arrived(*pool_, slot, slot.range.size_bytes()).has_value());
        std::ranges::copy(
            bytes_of(found->second).subspan(slot.range.begin, slot.range.size_bytes()),
            slot.into.begin());
        end_flight(*pool_, slot);
      }
      batch->slot_done();
    }
  }
  void not_compared(std::string_view name, ChecksumKind) override {
    const Lock lock(mutex_);
    unverified.emplace_back(name);
  }
  std::string url_of(std::string_view name) const override { return cat("ais://bucket/", name); }
  uint64_t expected_object_bytes() const override { return 1000; }
  uint64_t useful_in_flight() const override { return 64; }
  uint64_t useful_ahead() const override { return 128; }
  uint32_t useful_pages_in_flight() const override { return 1; }
  std::shared_ptr<BlockPool> pool() const override { return pool_; }
  void expect_reads(uint32_t count) override { expected_reads += count; }
  uint32_t max_compose_sources() const override { return 0; }
  std::optional<SumLevel> written_sums(bool) const override { return std::nullopt; }
  bool tells_sums() const override { return true; }

  // What these tests never ask for.
  std::shared_ptr<Pending<ColumnPage>> list(ListRequest) override { return nullptr; }
  std::shared_ptr<Pending<ObjectInfo>> stat(std::string) override { return nullptr; }
  std::shared_ptr<Pending<ObjectInfo>> write(WriteRequest, std::span<const std::byte>) override {
    return nullptr;
  }
  Result<std::shared_ptr<ObjectWriter>> open_writer(WriterOptions) override {
    return fail(Code::kInternal, "not here");
  }
  std::shared_ptr<Pending<UploadsPage>> list_multipart(std::string, std::string,
                                                       std::string) override {
    return nullptr;
  }
  std::shared_ptr<Pending<bool>> abort_multipart(std::string, std::string) override {
    return nullptr;
  }
  std::shared_ptr<Pending<bool>> remove(std::string, Precondition) override { return nullptr; }
  std::shared_ptr<Pending<ObjectInfo>> copy(CopyRequest) override { return nullptr; }
  std::shared_ptr<Pending<ObjectInfo>> rename(CopyRequest) override { return nullptr; }
  std::shared_ptr<Pending<ObjectInfo>> compose(ComposeRequest) override { return nullptr; }
  std::shared_ptr<Pending<std::string>> presigned_url(UrlRequest) override { return nullptr; }

  std::map<std::string, std::string, std::less<>> objects;
  std::vector<std::string> names, unverified;  // that were read alone
  uint64_t expected_reads = 0;
  bool holds = false;                                         // what is to be read, until answer()
  std::vector<std::shared_ptr<ReadBatch>> held;               // by read()
  std::function<void(std::move_only_function<void()>)> post;  // where it reads; none: in read()

 private:
  Mutex mutex_;
  const std::shared_ptr<BlockPool> pool_;
};

}  // namespace headrace
