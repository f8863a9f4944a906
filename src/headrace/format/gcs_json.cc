#include "headrace/format/gcs_json.h"

#include <array>
#include <charconv>

#include "headrace/base/ascii.h"
#include "headrace/format/http_date.h"
#include "headrace/format/json.h"

namespace headrace {
namespace {

namespace dom = simdjson::dom;

Result<dom::object> parse_root(std::string_view json) {
  const Result<dom::element> root = parse_json(json);
  if (!root) return std::unexpected(root.error());
  dom::object object;
  if (root->get(object) != simdjson::SUCCESS) return corrupt("JSON that is not an object");
  // Some proxies answer errors with HTTP 200; as a listing, that would look empty.
  if (object["error"].error() == simdjson::SUCCESS)
    return corrupt("an error in place of an answer");
  return object;
}

// Object resources, into the rows of a page. Members come in any order; each is looked at once.
class ObjectReader {
 public:
  explicit ObjectReader(ColumnPage& page) : page_(page) {}

  // Errors: kCorrupt for a missing name or a member of the wrong type.
  Result<void> read(const dom::object& json) {
    row_ = {};
    name_ = {};
    generation_ = 0;
    for (const auto [key, value] : json) {
      if (!value.is_null() && !take(key, value)) {
        return corrupt("an object resource with a malformed '", key, "'");
      }
    }
    if (name_.empty()) return corrupt("an object resource with a missing or malformed 'name'");
    std::array<char, 20> digits;
    size_t digit_count = 0;
    if (generation_ != 0) {
      digit_count = static_cast<size_t>(
          std::to_chars(digits.data(), digits.data() + digits.size(), generation_).ptr -
          digits.data());
    }
    ColumnPage::Row& row = page_.add(name_, std::string_view(digits.data(), digit_count));
    row_.text_begin = row.text_begin;
    row_.name_size = row.name_size;
    row_.generation_size = row.generation_size;
    row = row_;
    return {};
  }

 private:
  // False if the value cannot be the member's.
  bool take(std::string_view key, const dom::element& value) {
    if (key == "name") return value.get(name_) == simdjson::SUCCESS;
    if (key == "size") return to_number(value, row_.size_bytes);
    if (key == "generation") return to_number(value, generation_);
    if (key == "metageneration") return to_number(value, row_.metageneration);
    if (key == "componentCount") return to_number(value, row_.component_count);
    if (key == "contentType") return to_word(value, row_.content_type);
    if (key == "contentEncoding") return to_word(value, row_.content_encoding);
    if (key == "storageClass") return to_word(value, row_.storage_class);
    if (key == "crc32c") return to_sum(value);
    if (key == "updated") return to_time(value);
    return true;
  }
  bool to_word(const dom::element& value, uint32_t& out) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) return false;
    out = page_.word(text);
    return true;
  }
  bool to_sum(const dom::element& value) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) return false;
    if (text.empty()) return true;
    const Result<Crc32c> sum = Crc32c::from_base64(text);
    if (sum) row_.checksum = *sum;
    return sum.has_value();
  }
  bool to_time(const dom::element& value) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) return false;
    // Year 1 is how a server written in Go says "never".
    if (text.empty() || text.starts_with("0001-")) return true;
    const Result<std::chrono::system_clock::time_point> time = parse_rfc3339(text);
    if (time) row_.updated = *time;
    return time.has_value();
  }

  ColumnPage& page_;
  ColumnPage::Row row_;
  std::string_view name_;
  uint64_t generation_ = 0;
};

Result<ObjectInfo> to_object(const dom::object& json) {
  ColumnPage page;
  if (Result<void> read = ObjectReader(page).read(json); !read) {
    return std::unexpected(std::move(read.error()));
  }
  return page.info(0);
}

}  // namespace

Result<ObjectInfo> parse_gcs_object(std::string_view json) {
  const Result<dom::object> root = parse_root(json);
  if (!root) return std::unexpected(root.error());
  return to_object(*root);
}

Result<ColumnPage> parse_gcs_list(std::string_view json) {
  const Result<dom::object> root = parse_root(json);
  if (!root) return std::unexpected(root.error());
  ColumnPage page;
  MemberReader reader(*root);
  dom::array items, prefixes;
  const bool has_items = reader.array("items", items);
  const bool has_prefixes = reader.array("prefixes", prefixes);
  reader.text("nextPageToken", page.next_page_token);
  if (reader.wrong() != nullptr)
    return corrupt("a listing with a malformed '", reader.wrong(), "'");
  if ((has_items && items.size() > ColumnPage::kMaxEntries) ||
      (has_prefixes && prefixes.size() > ColumnPage::kMaxEntries)) {
    return corrupt("a listing with more than ", ColumnPage::kMaxEntries, " entries");
  }
  if (has_items) {
    page.reserve(items.size(), json.size() / 2);
    ObjectReader objects(page);
    for (const dom::element item : items) {
      dom::object object;
      if (item.get(object) != simdjson::SUCCESS) {
        return corrupt("a listing with an item that is not an object");
      }
      if (Result<void> read = objects.read(object); !read) {
        return std::unexpected(std::move(read.error()));
      }
    }
  }
  if (has_prefixes) {
    page.prefixes.reserve(prefixes.size());
    for (const dom::element prefix : prefixes) {
      std::string_view text;
      if (prefix.get(text) != simdjson::SUCCESS) {
        return corrupt("a listing with a prefix that is not a string");
      }
      page.prefixes.emplace_back(text);
    }
  }
  return page;
}

Result<GcsRewrite> parse_gcs_rewrite(std::string_view json) {
  const Result<dom::object> root = parse_root(json);
  if (!root) return std::unexpected(root.error());
  GcsRewrite rewrite;
  MemberReader reader(*root);
  reader.boolean("done", rewrite.done);
  reader.text("rewriteToken", rewrite.token);
  dom::object resource;
  const bool has_resource = reader.object("resource", resource);
  if (rewrite.done && !has_resource) reader.fail("resource");
  if (!rewrite.done && rewrite.token.empty()) reader.fail("rewriteToken");
  if (reader.wrong() != nullptr) {
    return corrupt("an answer to rewrite with a missing or malformed '", reader.wrong(), "'");
  }
  if (!rewrite.done) return rewrite;
  rewrite.token.clear();
  Result<ObjectInfo> object = to_object(resource);
  if (!object) return std::unexpected(std::move(object.error()));
  rewrite.object = std::move(*object);
  return rewrite;
}

GcsError parse_gcs_error(std::string_view body) {
  GcsError out;
  const Result<dom::element> root = parse_json(body);
  dom::element error;
  if (root && (*root)["error"].get(error) == simdjson::SUCCESS) {
    std::string_view text;
    int64_t code = 0;
    if (error.get(text) == simdjson::SUCCESS) {
      // OAuth's form (RFC 6749): {"error": "invalid_grant", "error_description": "..."}
      out.reason = printable_line(text);
      if ((*root)["error_description"].get(text) == simdjson::SUCCESS)
        out.message = printable_line(text);
    } else {
      if (error["message"].get(text) == simdjson::SUCCESS) out.message = printable_line(text);
      if (error["code"].get(code) == simdjson::SUCCESS && code > 0 && code < 1000) {
        out.code = static_cast<int>(code);
      }
      if (error["errors"].at(0)["reason"].get(text) == simdjson::SUCCESS) {
        out.reason = printable_line(text);
      }
    }
  }
  if (out.message.empty()) out.message = out.reason.empty() ? printable_line(body) : out.reason;
  return out;
}

}  // namespace headrace
