// A listing is what a second reader, which builds a tree by pugixml, takes it for. No beginning of
// a complete listing is a listing; what is written is read back, with names encoded and as they
// are.
#include <charconv>
#include <string>

#include "fuzz/check.h"
#include "headrace/format/body_shape.h"
#include "headrace/format/format_test_support.h"
#include "headrace/format/http_date.h"
#include "headrace/format/percent.h"
#include "headrace/format/s3_xml.h"
#include "headrace/format/xml.h"

using namespace headrace;
using fuzz::check;

namespace {

void append_text(std::string& xml, std::string_view text) {
  for (const char c : text) {
    const bool stays = static_cast<unsigned char>(c) >= ' ' && c != '&' && c != '<';
    xml += stays ? std::string(1, c) : cat("&#", static_cast<int>(c), ";");
  }
}

std::string to_xml(const ColumnPage& page, bool is_encoded) {
  const auto append = [](std::string& xml, std::string_view name, std::string_view text) {
    xml += cat("<", name, ">");
    append_text(xml, text);
    xml += cat("</", name, ">");
  };
  const auto named = [is_encoded](std::string_view name) {
    return is_encoded ? percent_encode_path(name) : std::string(name);
  };
  std::string xml = "<ListBucketResult>";
  for (const ObjectInfo& info : page.objects()) {
    xml += "<Contents>";
    append(xml, "Key", named(info.name));
    append(xml, "Size", std::to_string(info.size_bytes));
    append(xml, "ETag", quoted_etag(info.generation));
    append(xml, "LastModified", format_rfc3339(info.updated));
    append(xml, "StorageClass", info.storage_class);
    xml += "</Contents>";
  }
  for (const std::string& prefix : page.prefixes) {
    xml += "<CommonPrefixes>";
    append(xml, "Prefix", named(prefix));
    xml += "</CommonPrefixes>";
  }
  if (is_encoded) append(xml, "EncodingType", "url");
  append(xml, "IsTruncated", page.next_page_token.empty() ? "false" : "true");
  append(xml, "NextContinuationToken", page.next_page_token);
  append(xml, "KeyCount", std::to_string(page.size() + page.prefixes.size()));
  return xml + "</ListBucketResult>";
}

// NUL cannot be written; and a quote at both ends that was not doubled is one that was never there.
bool fits(const ColumnPage& page, bool is_encoded) {
  const auto has_nul = [](std::string_view text) { return text.find('\0') != text.npos; };
  for (const ObjectInfo& info : page.objects()) {
    if (unquoted_etag(quoted_etag(info.generation)) != info.generation) return false;
    if (!is_encoded && has_nul(info.name)) return false;
  }
  return is_encoded || std::ranges::none_of(page.prefixes, has_nul);
}

// The same listing, read for the eye and not for speed.
class SlowReader {
 public:
  Result<ColumnPage> read(std::string_view xml) {
    XmlDocument document;
    // By another name it is one if it says whether it goes on, which is required below.
    if (!document.parse(xml) || document.root_name() == "Error") return corrupt("root");
    const pugi::xml_node root = document.root();
    const std::string encoding = only(root, "EncodingType").value_or("");
    if (!encoding.empty() && encoding != "url") return corrupt("EncodingType");
    is_encoded_ = encoding == "url";
    ColumnPage page;
    for (const pugi::xml_node& child : root.children()) {
      if (xml_name(child) == "Contents") page.add(object_of(child));
      if (xml_name(child) != "CommonPrefixes") continue;
      for (const pugi::xml_node& prefix : child.children()) {
        if (xml_name(prefix) == "Prefix") page.prefixes.push_back(name_of(leaf(prefix)));
      }
    }
    page.next_page_token = only(root, "NextContinuationToken").value_or("");
    const std::string truncated = only(root, "IsTruncated").value_or("");
    require(truncated == "true" || truncated == "false");
    require((truncated == "true") != page.next_page_token.empty());
    if (const std::optional<std::string> text = only(root, "KeyCount")) {
      const uint64_t count = number_of(*text);
      require(count == page.size() || count == page.size() + page.prefixes.size());
    }
    if (!is_good_) return corrupt("contents");
    return page;
  }

 private:
  void require(bool holds) { is_good_ = is_good_ && holds; }
  std::string leaf(const pugi::xml_node& node) {
    for (const pugi::xml_node& inside : node.children()) {
      require(inside.type() == pugi::node_cdata || inside.type() == pugi::node_pcdata);
    }
    return xml_text(node);
  }
  std::optional<std::string> only(const pugi::xml_node& parent, std::string_view name) {
    std::optional<std::string> text;
    for (const pugi::xml_node& child : parent.children()) {
      if (xml_name(child) != name) continue;
      require(!text);
      text = leaf(child);
    }
    return text;
  }
  uint64_t number_of(const std::string& text) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    require(error == std::errc() && end == text.data() + text.size());
    return number;
  }
  std::string name_of(const std::string& text) {
    const Result<std::string> name = is_encoded_ ? form_decode(text) : text;
    require(name && !name->empty());
    return name.value_or("");
  }
  ObjectInfo object_of(const pugi::xml_node& contents) {
    ObjectInfo info{.name = name_of(only(contents, "Key").value_or("")),
                    .size_bytes = number_of(only(contents, "Size").value_or(""))};
    info.generation = unquoted_etag(only(contents, "ETag").value_or(""));
    info.storage_class = only(contents, "StorageClass").value_or("");
    const std::string updated = only(contents, "LastModified").value_or("");
    if (!updated.empty() && !updated.starts_with("0001-")) {
      const auto time = parse_rfc3339(updated);
      require(time.has_value());
      if (time) info.updated = *time;
    }
    return info;
  }

  bool is_encoded_ = false, is_good_ = true;
};

void check_same(const ColumnPage& a, const ColumnPage& b) {
  check(a.objects() == b.objects() && a.prefixes == b.prefixes);
  check(a.next_page_token == b.next_page_token);
}

Result<ColumnPage> objects_of(std::string_view xml) {
  const Result<ColumnPage> page = parse_s3_list(xml);
  if (!page) return std::unexpected(page.error());
  return *page;
}

void check_listing(std::string_view xml, fuzz::Choices& choices) {
  const Result<ColumnPage> page = objects_of(xml);
  const Result<ColumnPage> slow = SlowReader().read(xml);
  if (!page) {
    check(page.error().code() == Code::kCorrupt);
    // pugixml takes more for a document: declarations of types, text in front of the root.
    return check(!slow || page.error().message() == "a listing that is no XML");
  }
  check(slow.has_value());
  check_same(*page, *slow);
  for (const ObjectInfo& info : page->objects()) check(!info.name.empty());
  for (const bool is_encoded : {false, true}) {
    if (!fits(*page, is_encoded)) continue;
    const std::string written = to_xml(*page, is_encoded);
    const Result<ColumnPage> again = objects_of(written);
    check(again.has_value());
    check_same(*page, *again);
    check(!objects_of(std::string_view(written).substr(0, choices() % written.size())));
  }
  // A comment may stand behind the listing: without it, it is the same.
  if (const Result<ColumnPage> cut = objects_of(xml.substr(0, choices() % xml.size()))) {
    check_same(*page, *cut);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  check_listing(text, choices);

  const XmlError error = parse_xml_error(text);
  for (const std::string* each : {&error.code, &error.message, &error.region, &error.endpoint,
                                  &error.bucket, &error.request_id}) {
    check(each->size() <= 200);
    for (const char c : *each) check(c >= ' ' && c < 0x7F);
  }
  if (const std::optional<XmlError> late = parse_late_xml_error(text)) {
    check(late->code == error.code);
  }
  // White space in front changes nothing.
  if (!text.starts_with("\xEF")) check(shape_of(cat(" \n", text)) == shape_of(text));
  if (const Result<CopiedObject> copied = parse_copied(text)) {
    check(!copied->generation.empty());
    bool was_of_parts = false;
    for (const StoredChecksum& sum : copied->checksums) {
      const bool is_of_parts = std::holds_alternative<CompositeChecksum>(sum);
      check(is_of_parts || !was_of_parts);
      was_of_parts = is_of_parts;
    }
  }
  return 0;
}
