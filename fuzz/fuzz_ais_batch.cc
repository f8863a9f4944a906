// The body of a request for many objects is JSON, and says what it was given.
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "headrace/format/ais_batch.h"
#include "headrace/format/json.h"

using namespace headrace;
using fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in = fuzz::as_text(data, size);
  fuzz::Choices choices(in);
  const bool is_utf8 = simdjson::validate_utf8(in.data(), in.size());

  std::vector<AisBatchEntry> entries;
  for (std::string_view rest = in; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    AisBatchEntry entry{.name = std::string(name)};
    if (choices() % 3 == 0) entry.member = name.substr(name.size() / 2);
    if (choices() % 3 == 0) {
      const uint64_t begin = choices();
      entry.range = ByteRange{begin, begin + 1 + choices()};
    }
    entries.push_back(std::move(entry));
  }
  const std::string body = ais_batch_body(entries);
  const auto parsed = parse_json(body);
  check(parsed.has_value());
  simdjson::dom::array told;
  check((*parsed)["in"].get(told) == simdjson::SUCCESS && told.size() == entries.size());
  size_t at = 0;
  for (const simdjson::dom::element each : told) {
    const AisBatchEntry& entry = entries[at++];
    std::string_view name, member;
    check(each["objname"].get(name) == simdjson::SUCCESS);
    const bool has_member = each["archpath"].get(member) == simdjson::SUCCESS;
    check(has_member != entry.member.empty());
    // What is no UTF-8 comes changed.
    if (is_utf8) check(name == entry.name);
    uint64_t start = 0, length = 0;
    const bool has_range = each["length"].get(length) == simdjson::SUCCESS &&
                           each["start"].get(start) == simdjson::SUCCESS;
    check(has_range == entry.range.has_value());
    if (has_range) check(start == entry.range->begin && length == entry.range->size_bytes());
    check(ais_batch_missing_name(entry) == "__404__/" + ais_batch_member_name(entry));
  }

  const std::string_view path = ais_batch_redirect_path(in);
  check(path.empty() || (path.starts_with("/v1/ml/moss/") && in.contains(path)));
  static_cast<void>(is_ais_batch_unknown(400, in));
  return 0;
}
