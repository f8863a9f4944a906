#include "headrace/dataset/tar_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/format/tar_test_support.h"

namespace headrace {
namespace {

using ::testing::IsEmpty;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(TarMembers, AreThoseOfTheArchiveInItsOrder) {
  const std::string archive =
      tar_file("b.txt", "second") + tar_file(std::string(300, 'n'), "") + tar_end();
  const Result<std::vector<TarMember>> members = tar_members(bytes_of(archive));
  ASSERT_TRUE(members) << members.error().message();
  ASSERT_EQ(members->size(), 2U);
  EXPECT_EQ((*members)[0].name, "b.txt");
  EXPECT_EQ(archive.substr((*members)[0].data_offset, (*members)[0].stored_bytes), "second");
  EXPECT_EQ((*members)[1].name, std::string(300, 'n'));
  EXPECT_EQ((*members)[1].size_bytes, 0U);
}

TEST(TarMembers, OfAnArchiveOfNothingAreNone) {
  EXPECT_THAT(tar_members(bytes_of(tar_end())).value(), IsEmpty());
}

TEST(TarMembers, NeedNoBlocksOfZerosAtTheEnd) {
  EXPECT_EQ(tar_members(bytes_of(tar_file("a", "1"))).value().size(), 1U);
}

TEST(TarMembers, OfAnArchiveThatIsCutAreAnError) {
  const std::string archive = tar_file("a", std::string(2000, 'x'));
  const Result<std::vector<TarMember>> members = tar_members(bytes_of(archive.substr(0, 1000)));
  ASSERT_FALSE(members);
  EXPECT_EQ(members.error().code(), Code::kCorrupt);
  EXPECT_FALSE(tar_members(bytes_of(std::string(1024, 'x'))));
}

}  // namespace
}  // namespace headrace
