// The pages of a bucket listing.
#include <algorithm>

#include "gcs/gcs.h"
#include "text.h"

namespace faultserver {
namespace {

// The part of `fields=` that this server honours: which members of the page, which of each item.
struct PageFields {
  bool all = true;
  Fields top;
  Fields item;  // Empty: all.

  explicit PageFields(std::string_view text) {
    all = text.empty() || text == "*";
    while (!text.empty()) {
      int depth = 0;
      size_t end = 0;
      while (end < text.size() && (depth > 0 || text[end] != ',')) {
        depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
        ++end;
      }
      const std::string_view piece = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const size_t name_end = piece.find_first_of("(/");
      top.emplace(piece.substr(0, name_end));
      if (name_end == std::string_view::npos || piece.substr(0, name_end) != "items") continue;
      std::string_view members = piece.substr(name_end + 1);
      if (members.ends_with(')')) members.remove_suffix(1);
      for (const std::string_view member : split(members, ',')) {
        item.emplace(member.substr(0, member.find_first_of("(/")));
      }
    }
    if (item.contains("*")) item.clear();
  }
  bool has(std::string_view name) const { return all || top.contains(name); }
};

// The first string after all that start with `prefix`; empty when there is none.
std::string after_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<uint8_t>(prefix.back()) == 0xff) prefix.pop_back();
  if (!prefix.empty()) prefix.back() = static_cast<char>(static_cast<uint8_t>(prefix.back()) + 1);
  return prefix;
}

}  // namespace

Response list_objects(Bucket& bucket, const Request& request, const std::string& base_url) {
  const Route list_route{.kind = Kind::kList};
  const std::string prefix = request.parameter("prefix");
  const std::string delimiter = request.parameter("delimiter");
  const std::string start = request.parameter("startOffset");
  const std::string end = request.parameter("endOffset");
  const std::string token = request.parameter("pageToken");
  const bool trailing = request.parameter("includeTrailingDelimiter") == "true";
  const PageFields fields(request.parameter("fields"));
  const uint64_t max_page = bucket.max_page.value_or(1000);
  uint64_t max_results = max_page;
  if (request.has_parameter("maxResults")) {
    const std::optional<uint64_t> asked = parse_u64(request.parameter("maxResults"));
    if (!asked) {
      return error_response(list_route, 400, "invalidParameter",
                            "Invalid value for: maxResults is not a valid integer");
    }
    if (*asked > 0) max_results = std::min(*asked, max_page);
  }

  Bucket::Cursor cursor(bucket);
  std::string from = std::max(prefix, start);
  if (!token.empty()) {
    // 'n' and a name: go on after it; 'p' and a prefix: go on after all that is under it.
    const std::optional<std::string> last = base64_decode(token);
    if (!last || last->size() < 2 || (last->front() != 'n' && last->front() != 'p')) {
      return error_response(list_route, 400, "invalid", "Invalid pageToken");
    }
    const std::string resume =
        last->front() == 'n' ? last->substr(1) + '\0' : after_prefix(last->substr(1));
    from = std::max(from, resume);
  }
  cursor.seek(from);

  std::string items;
  std::string prefixes;
  std::string last;
  uint64_t taken = 0;
  const auto more = [&] {
    return cursor.valid() && cursor.name().starts_with(prefix) &&
           (end.empty() || cursor.name() < end);
  };
  while (more() && taken < max_results) {
    const std::string& name = cursor.name();
    const size_t split_at =
        delimiter.empty() ? std::string::npos : name.find(delimiter, prefix.size());
    ++taken;
    if (split_at != std::string::npos &&
        !(trailing && split_at + delimiter.size() == name.size())) {
      const std::string folder = name.substr(0, split_at + delimiter.size());
      if (!prefixes.empty()) prefixes += ',';
      append_json_string(prefixes, folder);
      last = "p" + folder;
      cursor.seek(after_prefix(folder));
      continue;
    }
    if (fields.has("items")) {
      if (!items.empty()) items += ',';
      append_object_json(items, bucket.name, *cursor.object(), base_url,
                         fields.item.empty() ? nullptr : &fields.item);
    }
    last = "n" + name;
    cursor.advance();
  }

  std::string out = "{";
  const auto member = [&out](std::string_view name) {
    if (out.size() > 1) out += ',';
    append_json_string(out, name);
    out += ':';
  };
  if (fields.has("kind")) {
    member("kind");
    out += "\"storage#objects\"";
  }
  if (more() && fields.has("nextPageToken")) {
    member("nextPageToken");
    append_json_string(out, base64_encode(last));
  }
  if (!prefixes.empty() && fields.has("prefixes")) {
    member("prefixes");
    out += "[" + prefixes + "]";
  }
  if (!items.empty()) {
    member("items");
    out += "[";
    out += items;
    out += "]";
  }
  return json_response(200, out + "}");
}

}  // namespace faultserver
