// Copies whose bytes pass through this process.
#include "headrace/store/writing/relayed_upload.h"

#include <future>
#include <memory>

#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/remote/http_store.h"
#include "headrace/store/writing/uploads.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

class RelayedUploadTest : public S3Test {
 protected:
  RelayedUploadTest() {
    server_.post("uploads_config", R"({"min_part_bytes":1})");
    server_.place("in", bytes_);
  }
  std::shared_ptr<RelayedUpload> upload_of(uint32_t part_count) {
    const auto store = std::dynamic_pointer_cast<HttpStore>(open());
    return std::make_shared<RelayedUpload>(
        store->remote(), store,
        *new_upload(store->remote(), UploadMethod::kDefault, {.name = "out"}),
        CopyRequest{.source_name = "in", .name = "out"}, *take(store->stat("in")), part_count);
  }
  static std::future<Result<void>> send(Upload& upload, uint32_t part_number, uint64_t offset_bytes,
                                        uint64_t size_bytes) {
    auto ended = std::make_shared<std::promise<Result<void>>>();
    upload.send(
        std::make_shared<UploadPart>(UploadPart{
            .part_number = part_number, .offset_bytes = offset_bytes, .size_bytes = size_bytes}),
        [ended](Result<void> result) { ended->set_value(std::move(result)); });
    return ended->get_future();
  }

  const std::string bytes_ = some_bytes(200 * kKiB);
};

// Those behind it are read, and wait for their turn, which never comes.
TEST_F(RelayedUploadTest, APartThatGetsNoMemoryEndsThoseBehindIt) {
  const std::shared_ptr<RelayedUpload> upload = upload_of(3);
  std::vector<std::future<Result<void>>> ended;
  ended.push_back(send(*upload, 3, 100 * kKiB, 50 * kKiB));
  ended.push_back(send(*upload, 2, 50 * kKiB, 50 * kKiB));
  ended.push_back(send(*upload, 1, 0, uint64_t{1} << 60));
  for (std::future<Result<void>>& each : ended) {
    ASSERT_EQ(each.wait_for(kPatience), std::future_status::ready);
    EXPECT_THAT(each.get(), FailsWith(Code::kExhausted, HasSubstr("the system has no memory")));
  }
}

}  // namespace
}  // namespace headrace
