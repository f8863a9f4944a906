#include "headrace/shards/shard_read.h"

#include <zstd.h>

#include <thread>

#include "headrace/format/gzip_test_support.h"
#include "headrace/format/tar_test_support.h"
#include "headrace/store/fault_server_test_support.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string tar_of(size_t samples, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < samples; ++i) {
    out += tar_file(cat(i, ".bin"), some_bytes(bytes, static_cast<uint32_t>(i + 1)));
  }
  return out + tar_end();
}

std::string zstd_frame(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

class ShardReadTest : public StoreTest {
 protected:
  ShardToRead put(std::string_view bytes, const std::string& name = "shard") {
    const ObjectInfo info = server_.put(name, bytes);
    return {.store = open(),
            .name = name,
            .generation = info.generation,
            .size_bytes = info.size_bytes,
            .checksum = info.checksum};
  }
  static bool wait(ShardRead& read) {
    return read.wait_until(std::chrono::steady_clock::now() + kPatience,
                           MayBlock::on_this_thread());
  }
  // The keys of all samples, whose bytes are looked at, up to the end or to an error.
  Result<std::vector<std::string>> read(ShardToRead shard) {
    read_ = ShardRead::start(std::move(shard));
    keys_.clear();
    while (true) {
      EXPECT_TRUE(wait(*read_));
      Result<std::vector<ShardSample>> samples = read_->take();
      if (!samples) return std::unexpected(samples.error());
      if (samples->empty()) return keys_;
      for (const ShardSample& each : *samples) {
        keys_.push_back(each.key);
        const Block& block = each.fields[0].block;
        const std::string_view bytes(reinterpret_cast<const char*>(block.data()),
                                     block.size_bytes());
        EXPECT_EQ(bytes, some_bytes(bytes.size(), static_cast<uint32_t>(each.number + 1)));
        offsets_.push_back(each.next_offset);
      }
    }
  }
  // How many samples are left.
  static size_t count(ShardRead& read) {
    size_t samples = 0;
    while (wait(read)) {
      const Result<std::vector<ShardSample>> taken = read.take();
      EXPECT_TRUE(taken);
      if (!taken || taken->empty()) break;
      samples += taken->size();
    }
    return samples;
  }
  uint64_t sent_bytes() {
    uint64_t sent = 0;
    for (const FaultServer::Entry& each : server_.log("media")) sent += each.bytes_sent;
    return sent;
  }

  std::shared_ptr<ShardRead> read_;
  std::vector<std::string> keys_;
  std::vector<uint64_t> offsets_;
};

TEST_F(ShardReadTest, GivesAllSamplesOfEachKindOfShard) {
  const std::string tar = tar_of(30, 10'000);
  for (const std::string& bytes :
       {tar, gzipped(tar), gzipped(tar.substr(0, 777)) + gzipped(tar.substr(777)), zstd_frame(tar),
        zstd_frame(tar.substr(0, 99'999)) + zstd_frame(tar.substr(99'999))}) {
    ShardToRead shard = put(bytes);
    shard.piece_bytes = 40'000;
    shard.window = std::make_shared<PieceWindow>(100'000);
    const std::vector<std::string> keys = read(shard).value();
    EXPECT_EQ(keys.size(), 30u);
    EXPECT_EQ(keys.back(), "29");
    EXPECT_THAT(read_->warnings(), IsEmpty());
    // Its checksum was compared, and each byte was sent once.
    EXPECT_EQ(sent_bytes(), bytes.size());
    EXPECT_EQ(server_.stat("/by_kind/media"), (bytes.size() + 39'999) / 40'000);
    server_.post("reset", "{}");
  }
}

TEST_F(ShardReadTest, AReaderContinuesWithAnySampleOfAPlainTar) {
  const std::string tar = tar_of(20, 3000);
  ShardToRead shard = put(tar);
  ASSERT_TRUE(read(shard));
  const std::vector<uint64_t> offsets = offsets_;
  for (const uint64_t first : {1u, 7u, 19u, 20u}) {
    server_.post("reset", "{}");
    shard = put(tar);
    shard.first = first;
    shard.offset = offsets[first - 1];
    EXPECT_EQ(read(shard).value().size(), 20 - first);
    EXPECT_EQ(sent_bytes(), tar.size() - shard.offset);
  }
}

TEST_F(ShardReadTest, ACompressedShardIsReadAgainAndPassedOver) {
  const std::string tar = tar_of(20, 3000);
  for (const std::string& bytes : {gzipped(tar), zstd_frame(tar)}) {
    ShardToRead shard = put(bytes);
    shard.first = 18;
    offsets_.clear();
    EXPECT_THAT(read(shard).value(), ElementsAre("18", "19"));
    EXPECT_THAT(offsets_, ElementsAre(0u, 0u));
  }
}

TEST_F(ShardReadTest, ReadsNoMoreThanItsSamples) {
  const std::string tar = tar_of(100, 10'000);
  ShardToRead shard = put(tar);
  shard.end = 3;
  shard.piece_bytes = 32'768;
  shard.window = std::make_shared<PieceWindow>(65'536);
  EXPECT_THAT(read(shard).value(), ElementsAre("0", "1", "2"));
  EXPECT_LE(sent_bytes(), 4u * 32'768);
  shard.first = 3;
  EXPECT_THAT(read(shard).value(), IsEmpty());
}

TEST_F(ShardReadTest, WhatIsBehindALikelyEndIsReadOnceItIsNeeded) {
  const std::string tar = tar_of(100, 10'000);
  ShardToRead shard = put(tar);
  shard.end = 3;
  shard.piece_bytes = 32'768;
  shard.likely_end_offset = 3 * (512 + 10'240);
  EXPECT_THAT(read(shard).value(), ElementsAre("0", "1", "2"));
  EXPECT_EQ(sent_bytes(), 32'768u);
  server_.post("reset", "{}");
  shard = put(tar);
  shard.piece_bytes = 100'000;
  shard.likely_end_offset = 1;  // it was not
  EXPECT_EQ(read(shard).value().size(), 100u);
  EXPECT_EQ(sent_bytes(), tar.size());
}

TEST_F(ShardReadTest, ShardsThatShareAWindowAreReadInTheOrderInWhichTheyWereBegun) {
  const std::string tar = tar_of(30, 10'000);
  std::vector<std::shared_ptr<ShardRead>> reads;
  const auto window = std::make_shared<PieceWindow>(40'000);
  for (const char* const name : {"a", "b", "c"}) {
    ShardToRead shard = put(tar, name);
    shard.piece_bytes = 40'000;
    shard.window = window;
    reads.push_back(ShardRead::start(std::move(shard)));
  }
  for (const std::shared_ptr<ShardRead>& each : reads) EXPECT_EQ(count(*each), 30u);
  std::string order;
  for (const FaultServer::Entry& each : server_.log("media"))
    order += each.target.at(each.target.find("/o/") + 3);
  const size_t pieces = (tar.size() + 39'999) / 40'000;
  EXPECT_EQ(order, std::string(pieces, 'a') + std::string(pieces, 'b') + std::string(pieces, 'c'));
}

TEST_F(ShardReadTest, AShardThatIsGivenUpMakesRoomInItsWindow) {
  const std::string tar = tar_of(30, 10'000);
  const auto window = std::make_shared<PieceWindow>(1);
  ShardToRead shard = put(tar, "a");
  shard.window = window;
  shard.max_ready_bytes = 1;  // it stops there, and nobody takes it
  shard.piece_bytes = 40'000;
  const std::shared_ptr<ShardRead> first = ShardRead::start(std::move(shard));
  ASSERT_TRUE(wait(*first));
  shard = put(tar, "b");
  shard.window = window;
  read_ = ShardRead::start(std::move(shard));
  first->cancel();
  EXPECT_EQ(count(*read_), 30u);
}

TEST_F(ShardReadTest, HoldsNoMoreThanItMayWhileNobodyTakesAnything) {
  const std::string tar = tar_of(2000, 10'000);  // 20 MB
  ShardToRead shard = put(tar);
  shard.piece_bytes = 256 * kKiB;
  shard.window = std::make_shared<PieceWindow>(1 * kMiB);
  shard.max_ready_bytes = 1 * kMiB;
  BlockPool& pool = engine_.pool();
  read_ = ShardRead::start(shard);
  ASSERT_TRUE(wait(*read_));
  // Until reads stop, since enough is ready.
  server_.wait_for("/by_kind/media", 6);
  EXPECT_EQ(count(*read_), 2000u);
  // Under way, being taken apart, ready, and taken; blocks are a quarter larger at most.
  EXPECT_LE(pool.use().peak_live_bytes, 5 * kMiB);
}

TEST_F(ShardReadTest, ComparesTheWholeWithItsChecksum) {
  const std::string tar = tar_of(5, 3000);
  ShardToRead shard = put(tar);
  shard.checksum = Crc32c(12345);
  shard.piece_bytes = 4000;
  EXPECT_THAT(read(shard), FailsWith(Code::kCorrupt, HasSubstr("the bytes that came have CRC32C")));
  EXPECT_EQ(keys_.size(), 5u);  // their use cannot be taken back
  shard.verify = false;
  EXPECT_EQ(read(shard).value().size(), 5u);
}

TEST_F(ShardReadTest, AsksForAChecksumThatAListingLeftOut) {
  ShardToRead shard = put(tar_of(5, 3000));
  shard.checksum = {};
  shard.asks_checksum = true;
  EXPECT_EQ(read(shard).value().size(), 5u);
  EXPECT_EQ(server_.stat("/by_kind/get"), 1u);
}

TEST_F(ShardReadTest, SaysWhereTheErrorIsAfterTheSamplesBefore) {
  const std::string tar = tar_of(5, 3000);
  const std::string packed = gzipped(tar), frames = zstd_frame(tar);
  for (const std::string& bytes :
       {tar.substr(0, 9000), gzipped(tar.substr(0, 9000)), packed.substr(0, packed.size() - 1),
        frames.substr(0, frames.size() - 1), std::string(3000, 'x'), std::string("\x1f\x8b")}) {
    EXPECT_THAT(read(put(bytes)), FailsWith(Code::kCorrupt, HasSubstr("/shard: ")));
  }
  EXPECT_THAT(read(put(tar.substr(0, 9000))), FailsWith(Code::kCorrupt, HasSubstr("shard")));
  EXPECT_THAT(keys_, ElementsAre("0", "1"));
  EXPECT_THAT(read(put("BZh9 and so on")),
              FailsWith(Code::kInvalidArgument, HasSubstr("compressed by bzip2")));
  EXPECT_THAT(read(put("")), FailsWith(Code::kCorrupt, HasSubstr("empty")));
}

TEST_F(ShardReadTest, RefusesABombByTheMemoryThatItWouldTake) {
  // 300 MiB of zeros in a member, more than the budget, in some hundred kilobytes.
  std::string tar = tar_header("0.bin", 300 * kMiB);
  tar.resize(300 * kMiB, '\0');
  for (const std::string& bytes : {zstd_frame(tar), gzipped(tar)}) {
    EXPECT_THAT(read(put(bytes)), FailsWith(Code::kExhausted, HasSubstr("memory_budget_bytes")));
    EXPECT_LE(engine_.pool().use().peak_live_bytes, 64 * kMiB);
  }
}

TEST_F(ShardReadTest, KnowsWhenTheIndexIsOfOtherSamples) {
  ShardToRead shard = put(tar_of(5, 300));
  for (const uint64_t count : {4u, 6u}) {
    shard.count = count;
    EXPECT_THAT(read(shard), FailsWith(Code::kInvalidArgument, HasSubstr("the index has ")));
  }
  shard.count = 5;
  EXPECT_EQ(read(shard).value().size(), 5u);
}

TEST_F(ShardReadTest, AShardThatChangesIsAnError) {
  ShardToRead shard = put(tar_of(5, 300));
  put(tar_of(7, 300));
  EXPECT_THAT(read(shard), FailsWith(Code::kPreconditionFailed, HasSubstr("shard")));
}

TEST_F(ShardReadTest, EndsAtOnceIfItIsCancelledOrTheEngineStops) {
  server_.faults(R"([{"match": {"kind": "media"}, "action": {"stall_after_bytes": 0}}])");
  ShardToRead shard = put(tar_of(5, 300));
  read_ = ShardRead::start(shard);
  server_.wait_for("/by_kind/media", 1);
  read_->cancel();
  ASSERT_TRUE(wait(*read_));
  EXPECT_EQ(read_->take().error().code(), Code::kCancelled);
  std::shared_ptr<ShardRead> dropped = ShardRead::start(shard);
  dropped.reset();
  read_ = ShardRead::start(shard);
  engine_.stop();
  ASSERT_TRUE(wait(*read_));
  EXPECT_EQ(read_->take().error().code(), Code::kCancelled);
}

TEST_F(ShardReadTest, IsCancelledWhileItAsksForAChecksum) {
  server_.faults(R"([{"match": {"kind": "get"}, "action": {"stall_head": true}}])");
  ShardToRead shard = put(tar_of(5, 300));
  shard.checksum = {};
  shard.asks_checksum = true;
  read_ = ShardRead::start(shard);
  server_.wait_for("/by_kind/get", 1);
  read_->cancel();
  ASSERT_TRUE(wait(*read_));
  EXPECT_EQ(read_->take().error().code(), Code::kCancelled);
  EXPECT_EQ(server_.stat("/by_kind/media"), 0u);
}

TEST_F(ShardReadTest, ClosingEndsItForAThreadThatWaits) {
  server_.faults(R"([{"match": {"kind": "media"}, "action": {"stall_after_bytes": 0}}])");
  read_ = ShardRead::start(put(tar_of(5, 300)));
  server_.wait_for("/by_kind/media", 1);
  Result<std::vector<ShardSample>> taken;
  {
    std::jthread waits([this, &taken] {
      EXPECT_TRUE(wait(*read_));
      taken = read_->take();
    });
    read_->close(MayBlock::on_this_thread());
  }
  EXPECT_EQ(taken.error().code(), Code::kCancelled);
  EXPECT_EQ(engine_.pool().live_bytes(), 0u);
}

}  // namespace
}  // namespace headrace
