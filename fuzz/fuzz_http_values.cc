// The small values of header fields, and the times of listings: what is accepted is well formed,
// and what is written is read back.
#include <chrono>
#include <cstring>
#include <limits>
#include <string>

#include "fuzz/check.h"
#include "headrace/format/base64.h"
#include "headrace/format/format_test_support.h"
#include "headrace/format/goog_hash.h"
#include "headrace/format/http_date.h"
#include "headrace/format/http_range.h"
#include "headrace/format/proxy_rules.h"

using namespace headrace;
using fuzz::check;
using std::chrono::system_clock;

namespace {

void check_ranges(std::string_view text, fuzz::Choices& choices) {
  if (const Result<ContentRange> range = parse_content_range(text)) {
    check(range->range.begin <= range->range.end);
    const bool is_empty = range->range.size_bytes() == 0;
    check(is_empty == (range->unsatisfied || range->total_bytes == 0));
    if (range->total_bytes) check(range->range.end <= *range->total_bytes);
    if (!is_empty && range->range.end != std::numeric_limits<uint64_t>::max()) {
      // A request's range becomes an answer's range by putting a total behind it.
      std::string again = format_range(range->range);
      again[5] = ' ';
      check(parse_content_range(again + "/*").value().range == range->range);
    }
  }
  const uint64_t begin = uint64_t{choices()} << (choices() % 31);
  const ByteRange range{begin, begin + 1 + choices()};
  std::string written = format_range(range);
  written[5] = ' ';
  check(parse_content_range(cat(written, "/", range.end)).value().range == range);
}

void check_times(std::string_view text, fuzz::Choices& choices) {
  if (const auto time = parse_rfc3339(text)) {
    const std::string written = format_rfc3339(*time);
    check(parse_rfc3339(written).value() == *time);
    check(format_rfc3339(parse_rfc3339(written).value()) == written);
  }
  const int64_t seconds = static_cast<int64_t>(choices()) - (int64_t{1} << 31);
  const auto any = system_clock::time_point(std::chrono::seconds(4 * seconds / 3)) +
                   std::chrono::nanoseconds(choices() % 1'000'000'000);
  check(parse_rfc3339(format_rfc3339(any)).value() == any);
  if (const auto wait = parse_retry_after(text, any)) {
    check(*wait >= std::chrono::milliseconds(0) && *wait <= std::chrono::hours(1));
  }
}

void check_sums(std::string_view text) {
  if (const auto bytes = base64_decode(text)) check(base64_encode(*bytes) == text);
  const std::string encoded = base64_encode(fuzz::as_bytes(text));
  const auto decoded = base64_decode(encoded);
  check(decoded.has_value() && decoded->size() == text.size());
  if (!text.empty()) check(std::memcmp(decoded->data(), text.data(), text.size()) == 0);
  if (const std::optional<Crc32c> sum = crc32c_of_goog_hash(text)) {
    check(text.find(sum->to_base64()) != std::string_view::npos);
    check(crc32c_of_goog_hash(cat("md5=x,crc32c=", sum->to_base64())) == sum);
  }
}

void check_proxy_rules(std::string_view text) {
  const size_t bar = text.find('|');
  if (bar == std::string_view::npos) return;
  const std::string_view rules = text.substr(0, bar), host = text.substr(bar + 1);
  // One more rule never takes a host away, and a star takes all.
  const bool bypasses = bypasses_proxy(rules, host, 443);
  if (bypasses) check(bypasses_proxy(cat(rules, ",other.example"), host, 443));
  check(bypasses_proxy(cat(rules, ", *"), host, 443));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  check_ranges(text, choices);
  check_times(text, choices);
  check_sums(text);
  check_proxy_rules(text);
  return 0;
}
