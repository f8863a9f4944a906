#include "headrace/format/xxh64.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

// The values of xxhsum -H64, and of its library with a seed.
TEST(Xxh64, IsThatOfTheReference) {
  EXPECT_EQ(xxh64(""), 0xEF46DB3751D8E999u);
  EXPECT_EQ(xxh64("a"), 0xD24EC4F1A98C6E5Bu);
  EXPECT_EQ(xxh64("abc"), 0x44BC2CF5AD770999u);
  EXPECT_EQ(xxh64("123456789"), 0x8CB841DB40E6AE83u);
  EXPECT_NE(xxh64("abc", 1), xxh64("abc", 2));
}

TEST(Xxh64, DoesNotDependOnHowTheBytesCome) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 7);
  for (size_t size = 0; size <= text.size(); ++size) {
    const std::string_view bytes = std::string_view(text).substr(0, size);
    for (size_t cut = 0; cut <= size; cut += 3) {
      Xxh64 hash(17);
      hash.extend(bytes.substr(0, cut));
      const uint64_t before = hash.value();
      EXPECT_EQ(before, xxh64(bytes.substr(0, cut), 17));
      hash.extend(bytes.substr(cut));
      EXPECT_EQ(hash.value(), xxh64(bytes, 17)) << size << ", " << cut;
    }
  }
}

}  // namespace
}  // namespace headrace
