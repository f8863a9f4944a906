// Files that change, fail or stall while they are read, step by step.
#include "headrace/store/file/file_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <list>
#include <string>
#include <vector>

// Targets name the fields that a test is about; the others keep their defaults.
#pragma clang diagnostic ignored "-Wmissing-designated-field-initializers"

namespace {

// What happens instead of a pread of this program; none: what the system does.
using Pread = std::function<ssize_t(int, void*, size_t, off_t)>;
Pread& on_pread() {
  static Pread hook;
  return hook;
}

ssize_t system_pread(int file, void* into, size_t size, off_t offset) {
  return ::syscall(SYS_pread64, file, into, size, offset);
}

}  // namespace

// By another name: unistd.h defines one with checks of its own.
extern "C" ssize_t hooked_pread(int file, void* into, size_t size, off_t offset) __asm__("pread");
ssize_t hooked_pread(int file, void* into, size_t size, off_t offset) {
  return on_pread() ? on_pread()(file, into, size, offset) : system_pread(file, into, size, offset);
}

namespace headrace {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const MayBlock kMayBlock = MayBlock::on_this_thread();
constexpr auto kForEver = std::chrono::steady_clock::time_point::max();

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class FileReaderTest : public testing::Test {
 protected:
  FileReaderTest() {
    std::string pattern = (fs::temp_directory_path() / "headrace-test-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    open({});
  }
  ~FileReaderTest() override {
    on_pread() = nullptr;
    threads_->stop();
    fs::remove_all(root_);
  }

  void open(const StoreOptions& options) {
    reader_ = std::make_shared<FileReader>(FileRoot(root_), options, pool_, threads_, metrics_);
  }
  std::string path(std::string_view name) const { return cat(root_, "/", name); }
  void put(const std::string& name, std::string_view text) {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  // As a listing tells it.
  ReadTarget listed(std::string_view name) {
    struct stat status{};
    EXPECT_EQ(::stat(path(name).c_str(), &status), 0);
    generations_.push_back(generation_of(status));
    return {.name = name,
            .generation = generations_.back(),
            .size_bytes = static_cast<uint64_t>(status.st_size)};
  }
  std::shared_ptr<ReadBatch> start(const std::vector<ReadTarget>& targets) {
    auto batch = ReadBatch::create(targets.size());
    for (const ReadTarget& target : targets) batch->add(target);
    reader_->read(batch);
    return batch;
  }
  Result<std::string> read(const ReadTarget& target) {
    const auto batch = start({target});
    EXPECT_TRUE(batch->wait_until(kForEver, kMayBlock));
    ReadSlot& slot = batch->slot(0);
    if (slot.error) return std::unexpected(*slot.error);
    EXPECT_EQ(slot.object_bytes, slot.into.size());
    return text_of(slot.into);
  }
  // Calls it before the first pread, and counts them.
  void before_first_read(std::function<void()> change) {
    reads_ = 0;
    on_pread() = [this, change = std::move(change)](int file, void* into, size_t size,
                                                    off_t offset) {
      if (reads_++ == 0) change();
      return system_pread(file, into, size, offset);
    };
  }
  // In place, with the old modification time: only the ctime tells.
  void overwrite_secretly(const std::string& name, std::string_view text) {
    struct stat before{};
    ASSERT_EQ(::stat(path(name).c_str(), &before), 0);
    const int file = ::open(path(name).c_str(), O_WRONLY);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::pwrite(file, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    const timespec times[] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::futimens(file, times), 0);
    ::close(file);
  }
  void replace(const std::string& name, std::string_view text) {
    put(name + ".new", text);
    fs::rename(path(name + ".new"), path(name));
  }

  std::string root_;
  std::list<std::string> generations_;  // to which targets refer
  std::atomic<int> reads_ = 0;
  std::shared_ptr<BlockPool> pool_ = BlockPool::create(64 * kMiB);
  std::shared_ptr<ThreadPool> threads_ = std::make_shared<ThreadPool>(4);
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::shared_ptr<FileReader> reader_;
};

TEST_F(FileReaderTest, AFileIsReadByOneCallAndCountedOnce) {
  put("a", std::string(100'000, 'x'));
  before_first_read([] {});
  EXPECT_EQ(read(listed("a")).value().size(), 100'000u);
  EXPECT_EQ(reads_, 1);
  EXPECT_EQ(metrics_->requests_total, 1u);
  EXPECT_EQ(metrics_->retries_total, 0u);
  EXPECT_EQ(metrics_->objects_read_total, 1u);
  EXPECT_EQ(metrics_->bytes_read_total, 100'000u);
  EXPECT_EQ(metrics_->in_flight, 0u);
  EXPECT_EQ(reader_->expected_object_bytes(), 100'000u);
}

TEST_F(FileReaderTest, CountersAreRightOnceABatchIsDone) {
  std::vector<ReadTarget> targets;
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back(std::to_string(i));
  for (const std::string& name : names) put(name, name);
  for (const std::string& name : names) targets.push_back(listed(name));
  targets.push_back({.name = "missing"});
  for (uint64_t round = 1; round <= 20; ++round) {
    ASSERT_TRUE(start(targets)->wait_until(kForEver, kMayBlock));
    ASSERT_EQ(metrics_->objects_read_total, round * 100);
    ASSERT_EQ(metrics_->requests_total, round * 101);
    ASSERT_EQ(metrics_->bytes_read_total, round * (10 + 90 * 2));
  }
}

TEST_F(FileReaderTest, AListedFileThatIsWrittenInPlaceWhileItIsReadIsRefused) {
  put("a", "0123456789");
  const ReadTarget target = listed("a");
  before_first_read([this] { overwrite_secretly("a", "abcdefghij"); });
  const Result<std::string> text = read(target);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code(), Code::kPreconditionFailed);
  EXPECT_THAT(text.error().message(), HasSubstr("has changed since it was listed"));
}

TEST_F(FileReaderTest, AListedFileThatChangesWhileItIsReadIsReadAsItIsThenWhenAskedTo) {
  open({.on_change = OnChange::kReread});
  for (const auto& change : std::vector<std::function<void()>>{
           [this] { overwrite_secretly("a", "abcdefghij"); },
           [this] { replace("a", "longer text"); }, [this] { fs::resize_file(path("a"), 3); },
           [this] { replace("a", ""); }}) {
    put("a", "0123456789");
    ReadTarget target = listed("a");
    target.checksum = Crc32c(1);  // of what is there no more
    before_first_read(change);
    const Result<std::string> text = read(target);
    ASSERT_TRUE(text.has_value()) << text.error().to_string();
    std::ifstream file(path("a"), std::ios::binary);
    EXPECT_EQ(*text, std::string(std::istreambuf_iterator<char>(file), {}));
  }
}

TEST_F(FileReaderTest, AFileThatNobodyListedAndThatShrinksIsReadAgain) {
  put("a", "0123456789");
  before_first_read([this] { fs::resize_file(path("a"), 4); });
  EXPECT_EQ(read({.name = "a"}).value(), "0123");
  EXPECT_EQ(metrics_->requests_total, 2u);
  EXPECT_EQ(metrics_->retries_total, 1u);
}

TEST_F(FileReaderTest, AFileThatAlwaysChangesIsGivenUp) {
  put("a", "0123456789");
  int round = 0;
  on_pread() = [&](int file, void* into, size_t size, off_t offset) {
    overwrite_secretly("a", std::string(10, static_cast<char>('a' + round++)));
    return system_pread(file, into, size, offset);
  };
  const Result<std::string> text = read({.name = "a"});
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code(), Code::kPreconditionFailed);
  EXPECT_THAT(text.error().message(), HasSubstr("keeps changing while it is read"));
  EXPECT_EQ(round, 3);
  EXPECT_EQ(pool_->in_flight_bytes(), 0u);
}

TEST_F(FileReaderTest, WhatTakesTheNameOfAListedFileIsToldForWhatItIs) {
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[this] { fs::create_directory(path("a")); }, "it is a directory"},
      {[this] { ASSERT_EQ(::mkfifo(path("a").c_str(), 0600), 0); }, "not a regular file"},
      {[] {}, "no such object"},
      {[this] { fs::create_symlink("/dev/zero", path("a")); }, "not a regular file"}};
  for (const auto& [change, message] : cases) {
    put("a", "0123456789");
    const ReadTarget target = listed("a");
    fs::remove(path("a"));
    change();
    const Result<std::string> text = read(target);
    ASSERT_FALSE(text.has_value()) << message;
    EXPECT_THAT(text.error().message(), HasSubstr(message));
    fs::remove(path("a"));
  }
}

TEST_F(FileReaderTest, AFailingDiskIsToldWithItsOwnError) {
  put("a", "0123456789");
  on_pread() = [](int, void*, size_t, off_t) {
    errno = EIO;
    return ssize_t{-1};
  };
  for (const ReadTarget& target : {listed("a"), ReadTarget{.name = "a"}}) {
    const Result<std::string> text = read(target);
    ASSERT_FALSE(text.has_value());
    EXPECT_EQ(text.error().code(), Code::kUnavailable);
    EXPECT_THAT(text.error().message(), HasSubstr("cannot be read (Input/output error)"));
  }
  EXPECT_EQ(pool_->in_flight_bytes(), 0u);
}

TEST_F(FileReaderTest, ReadsThatGiveLessThanAskedForAndInterruptedOnesGoOn) {
  put("a", "0123456789");
  on_pread() = [](int file, void* into, size_t size, off_t offset) {
    if (size % 2 == 0 && offset % 4 == 2) {
      static std::atomic<int> interrupted = 0;
      if (interrupted++ % 2 == 0) {
        errno = EINTR;
        return ssize_t{-1};
      }
    }
    return system_pread(file, into, std::min<size_t>(size, 1), offset);
  };
  EXPECT_EQ(read(listed("a")).value(), "0123456789");
}

TEST_F(FileReaderTest, AStalledFileHoldsUpItsOwnBatchOnlyAndEndsACancelledOneOnceItMoves) {
  put("stalled", "0123456789");
  put("a", "one");
  struct stat status{};
  ASSERT_EQ(::stat(path("stalled").c_str(), &status), 0);
  std::latch stalls(1), moves(1);
  on_pread() = [&](int file, void* into, size_t size, off_t offset) {
    struct stat found{};
    if (::fstat(file, &found) == 0 && found.st_ino == status.st_ino) {
      stalls.count_down();
      moves.wait();
    }
    return system_pread(file, into, size, offset);
  };
  const auto batch = start({listed("stalled"), listed("a")});
  stalls.wait();
  EXPECT_EQ(read(listed("a")).value(), "one") << "other threads go on";
  EXPECT_FALSE(batch->wait_until(std::chrono::steady_clock::now(), kMayBlock)) << "and do not hang";
  batch->cancel();
  moves.count_down();
  EXPECT_TRUE(batch->wait_until(kForEver, kMayBlock));
  EXPECT_EQ(pool_->in_flight_bytes(), 0u);
}

TEST_F(FileReaderTest, ALargeFileIsReadInPiecesAndOneThatShrinksIsReadAgain) {
  open({.range_threshold_bytes = kMiB, .range_bytes = kMiB});
  put("a", std::string(3 * kMiB, 'x'));
  before_first_read([] {});
  EXPECT_EQ(read(listed("a")).value().size(), 3 * kMiB);
  EXPECT_EQ(reads_, 3);
  before_first_read([this] { fs::resize_file(path("a"), 2 * kMiB + 5); });
  EXPECT_EQ(read({.name = "a"}).value().size(), 2 * kMiB + 5);
}

}  // namespace
}  // namespace headrace
