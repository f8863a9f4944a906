#include "headrace/format/s3_xml.h"

#include <charconv>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/http_date.h"
#include "headrace/format/percent.h"
#include "headrace/format/xml.h"

namespace headrace {
namespace {

// The text of an element that may have nothing else inside.
struct Leaf {
  std::string_view text = {};
  bool is_there = false;
};

// One <Contents>.
struct ListedObject {
  Leaf key, size, etag, updated, storage_class;
};

bool to_number(std::string_view text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

// Turns what a page says into rows, and checks that it does not contradict itself.
class PageReader {
 public:
  explicit PageReader(ColumnPage& page) : page_(page) {}

  // Whether names are encoded; known before the first name.
  Result<void> set_encoding(const Leaf& encoding) {
    is_encoded_ = encoding.is_there && encoding.text == "url";
    if (encoding.is_there && !encoding.text.empty() && !is_encoded_) {
      return corrupt("a listing with an unknown EncodingType: ", printable_line(encoding.text, 40));
    }
    return {};
  }

  Result<void> add(const ListedObject& object) {
    if (!decode(object.key.text) || name_.empty()) return malformed("Key");
    uint64_t size_bytes = 0;
    if (!to_number(object.size.text, size_bytes)) return malformed("Size");
    const uint32_t storage_class = page_.word(object.storage_class.text);
    ColumnPage::Row& row = page_.add(name_, unquoted_etag(object.etag.text));
    row.size_bytes = size_bytes;
    row.storage_class = storage_class;
    // Year 1 is how a server written in Go says "never".
    if (!object.updated.text.empty() && !object.updated.text.starts_with("0001-")) {
      const Result<std::chrono::system_clock::time_point> time = parse_rfc3339(object.updated.text);
      if (!time) return malformed("LastModified");
      row.updated = *time;
    }
    return {};
  }

  Result<void> add_prefix(const Leaf& prefix) {
    if (!decode(prefix.text) || name_.empty()) return malformed("Prefix");
    page_.prefixes.push_back(name_);
    return {};
  }

  // What the page says of itself.
  Result<void> finish(const Leaf& is_truncated, const Leaf& next_token, const Leaf& key_count) {
    const bool is_more = is_truncated.text == "true";
    if (!is_more && is_truncated.text != "false") {
      return corrupt("a listing that does not say whether it is truncated");
    }
    if (is_more == next_token.text.empty()) {
      return corrupt(is_more ? "a truncated listing without a NextContinuationToken"
                             : "a complete listing with a NextContinuationToken");
    }
    page_.next_page_token.assign(next_token.text);
    // AWS and MinIO count prefixes, too; Ceph does not.
    uint64_t count = 0;
    if (key_count.is_there &&
        (!to_number(key_count.text, count) ||
         (count != page_.size() + page_.prefixes.size() && count != page_.size()))) {
      return corrupt("a listing of ", page_.size(), " objects and ", page_.prefixes.size(),
                     " prefixes with a KeyCount of ", printable_line(key_count.text, 40));
    }
    return {};
  }

 private:
  static std::unexpected<Error> malformed(const char* name) {
    return corrupt("a listing with a missing or malformed '", name, "'");
  }
  bool decode(std::string_view text) {
    name_.clear();
    if (is_encoded_) return form_decode_to(name_, text);
    name_.assign(text);
    return true;
  }

  ColumnPage& page_;
  bool is_encoded_ = false;
  std::string name_;
};

Result<Leaf> leaf(const pugi::xml_node& node) {
  const pugi::xml_node inside = node.first_child();
  if (!inside) return Leaf{node.value(), true};
  if (*node.value() == '\0' && inside.type() == pugi::node_cdata && !inside.next_sibling()) {
    return Leaf{inside.value(), true};
  }
  return corrupt("a listing with elements inside of '", xml_name(node), "'");
}

// Errors: kCorrupt for a second element of the same name.
Result<void> take(Leaf& into, const pugi::xml_node& node) {
  if (into.is_there) return corrupt("a listing with two '", xml_name(node), "' in one element");
  Result<Leaf> found = leaf(node);
  if (!found) return std::unexpected(std::move(found.error()));
  into = *found;
  return {};
}

Result<ListedObject> object_of(const pugi::xml_node& contents) {
  ListedObject object;
  for (const pugi::xml_node& child : contents.children()) {
    const std::string_view name = xml_name(child);
    Leaf* into = nullptr;
    if (name == "Key") into = &object.key;
    if (name == "Size") into = &object.size;
    if (name == "ETag") into = &object.etag;
    if (name == "LastModified") into = &object.updated;
    if (name == "StorageClass") into = &object.storage_class;
    if (into == nullptr) continue;
    if (Result<void> taken = take(*into, child); !taken) {
      return std::unexpected(std::move(taken.error()));
    }
  }
  return object;
}

}  // namespace

Result<ColumnPage> parse_s3_list(std::string_view xml) {
  XmlDocument document;
  if (!document.parse(xml)) return corrupt("a listing that is no XML");
  if (document.root_name() != "ListBucketResult") {
    return corrupt("a listing that is no ListBucketResult");
  }
  const pugi::xml_node root = document.root();
  Leaf encoding, is_truncated, next_token, key_count;
  size_t count = 0;
  for (const pugi::xml_node& child : root.children()) {
    const std::string_view name = xml_name(child);
    Leaf* into = nullptr;
    if (name == "Contents") ++count;
    if (name == "EncodingType") into = &encoding;
    if (name == "IsTruncated") into = &is_truncated;
    if (name == "NextContinuationToken") into = &next_token;
    if (name == "KeyCount") into = &key_count;
    if (into == nullptr) continue;
    if (Result<void> taken = take(*into, child); !taken) {
      return std::unexpected(std::move(taken.error()));
    }
  }
  ColumnPage page;
  page.reserve(count, xml.size() / 4);
  PageReader reader(page);
  if (Result<void> set = reader.set_encoding(encoding); !set) {
    return std::unexpected(std::move(set.error()));
  }
  for (const pugi::xml_node& child : root.children()) {
    Result<void> read;
    if (const std::string_view name = xml_name(child); name == "Contents") {
      Result<ListedObject> object = object_of(child);
      if (!object) return std::unexpected(std::move(object.error()));
      read = reader.add(*object);
    } else if (name == "CommonPrefixes") {
      for (const pugi::xml_node& prefix : child.children()) {
        if (!read || xml_name(prefix) != "Prefix") continue;
        Result<Leaf> text = leaf(prefix);
        if (!text) return std::unexpected(std::move(text.error()));
        read = reader.add_prefix(*text);
      }
    }
    if (!read) return std::unexpected(std::move(read.error()));
  }
  if (Result<void> finished = reader.finish(is_truncated, next_token, key_count); !finished) {
    return std::unexpected(std::move(finished.error()));
  }
  return page;
}

namespace {

// Reads the document that `xml` should be by `read`; or the error that it may be instead.
template <class T, class Read>
Answer<T> read_answer(std::string_view xml, std::string_view request,
                      std::initializer_list<std::string_view> root_names, const Read& read) {
  XmlDocument document;
  if (document.parse(xml)) {
    for (const std::string_view name : root_names) {
      if (document.root_name() != name) continue;
      Result<T> value = read(document.root());
      if (!value) return std::unexpected(std::move(value.error()));
      return std::move(*value);
    }
    if (XmlError error = read_xml_error(document); !error.code.empty()) {
      return std::expected<T, XmlError>(std::unexpected(std::move(error)));
    }
  }
  return corrupt("the answer to ", request, " is no ", *root_names.begin());
}

}  // namespace

Answer<CopiedObject> parse_copied(std::string_view xml) {
  return read_answer<CopiedObject>(
      xml, "a copy", {"CopyObjectResult", "CopyPartResult"},
      [](const pugi::xml_node& root) -> Result<CopiedObject> {
        CopiedObject copied{.generation = std::string(unquoted_etag(xml_word(root, "ETag")))};
        if (copied.generation.empty()) return corrupt("the answer to a copy has no ETag");
        if (const std::string time = xml_word(root, "LastModified"); !time.empty()) {
          const auto updated = parse_rfc3339(time);
          if (!updated) {
            return corrupt("the answer to a copy has a malformed LastModified: ",
                           printable_line(time, 40));
          }
          copied.updated = *updated;
        }
        Result<std::optional<StoredChecksum>> checksum = xml_checksum(root);
        if (!checksum) return std::unexpected(std::move(checksum.error()));
        copied.checksum = *checksum;
        return copied;
      });
}

bool can_delete_together(std::string_view name) { return fits_xml(name); }

Result<std::string> delete_xml(std::span<const DeleteTarget> targets, bool quiet) {
  std::string xml = "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const DeleteTarget& target : targets) {
    xml += "<Object>";
    for (const auto& [element, text] :
         {std::pair("Key", &target.name), std::pair("VersionId", &target.version_id),
          std::pair("ETag", &target.etag)}) {
      if (text->empty()) continue;
      if (!fits_xml(*text)) {
        return invalid_argument("a request in XML cannot contain the ", element, " ",
                                printable_line(*text));
      }
      xml += cat("<", element, ">");
      append_xml(xml, *text);
      xml += cat("</", element, ">");
    }
    xml += "</Object>";
  }
  if (quiet) xml += "<Quiet>true</Quiet>";
  return xml + "</Delete>";
}

Answer<DeleteResult> parse_deleted(std::string_view xml) {
  return read_answer<DeleteResult>(
      xml, "the deletion of several objects", {"DeleteResult"},
      [](const pugi::xml_node& root) -> Result<DeleteResult> {
        DeleteResult result;
        for (const pugi::xml_node& child : root.children()) {
          const std::string_view name = xml_name(child);
          if (name != "Deleted" && name != "Error") continue;
          std::string key = xml_text(child, "Key"), version_id = xml_word(child, "VersionId");
          if (key.empty()) return corrupt("a DeleteResult with a missing 'Key'");
          if (name == "Deleted") {
            result.deleted.push_back({.name = std::move(key), .version_id = std::move(version_id)});
            continue;
          }
          result.failures.push_back({.name = std::move(key),
                                     .version_id = std::move(version_id),
                                     .code = printable_line(xml_text(child, "Code")),
                                     .message = printable_line(xml_text(child, "Message"))});
          if (result.failures.back().code.empty()) {
            return corrupt("a DeleteResult with an Error that has no 'Code'");
          }
        }
        return result;
      });
}

Answer<std::string> parse_location(std::string_view xml) {
  return read_answer<std::string>(
      xml, "the question for a bucket's region", {"LocationConstraint", "GetBucketLocationOutput"},
      [](const pugi::xml_node& root) -> Result<std::string> {
        std::string region = xml_word(root, "LocationConstraint");  // the form that is documented
        if (region.empty()) region = printable_line(xml_text(root));
        if (region.empty()) return std::string("us-east-1");
        if (region == "EU") return std::string("eu-west-1");  // of the oldest buckets
        return region;
      });
}

}  // namespace headrace
