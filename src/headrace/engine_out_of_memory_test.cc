// Whichever allocation on an I/O thread fails: what was asked for ends once, and nothing is left
// inside the engine. Part of the program of engine_allocation_test.cc.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headrace/allocation_test_support.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/remote/http_store.h"
#include "headrace/store/writing/played_service_test_support.h"
#include "headrace/store/writing/uploads.h"

namespace headrace {
namespace {

// What a test allocates while it lives does not fail.
class Spared {
 public:
  Spared() = default;
  ~Spared() { allocations_to_failure = kept_; }
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;

 private:
  const uint64_t kept_ = std::exchange(allocations_to_failure, 0);
};

class OutOfMemoryTest : public PlayedServiceTest {
 protected:
  // Runs what `begin` begins, anew for each allocation that fails.
  void for_each_allocation(const std::function<void()>& begin,
                           const std::function<bool()>& has_ended) {
    // Once without: glibc ends the process if it cannot note what a thread has to destroy.
    begin();
    run(has_ended, 0);
    uint64_t failed_count = 0;
    for (uint64_t to_failure = 0; to_failure == 0; ++failed_count) {
      begin();
      to_failure = run(has_ended, failed_count + 1);
      ASSERT_TRUE(has_ended()) << "after allocation " << failed_count + 1 << " has failed";
      ASSERT_TRUE(is_idle()) << "after allocation " << failed_count + 1 << " has failed";
    }
    EXPECT_GT(failed_count, 20u);
  }

  // Lets that allocation fail (0: none) and returns 0 if there were as many.
  uint64_t run(const std::function<bool()>& has_ended, uint64_t to_failure) {
    const auto is_done = [&] { return has_ended() && is_idle(); };
    for (int i = 0; i < 100'000 && !is_done(); ++i) {
      allocations_to_failure = to_failure;
      poll();
      to_failure = std::exchange(allocations_to_failure, 0);
      if (!is_done() && !clock_.advance_to_next()) break;
    }
    return to_failure;
  }

  template <class T>
  std::function<void(Result<T>)> into(std::optional<Result<T>>& result) {
    result.reset();
    return [&result](Result<T> value) {
      const Spared spared;
      EXPECT_FALSE(result.has_value()) << "it ended twice";
      result = std::move(value);
    };
  }

  void copy(bool moves) {
    CopyRequest request{.source_name = "in", .name = "out/a"};
    pending_ = moves ? store_->rename(std::move(request)) : store_->copy(std::move(request));
    pending_->then(into(info_));
  }

  StoreOptions options_;
  std::shared_ptr<HttpStore> store_;
  std::shared_ptr<Pending<ObjectInfo>> pending_;
  std::shared_ptr<Upload> upload_;
  Upload::Whole whole_;
  std::optional<Result<ObjectInfo>> info_;
  std::optional<Result<void>> cleaned_;
};

struct Parts {
  std::string name, url;
  UploadMethod method = UploadMethod::kDefault;
  friend void PrintTo(const Parts& parts, std::ostream* out) { *out << parts.name; }
};

class AnUploadWithoutMemory : public OutOfMemoryTest,
                              public ::testing::WithParamInterface<Parts> {};

TEST_P(AnUploadWithoutMemory, TellsOfEachPartAndOfItsEnd) {
  static constexpr uint32_t kPartCount = 3;
  // A session takes multiples of its unit.
  const std::string bytes(GetParam().method == UploadMethod::kResumable ? 256 * kKiB : 1000, 'a');
  std::vector<Result<void>> parts;
  const auto begin_upload = [&] {
    const std::string& url = GetParam().url;
    if (url.starts_with("gs")) begin<PlayedGcs>(url);
    if (url.starts_with("s3")) begin<PlayedS3>(url);
    if (url.starts_with("ais")) begin<PlayedAis>(url).has_multipart = false;
    upload_ = new_upload(remote_, GetParam().method, {.name = "out/a", .content_type = ""}).value();
    parts.clear();
    info_.reset();
    cleaned_.reset();
    Upload::Whole& whole = whole_ = {};
    for (uint32_t number = 1; number <= kPartCount; ++number) {
      const std::span<const std::byte> span = std::as_bytes(std::span(bytes));
      auto part = std::make_shared<UploadPart>(UploadPart{
          .part_number = number, .offset_bytes = whole.size_bytes, .size_bytes = bytes.size()});
      part->spans.push_back(span);
      part->crc32c = Crc32c().extended(span);
      whole = {.part_count = number,
               .size_bytes = whole.size_bytes + bytes.size(),
               .crc32c = whole.crc32c.joined(part->crc32c, bytes.size())};
      upload_->send(std::move(part), [this, &parts](Result<void> sent) {
        const Spared spared;
        if (!sent) upload_->cancel();
        parts.push_back(std::move(sent));
        ASSERT_LE(parts.size(), kPartCount) << "one of them ended twice";
        if (parts.size() < kPartCount) return;
        upload_->publish(whole_, [this](Result<ObjectInfo> info) {
          const Spared also_spared;
          into(info_)(std::move(info));
          upload_->clean(into(cleaned_));
        });
      });
    }
  };
  for_each_allocation(begin_upload, [this] { return cleaned_.has_value(); });
  EXPECT_TRUE(info_->has_value()) << "the last time, nothing has failed";
  upload_.reset();
}

INSTANTIATE_TEST_SUITE_P(Methods, AnUploadWithoutMemory,
                         ::testing::Values(Parts{.name = "composed", .url = "gs://bucket"},
                                           Parts{.name = "resumable",
                                                 .url = "gs://bucket",
                                                 .method = UploadMethod::kResumable},
                                           Parts{.name = "multipart", .url = "s3://bucket"},
                                           Parts{.name = "append", .url = "ais://bucket"}),
                         [](const auto& test) { return test.param.name; });

TEST_F(OutOfMemoryTest, ACopyInPartsEnds) {
  options_.write_limits.max_copy_bytes = options_.write_limits.copied_part_bytes = 1000;
  for (const std::string url : {"s3://bucket", "ais://bucket"}) {
    const auto begin_copy = [&] {
      if (url.starts_with("s3")) begin<PlayedS3>(url, options_);
      if (url.starts_with("ais")) begin<PlayedAis>(url, options_);
      service().objects["in"] = {.bytes = std::string(2500, 'a'), .generation = 7};
      store_ = std::make_shared<HttpStore>(remote_, options_, nullptr);
      copy(/*moves=*/url.starts_with("s3"));
    };
    for_each_allocation(begin_copy, [this] { return info_.has_value(); });
    EXPECT_TRUE(info_->has_value()) << "the last time, nothing has failed";
    store_.reset();
  }
}

TEST_F(OutOfMemoryTest, ARequestEnds) {
  const auto begin_stat = [&] {
    begin<PlayedS3>("s3://bucket", options_);
    service().objects["in"] = {.bytes = "abc", .generation = 7};
    store_ = std::make_shared<HttpStore>(remote_, options_, nullptr);
    pending_ = store_->stat("in");
    pending_->then(into(info_));
  };
  for_each_allocation(begin_stat, [this] { return info_.has_value(); });
  EXPECT_TRUE(info_->has_value()) << "the last time, nothing has failed";
  store_.reset();
}

TEST_F(OutOfMemoryTest, EachReadOfABatchEnds) {
  std::shared_ptr<ReadBatch> batch;
  bool is_done = false;
  const auto begin_read = [&] {
    begin<PlayedS3>("s3://bucket", options_);
    store_ = std::make_shared<HttpStore>(remote_, options_, nullptr);
    batch = ReadBatch::create(5);
    for (int i = 0; i < 5; ++i) {
      const std::string name = cat("in", i);
      service().objects[name] = {.bytes = "abc", .generation = 7};
      batch->add({.name = name});
    }
    is_done = false;
    batch->then([&](ReadBatch&) { is_done = true; });
    batch->want();
    store_->read(batch);
  };
  for_each_allocation(begin_read, [&] { return is_done; });
  for (size_t i = 0; i < batch->size(); ++i) {
    EXPECT_FALSE(batch->slot(i).error) << "the last time, nothing has failed";
  }
  batch.reset();
  store_.reset();
}

}  // namespace
}  // namespace headrace
