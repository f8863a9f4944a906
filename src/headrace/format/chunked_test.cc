#include "headrace/format/chunked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

struct Decoded {
  std::string body, rest;
  bool done = false;
  std::string error;
};

// Feeds `in_piece` bytes at a time and gives room for `out_piece`.
Decoded decode(std::string_view text, size_t in_piece, size_t out_piece) {
  ChunkedDecoder decoder;
  Decoded out;
  std::string room(out_piece, '?');
  while (!text.empty() && !out.done) {
    const Result<ChunkedDecoder::Step> step =
        decoder.decode(bytes_of(text.substr(0, in_piece)), std::as_writable_bytes(std::span(room)));
    if (!step) {
      out.error = step.error().message();
      EXPECT_EQ(step.error().code(), Code::kUnavailable);
      return out;
    }
    out.body += room.substr(0, step->produced);
    out.done = step->done;
    text.remove_prefix(step->consumed);
  }
  out.rest = text;
  return out;
}

TEST(ChunkedDecoder, IsResumableAtAnyByte) {
  constexpr std::string_view kText =
      "4\r\nWiki\r\n6;name=\"v a\";b\r\npedia \r\n00E \t; x\r\nin \r\n\r\nchunks.\r\n"
      "0\r\nExpires: never\r\nX: \r\n\r\nHTTP/1.1";
  for (size_t in_piece = 1; in_piece <= kText.size(); ++in_piece) {
    for (const size_t out_piece : {1u, 2u, 3u, 5u, 100u}) {
      const Decoded decoded = decode(kText, in_piece, out_piece);
      EXPECT_EQ(decoded.body, "Wikipedia in \r\n\r\nchunks.");
      EXPECT_EQ(decoded.rest, "HTTP/1.1");
      EXPECT_TRUE(decoded.done);
    }
  }
}

TEST(ChunkedDecoder, TakesAnEmptyBody) {
  const Decoded decoded = decode("0\r\n\r\n", 100, 100);
  EXPECT_TRUE(decoded.done);
  EXPECT_EQ(decoded.body, "");
}

TEST(ChunkedDecoder, TakesNothingOnceDone) {
  ChunkedDecoder decoder;
  EXPECT_TRUE(decoder.decode(bytes_of("0\r\n\r\n"), {}).value().done);
  const ChunkedDecoder::Step step = decoder.decode(bytes_of("more"), {}).value();
  EXPECT_EQ(step.consumed, 0u);
  EXPECT_TRUE(step.done);
}

TEST(ChunkedDecoder, StopsBeforeDataThatHasNoRoom) {
  ChunkedDecoder decoder;
  const ChunkedDecoder::Step step = decoder.decode(bytes_of("5\r\nhello\r\n"), {}).value();
  EXPECT_EQ(step.consumed, 3u);
  EXPECT_EQ(step.produced, 0u);
  EXPECT_EQ(decoder.chunk_remaining_bytes(), 5u);
}

TEST(ChunkedDecoder, LetsDataPassItBy) {
  ChunkedDecoder decoder;
  EXPECT_EQ(decoder.decode(bytes_of("A\r\n"), {}).value().consumed, 3u);
  decoder.skip_data(4);
  EXPECT_EQ(decoder.chunk_remaining_bytes(), 6u);
  decoder.skip_data(6);
  EXPECT_EQ(decoder.chunk_remaining_bytes(), 0u);
  EXPECT_TRUE(decoder.decode(bytes_of("\r\n0\r\n\r\n"), {}).value().done);
}

TEST(ChunkedDecoder, DecodesInPlace) {
  std::string text = "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
  ChunkedDecoder decoder;
  const auto memory = std::as_writable_bytes(std::span(text));
  const ChunkedDecoder::Step step = decoder.decode(memory, memory).value();
  EXPECT_TRUE(step.done);
  EXPECT_EQ(text.substr(0, step.produced), "abcdefg");
}

TEST(ChunkedDecoder, TakesTheLargestSizeAndNoLarger) {
  ChunkedDecoder decoder;
  EXPECT_TRUE(decoder.decode(bytes_of("FFFFFFFFFFFFFFFF\r\n"), {}).has_value());
  EXPECT_EQ(decoder.chunk_remaining_bytes(), UINT64_MAX);
  EXPECT_THAT(decode("00000000000000001\r\n", 100, 100).error, HasSubstr("too long"));
  EXPECT_THAT(decode("1FFFFFFFFFFFFFFFF\r\n", 100, 100).error, HasSubstr("too long"));
}

TEST(ChunkedDecoder, RefusesWhatIsMalformed) {
  for (const char* text : {"\r\n", "g\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", " 1\r\n", ";\r\n", "1\n",
                           "1\ra", "1 2\r\n", "1;a\nb\r\n", "1\r\nab", "1\r\na\n", "1\r\na\rb",
                           "0\r\nA\n", "0\r\nA: 1\rx", "0\r\n\rx", "0\r\n\n"}) {
    EXPECT_THAT(decode(text, 100, 100).error, HasSubstr("chunked body")) << text;
    EXPECT_THAT(decode(text, 1, 1).error, HasSubstr("chunked body")) << text;
  }
}

TEST(ChunkedDecoder, StaysFailed) {
  ChunkedDecoder decoder;
  EXPECT_FALSE(decoder.decode(bytes_of("x"), {}).has_value());
  EXPECT_FALSE(decoder.decode(bytes_of("0\r\n\r\n"), {}).has_value());
}

TEST(ChunkedDecoder, LimitsEachChunkAndNotTheirSum) {
  std::string text, body;
  for (int i = 0; i < 100; ++i) {
    text += cat("0001;", std::string(100, 'x'), "\r\na\r\n");
    body += 'a';
  }
  EXPECT_EQ(decode(text + "0\r\n\r\n", 100, 100).body, body);
}

TEST(ChunkedDecoder, LimitsExtensionsAndTrailers) {
  EXPECT_EQ(decode(cat("1;", std::string(4'000, 'x'), "\r\na\r\n0\r\n\r\n"), 9, 9).body, "a");
  EXPECT_THAT(decode(cat("1;", std::string(5'000, 'x')), 9, 9).error, HasSubstr("too long"));
  EXPECT_THAT(decode(cat("1", std::string(5'000, ' ')), 9, 9).error, HasSubstr("too long"));
  std::string trailers;
  for (int i = 0; i < 3'000; ++i) trailers += "A: 123\r\n";
  EXPECT_THAT(decode("0\r\n" + trailers + "\r\n", 100, 1).error, HasSubstr("too long"));
}

}  // namespace
}  // namespace headrace
