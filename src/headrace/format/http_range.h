// HTTP's inclusive byte ranges. They exist in this file and nowhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/base/units.h"

namespace headrace {

// Appends the value of a Range header: [0, 10) is "bytes=0-9". With end == UINT64_MAX the range is
// open: "bytes=10-". The range must not be empty: HTTP cannot say that.
void append_range(std::string& out, ByteRange range);

// What a server says it sent.
struct ContentRange {
  ByteRange range = {};                      // empty if `unsatisfied`
  std::optional<uint64_t> total_bytes = {};  // of the whole object; none for "*"
  bool unsatisfied = false;                  // "bytes */100": nothing was in range (HTTP 416)
};

// The value of a Content-Range header: "bytes 0-9/100", "bytes 0-9/*", "bytes */100"; and what
// servers say of objects without bytes, from "bytes 0-" on to "/0": an empty range.
// Errors: kUnavailable for anything else, and for ranges that do not fit into their total.
Result<ContentRange> parse_content_range(std::string_view value);

}  // namespace headrace
