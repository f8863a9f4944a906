// How often a read allocates. A program of its own: it takes malloc's place.
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "headrace/allocation_test_support.h"
#include "headrace/format/running_sum.h"
#include "headrace/format/sigv4.h"
#include "headrace/store/fault_server_test_support.h"
#include "headrace/store/root.h"
#include "headrace/store/timeline/timeline.h"

namespace headrace {

thread_local uint64_t allocations_to_failure = 0;

}  // namespace headrace

namespace {

std::atomic<bool> counting = false;
std::atomic<uint64_t> allocation_count = 0;

// Where the counted allocations came from, for the message of a test that fails. Every 61st is
// enough, and keeps the cost of a backtrace out of the way.
constexpr uint64_t kSampleEvery = 61;
constexpr size_t kSampleCount = 64, kDepth = 14;
std::array<std::array<void*, kDepth>, kSampleCount> samples;
std::atomic<size_t> sample_count = 0;

// False if it is to fail.
bool note_allocation() {
  if (headrace::allocations_to_failure > 0 && --headrace::allocations_to_failure == 0) {
    errno = ENOMEM;
    return false;
  }
  if (!counting.load(std::memory_order_relaxed)) return true;
  if (allocation_count.fetch_add(1, std::memory_order_relaxed) % kSampleEvery != 0) return true;
  const size_t index = sample_count.fetch_add(1, std::memory_order_relaxed);
  if (index < kSampleCount) ::backtrace(samples[index].data(), kDepth);
  return true;
}

}  // namespace

// glibc's own names for what stands behind malloc. operator new comes through malloc.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

__attribute__((visibility("default"))) void* malloc(size_t size) {
  return note_allocation() ? __libc_malloc(size) : nullptr;
}
__attribute__((visibility("default"))) void* calloc(size_t count, size_t size) {
  return note_allocation() ? __libc_calloc(count, size) : nullptr;
}
__attribute__((visibility("default"))) void* realloc(void* memory, size_t size) {
  return note_allocation() ? __libc_realloc(memory, size) : nullptr;
}
__attribute__((visibility("default"))) void* aligned_alloc(size_t alignment, size_t size) {
  return note_allocation() ? __libc_memalign(alignment, size) : nullptr;
}
__attribute__((visibility("default"))) void* memalign(size_t alignment, size_t size) {
  return note_allocation() ? __libc_memalign(alignment, size) : nullptr;
}
__attribute__((visibility("default"))) int posix_memalign(void** memory, size_t alignment,
                                                          size_t size) {
  *memory = note_allocation() ? __libc_memalign(alignment, size) : nullptr;
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace headrace {
namespace {

constexpr size_t kBatchObjects = 256;
constexpr size_t kBatches = 8;
constexpr double kMaxAllocationsPerRead = 1.5;

class AllocationTest : public StoreTest {
 protected:
  // A limit that does not move: every connection is opened while warming up.
  void SetUp() override { options_.initial_in_flight = options_.max_in_flight = 32; }

  double allocations_per_read(size_t object_bytes, std::string_view path = "") {
    const Root root(path);
    std::vector<ObjectInfo> objects;
    for (size_t i = 0; i < kBatchObjects; ++i) {
      objects.push_back(server_.put(root.full_name(cat("train/", i)), some_bytes(object_bytes)));
      EXPECT_TRUE(root.strip(objects.back()));
    }
    std::vector<ReadTarget> targets;
    for (const ObjectInfo& object : objects) targets.push_back(listed(object));
    const std::shared_ptr<ObjectStore> store =
        engine_
            .open(
                {.scheme = Scheme::kGs, .bucket = std::string(kBucket), .name = std::string(path)},
                options_)
            .value();
    const double per_read = allocations_per_read(*store, targets);
    EXPECT_EQ(server_.stat("/connections_opened"), 32u);
    return per_read;
  }

  static double allocations_per_read(ObjectStore& store, const std::vector<ReadTarget>& targets) {
    uint64_t counted = 0;
    for (size_t i = 0; i < 2 * kBatches; ++i) {
      const std::shared_ptr<ReadBatch> batch = batch_of(targets);
      const bool steady = i >= kBatches;
      allocation_count = 0;
      counting = steady;
      store.read(batch);
      wait_for(*batch);
      counting = false;
      if (steady) counted += allocation_count;
      for (size_t slot = 0; slot < batch->size(); ++slot) {
        EXPECT_FALSE(batch->slot(slot).error) << batch->slot(slot).error->to_string();
      }
    }
    return static_cast<double>(counted) / (kBatches * kBatchObjects);
  }

  void TearDown() override {
    if (!HasFailure()) return;
    for (size_t i = 0; i < std::min(sample_count.load(), kSampleCount); ++i) {
      const auto end = std::ranges::find(samples[i], nullptr);
      ::backtrace_symbols_fd(samples[i].data(), static_cast<int>(end - samples[i].begin()),
                             STDERR_FILENO);
      static_cast<void>(!::write(STDERR_FILENO, "--\n", 3));
    }
  }
};

TEST_F(AllocationTest, SmallReadTakesAtMostOneAndAHalf) {
  const double per_read = allocations_per_read(1 * kKiB);
  RecordProperty("allocations_per_read", std::to_string(per_read));
  std::printf("%.3f allocations per read of 1 KiB\n", per_read);
  EXPECT_LE(per_read, kMaxAllocationsPerRead);
}

TEST_F(AllocationTest, MiddlingReadTakesAtMostOneAndAHalf) {
  const double per_read = allocations_per_read(100 * kKiB);
  RecordProperty("allocations_per_read", std::to_string(per_read));
  std::printf("%.3f allocations per read of 100 KiB\n", per_read);
  EXPECT_LE(per_read, kMaxAllocationsPerRead);
}

// What a busy machine does: the reads of all connections end together, and all begin together.
TEST_F(AllocationTest, AnswersThatComeInBurstsTakeNoMore) {
  server_.post("latency", R"({"first_byte_ms":5})");
  const double per_read = allocations_per_read(100 * kKiB);
  RecordProperty("allocations_per_read", std::to_string(per_read));
  std::printf("%.3f allocations per read of 100 KiB, in bursts\n", per_read);
  EXPECT_LE(per_read, kMaxAllocationsPerRead);
}

TEST_F(AllocationTest, ReadBelowARootTakesNoMore) {
  const double per_read = allocations_per_read(1 * kKiB, "some/run of mine");
  RecordProperty("allocations_per_read", std::to_string(per_read));
  std::printf("%.3f allocations per read of 1 KiB below a root\n", per_read);
  EXPECT_LE(per_read, kMaxAllocationsPerRead);
}

TEST_F(AllocationTest, ReadThatIsRecordedTakesNoMore) {
  begin_timeline(/*attempts_per_thread=*/64);  // the rings are full once it counts
  const double per_read = allocations_per_read(1 * kKiB);
  const Timeline taken = end_timeline();
  EXPECT_EQ(taken.attempts.size() + taken.dropped, 2 * kBatches * kBatchObjects);
  RecordProperty("allocations_per_read", std::to_string(per_read));
  std::printf("%.3f allocations per read of 1 KiB that is recorded\n", per_read);
  EXPECT_LE(per_read, kMaxAllocationsPerRead);
}

// Straight from the targets, compared by XXH64.
TEST_F(AllocationTest, ReadFromTheTargetOfAClusterTakesNoMore) {
  FaultServer cluster({.dialect = "ais"});
  cluster.post("bucket", R"({"name":"bucket"})");
  StoreOptions options = options_for(cluster);
  options.initial_in_flight = options.max_in_flight = 32;
  options.get_batch.mode = GetBatchMode::kNever;
  const std::shared_ptr<ObjectStore> store =
      engine_.open({.scheme = Scheme::kAis, .bucket = std::string(kBucket)}, options).value();
  std::vector<ObjectInfo> objects;
  for (size_t i = 0; i < kBatchObjects; ++i) {
    const std::string name = cat("train/", i);
    cluster.place(name, some_bytes(1 * kKiB));
    objects.push_back(take(store->stat(name)).value());
    ASSERT_EQ(objects.back().checksum.kind(), ChecksumKind::kXxh64);
  }
  std::vector<ReadTarget> targets;
  for (const ObjectInfo& object : objects) targets.push_back(listed(object));
  const uint64_t compared = engine_.metrics().checksums_verified_total;
  const double per_read = allocations_per_read(*store, targets);
  EXPECT_EQ(engine_.metrics().checksums_verified_total - compared, 2 * kBatches * kBatchObjects);
  size_t by_the_proxy = 0;
  for (const FaultServer::Entry& entry : cluster.log("media")) by_the_proxy += entry.status == 307;
  EXPECT_LT(by_the_proxy, kBatchObjects) << "the map comes within the first batch";
  RecordProperty("allocations_per_read", std::to_string(per_read));
  std::printf("%.3f allocations per read of 1 KiB from a target\n", per_read);
  EXPECT_LE(per_read, kMaxAllocationsPerRead);
}

TEST(Allocations, ASignatureTakesNoneOnceItsTextsHaveGrown) {
  const std::chrono::system_clock::time_point now =
      std::chrono::sys_days(std::chrono::year(2026) / 11 / 22);
  const SigV4Key key =
      SigV4Key::derive({.access_key_id = "A", .secret_access_key = "s", .session_token = "t"},
                       "eu-west-1", "s3", now)
          .value();
  std::string lines, target;
  const auto sign = [&] {
    lines = "Range: bytes=0-9\r\nx-amz-meta-b: 2\r\nX-Amz-Meta-A: 1\r\n";
    sign_headers({.target = "/b/n?versionId=1&partNumber=2", .authority = "s3.example"},
                 kUnsignedPayload, key, now, lines);
    target = "/b/n?versionId=1";
    presign("GET", "s3.example", "", key, now, std::chrono::seconds(60), target);
  };
  sign();
  allocation_count = 0;
  counting = true;
  for (int i = 0; i < 100; ++i) sign();
  counting = false;
  EXPECT_EQ(allocation_count.load(), 0u);
}

TEST(Allocations, TheSumsOfCrcsTakeNone) {
  const std::vector<std::byte> bytes(10'000);
  allocation_count = 0;
  counting = true;
  for (const ChecksumKind kind :
       {ChecksumKind::kCrc32, ChecksumKind::kCrc32c, ChecksumKind::kCrc64Nvme}) {
    RunningSum sum(kind), next(kind);
    sum.extend(bytes);
    next.extend(bytes);
    sum = sum.joined(next, bytes.size());
    EXPECT_EQ(sum.value().kind(), kind);
  }
  counting = false;
  EXPECT_EQ(allocation_count.load(), 0u);
}

}  // namespace
}  // namespace headrace
