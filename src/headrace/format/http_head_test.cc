#include "headrace/format/http_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>

// The sanitizers have an operator new of their own, and want each piece to go back through it.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kCountsAllocations = false;
#else
constexpr bool kCountsAllocations = true;
#endif

namespace {
thread_local size_t allocation_count = 0;
}  // namespace

#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
// Counts what this thread allocates; only differences are looked at.
void* operator new(size_t size_bytes) {
  ++allocation_count;
  if (void* memory = std::malloc(size_bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kOrdinary =
    "HTTP/1.1 200 OK\r\n"
    "X-GUploader-UploadID: ABg5-Uw\r\n"
    "x-goog-hash: crc32c=4waSgw==,md5=JfnnlDI7RTiF9RgfG2JNCw==\r\n"
    "x-goog-generation: 1763702430123456\r\n"
    "Content-Type: application/octet-stream\r\n"
    "Content-Length: 102400\r\n"
    "Server: UploadServer\r\n"
    "\r\n";

std::string head_with(std::string_view fields) {
  return cat("HTTP/1.1 200 OK\r\n", fields, "\r\n");
}

std::string message_of(std::string_view bytes) {
  ResponseHead head;
  const Result<size_t> size = parse_response_head(bytes, head);
  if (size) return cat("no error, ", *size);
  EXPECT_EQ(size.error().code(), Code::kUnavailable);
  EXPECT_TRUE(head.fields().empty());
  return size.error().message();
}

TEST(ResponseHead, IsParsedIntoViews) {
  const std::string bytes = cat(kOrdinary, "body");
  ResponseHead head;
  EXPECT_EQ(parse_response_head(bytes, head).value(), kOrdinary.size());
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.content_length, 102'400u);
  EXPECT_FALSE(head.chunked);
  EXPECT_TRUE(head.keep_alive);
  ASSERT_EQ(head.fields().size(), 6u);
  EXPECT_EQ(head.fields()[0].name, "X-GUploader-UploadID");
  EXPECT_EQ(head.find("X-Goog-Generation"), "1763702430123456");
  EXPECT_EQ(head.find("x-goog"), std::nullopt);
  EXPECT_GE(head.fields()[0].value.data(), bytes.data());
  EXPECT_LT(head.fields()[0].value.data(), bytes.data() + bytes.size());
}

TEST(ResponseHead, IsIncompleteUntilItsLastByte) {
  ResponseHead head;
  for (size_t size = 0; size < kOrdinary.size(); ++size) {
    EXPECT_EQ(parse_response_head(kOrdinary.substr(0, size), head).value(), 0u) << size;
  }
}

TEST(ResponseHead, CostsNoAllocationAfterTheFirst) {
  if (!kCountsAllocations) GTEST_SKIP() << "operator new belongs to a sanitizer";
  ResponseHead head;
  ASSERT_EQ(parse_response_head(kOrdinary, head).value(), kOrdinary.size());
  const size_t before = allocation_count;
  for (int i = 0; i < 100; ++i) {
    const Result<size_t> size = parse_response_head(kOrdinary, head);
    if (!size || *size != kOrdinary.size()) FAIL();
  }
  EXPECT_EQ(allocation_count, before);
  ResponseHead fresh;
  ASSERT_TRUE(parse_response_head(kOrdinary, fresh).has_value());
  EXPECT_GT(allocation_count, before);  // the counter does count
}

TEST(ResponseHead, ForgetsTheOneBefore) {
  ResponseHead head;
  ASSERT_TRUE(parse_response_head(kOrdinary, head).has_value());
  ASSERT_TRUE(parse_response_head("HTTP/1.0 404 Not Found\r\n\r\n", head).has_value());
  EXPECT_EQ(head.status, 404);
  EXPECT_EQ(head.content_length, std::nullopt);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_TRUE(head.fields().empty());
}

TEST(ResponseHead, FindsTheFirstOfRepeatedFields) {
  ResponseHead head;
  const std::string bytes = head_with("A: 1\r\na: 2\r\nB:\r\n");
  ASSERT_TRUE(parse_response_head(bytes, head).has_value());
  EXPECT_EQ(head.find("A"), "1");
  EXPECT_EQ(head.find("b"), "");
  EXPECT_EQ(head.fields().size(), 3u);
}

TEST(ResponseHead, SaysWhetherTheConnectionLivesOn) {
  const auto keep_alive = [](std::string_view bytes) {
    ResponseHead head;
    EXPECT_TRUE(parse_response_head(bytes, head).has_value());
    return head.keep_alive;
  };
  EXPECT_TRUE(keep_alive("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_FALSE(keep_alive("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(keep_alive("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_TRUE(keep_alive("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n"));
  EXPECT_FALSE(keep_alive("HTTP/1.1 200 OK\r\n\r\n"));  // its body ends with the connection
  EXPECT_TRUE(keep_alive("HTTP/1.1 204 No Content\r\n\r\n"));
  EXPECT_TRUE(keep_alive("HTTP/1.1 304 Not Modified\r\n\r\n"));
}

TEST(ResponseHead, ReportsInformationalHeadsAsTheyAre) {
  const std::string bytes = cat("HTTP/1.1 100 Continue\r\n\r\n", kOrdinary);
  ResponseHead head;
  EXPECT_EQ(parse_response_head(bytes, head).value(), 25u);
  EXPECT_EQ(head.status, 100);
  EXPECT_TRUE(head.never_has_body());
  EXPECT_EQ(parse_response_head(std::string_view(bytes).substr(25), head).value(),
            kOrdinary.size());
  EXPECT_EQ(head.status, 200);
  EXPECT_FALSE(head.never_has_body());
}

TEST(ResponseHead, KnowsChunks) {
  ResponseHead head;
  const std::string bytes = head_with("Transfer-Encoding: Chunked\r\n");
  ASSERT_TRUE(parse_response_head(bytes, head).has_value());
  EXPECT_TRUE(head.chunked);
  EXPECT_EQ(head.content_length, std::nullopt);
}

TEST(ResponseHead, RefusesFramingThatCanBeReadInTwoWays) {
  EXPECT_THAT(message_of(head_with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n")),
              HasSubstr("malformed"));
  EXPECT_THAT(message_of(head_with("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n")),
              HasSubstr("malformed"));
  EXPECT_THAT(message_of(head_with("Content-Length: 3\r\nContent-Length: 4\r\n")),
              HasSubstr("malformed"));
  EXPECT_THAT(message_of(head_with("Content-Length: 3\r\nContent-Length: 3\r\n")),
              HasSubstr("twice"));
  EXPECT_THAT(message_of(head_with("Content-Length: 3, 3\r\n")), HasSubstr("no number"));
  for (const char* length :
       {"", "-1", "+1", "0x10", "1 2", "18446744073709551616", "1e3", "99999999999999999999"}) {
    EXPECT_THAT(message_of(head_with(cat("Content-Length: ", length, "\r\n"))),
                HasSubstr("malformed"))
        << length;
  }
  for (const char* coding :
       {"gzip, chunked", "chunked, chunked", "gzip", "identity", "", "xchunked"}) {
    EXPECT_THAT(message_of(head_with(cat("Transfer-Encoding: ", coding, "\r\n"))),
                HasSubstr("malformed"))
        << coding;
  }
  EXPECT_THAT(message_of(head_with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")),
              HasSubstr("malformed"));
}

TEST(ResponseHead, TakesTheLargestLength) {
  ResponseHead head;
  const std::string bytes = head_with("Content-Length: 18446744073709551615\r\n");
  ASSERT_TRUE(parse_response_head(bytes, head).has_value());
  EXPECT_EQ(head.content_length, UINT64_MAX);
}

// It is looked at 64 bytes at a time: whatever is told apart must be wherever it lies.
TEST(ResponseHead, IsTheSameWhereverItsLinesEnd) {
  for (size_t size = 0; size < 130; ++size) {
    const std::string reason(size, 'x');
    const auto head_of = [&reason](std::string_view line_end) {
      return cat("HTTP/1.1 200 ", reason, line_end, "Content-Length: 3\r\nA: b\r\n\r\n");
    };
    const std::string good = head_of("\r\n");
    ResponseHead head;
    for (size_t cut = 0; cut < good.size(); ++cut) {
      ASSERT_EQ(parse_response_head(std::string_view(good).substr(0, cut), head).value(), 0u);
    }
    // What follows the head is not looked at.
    for (const std::string_view body : {"", "\n\x01\x7F", "\r\n\r\n"}) {
      const std::string bytes = cat(good, body);
      ASSERT_EQ(parse_response_head(bytes, head).value(), good.size()) << size;
      ASSERT_EQ(head.content_length, 3u);
      ASSERT_EQ(head.find("a"), "b");
    }
    for (const std::string_view line_end :
         {"\n", "\r", "\r\r\n", "\n\r\n", "\x01\r\n", "\x7F\r\n"}) {
      ASSERT_THAT(message_of(head_of(line_end)), HasSubstr("control characters")) << size;
    }
    // As soon as it has come.
    ASSERT_THAT(message_of(cat("HTTP/1.1 200 ", reason, "\n")), HasSubstr("control characters"));
  }
}

TEST(ResponseHead, RefusesFoldedLines) {
  EXPECT_THAT(message_of(head_with("A: 1\r\n 2\r\n")), HasSubstr("several lines"));
  EXPECT_THAT(message_of(head_with("A: 1\r\n \r\nB: 2\r\n")), HasSubstr("several lines"));
  EXPECT_THAT(message_of(head_with("A: \r\n 2\r\n")), HasSubstr("several lines"));
  EXPECT_THAT(message_of(head_with("A:\r\n\t\r\nB: 2\r\n")), HasSubstr("several lines"));
}

TEST(ResponseHead, RefusesWhatIsNoField) {
  for (const char* line : {"A 1", ": 1", "A : 1", "A: 1\n2", "A: 1\r2", "A: \x01", "A: \x7F",
                           " A: 1", "A\xC3: 1", "A"}) {
    EXPECT_THAT(message_of(head_with(cat(line, "\r\n"))), HasSubstr("malformed")) << line;
  }
  EXPECT_THAT(message_of(std::string("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", 25)),
              HasSubstr("malformed"));
}

TEST(ResponseHead, RefusesWhatIsNoHttp) {
  EXPECT_THAT(message_of("\x15\x03\x01"), HasSubstr("not HTTP/1"));
  EXPECT_THAT(message_of("HTTP/2 200\r\n\r\n"), HasSubstr("not HTTP/1"));
  EXPECT_THAT(message_of("SSH-2.0-x\r\n"), HasSubstr("not HTTP/1"));
  EXPECT_THAT(message_of("HTTP/1.2 200 OK\r\n\r\n"), HasSubstr("malformed"));
  EXPECT_THAT(message_of("HTTP/1.1 20 OK\r\n\r\n"), HasSubstr("malformed"));
  EXPECT_THAT(message_of("HTTP/1.1 099 OK\r\n\r\n"), HasSubstr("status"));
  EXPECT_THAT(message_of("HTTP/1.1 20\r\n\r\n"), HasSubstr("malformed"));
  EXPECT_THAT(message_of("HTTP/1.1 2000\r\n\r\n"), HasSubstr("malformed"));
}

TEST(ResponseHead, MayEndItsFirstLineWithTheStatus) {
  ResponseHead head;
  EXPECT_TRUE(parse_response_head("HTTP/1.1 204\r\nContent-Length: 0\r\n\r\n", head).has_value());
  EXPECT_EQ(head.status, 204);
}

TEST(ResponseHead, HasLimits) {
  std::string many;
  for (size_t i = 0; i < kMaxResponseHeadFields; ++i) many += "A: 1\r\n";
  EXPECT_THAT(message_of(head_with(many)), HasSubstr("no error"));
  EXPECT_THAT(message_of(head_with(many + "A: 1\r\n")), HasSubstr("too many fields"));
  std::string longest = head_with("A: \r\n");
  longest.insert(20, kMaxResponseHeadBytes - longest.size(), 'x');
  EXPECT_EQ(message_of(longest), cat("no error, ", kMaxResponseHeadBytes));
  longest.insert(20, 1, 'x');
  EXPECT_THAT(message_of(longest), HasSubstr("longer than"));
}

}  // namespace
}  // namespace headrace
