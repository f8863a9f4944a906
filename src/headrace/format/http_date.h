// Times in text: Retry-After, and the timestamps of JSON and XML answers.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

// The value of a Retry-After header: seconds, or one of the three forms of an HTTP date, against
// `now`. A date in the past is 0; more than an hour is an hour. None if it is neither.
std::optional<std::chrono::milliseconds> parse_retry_after(
    std::string_view value, std::chrono::system_clock::time_point now);

// The three forms of an HTTP date: "Sat, 21 Nov 2026 05:20:30 GMT" is the usual one.
std::optional<std::chrono::system_clock::time_point> parse_http_date(std::string_view text);

// "2026-11-21T05:20:30.123456Z", also with an offset ("+01:00") in place of Z. Digits beyond
// nanoseconds are dropped.
// Errors: kInvalidArgument.
Result<std::chrono::system_clock::time_point> parse_rfc3339(std::string_view text);

}  // namespace headrace
