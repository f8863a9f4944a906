#include "headrace/store/part_body.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace headrace {
namespace {

// In two spans, of which the second begins in the middle of a piece.
struct LentPart {
  std::vector<std::byte> bytes;
  std::shared_ptr<const UploadPart> part;

  explicit LentPart(size_t size) : bytes(size) {
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
    const std::span<const std::byte> all(bytes);
    const size_t cut = size / 3;
    part = std::make_shared<UploadPart>(UploadPart{.size_bytes = size,
                                                   .crc32c = Crc32c().extended(all),
                                                   .spans = {all.first(cut), all.subspan(cut)}});
  }
};

class PartBodyTest : public ::testing::Test {
 protected:
  Result<std::vector<std::byte>> read_all(PartBody& body) {
    std::vector<std::byte> all;
    while (all.size() < body.size_bytes()) {
      std::optional<Result<std::span<const std::byte>>> piece;
      body.read(all.size(), [&piece](auto read) { piece = std::move(read); });
      if (!*piece) return std::unexpected(piece->error());
      all.insert(all.end(), (*piece)->begin(), (*piece)->end());
      if (after_piece_) after_piece_();
    }
    return all;
  }
  std::shared_ptr<PartBody> body_of(const LentPart& lent) {
    return std::make_shared<PartBody>(lent.part, PartBody::Holds::kAll, nullptr, pool_);
  }

  const std::shared_ptr<BlockPool> pool_ = BlockPool::create(64 * kMiB);
  std::function<void()> after_piece_;
};

TEST_F(PartBodyTest, CopiesMemoryInOrderAndFromTheBeginningAgain) {
  const LentPart lent(3 * kSourcePieceBytes + 17);
  const auto body = body_of(lent);
  EXPECT_EQ(body->size_bytes(), lent.bytes.size());
  EXPECT_EQ(read_all(*body).value(), lent.bytes);
  EXPECT_EQ(read_all(*body).value(), lent.bytes);
}

TEST_F(PartBodyTest, MemoryThatChangesMeanwhileIsNotGivenToItsEnd) {
  LentPart lent(3 * kSourcePieceBytes);
  const auto body = body_of(lent);
  const std::byte other = lent.bytes.back() ^ std::byte{1};
  after_piece_ = [&lent, other] { lent.bytes.back() = other; };
  const Result<std::vector<std::byte>> read = read_all(*body);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace
