#include "headrace/format/xxh64.h"

#include <gtest/gtest.h>

#include <string>

// The reference.
#define XXH_INLINE_ALL
#include <xxhash.h>

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

// On some processors, long pieces are added in another way than the reference does it.
TEST(Xxh64, IsTheReferencesForLongPiecesToo) {
  std::string text;
  for (uint32_t i = 0; i < 5000; ++i) text += static_cast<char>(i * 2654435761 >> 24);
  for (size_t first = 0; first <= 70; ++first) {
    for (const size_t second : {255u, 256u, 257u, 288u, 319u, 1000u, 4096u}) {
      const std::string_view bytes = std::string_view(text).substr(0, first + second + 300);
      Xxh64 hash(17);
      hash.extend(bytes.substr(0, first));
      hash.extend(bytes.substr(first, second));
      EXPECT_EQ(hash.value(), XXH64(bytes.data(), first + second, 17)) << first << ", " << second;
      hash.extend(bytes.substr(first + second));
      EXPECT_EQ(hash.value(), XXH64(bytes.data(), bytes.size(), 17)) << first << ", " << second;
      EXPECT_EQ(hash.value(), xxh64(bytes, 17));
    }
  }
}

}  // namespace
}  // namespace headrace
