// Headers that a request would do without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headrace {

// A group of them, which a service takes or refuses as one.
struct OptionalHeaders {
  std::string_view prefix;   // of their names, in lower case
  std::string_view without;  // what is lost without them, for the log
};
// Groups, as bits: those of a protocol, in its order.
using HeaderGroups = uint8_t;
constexpr size_t kMostHeaderGroups = 8;
constexpr HeaderGroups header_group(size_t index) { return static_cast<HeaderGroups>(1U << index); }

// Takes the headers of these groups out of "Name: value\r\n"...: a header belongs to the groups
// that its name begins like.
void leave_out(std::string& lines, std::span<const OptionalHeaders> groups, HeaderGroups which);
// The groups that a refusal names.
HeaderGroups named_groups(std::string_view refusal, std::span<const OptionalHeaders> groups);

}  // namespace headrace
