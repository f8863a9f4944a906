#include "headrace/store/optional_headers.h"

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

bool begins_with(std::string_view text, std::string_view prefix) {
  return same_ignoring_case(text.substr(0, prefix.size()), prefix);
}

HeaderGroups groups_of(std::string_view line, std::span<const OptionalHeaders> groups) {
  HeaderGroups found = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (begins_with(line, groups[i].prefix)) found |= header_group(i);
  }
  return found;
}

// Calls `each` with every line, CR LF included.
template <class Each>
void for_each_line(std::string_view lines, const Each& each) {
  while (!lines.empty()) {
    const size_t end = lines.find("\r\n");
    const size_t size = end == lines.npos ? lines.size() : end + 2;
    each(lines.substr(0, size));
    lines.remove_prefix(size);
  }
}

}  // namespace

void leave_out(std::string& lines, std::span<const OptionalHeaders> groups, HeaderGroups which) {
  std::string kept;
  kept.reserve(lines.size());
  for_each_line(lines, [&](std::string_view line) {
    if ((groups_of(line, groups) & which) == 0) kept.append(line);
  });
  lines.swap(kept);
}

HeaderGroups named_groups(std::string_view refusal, std::span<const OptionalHeaders> groups) {
  HeaderGroups named = 0;
  for (size_t at = 0; at < refusal.size(); ++at) named |= groups_of(refusal.substr(at), groups);
  return named;
}

}  // namespace headrace
