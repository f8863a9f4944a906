#include "headrace/format/http_range.h"

#include <limits>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

bool starts_with_bytes_unit(std::string_view value) {  // range units know no case (RFC 9110 14.1)
  return same_ignoring_case(value.substr(0, 6), "bytes ");
}

}  // namespace

void append_range(std::string& out, ByteRange range) {
  char digits[24];
  const auto append = [&](uint64_t number) {
    out.append(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
  };
  out += "bytes=";
  append(range.begin);
  out += '-';
  if (range.end != std::numeric_limits<uint64_t>::max()) append(range.end - 1);
}

Result<ContentRange> parse_content_range(std::string_view value) {
  const auto malformed = [value] {
    return fail(Code::kUnavailable, "a Content-Range of ", value.size(),
                " bytes that cannot be read: ", value.substr(0, 60));
  };
  if (!starts_with_bytes_unit(value)) return malformed();
  const std::string_view rest = value.substr(6);
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return malformed();
  const std::string_view range = rest.substr(0, slash);
  const std::string_view total = rest.substr(slash + 1);

  ContentRange out;
  if (total != "*") {
    out.total_bytes = parse_number(total);
    // No object is so large, and the number stands for an unknown size.
    if (!out.total_bytes || out.total_bytes == std::numeric_limits<uint64_t>::max()) {
      return malformed();
    }
  }
  if (range == "*") {
    if (!out.total_bytes) return malformed();
    out.unsatisfied = true;
    return out;
  }
  const size_t dash = range.find('-');
  if (dash == std::string_view::npos) return malformed();
  const std::optional<uint64_t> first = parse_number(range.substr(0, dash));
  // Of an object without bytes there is no inclusive range; servers say "0--1/0" and "0-0/0".
  if (out.total_bytes == 0 && first == 0) return out;
  const std::optional<uint64_t> last = parse_number(range.substr(dash + 1));
  if (!first || !last || *last < *first || *last == std::numeric_limits<uint64_t>::max()) {
    return malformed();
  }
  out.range = {.begin = *first, .end = *last + 1};
  if (out.total_bytes && out.range.end > *out.total_bytes) return malformed();
  return out;
}

}  // namespace headrace
