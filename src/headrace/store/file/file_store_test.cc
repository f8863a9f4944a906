#include "headrace/store/file/file_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/file/file_io.h"
#include "headrace/store/file/file_list.h"
#include "headrace/store/object_writer.h"

// Targets and requests name the fields that a test is about; the others keep their defaults.
#pragma clang diagnostic ignored "-Wmissing-designated-field-initializers"

namespace {

// Called whenever this program makes a file durable.
std::function<void(int file)>& on_fsync() {
  static std::function<void(int)> hook;
  return hook;
}

}  // namespace

extern "C" int fsync(int file) {
  if (on_fsync()) on_fsync()(file);
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace headrace {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const MayBlock kMayBlock = MayBlock::on_this_thread();
constexpr auto kForEver = std::chrono::steady_clock::time_point::max();

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string random_text(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class FileStoreTest : public testing::Test {
 protected:
  FileStoreTest() {
    std::string pattern = (fs::temp_directory_path() / "headrace-test-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    set_budget(64 * kMiB);
  }
  ~FileStoreTest() override {
    threads_->stop();
    store_.reset();
    pool_->set_on_room(nullptr);
    fs::remove_all(root_);
  }

  void set_budget(uint64_t budget_bytes) {
    if (threads_) threads_->stop();
    pool_ = BlockPool::create(budget_bytes);
    threads_ = std::make_shared<ThreadPool>(4);
    pool_->set_on_room([threads = std::weak_ptr(threads_)] {
      if (const auto alive = threads.lock()) alive->wake();
    });
    open({});
  }
  void open(const StoreOptions& options) { store_ = try_open(root_, options).value(); }
  Result<std::shared_ptr<ObjectStore>> try_open(const std::string& path,
                                                const StoreOptions& options = {}) {
    return open_file_store(parse_url(path).value(), options, pool_, threads_, metrics_, writers_,
                           log_);
  }

  std::string path(const std::string& name) const { return root_ + "/" + name; }
  void put(const std::string& name, std::string_view text) {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::string on_disk(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string generation(const std::string& name) {
    return take(store_->stat(name)).value().generation;
  }

  std::shared_ptr<ReadBatch> start(const std::vector<ReadTarget>& targets) {
    auto batch = ReadBatch::create(targets.size());
    for (const ReadTarget& target : targets) batch->add(target);
    store_->read(batch);
    return batch;
  }
  std::shared_ptr<ReadBatch> read(const std::vector<ReadTarget>& targets) {
    auto batch = start(targets);
    EXPECT_TRUE(batch->wait_until(kForEver, kMayBlock));
    return batch;
  }
  Result<std::string> read_one(const ReadTarget& target) {
    const auto batch = read({target});
    ReadSlot& slot = batch->slot(0);
    if (slot.error) return std::unexpected(*slot.error);
    return text_of(slot.into);
  }
  Code read_error(const ReadTarget& target, std::string_view says = "") {
    const Result<std::string> result = read_one(target);
    if (result) {
      ADD_FAILURE() << "was read";
      return Code::kInternal;
    }
    EXPECT_THAT(result.error().message(), HasSubstr(says));
    EXPECT_EQ(result.error().url(), store_->url_of(target.name));
    return result.error().code();
  }
  Result<ObjectInfo> write(const std::string& name, std::string_view text,
                           std::optional<std::string> generation = {}) {
    WriteRequest request;
    request.name = name;
    request.precondition.generation = std::move(generation);
    return take(store_->write(request, bytes_of(text)));
  }
  // All pages of a listing: names, and prefixes with a '*' before them.
  std::vector<std::string> list(ListRequest request) {
    std::vector<std::string> all;
    do {
      const Result<ColumnPage> page = take(store_->list(request));
      if (!page) {
        ADD_FAILURE() << page.error().to_string();
        return all;
      }
      if (request.max_results != 0) {
        EXPECT_LE(page->size() + page->prefixes.size(), request.max_results);
      }
      for (const ObjectInfo& info : page->objects()) all.push_back(info.name);
      for (const std::string& prefix : page->prefixes) all.push_back("*" + prefix);
      request.page_token = page->next_page_token;
    } while (!request.page_token.empty());
    return all;
  }
  std::vector<std::string> temporary_files() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(kTempPrefix)) found.push_back(name);
    }
    return found;
  }

  std::string root_;
  std::shared_ptr<BlockPool> pool_;
  std::shared_ptr<ThreadPool> threads_;
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::shared_ptr<WriterRegistry> writers_ = std::make_shared<WriterRegistry>();
  std::shared_ptr<Log> log_ = std::make_shared<Log>(LogLevel::kInfo);
  std::shared_ptr<ObjectStore> store_;
};

// Opening --------------------------------------------------------------------------------------

TEST_F(FileStoreTest, AUrlOfAFileIsRefusedWithAdvice) {
  put("data.bin", "x");
  const auto store = try_open(path("data.bin"));
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(store.error().message(), HasSubstr("open the store at " + root_));
  EXPECT_THAT(store.error().message(), HasSubstr("data.bin"));
}

TEST_F(FileStoreTest, AMissingDirectoryIsMadeByTheFirstWriteAndNotFoundBefore) {
  store_ = try_open(path("new/run")).value();
  EXPECT_EQ(read_error({.name = "a"}, "no such directory: " + path("new/run")), Code::kNotFound);
  const Result<ColumnPage> page = take(store_->list({}));
  ASSERT_FALSE(page.has_value());
  EXPECT_EQ(page.error().code(), Code::kNotFound);
  EXPECT_THAT(page.error().message(), HasSubstr(path("new/run")));
  EXPECT_TRUE(write("deep/a", "one").has_value());
  EXPECT_EQ(read_one({.name = "deep/a"}).value(), "one");
}

TEST_F(FileStoreTest, AUrlMayEndWithSlashesAndObjectsAreNamedAbsolutely) {
  put("a", "one");
  store_ = try_open("file://" + root_ + "//").value();
  EXPECT_EQ(store_->url_of("a"), "file://" + root_ + "/a");
  EXPECT_EQ(read_one({.name = "a"}).value(), "one");
}

// Reading --------------------------------------------------------------------------------------

TEST_F(FileStoreTest, ReadsManyObjectsIntoBlocksOfItsOwn) {
  std::vector<std::string> names, texts;
  std::vector<ReadTarget> targets;
  for (size_t i = 0; i < 200; ++i) {
    names.push_back("d" + std::to_string(i % 7) + "/n" + std::to_string(i));
    texts.push_back(random_text(i * 37, i));
    put(names.back(), texts.back());
  }
  for (const std::string& name : names) targets.push_back({.name = name});
  {
    const auto batch = read(targets);
    for (size_t i = 0; i < targets.size(); ++i) {
      ReadSlot& slot = batch->slot(i);
      ASSERT_FALSE(slot.error.has_value()) << slot.error->to_string();
      EXPECT_EQ(text_of(slot.into), texts[i]);
      EXPECT_EQ(slot.object_bytes, texts[i].size());
      EXPECT_EQ(slot.found_generation.view(), generation(names[i]));
    }
    EXPECT_EQ(pool_->use().in_flight_bytes, 0u);
    EXPECT_GT(pool_->live_bytes(), 0u);
  }
  EXPECT_EQ(metrics_->objects_read_total, 200u);
  EXPECT_EQ(metrics_->in_flight, 0u);
}

TEST_F(FileStoreTest, AnEmptyBatchIsCompleteAndAnEmptyObjectIsEmpty) {
  EXPECT_TRUE(read({})->done());
  put("empty", "");
  EXPECT_EQ(read_one({.name = "empty"}).value(), "");
}

TEST_F(FileStoreTest, RangesEndWithTheObjectAndMayBeEmpty) {
  put("a", "0123456789");
  EXPECT_EQ(read_one({.name = "a", .range = ByteRange{2, 5}}).value(), "234");
  EXPECT_EQ(read_one({.name = "a", .range = ByteRange{8, 100}}).value(), "89");
  EXPECT_EQ(read_one({.name = "a", .range = ByteRange{10, 20}}).value(), "");
  EXPECT_EQ(read_one({.name = "a", .size_bytes = 10, .range = ByteRange{3, kUnknownSize}}).value(),
            "3456789");
  EXPECT_EQ(read_error({.name = "a", .range = ByteRange{11, 20}}, "begins at 11"),
            Code::kInvalidArgument);
  EXPECT_EQ(read_error({.name = "a", .range = ByteRange{5, 2}}, "ends before it begins"),
            Code::kInvalidArgument);
}

TEST_F(FileStoreTest, ReadsIntoTheCallersMemoryWithoutCountingIt) {
  put("a", "0123456789");
  std::string memory(10, ' ');
  const auto into = std::as_writable_bytes(std::span(memory));
  EXPECT_EQ(read_one({.name = "a", .into = into, .has_into = true}).value(), "0123456789");
  EXPECT_EQ(memory, "0123456789");
  wait_until_all_is_given_back(*pool_);
  EXPECT_EQ(read_error({.name = "a", .into = into.first(7), .has_into = true}, "7 bytes"),
            Code::kInvalidArgument);
  EXPECT_EQ(read_error({.name = "a", .into = {}, .has_into = true}, "10 bytes"),
            Code::kInvalidArgument);
}

TEST_F(FileStoreTest, ARangeGoesIntoSeveralPlacesAndEachIsSummed) {
  const std::string text = random_text(5 * kMiB, 2);
  put("a", text);
  for (const uint64_t piece_bytes : {kMiB, 16 * kMiB}) {
    open({.range_threshold_bytes = piece_bytes, .range_bytes = piece_bytes});
    std::string large(3 * kMiB, '?'), small(100, '?'), rest(kMiB, '?');
    const auto memory = [](std::string& to) { return std::as_writable_bytes(std::span(to)); };
    const std::vector<Place> places = {
        {7, memory(large)}, {3 * kMiB + 100, memory(small)}, {4 * kMiB, memory(rest)}};
    const auto batch = read({{.name = "a",
                              .range = range_of(places).value(),
                              .places = places,
                              .wanted_sum = ChecksumKind::kCrc32}});
    const ReadSlot& slot = batch->slot(0);
    ASSERT_FALSE(slot.error) << slot.error->to_string();
    EXPECT_TRUE(large == text.substr(7, 3 * kMiB));
    EXPECT_TRUE(small == text.substr(3 * kMiB + 100, 100));
    EXPECT_TRUE(rest == text.substr(4 * kMiB));
    EXPECT_THAT(slot.into.scatter()->sums,
                ElementsAre(sum_of(ChecksumKind::kCrc32, places[0].into),
                            sum_of(ChecksumKind::kCrc32, places[1].into),
                            sum_of(ChecksumKind::kCrc32, places[2].into)));
    EXPECT_EQ(pool_->use().peak_live_bytes, 0u);
  }
}

TEST_F(FileStoreTest, AFileThatEndsBeforeAPlaceIsRefused) {
  put("a", "0123456789");
  std::string memory(4, '?');
  const std::vector<Place> places = {{8, std::as_writable_bytes(std::span(memory))}};
  EXPECT_EQ(read_error({.name = "a", .range = range_of(places).value(), .places = places},
                       "the destination holds 4 bytes, the read gives 2"),
            Code::kInvalidArgument);
  EXPECT_EQ(memory, "????");
}

TEST_F(FileStoreTest, TheSumOfARangeIsToldIfItIsWanted) {
  put("a", "0123456789");
  const auto batch =
      read({{.name = "a", .range = ByteRange{2, 5}, .wanted_sum = ChecksumKind::kCrc32c}});
  EXPECT_EQ(batch->slot(0).sum(), sum_of(ChecksumKind::kCrc32c, bytes_of("234")));
}

TEST_F(FileStoreTest, LargeObjectsAreReadByPiecesAndTheirSumsJoined) {
  open({.range_threshold_bytes = kMiB, .range_bytes = kMiB});
  const std::string text = random_text(9 * kMiB + 12'345, 1);
  put("large", text);
  const Crc32c sum = Crc32c().extended(bytes_of(text));
  EXPECT_TRUE(read_one({.name = "large", .checksum = sum}).value() == text);
  EXPECT_EQ(metrics_->checksums_verified_total, 1u);
  EXPECT_EQ(metrics_->bytes_read_total, text.size());
  EXPECT_EQ(read_error({.name = "large", .checksum = Crc32c(sum.value() + 1)}, "CRC32C"),
            Code::kCorrupt);
  EXPECT_TRUE(read_one({.name = "large", .range = ByteRange{100, 5 * kMiB}}).value() ==
              text.substr(100, 5 * kMiB - 100));
  EXPECT_EQ(pool_->use().in_flight_bytes, 0u);
  wait_until_all_is_given_back(*pool_);
}

TEST_F(FileStoreTest, ManyLargeObjectsInOneBatchAllArrive) {
  open({.range_threshold_bytes = kMiB, .range_bytes = kMiB});
  std::vector<std::string> names;
  std::vector<ReadTarget> targets;
  for (uint64_t i = 0; i < 12; ++i) {
    names.push_back("large" + std::to_string(i));
    put(names.back(), random_text(3 * kMiB + i, i));
  }
  for (const std::string& name : names) targets.push_back({.name = name});
  const auto batch = read(targets);
  for (uint64_t i = 0; i < names.size(); ++i) {
    ASSERT_FALSE(batch->slot(i).error.has_value());
    EXPECT_TRUE(text_of(batch->slot(i).into) == random_text(3 * kMiB + i, i));
  }
}

TEST_F(FileStoreTest, ChecksumsAreVerifiedOfWholeObjectsOnlyAndNotWhenSwitchedOff) {
  put("a", "0123456789");
  const Crc32c wrong(1);
  EXPECT_EQ(read_error({.name = "a", .checksum = wrong}, "CRC32C"), Code::kCorrupt);
  EXPECT_EQ(read_one({.name = "a", .checksum = wrong, .range = ByteRange{0, 3}}).value(), "012");
  open({.verify = Verify::kNone});
  EXPECT_EQ(read_one({.name = "a", .checksum = wrong}).value(), "0123456789");
}

TEST_F(FileStoreTest, SumsOfEveryKindAreComparedInOnePieceAndInSeveral) {
  const std::string text = random_text(2 * kMiB + 5, 3);
  put("a", text);
  for (const ChecksumKind kind :
       {ChecksumKind::kCrc32, ChecksumKind::kCrc32c, ChecksumKind::kCrc64Nvme, ChecksumKind::kSha1,
        ChecksumKind::kSha256, ChecksumKind::kMd5}) {
    const Checksum right = sum_of(kind, bytes_of(text));
    const Checksum wrong = sum_of(kind, bytes_of("x"));
    const bool is_cheap = can_join(kind);
    for (const uint64_t range_bytes : {kMiB / 2, 4 * kMiB}) {
      open({.range_threshold_bytes = range_bytes,
            .range_bytes = range_bytes,
            .verify = is_cheap ? Verify::kCrcs : Verify::kAll});
      const uint64_t before = metrics_->checksums_verified_total;
      EXPECT_TRUE(read_one({.name = "a", .checksum = right}).value() == text);
      EXPECT_EQ(metrics_->checksums_verified_total, before + 1);
      EXPECT_EQ(read_error({.name = "a", .checksum = wrong}, label(kind)), Code::kCorrupt);
    }
    if (is_cheap) continue;
    open({});
    EXPECT_TRUE(read_one({.name = "a", .checksum = wrong}).value() == text);
  }
}

TEST_F(FileStoreTest, AnObjectThatIsAnotherGenerationOrSizeThanListedIsRefused) {
  put("a", "0123456789");
  const std::string before = generation("a");
  EXPECT_EQ(read_one({.name = "a", .generation = before, .size_bytes = 10}).value(), "0123456789");
  // It shrinks, or is replaced, between the listing and the read.
  fs::resize_file(path("a"), 4);
  EXPECT_EQ(read_error({.name = "a", .generation = before}, "has changed since it was listed"),
            Code::kPreconditionFailed);
  EXPECT_EQ(read_error({.name = "a", .size_bytes = 10}, "has changed since it was listed"),
            Code::kPreconditionFailed);
  EXPECT_EQ(read_error({.name = "a", .size_bytes = 3}), Code::kPreconditionFailed);
}

TEST_F(FileStoreTest, AChangedObjectIsReadAsItIsNowWhenAskedTo) {
  put("a", "0123456789");
  const std::string before = generation("a");
  put("a", "new");
  open({.on_change = OnChange::kReread});
  EXPECT_EQ(read_one({.name = "a", .generation = before, .size_bytes = 10, .checksum = Crc32c(1)})
                .value(),
            "new");
  EXPECT_EQ(
      read_one({.name = "a", .generation = before, .size_bytes = 10, .range = ByteRange{1, 9}})
          .value(),
      "ew");
  std::string memory(10, ' ');
  EXPECT_EQ(read_error({.name = "a",
                        .generation = before,
                        .size_bytes = 10,
                        .into = std::as_writable_bytes(std::span(memory)),
                        .has_into = true},
                       "has changed"),
            Code::kPreconditionFailed);
}

TEST_F(FileStoreTest, APipeOrADeviceIsNotReplacedByAnObject) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", path("link"));
  for (const char* name : {"pipe", "link"}) {
    const Result<ObjectInfo> written = write(name, "x");
    ASSERT_FALSE(written) << name;
    EXPECT_EQ(written.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(written.error().to_string(), ::testing::HasSubstr("not a regular file"));
  }
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

TEST_F(FileStoreTest, AFileThatIsReplacedKeepsItsPermissions) {
  put("secret", "x");
  fs::permissions(path("secret"), fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(write("secret", "y"));
  EXPECT_EQ(fs::status(path("secret")).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(FileStoreTest, WhatCannotBeReadIsToldByTheTableOfErrors) {
  put("file", "x");
  put("directory/x", "x");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("loop", path("loop"));
  EXPECT_EQ(read_error({.name = "missing"}, "no such object"), Code::kNotFound);
  EXPECT_EQ(read_error({.name = "directory"}, "it is a directory"), Code::kNotFound);
  EXPECT_EQ(read_error({.name = "file/x"}, "its directory is a file"), Code::kNotFound);
  EXPECT_EQ(read_error({.name = "pipe"}, "not a regular file"), Code::kInvalidArgument);
  EXPECT_EQ(read_error({.name = "loop"}, "symbolic links"), Code::kInvalidArgument);
  EXPECT_EQ(read_error({.name = std::string(300, 'n')}, "too long"), Code::kInvalidArgument);
  for (const std::string_view name :
       {std::string_view(""), std::string_view("/etc/passwd"), std::string_view("../x"),
        std::string_view("a/../x"), std::string_view("./x"), std::string_view("a//x"),
        std::string_view("a/"), std::string_view("a/."), std::string_view("a\0b", 3)}) {
    EXPECT_EQ(read_error({.name = name}), Code::kInvalidArgument) << name;
    EXPECT_EQ(take(store_->stat(std::string(name))).error().code(), Code::kInvalidArgument);
    EXPECT_EQ(write(std::string(name), "x").error().code(), Code::kInvalidArgument);
    EXPECT_EQ(take(store_->remove(std::string(name), {})).error().code(), Code::kInvalidArgument);
  }
}

TEST_F(FileStoreTest, OneBadObjectDoesNotSpoilTheBatch) {
  put("a", "one");
  put("b", "two");
  const auto batch = read({{.name = "a"}, {.name = "missing"}, {.name = "b"}});
  EXPECT_EQ(text_of(batch->slot(0).into), "one");
  EXPECT_EQ(batch->slot(1).error->code(), Code::kNotFound);
  EXPECT_EQ(text_of(batch->slot(2).into), "two");
}

TEST_F(FileStoreTest, AReaderSeesOneVersionWholeWhileAnObjectIsReplaced) {
  open({.range_threshold_bytes = kMiB, .range_bytes = kMiB});
  constexpr size_t kSize = 3 * kMiB;
  ASSERT_TRUE(write("a", std::string(kSize, '0')).has_value());
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (char c = '1'; c <= '9'; ++c) EXPECT_TRUE(write("a", std::string(kSize, c)).has_value());
    done = true;
  });
  do {
    const Result<std::string> text = read_one({.name = "a"});
    ASSERT_TRUE(text.has_value()) << text.error().to_string();
    ASSERT_EQ(text->size(), kSize);
    EXPECT_EQ(text->find_first_not_of(text->front()), std::string::npos);
  } while (!done);
  writer.join();
}

TEST_F(FileStoreTest, AFileThatShrinksWhileItIsReadIsNeverShortData) {
  constexpr size_t kSize = 8 * kMiB;
  put("a", std::string(kSize, 'x'));
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(::truncate(path("a").c_str(), i % 2 == 0 ? 1000 : kSize), 0);
    }
    done = true;
  });
  do {
    const auto batch = read({{.name = "a"}});
    ReadSlot& slot = batch->slot(0);
    if (slot.error) {
      EXPECT_EQ(slot.error->code(), Code::kPreconditionFailed);
    } else {
      EXPECT_EQ(slot.into.size(), slot.object_bytes);
    }
  } while (!done);
  writer.join();
}

// Memory ---------------------------------------------------------------------------------------

TEST_F(FileStoreTest, AnObjectLargerThanTheBudgetIsRefusedAtOnce) {
  set_budget(kMiB);
  put("a", std::string(kMiB + 1, 'x'));
  EXPECT_EQ(read_error({.name = "a"}, "memory budget"), Code::kExhausted);
  EXPECT_EQ(read_one({.name = "a", .range = ByteRange{0, 10}}).value().size(), 10u);
}

TEST_F(FileStoreTest, ReadingAheadStopsAtTheBudgetAndGoesOnWhenMemoryIsFreed) {
  set_budget(4 * kMiB);
  put("a", std::string(3 * kMiB, 'a'));
  auto held = read({{.name = "a"}});
  const auto ahead = start({{.name = "a"}});
  // A later operation passes the batch that cannot go on, which holds no thread.
  EXPECT_TRUE(take(store_->stat("a")).has_value());
  EXPECT_FALSE(ahead->done());
  EXPECT_LE(pool_->live_bytes(), pool_->budget_bytes());
  held.reset();
  // Not by waiting, which would let it in: completion alone is looked at.
  while (!ahead->done()) std::this_thread::yield();
  EXPECT_EQ(ahead->slot(0).into.size(), 3 * kMiB);
}

TEST_F(FileStoreTest, WhatIsWaitedForIsReadThoughTheUserHoldsTheBudget) {
  set_budget(4 * kMiB);
  put("a", std::string(3 * kMiB, 'a'));
  std::vector<std::shared_ptr<ReadBatch>> held;
  for (int i = 0; i < 5; ++i) held.push_back(read({{.name = "a"}}));
  for (const auto& batch : held) EXPECT_EQ(batch->slot(0).into.size(), 3 * kMiB);
  EXPECT_GE(pool_->live_bytes(), 15 * kMiB);
}

TEST_F(FileStoreTest, ReadsInProgressStayWithinTheBudget) {
  set_budget(4 * kMiB);
  std::vector<ReadTarget> targets;
  put("a", std::string(3 * kMiB, 'a'));
  for (int i = 0; i < 20; ++i) targets.push_back({.name = "a"});
  const auto batch = read(targets);
  for (size_t i = 0; i < targets.size(); ++i) EXPECT_FALSE(batch->slot(i).error.has_value());
  EXPECT_EQ(pool_->use().in_flight_bytes, 0u);
}

// Ending early ---------------------------------------------------------------------------------

TEST_F(FileStoreTest, ACancelledBatchEndsThoughThereIsNoMemoryForIt) {
  set_budget(4 * kMiB);
  put("a", std::string(3 * kMiB, 'a'));
  const auto held = read({{.name = "a"}});
  const auto ahead = start({{.name = "a"}, {.name = "a"}});
  ahead->cancel();
  EXPECT_TRUE(ahead->wait_until(kForEver, kMayBlock));
  EXPECT_EQ(ahead->slot(0).error->code(), Code::kCancelled);
  EXPECT_EQ(ahead->slot(1).error->code(), Code::kCancelled);
}

TEST_F(FileStoreTest, StoppingEndsWhatWaitsAndRefusesWhatComes) {
  set_budget(4 * kMiB);
  put("a", std::string(3 * kMiB, 'a'));
  const auto held = read({{.name = "a"}});
  const auto ahead = start({{.name = "a"}});
  threads_->stop();
  EXPECT_TRUE(ahead->done());
  EXPECT_EQ(ahead->slot(0).error->code(), Code::kCancelled);
  EXPECT_EQ(read_error({.name = "a"}, "stopped"), Code::kCancelled);
  EXPECT_EQ(take(store_->stat("a")).error().code(), Code::kCancelled);
  EXPECT_EQ(take(store_->list({})).error().code(), Code::kCancelled);
  EXPECT_EQ(write("b", "x").error().code(), Code::kCancelled);
  EXPECT_FALSE(fs::exists(path("b")));
}

TEST_F(FileStoreTest, AForkedChildIsToldInsteadOfHanging) {
  put("a", "x");
  ASSERT_TRUE(read_one({.name = "a"}).has_value());  // the threads run
  const pid_t child = ::fork();
  if (child == 0) {
    const bool told = read_one({.name = "a"}).error().code() == Code::kCancelled &&
                      take(store_->stat("a")).error().code() == Code::kCancelled;
    store_.reset();
    threads_->stop();
    threads_.reset();
    ::_exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(read_one({.name = "a"}).has_value());
}

// Listing --------------------------------------------------------------------------------------

TEST_F(FileStoreTest, ListsInTheByteOrderOfWholeNames) {
  for (const char* name : {"a/b", "a-b", "a.b", "a0", "a/b/c", "b", "a/\xc3\xa4"}) {
    if (std::string_view(name) != "a/b") put(name, name);
  }
  EXPECT_THAT(list({}), ElementsAre("a-b", "a.b", "a/b/c", "a/\xc3\xa4", "a0", "b"));
  const ColumnPage page = take(store_->list({})).value();
  EXPECT_EQ(page.info(0), take(store_->stat("a-b")).value());
  EXPECT_EQ(page.info(0).size_bytes, 3u);
  EXPECT_NE(page.info(0).updated, std::chrono::system_clock::time_point());
}

TEST_F(FileStoreTest, PrefixesNeedNotEndAtDirectories) {
  for (const char* name : {"train/a1", "train/a2", "train/b", "trainer", "test/a"}) put(name, "");
  EXPECT_THAT(list({.prefix = "train"}), ElementsAre("train/a1", "train/a2", "train/b", "trainer"));
  EXPECT_THAT(list({.prefix = "train/"}), ElementsAre("train/a1", "train/a2", "train/b"));
  EXPECT_THAT(list({.prefix = "train/a"}), ElementsAre("train/a1", "train/a2"));
  EXPECT_THAT(list({.prefix = "train/a1"}), ElementsAre("train/a1"));
  for (const char* none :
       {"train/a1/", "x", "nowhere/x", "/train", "../", "train//a", "./train", "train/../test/"}) {
    EXPECT_THAT(list({.prefix = none}), IsEmpty()) << none;
  }
}

TEST_F(FileStoreTest, ADelimiterGivesEachPrefixOnceAndNoEmptyDirectory) {
  for (const char* name : {"a/1", "a/2", "a/c/3", "b-1", "b-2", "c"}) put(name, "");
  fs::create_directories(path("empty/deeper"));
  EXPECT_THAT(list({.delimiter = "/"}), ElementsAre("b-1", "b-2", "c", "*a/"));
  EXPECT_THAT(list({.prefix = "a/", .delimiter = "/"}), ElementsAre("a/1", "a/2", "*a/c/"));
  EXPECT_THAT(list({.delimiter = "-"}), ElementsAre("a/1", "a/2", "a/c/3", "c", "*b-"));
  EXPECT_THAT(list({.delimiter = "/", .start_offset = "a/9"}),
              ElementsAre("b-1", "b-2", "c", "*a/"));
}

TEST_F(FileStoreTest, LeavesOutWhatIsNoObject) {
  put("a", "x");
  put(std::string("d/") + std::string(kTempPrefix) + "1", "half");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("nowhere", path("dangling"));
  fs::create_symlink("self", path("self"));
  fs::create_symlink("a", path("link"));
  EXPECT_THAT(list({}), ElementsAre("a", "link"));
  EXPECT_EQ(read_one({.name = "link"}).value(), "x");
}

TEST_F(FileStoreTest, LinkedDirectoriesAreListedButNotInCircles) {
  put("a/x", "");
  fs::create_directory_symlink("..", path("a/up"));
  fs::create_directory_symlink("a", path("b"));
  EXPECT_THAT(list({}), ElementsAre("a/x", "b/x"));
  EXPECT_THAT(list({.prefix = "a/up/"}), IsEmpty());
  // What lies below has other names; who uses this one means it.
  EXPECT_THAT(list({.prefix = "a/up/a/"}), IsEmpty());
  put("c/y", "");
  EXPECT_THAT(list({.prefix = "a/up/c"}), IsEmpty());
  EXPECT_THAT(list({.prefix = "a/up/c/"}), ElementsAre("a/up/c/y"));
}

TEST_F(FileStoreTest, ADirectoryThatListingsDoNotEnterIsToldOnce) {
  put("a/x", "");
  fs::create_directory_symlink("..", path("a/up"));
  for (int i = 0; i < 2; ++i) EXPECT_THAT(list({}), ElementsAre("a/x"));
  EXPECT_THAT(list({.prefix = "a/up/"}), IsEmpty());
  const std::vector<LogRecord> told = log_->take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].text, "file://" + path("a/up/") +
                              " leads to a directory that it lies in: listings do not enter it");
}

TEST_F(FileStoreTest, ANameThatIsNotTextFailsTheListingAndNamesTheDirectory) {
  put("d/good", "");
  put("d/\xff", "");
  const Result<ColumnPage> page = take(store_->list({}));
  ASSERT_FALSE(page.has_value());
  EXPECT_EQ(page.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(page.error().message(), HasSubstr(path("d/")));
  EXPECT_THAT(page.error().message(), HasSubstr("\\xff"));
  EXPECT_THAT(list({.prefix = "d/g"}), ElementsAre("d/good"));
}

TEST_F(FileStoreTest, APageTokenOfAnotherMakeIsRefused) {
  EXPECT_EQ(take(store_->list({.page_token = "xyz"})).error().code(), Code::kInvalidArgument);
}

TEST_F(FileStoreTest, ATokenGoesOnInAnotherStoreAndMayBeUsedTwice) {
  for (int i = 0; i < 10; ++i) put("n" + std::to_string(i), "");
  const ColumnPage first = take(store_->list({.max_results = 4})).value();
  const ListRequest request = {.page_token = first.next_page_token, .max_results = 3};
  for (int i = 0; i < 3; ++i) {
    if (i == 2) open({});
    const ColumnPage page = take(store_->list(request)).value();
    ASSERT_EQ(page.size(), 3u);
    EXPECT_EQ(page.info(0).name, "n4");
  }
}

// What a listing must give, from the set of all names.
std::vector<std::string> expected_listing(const std::set<std::string>& names,
                                          const ListRequest& request) {
  std::vector<std::string> objects;
  std::set<std::string> prefixes;
  for (const std::string& name : names) {
    if (!name.starts_with(request.prefix) || name < request.start_offset) continue;
    if (!request.end_offset.empty() && name >= request.end_offset) continue;
    const size_t at = request.delimiter.empty()
                          ? std::string::npos
                          : name.find(request.delimiter, request.prefix.size());
    if (at == std::string::npos) {
      objects.push_back(name);
    } else {
      prefixes.insert("*" + name.substr(0, at + request.delimiter.size()));
    }
  }
  objects.insert(objects.end(), prefixes.begin(), prefixes.end());
  return objects;
}

TEST_F(FileStoreTest, RandomTreesAreListedAsASortedSetWouldBe) {
  constexpr uint64_t kSeed = 20261121;
  std::mt19937_64 random(kSeed);
  const std::vector<std::string> parts = {"a", "b", "a-", "a.b", "a0", "ab", "-", "\xc3\xa9", "z"};
  const auto any_part = [&] { return parts[random() % parts.size()]; };
  const auto any_name = [&] {
    std::string name = any_part();
    for (uint64_t depth = random() % 4; depth > 0; --depth) name += "/" + any_part();
    return name;
  };
  for (int tree = 0; tree < 8; ++tree) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", tree " << tree);
    const std::string top = "t" + std::to_string(tree);
    store_ = try_open(path(top)).value();
    fs::create_directories(path(top));
    std::set<std::string> names;
    for (int i = 0; i < 60; ++i) {
      const std::string name = any_name();
      const fs::path file = path(top + "/" + name);
      std::error_code error;
      if (random() % 8 == 0) {
        fs::create_directories(file, error);  // may stay empty
        continue;
      }
      fs::create_directories(file.parent_path(), error);
      if (error || fs::is_directory(file)) continue;
      std::ofstream out(file);
      if (out) names.insert(name);
    }
    for (int i = 0; i < 40; ++i) {
      ListRequest request;
      if (random() % 2 == 0) request.prefix = any_name().substr(0, random() % 5);
      if (random() % 2 == 0) request.delimiter = random() % 4 == 0 ? "a" : "/";
      if (random() % 3 == 0) request.start_offset = any_name();
      if (random() % 3 == 0) request.end_offset = any_name();
      if (random() % 4 == 0) request.prefix += "/";
      const std::vector<std::string> expected = expected_listing(names, request);
      for (const uint32_t page_size : {0u, 1u, 3u}) {
        request.max_results = page_size;
        std::vector<std::string> found = list(request);
        std::ranges::stable_partition(found, [](const auto& name) { return name[0] != '*'; });
        EXPECT_EQ(found, expected)
            << "prefix '" << request.prefix << "' delimiter '" << request.delimiter << "' from '"
            << request.start_offset << "' to '" << request.end_offset << "' by " << page_size;
      }
    }
  }
}

TEST_F(FileStoreTest, ADirectoryLargerThanTheWindowIsReadByWindows) {
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) {
    const std::string name = i % 10 == 0 ? "d" + std::to_string(i) + "/x" : "f" + std::to_string(i);
    put(name, "");
    names.insert(name);
  }
  for (const size_t window_names : {size_t{1}, size_t{7}, size_t{100}}) {
    FileWalk walk(root_, "", "", "", nullptr, window_names);
    std::vector<std::string> found;
    while (auto info = walk.next().value()) found.push_back(info->name);
    EXPECT_TRUE(std::ranges::equal(found, names)) << window_names;
  }
}

// Writing --------------------------------------------------------------------------------------

TEST_F(FileStoreTest, WritesWholeObjectsAndTellsTheGenerationThatListingsTell) {
  const std::string text = random_text(20 * kMiB + 1, 2);
  const ObjectInfo info = write("x/y/z", text).value();
  EXPECT_TRUE(on_disk("x/y/z") == text);
  EXPECT_EQ(info, take(store_->stat("x/y/z")).value());
  EXPECT_EQ(info.size_bytes, text.size());
  EXPECT_EQ(write("x/y/z", "").value().size_bytes, 0u);
  EXPECT_EQ(on_disk("x/y/z"), "");
  EXPECT_THAT(temporary_files(), IsEmpty());
}

TEST_F(FileStoreTest, ConditionsAreKept) {
  const std::string first = write("a", "one", "").value().generation;
  EXPECT_EQ(write("a", "two", "").error().code(), Code::kPreconditionFailed);
  EXPECT_EQ(write("a", "two", "1-2-3-4").error().code(), Code::kPreconditionFailed);
  EXPECT_EQ(write("b", "two", first).error().code(), Code::kPreconditionFailed);
  EXPECT_EQ(on_disk("a"), "one");
  const std::string second = write("a", "two", first).value().generation;
  EXPECT_NE(first, second);
  EXPECT_EQ(write("a", "three", first).error().code(), Code::kPreconditionFailed);
  EXPECT_EQ(take(store_->remove("a", {.generation = first})).error().code(),
            Code::kPreconditionFailed);
  EXPECT_EQ(on_disk("a"), "two");
  EXPECT_TRUE(take(store_->remove("a", {.generation = second})).value());
  EXPECT_EQ(take(store_->remove("a", {})).error().code(), Code::kNotFound);
  EXPECT_THAT(temporary_files(), IsEmpty());
}

TEST_F(FileStoreTest, OfManyWritersWithOneConditionOneWins) {
  const std::string generation = write("a", "start").value().generation;
  for (const std::string& condition : {generation, std::string()}) {
    const std::string name = condition.empty() ? "new" : "a";
    std::atomic<int> won = 0;
    std::vector<std::thread> writers;
    for (int i = 0; i < 4; ++i) {
      writers.emplace_back([&, i] {
        if (write(name, std::to_string(i), condition)) ++won;
      });
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(won, 1);
  }
  EXPECT_THAT(temporary_files(), IsEmpty());
}

TEST_F(FileStoreTest, WhatCannotBeWrittenIsToldAndLeavesNothing) {
  put("file", "x");
  put("directory/x", "x");
  EXPECT_EQ(write("file/x", "y").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(write("directory", "y").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(write(std::string(300, 'n'), "y").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(write(std::string(kTempPrefix) + "x", "y").error().code(), Code::kInvalidArgument);
  const Result<ObjectInfo> result = write("directory", "y");
  EXPECT_EQ(result.error().url(), store_->url_of("directory"));
  EXPECT_THAT(temporary_files(), IsEmpty());
}

TEST_F(FileStoreTest, AFullDiskIsExhaustionAndAReadOnlyFileSystemPermission) {
  EXPECT_EQ(file_error(ENOSPC, Access::kWrite).code(), Code::kExhausted);
  EXPECT_EQ(file_error(EDQUOT, Access::kWrite).code(), Code::kExhausted);
  EXPECT_EQ(file_error(EMFILE, Access::kRead).code(), Code::kExhausted);
  EXPECT_EQ(file_error(EROFS, Access::kWrite).code(), Code::kPermissionDenied);
  EXPECT_EQ(file_error(EACCES, Access::kRead).code(), Code::kPermissionDenied);
  EXPECT_EQ(file_error(EIO, Access::kRead).code(), Code::kUnavailable);
}

TEST_F(FileStoreTest, WithoutPermissionReadingListingAndWritingAreRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  put("secret", "x");
  put("closed/x", "x");
  fs::permissions(path("secret"), fs::perms::none);
  fs::permissions(path("closed"), fs::perms::none);
  EXPECT_EQ(read_error({.name = "secret"}), Code::kPermissionDenied);
  EXPECT_EQ(take(store_->list({})).error().code(), Code::kPermissionDenied);
  EXPECT_EQ(write("closed/y", "x").error().code(), Code::kPermissionDenied);
  fs::permissions(path("closed"), fs::perms::owner_all);
}

TEST_F(FileStoreTest, ACancelledWriteThatWaitsForALockLeavesNothing) {
  put("a", "one");
  const int directory = ::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(directory, LOCK_EX), 0);
  const auto pending = store_->write({.name = "a"}, bytes_of("two"));
  pending->cancel();
  EXPECT_EQ(take(pending).error().code(), Code::kCancelled);
  ::close(directory);
  EXPECT_EQ(on_disk("a"), "one");
  EXPECT_THAT(temporary_files(), IsEmpty());
}

TEST_F(FileStoreTest, CopiesWithConditionsOnBothSides) {
  const std::string text = random_text(10 * kMiB + 7, 3);
  put("a", text);
  const std::string source = generation("a");
  const ObjectInfo copied =
      take(store_->copy({.source_name = "a", .source_generation = source, .name = "d/b"})).value();
  EXPECT_TRUE(on_disk("d/b") == text);
  EXPECT_EQ(copied, take(store_->stat("d/b")).value());
  EXPECT_EQ(take(store_->copy({.source_name = "a", .source_generation = "1-2-3-4", .name = "c"}))
                .error()
                .code(),
            Code::kPreconditionFailed);
  EXPECT_EQ(
      take(store_->copy({.source_name = "a", .name = "d/b", .precondition = {.generation = ""}}))
          .error()
          .code(),
      Code::kPreconditionFailed);
  const Result<ObjectInfo> missing = take(store_->copy({.source_name = "missing", .name = "c"}));
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr(store_->url_of("missing")));
  EXPECT_FALSE(fs::exists(path("c")));
  EXPECT_THAT(temporary_files(), IsEmpty());
}

TEST_F(FileStoreTest, RenamesWithConditionsOnBothSides) {
  put("a", "one");
  put("b", "two");
  const auto rename = [&](CopyRequest request) { return take(store_->rename(request)); };
  EXPECT_THAT(rename({.source_name = "a", .source_generation = "1-2-3-4", .name = "c"}),
              FailsWith(Code::kPreconditionFailed, HasSubstr(store_->url_of("a"))));
  EXPECT_THAT(rename({.source_name = "a", .name = "b", .precondition = {.generation = ""}}),
              FailsWith(Code::kPreconditionFailed, HasSubstr("exists already")));
  EXPECT_THAT(rename({.source_name = "a", .name = "b", .precondition = {.generation = "1-2-3-4"}}),
              FailsWith(Code::kPreconditionFailed, HasSubstr("1-2-3-4")));
  EXPECT_EQ(on_disk("a"), "one");
  EXPECT_EQ(on_disk("b"), "two");
  const Result<ObjectInfo> moved = rename({.source_name = "a",
                                           .source_generation = generation("a"),
                                           .name = "b",
                                           .precondition = {.generation = generation("b")}});
  ASSERT_TRUE(moved.has_value()) << moved.error().to_string();
  EXPECT_EQ(*moved, take(store_->stat("b")).value());
  EXPECT_EQ(on_disk("b"), "one");
  EXPECT_FALSE(fs::exists(path("a")));
  ASSERT_TRUE(rename({.source_name = "b", .name = "x/y/c", .precondition = {.generation = ""}}));
  EXPECT_EQ(on_disk("x/y/c"), "one");
  EXPECT_FALSE(fs::exists(path("b")));
}

TEST_F(FileStoreTest, ARenameMakesTheFileDurableBeforeItLocksDirectories) {
  put("a", "one");
  fs::create_directory(path("d"));
  int files = 0, locked = 0;
  on_fsync() = [&](int file) {
    struct stat status{};
    if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return;
    ++files;
    for (const std::string& directory : {root_, path("d")}) {
      const OpenFile other = OpenFile::open(directory, O_RDONLY | O_DIRECTORY);
      if (::flock(other.get(), LOCK_EX | LOCK_NB) != 0) ++locked;
    }
  };
  const Result<ObjectInfo> renamed = take(store_->rename({.source_name = "a", .name = "d/b"}));
  on_fsync() = nullptr;
  EXPECT_TRUE(renamed.has_value());
  EXPECT_EQ(files, 1);
  EXPECT_EQ(locked, 0);
}

// Another program replaces the file while a lock is waited for.
TEST_F(FileStoreTest, AFileThatBecomesAnotherDuringItsRenameIsMadeDurable) {
  put("a", "one");
  std::vector<ino_t> durable;
  on_fsync() = [&](int file) {
    struct stat status{};
    if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return;
    durable.push_back(status.st_ino);
    if (durable.size() > 1) return;
    put("new", "two");
    fs::rename(path("new"), path("a"));
  };
  const Result<ObjectInfo> renamed = take(store_->rename({.source_name = "a", .name = "b"}));
  on_fsync() = nullptr;
  EXPECT_TRUE(renamed.has_value());
  EXPECT_EQ(on_disk("b"), "two");
  struct stat status{};
  ASSERT_EQ(::stat(path("b").c_str(), &status), 0);
  ASSERT_EQ(durable.size(), 2u);
  EXPECT_EQ(durable[1], status.st_ino);
}

TEST_F(FileStoreTest, ARenameThatCannotBeMakesNoDirectory) {
  EXPECT_THAT(take(store_->rename({.source_name = "missing", .name = "x/a"})),
              FailsWith(Code::kNotFound, HasSubstr(store_->url_of("missing"))));
  EXPECT_FALSE(fs::exists(path("x")));
  put("a", "one");
  for (const char* name : {"a", "", "x/../b", "x/", ".headrace-tmp-a"}) {
    EXPECT_THAT(take(store_->rename({.source_name = "a", .name = name})),
                FailsWith(Code::kInvalidArgument, HasSubstr("name")));
  }
  EXPECT_FALSE(fs::exists(path("x")));
  fs::create_directory(path("d"));
  put("f", "file");
  for (const char* name : {"d", "f/a"}) {
    EXPECT_THAT(take(store_->rename({.source_name = "a", .name = name})),
                FailsWith(Code::kInvalidArgument, HasSubstr(store_->url_of(name))));
  }
  EXPECT_THAT(take(store_->rename({.source_name = "d", .name = "e"})),
              FailsWith(Code::kNotFound, HasSubstr("directory")));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(take(store_->rename({.source_name = "a", .name = "pipe"})),
              FailsWith(Code::kInvalidArgument, HasSubstr("not a regular file")));
  EXPECT_EQ(on_disk("a"), "one");
}

TEST_F(FileStoreTest, OfTwoNamesOfOneFileTheOldOneGoes) {
  put("a", "one");
  ASSERT_EQ(::link(path("a").c_str(), path("b").c_str()), 0);
  ASSERT_TRUE(take(store_->rename({.source_name = "a", .name = "b"})).has_value());
  EXPECT_FALSE(fs::exists(path("a")));
  EXPECT_EQ(on_disk("b"), "one");
}

TEST_F(FileStoreTest, WhatSymbolicLinksLeadToIsNotLostByARename) {
  put("d/a", "one");
  fs::create_directory_symlink(path("d"), path("link"));
  EXPECT_THAT(take(store_->rename({.source_name = "d/a", .name = "link/a"})),
              FailsWith(Code::kInvalidArgument, HasSubstr("by way of a symbolic link")));
  EXPECT_EQ(on_disk("d/a"), "one");
  // The lock of a directory that has two names is taken once.
  ASSERT_TRUE(take(store_->rename({.source_name = "d/a", .name = "link/b"})).has_value());
  EXPECT_EQ(on_disk("d/b"), "one");
  fs::create_symlink("d/b", path("c"));
  EXPECT_THAT(take(store_->rename({.source_name = "c", .name = "x/c"})),
              FailsWith(Code::kInvalidArgument, HasSubstr("symbolic link")));
  EXPECT_EQ(on_disk("c"), "one");
}

TEST_F(FileStoreTest, BetweenFileSystemsAFileIsCopiedAndRemoved) {
  std::string other = "/dev/shm/headrace-test-XXXXXX";
  ASSERT_NE(::mkdtemp(other.data()), nullptr);
  struct stat here{}, there{};
  ASSERT_EQ(::stat(root_.c_str(), &here), 0);
  ASSERT_EQ(::stat(other.c_str(), &there), 0);
  ASSERT_NE(here.st_dev, there.st_dev) << "TMPDIR must not be in /dev/shm";
  fs::create_directory_symlink(other, path("other"));
  const std::string text = random_text(3 * kMiB + 7, 3);
  put("a", text);
  const Result<ObjectInfo> moved = take(
      store_->rename({.source_name = "a", .name = "other/a", .precondition = {.generation = ""}}));
  ASSERT_TRUE(moved.has_value()) << moved.error().to_string();
  EXPECT_EQ(*moved, take(store_->stat("other/a")).value());
  EXPECT_TRUE(on_disk("other/a") == text);
  EXPECT_FALSE(fs::exists(path("a")));
  fs::remove_all(other);
}

TEST_F(FileStoreTest, RenamesInOppositeDirectionsDoNotWaitForEachOther) {
  put("a/x", "x");
  put("b/y", "y");
  std::vector<std::shared_ptr<Pending<ObjectInfo>>> pending;
  for (int i = 0; i < 200; ++i) {
    const std::string number = std::to_string(i), next = std::to_string(i + 1);
    put("a/x" + number, "x");
    put("b/y" + number, "y");
    pending.push_back(store_->rename({.source_name = "a/x" + number, .name = "b/x" + next}));
    pending.push_back(store_->rename({.source_name = "b/y" + number, .name = "a/y" + next}));
  }
  for (const auto& each : pending) {
    const Result<ObjectInfo> moved = take(each);
    EXPECT_TRUE(moved.has_value()) << moved.error().to_string();
  }
}

TEST_F(FileStoreTest, OfRenamesThatCreateOneNameOneSucceeds) {
  std::vector<std::shared_ptr<Pending<ObjectInfo>>> pending;
  for (int i = 0; i < 40; ++i) put("a" + std::to_string(i), std::to_string(i));
  for (int i = 0; i < 40; ++i) {
    pending.push_back(store_->rename({.source_name = "a" + std::to_string(i),
                                      .name = "new",
                                      .precondition = {.generation = ""}}));
  }
  size_t succeeded = 0;
  for (size_t i = 0; i < pending.size(); ++i) {
    const Result<ObjectInfo> moved = take(pending[i]);
    EXPECT_EQ(fs::exists(path("a" + std::to_string(i))), !moved.has_value());
    if (!moved) {
      EXPECT_EQ(moved.error().code(), Code::kPreconditionFailed);
      continue;
    }
    ++succeeded;
    EXPECT_EQ(on_disk("new"), std::to_string(i));
  }
  EXPECT_EQ(succeeded, 1u);
}

TEST_F(FileStoreTest, AFileHasNoMembers) {
  put("a.tar", "one");
  EXPECT_EQ(read_error({.name = "a.tar", .member = "x"}, "members"), Code::kInvalidArgument);
}

// With a name from the beginning, as on file systems that know no nameless files, and without.
class EitherNaming : public FileStoreTest, public testing::WithParamInterface<TempFile::Naming> {
 protected:
  Result<struct stat> publish(const std::string& name, std::string_view text,
                              Precondition condition = {}) {
    Result<TempFile> file = TempFile::create(path(name), GetParam());
    if (!file) return std::unexpected(file.error());
    if (Result<void> appended = file->append(bytes_of(text)); !appended) {
      return std::unexpected(appended.error());
    }
    return file->publish(condition, [] { return false; });
  }
};
INSTANTIATE_TEST_SUITE_P(Namings, EitherNaming,
                         testing::Values(TempFile::Naming::kLate, TempFile::Naming::kEarly),
                         [](const auto& given) {
                           return given.param == TempFile::Naming::kLate ? "late" : "early";
                         });

TEST_P(EitherNaming, ATemporaryFileIsPublishedOnItsCondition) {
  ASSERT_TRUE(publish("x/y/a", "one", {.generation = ""}).has_value());
  EXPECT_EQ(publish("x/y/a", "two", {.generation = ""}).error().code(), Code::kPreconditionFailed);
  EXPECT_EQ(publish("x/y/a", "two", {.generation = "1-2-3-4"}).error().code(),
            Code::kPreconditionFailed);
  EXPECT_EQ(on_disk("x/y/a"), "one");
  const std::string first = generation("x/y/a");
  ASSERT_TRUE(publish("x/y/a", "three", {.generation = first}).has_value());
  const Result<struct stat> status = publish("x/y/a", "four");
  ASSERT_TRUE(status.has_value()) << status.error().to_string();
  EXPECT_EQ(generation_of(*status), generation("x/y/a"));
  EXPECT_EQ(status->st_nlink, 1u);
  EXPECT_EQ(on_disk("x/y/a"), "four");
  EXPECT_EQ(publish("x", "five").error().code(), Code::kInvalidArgument);
  EXPECT_THAT(temporary_files(), IsEmpty());
}

TEST_P(EitherNaming, ATemporaryFileIsLockedWhileItIsWritten) {
  OpenFile other;
  {
    Result<TempFile> file = TempFile::create(path("a"), GetParam());
    ASSERT_TRUE(file.has_value()) << file.error().to_string();
    // As whoever sweeps opens it.
    other = OpenFile::open(cat("/proc/self/fd/", file->descriptor()), O_RDONLY);
    ASSERT_TRUE(other.is_open());
    EXPECT_EQ(::flock(other.get(), LOCK_SH | LOCK_NB), -1);
    ASSERT_TRUE(file->publish({}, [] { return false; }).has_value());
  }
  EXPECT_EQ(::flock(other.get(), LOCK_SH | LOCK_NB), 0);
}

TEST_P(EitherNaming, OfAWriterThatIsKilledNothingIsLeftOrAnUnlockedTemporaryFile) {
  put("a", "before");
  const pid_t child = ::fork();
  if (child == 0) {
    Result<TempFile> file = TempFile::create(path("a"), GetParam());
    if (file && file->append(bytes_of("half"))) ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(on_disk("a"), "before");
  const std::vector<std::string> left = temporary_files();
  if (GetParam() == TempFile::Naming::kLate) {
    EXPECT_THAT(left, IsEmpty());
    return;
  }
  ASSERT_EQ(left.size(), 1u);
  const OpenFile file = OpenFile::open(path(left[0]), O_RDONLY);
  EXPECT_EQ(::flock(file.get(), LOCK_SH | LOCK_NB), 0);
}

}  // namespace
}  // namespace headrace
