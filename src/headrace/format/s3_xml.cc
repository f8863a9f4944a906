#include "headrace/format/s3_xml.h"

#include <utility>
#include <vector>

#include "headrace/base/ascii.h"
#include "headrace/format/http_date.h"
#include "headrace/format/percent.h"
#include "headrace/format/xml.h"
#include "headrace/format/xml_scanner.h"

namespace headrace {
namespace {

// An element that contains a text and nothing else.
struct Leaf {
  XmlText text = {};
  bool is_there = false;
};

// One <Contents>.
struct ListedObject {
  Leaf key, size, etag, updated, storage_class;

  // Null for an element that is not used.
  Leaf* find(std::string_view name) {
    if (name == "Key") return &key;
    if (name == "Size") return &size;
    if (name == "ETag") return &etag;
    if (name == "LastModified") return &updated;
    return name == "StorageClass" ? &storage_class : nullptr;
  }
};

// What a page consists of, as it stands there.
struct ListedPage {
  Leaf encoding, is_truncated, next_token, key_count;
  std::vector<ListedObject> objects = {};
  std::vector<Leaf> prefixes = {};
};

class PageScanner {
 public:
  explicit PageScanner(std::string_view xml) : xml_(xml) {}

  // What it gives points into the document, and into this where a text came in pieces.
  Result<ListedPage> scan() & {
    // By another name, it is a listing only if it says whether it goes on: a page of a login is
    // none.
    const std::string root(xml_.enter() ? xml_.name() : "");
    const bool is_good = take_page();
    if (!xml_.is_whole()) return corrupt("a listing that is no XML");
    if (root == "Error" || (root != "ListBucketResult" && !page_.is_truncated.is_there)) {
      return corrupt("a listing that is no ListBucketResult");
    }
    if (!is_good) return corrupt("a listing with ", refusal_);
    return std::move(page_);
  }

 private:
  // These leave the current element. They return false if the page has to be refused.

  bool take_page() {
    bool is_good = true;
    while (is_good && xml_.enter()) {
      const std::string_view name = xml_.name();
      if (name == "Contents") {
        is_good = may_add_to(page_.objects) && take_object(page_.objects.emplace_back());
      } else if (name == "CommonPrefixes") {
        is_good = take_prefixes();
      } else if (name == "EncodingType") {
        is_good = take_only(page_.encoding);
      } else if (name == "IsTruncated") {
        is_good = take_only(page_.is_truncated);
      } else if (name == "NextContinuationToken") {
        is_good = take_only(page_.next_token);
      } else if (name == "KeyCount") {
        is_good = take_only(page_.key_count);
      } else {
        xml_.leave();
      }
    }
    return is_good;
  }

  bool take_object(ListedObject& object) {
    while (xml_.enter()) {
      if (Leaf* const into = object.find(xml_.name()); into == nullptr) {
        xml_.leave();
      } else if (!take_only(*into)) {
        return false;
      }
    }
    // At once: a long answer of empty elements would take much memory.
    return !object.key.text.raw.empty() || refuse("a missing or malformed 'Key'");
  }

  bool take_prefixes() {
    while (xml_.enter()) {
      if (xml_.name() != "Prefix") {
        xml_.leave();
        continue;
      }
      if (!may_add_to(page_.prefixes)) return false;
      Leaf& prefix = page_.prefixes.emplace_back();
      if (!take_only(prefix)) return false;
      if (prefix.text.raw.empty()) return refuse("a missing or malformed 'Prefix'");
    }
    return true;
  }

  template <class Entry>
  bool may_add_to(const std::vector<Entry>& entries) {
    if (entries.size() < ColumnPage::kMaxEntries) return true;
    return refuse(cat("more than ", ColumnPage::kMaxEntries, " entries"));
  }

  bool take_only(Leaf& into) {
    const std::string_view name = xml_.name();
    if (into.is_there) return refuse(cat("two '", name, "' in one element"));
    if (!xml_.leave_text(into.text)) return refuse(cat("elements inside of '", name, "'"));
    into.is_there = true;
    return true;
  }

  bool refuse(std::string why) {
    refusal_ = std::move(why);
    return false;
  }

  XmlScanner xml_;
  ListedPage page_;
  std::string refusal_;
};

// Turns what a page says into rows, and checks that it does not contradict itself.
class PageReader {
 public:
  explicit PageReader(ColumnPage& page) : page_(page) {}

  // Whether names are encoded; known before the first name.
  Result<void> set_encoding(const Leaf& encoding) {
    const std::string_view type = encoding.text.read(scratch_);
    is_encoded_ = type == "url";
    if (!type.empty() && !is_encoded_) {
      return corrupt("a listing with an unknown EncodingType: ", printable_line(type, 40));
    }
    return {};
  }

  Result<void> add(const ListedObject& object) {
    if (!decode(object.key) || name_.empty()) return malformed("Key");
    const auto size_bytes = parse_number(object.size.text.read(scratch_));
    if (!size_bytes) return malformed("Size");
    const uint32_t storage_class = page_.word(object.storage_class.text.read(scratch_));
    ColumnPage::Row& row = page_.add(name_, etag_of(object));
    row.size_bytes = *size_bytes;
    row.storage_class = storage_class;
    // Year 1 is how a server written in Go says "never".
    const std::string_view updated = object.updated.text.read(scratch_);
    if (!updated.empty() && !updated.starts_with("0001-")) {
      const Result<std::chrono::system_clock::time_point> time = parse_rfc3339(updated);
      if (!time) return malformed("LastModified");
      row.updated = *time;
    }
    return {};
  }

  Result<void> add_prefix(const Leaf& prefix) {
    if (!decode(prefix) || name_.empty()) return malformed("Prefix");
    page_.prefixes.push_back(name_);
    return {};
  }

  // What the page says of itself.
  Result<void> finish(const ListedPage& listed) {
    const std::string_view is_truncated = listed.is_truncated.text.read(scratch_);
    const bool is_more = is_truncated == "true";
    if (!is_more && is_truncated != "false") {
      return corrupt("a listing that does not say whether it is truncated");
    }
    page_.next_page_token = listed.next_token.text.read(scratch_);
    if (is_more == page_.next_page_token.empty()) {
      return corrupt(is_more ? "a truncated listing without a NextContinuationToken"
                             : "a complete listing with a NextContinuationToken");
    }
    // AWS and MinIO count prefixes, too; Ceph does not.
    const std::string_view key_count = listed.key_count.text.read(scratch_);
    const auto count = parse_number(key_count);
    if (listed.key_count.is_there && count != page_.size() + page_.prefixes.size() &&
        count != page_.size()) {
      return corrupt("a listing of ", page_.size(), " objects and ", page_.prefixes.size(),
                     " prefixes with a KeyCount of ", printable_line(key_count, 40));
    }
    return {};
  }

 private:
  static std::unexpected<Error> malformed(const char* name) {
    return corrupt("a listing with a missing or malformed '", name, "'");
  }
  std::string_view etag_of(const ListedObject& object) {
    // As AWS writes all of them.
    constexpr std::string_view kQuote = "&quot;";
    const XmlText& text = object.etag.text;
    std::string_view raw = text.raw;
    if (!text.is_cdata && raw.size() > 2 * kQuote.size() && raw.starts_with(kQuote) &&
        raw.ends_with(kQuote)) {
      raw = raw.substr(kQuote.size(), raw.size() - 2 * kQuote.size());
      if (raw.find('&') == raw.npos && raw.find('\r') == raw.npos) return raw;
    }
    return unquoted_etag(text.read(scratch_));
  }
  bool decode(const Leaf& name) {
    const std::string_view text = name.text.read(scratch_);
    name_.clear();
    if (is_encoded_) return form_decode_to(name_, text);
    name_.assign(text);
    return true;
  }

  ColumnPage& page_;
  bool is_encoded_ = false;
  std::string name_, scratch_;
};

}  // namespace

Result<ColumnPage> parse_s3_list(std::string_view xml) {
  PageScanner scanner(xml);
  const Result<ListedPage> listed = scanner.scan();
  if (!listed) return std::unexpected(listed.error());
  ColumnPage page;
  page.reserve(listed->objects.size(), xml.size() / 4);
  PageReader reader(page);
  // Whether names are encoded may be said behind them.
  Result<void> read = reader.set_encoding(listed->encoding);
  for (const ListedObject& object : listed->objects) {
    if (read) read = reader.add(object);
  }
  for (const Leaf& prefix : listed->prefixes) {
    if (read) read = reader.add_prefix(prefix);
  }
  if (read) read = reader.finish(*listed);
  if (!read) return std::unexpected(std::move(read.error()));
  return page;
}

Result<CopiedObject> parse_copied(std::string_view xml) {
  XmlDocument document;
  if (document.parse(xml)) {
    CopiedObject copied{.generation =
                            std::string(unquoted_etag(xml_word(document.root(), "ETag")))};
    if (!copied.generation.empty()) {
      Result<std::vector<StoredChecksum>> checksums = xml_checksums(document.root());
      // What cannot be read is none: the copy is looked at.
      if (checksums) copied.checksums = std::move(*checksums);
      return copied;
    }
  }
  return corrupt("the answer to a copy has no ETag");
}

}  // namespace headrace
