#include "headrace/format/column_page.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

ObjectInfo some_info(int i) {
  return {.name = "name-" + std::to_string(i),
          .size_bytes = static_cast<uint64_t>(i),
          .generation = i % 3 == 0 ? "" : std::to_string(1'000'000 + i),
          .checksum = i % 2 == 0 ? std::nullopt : std::optional(Crc32c(static_cast<uint32_t>(i))),
          .content_type = "type/" + std::to_string(i % 50),
          .content_encoding = i % 5 == 0 ? "gzip" : "",
          .updated = std::chrono::system_clock::time_point(std::chrono::seconds(i)),
          .storage_class = "STANDARD",
          .component_count = static_cast<uint32_t>(i % 4),
          .metageneration = 7};
}

TEST(ColumnPage, GivesBackWhatWasAdded) {
  ColumnPage page;
  for (int i = 0; i < 200; ++i) page.add(some_info(i));
  ASSERT_EQ(page.size(), 200u);
  ObjectInfo reused;
  for (int i = 0; i < 200; ++i) {
    page.read(static_cast<size_t>(i), reused);
    EXPECT_EQ(reused, some_info(i));
  }
}

TEST(ColumnPage, KeepsTheRowsThatAreWanted) {
  ColumnPage page;
  for (int i = 0; i < 10; ++i) page.add(some_info(i));
  page.keep(3, 5);
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page.info(0), some_info(3));
  EXPECT_EQ(page.info(1), some_info(4));
  page.keep(0, 0);
  EXPECT_TRUE(page.empty());
}

}  // namespace
}  // namespace headrace
