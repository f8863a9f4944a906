#include "headrace/dataset/shared_bytes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace headrace {
namespace {

std::vector<std::byte> some_bytes(size_t size) {
  std::vector<std::byte> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251);
  return out;
}

TEST(SharedBytes, HoldsWhatItWasGiven) {
  for (const size_t size : {size_t{0}, size_t{1}, SharedBytes::kSharedFromBytes - 1,
                            SharedBytes::kSharedFromBytes, size_t{3'000'001}}) {
    const std::vector<std::byte> bytes = some_bytes(size);
    const SharedBytes shared = SharedBytes::copy_of(bytes).value();
    EXPECT_TRUE(std::ranges::equal(shared.bytes(), bytes));
    EXPECT_EQ(shared.descriptor() >= 0, size >= SharedBytes::kSharedFromBytes);
  }
}

TEST(SharedBytes, IsMappedThroughAnotherDescriptor) {
  const std::vector<std::byte> bytes = some_bytes(1'000'000);
  SharedBytes first = SharedBytes::copy_of(bytes).value();
  const SharedBytes second = SharedBytes::map(::dup(first.descriptor())).value();
  EXPECT_NE(first.bytes().data(), second.bytes().data());
  first = SharedBytes();  // whoever maps it keeps it
  EXPECT_TRUE(std::ranges::equal(second.bytes(), bytes));
}

TEST(SharedBytes, CannotBeChangedThroughItsDescriptor) {
  const SharedBytes shared = SharedBytes::copy_of(some_bytes(1'000'000)).value();
  EXPECT_EQ(::pwrite(shared.descriptor(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(shared.descriptor(), 5), -1);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared.descriptor(), 0),
            MAP_FAILED);
}

TEST(SharedBytes, RefusesWhatCouldChangeUnderItsHands) {
  const int open_one = ::memfd_create("open", MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(open_one, 4096), 0);
  EXPECT_EQ(SharedBytes::map(open_one).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(SharedBytes::map(::open("/dev/null", O_RDONLY)).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(SharedBytes::map(-1).error().code(), Code::kInvalidArgument);
}

TEST(SharedBytes, LeavesNoDescriptorBehind) {
  const int before = ::dup(0);
  ::close(before);
  for (int i = 0; i < 3; ++i) {
    const SharedBytes shared = SharedBytes::copy_of(some_bytes(1'000'000)).value();
    const SharedBytes again = SharedBytes::map(::dup(shared.descriptor())).value();
  }
  const int after = ::dup(0);
  ::close(after);
  EXPECT_EQ(before, after);
}

TEST(SharedBytes, IsSeenByAForkedChild) {
  const std::vector<std::byte> bytes = some_bytes(1'000'000);
  const SharedBytes shared = SharedBytes::copy_of(bytes).value();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(std::ranges::equal(shared.bytes(), bytes) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace
