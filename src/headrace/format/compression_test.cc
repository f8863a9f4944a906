#include "headrace/format/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <string>

#include "headrace/format/format_test_support.h"
#include "headrace/format/gzip_test_support.h"

namespace headrace {
namespace {

std::span<const std::byte> view(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string zstd_frame(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  if (window_log > 0) ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_outBuffer into{.dst = out.data(), .size = out.size(), .pos = 0};
  ZSTD_inBuffer from{.src = text.data(), .size = text.size(), .pos = 0};
  EXPECT_EQ(ZSTD_compressStream2(context, &into, &from, ZSTD_e_end), 0U);
  ZSTD_freeCCtx(context);
  out.resize(into.pos);
  return out;
}

// Decompresses with pieces of `in_bytes` into pieces of `out_bytes`.
Result<std::string> plain(Compression compression, std::string_view packed, size_t in_bytes,
                          size_t out_bytes) {
  const std::unique_ptr<Decompressor> decompressor = Decompressor::create(compression);
  std::string out, room(out_bytes, '\0');
  while (true) {
    const std::string_view piece = packed.substr(0, in_bytes);
    Result<Decompressor::Step> step =
        decompressor->next(view(piece), std::as_writable_bytes(std::span(room)));
    if (!step) return std::unexpected(step.error());
    packed.remove_prefix(step->consumed);
    out.append(room, 0, step->produced);
    if (step->produced == room.size() || !packed.empty()) continue;
    if (Result<void> finished = decompressor->finish(); !finished) {
      return std::unexpected(finished.error());
    }
    return out;
  }
}

std::string long_text() {
  std::string out;
  for (int i = 0; i < 20'000; ++i) out += std::to_string(i * 7919 % 10'007) + ' ';
  return out;
}

using Packer = std::string (*)(std::string_view);
struct Kind {
  Compression compression;
  Packer pack;
};
const Kind kKinds[] = {
    {Compression::kGzip, [](std::string_view text) { return gzipped(text); }},
    {Compression::kZstd, [](std::string_view text) { return zstd_frame(text); }},
};

TEST(Decompressor, GivesTheSameHoweverItIsCut) {
  const std::string text = long_text();
  for (const auto& [compression, pack] : kKinds) {
    const std::string packed = pack(text) + pack("") + pack("and more");
    for (const size_t in_bytes : {size_t{1}, size_t{7}, packed.size()}) {
      for (const size_t out_bytes : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
        EXPECT_EQ(plain(compression, packed, in_bytes, out_bytes).value(), text + "and more");
      }
    }
  }
}

TEST(Decompressor, FindsEveryCut) {
  for (const auto& [compression, pack] : kKinds) {
    const std::string packed = pack("some text, which is not long") + pack("more of it");
    const size_t first = pack("some text, which is not long").size();
    for (size_t size = 0; size < packed.size(); ++size) {
      const Result<std::string> out = plain(compression, packed.substr(0, size), 5, 100);
      if (size == first) {
        EXPECT_TRUE(out.has_value());
      } else {
        EXPECT_EQ(out.error().code(), Code::kCorrupt) << size;
      }
    }
  }
}

TEST(Decompressor, RefusesWhatIsDamagedOrSomethingElse) {
  for (const auto& [compression, pack] : kKinds) {
    std::string packed = pack(long_text());
    EXPECT_EQ(plain(compression, packed + "something else", 100, 1000).error().code(),
              Code::kCorrupt);
    packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x10);
    EXPECT_EQ(plain(compression, packed, 100, 1000).error().code(), Code::kCorrupt);
    EXPECT_EQ(plain(compression, "neither", 100, 1000).error().code(), Code::kCorrupt);
  }
}

TEST(Decompressor, PassesOverZerosBehindAMemberOfGzipHoweverTheyAreCut) {
  const std::string zeros(300, '\0');
  const std::string packed = gzipped("one ") + zeros + gzipped("two") + zeros;
  for (const size_t in_bytes : {size_t{1}, size_t{7}, packed.size()}) {
    for (const size_t out_bytes : {size_t{1}, size_t{7}, size_t{1000}}) {
      EXPECT_EQ(plain(Compression::kGzip, packed, in_bytes, out_bytes).value(), "one two");
    }
  }
  EXPECT_EQ(plain(Compression::kGzip, zeros + packed, 7, 100).error().code(), Code::kCorrupt);
  EXPECT_EQ(plain(Compression::kGzip, packed + "x", 7, 100).error().code(), Code::kCorrupt);
}

TEST(Decompressor, PassesOverFramesThatSayNothing) {
  const std::string skipped("\x50\x2a\x4d\x18\x04\x00\x00\x00size", 12);
  EXPECT_EQ(compression_of(view(skipped)), Compression::kZstd);
  EXPECT_EQ(plain(Compression::kZstd, skipped + zstd_frame("text") + skipped, 3, 100).value(),
            "text");
}

TEST(Decompressor, RefusesAWindowOfMoreMemoryThanItTakes) {
  // Its size is not told beforehand, so that the window is what the frame says.
  const std::string packed = zstd_frame("x", 28);
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28);
  std::string out(1000, '\0');
  ZSTD_outBuffer into{.dst = out.data(), .size = out.size(), .pos = 0};
  ZSTD_inBuffer from{.src = "some", .size = 4, .pos = 0};
  ASSERT_NE(ZSTD_isError(ZSTD_compressStream2(context, &into, &from, ZSTD_e_flush)), 1U);
  ASSERT_EQ(ZSTD_compressStream2(context, &into, &from, ZSTD_e_end), 0U);
  ZSTD_freeCCtx(context);
  const Result<std::string> read =
      plain(Compression::kZstd, std::string_view(out).substr(0, into.pos), 100, 100);
  EXPECT_EQ(read.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(read.error().message(), ::testing::HasSubstr("128 MiB"));
}

TEST(CompressionOf, KnowsTheKindsByTheirBeginning) {
  EXPECT_EQ(compression_of(view(gzipped("x"))), Compression::kGzip);
  EXPECT_EQ(compression_of(view(zstd_frame("x"))), Compression::kZstd);
  EXPECT_EQ(compression_of(view("BZh9")), Compression::kBzip2);
  EXPECT_EQ(compression_of(view(std::string_view("\xfd"
                                                 "7zXZ\0",
                                                 6))),
            Compression::kXz);
  EXPECT_EQ(compression_of(view("\x04\x22\x4d\x18")), Compression::kLz4);
  EXPECT_EQ(compression_of(view("")), Compression::kNone);
  EXPECT_EQ(compression_of(view("000001.jpg")), Compression::kNone);
  EXPECT_EQ(Decompressor::create(Compression::kBzip2), nullptr);
}

}  // namespace
}  // namespace headrace
