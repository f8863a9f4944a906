#include "headrace/format/ais_list.h"

#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/ais_checksum.h"
#include "headrace/format/json.h"
#include "headrace/format/json_quote.h"
#include "headrace/format/msgpack.h"

namespace headrace {
namespace {

namespace dom = simdjson::dom;

// Flags of an entry.
constexpr uint64_t kStatus = 31;   // where it is: these five bits are a number
constexpr uint64_t kPresent = 64;  // in the cluster
constexpr uint64_t kInShard = 128;
constexpr uint64_t kDirectory = 256;
// One of several replicas, which are listed beside the object itself.
constexpr uint64_t kReplica = 3;

struct Entry {
  std::string_view name = {}, version = {}, checksum = {};
  uint64_t size_bytes = 0;  // left out where it is 0
  uint64_t flags = 0;
};

// Entries, as they come, to a page.
class PageMaker {
 public:
  PageMaker(ColumnPage& page, AisRows rows) : page_(page), rows_(rows) {}

  // Errors: kCorrupt, kUnavailable.
  Result<void> add(const Entry& entry) {
    if (entry.name.empty()) return corrupt("a listing with an entry without a name");
    if ((entry.flags & kDirectory) != 0) return add_directory(entry.name);
    if (!std::in_range<int64_t>(entry.size_bytes)) {
      return corrupt("a listing with an entry with a malformed 'size'");
    }
    const uint64_t status = entry.flags & kStatus;
    if (status == kReplica) return {};
    if (status != 0) {
      return fail(Code::kUnavailable, "the cluster has '", printable_line(entry.name),
                  "' in a wrong place (status ", status,
                  "); list again when it has been rebalanced");
    }
    const bool is_member = (entry.flags & kInShard) != 0;
    if (is_member != (rows_ == AisRows::kMembers)) return {};
    const bool is_cold = rows_ == AisRows::kCloudObjects && (entry.flags & kPresent) == 0;
    const std::string generation = is_cold ? "" : ais_generation(entry.version, entry.checksum);
    ColumnPage::Row& row = page_.add(entry.name, generation);
    row.size_bytes = entry.size_bytes;
    if (!is_cold) row.checksum = ais_listed_checksum(entry.checksum);
    return {};
  }

 private:
  // "dir" before 4.0, and "dir/" since.
  Result<void> add_directory(std::string_view name) {
    while (name.ends_with('/')) name.remove_suffix(1);
    if (name.empty()) return corrupt("a listing with a directory without a name");
    page_.prefixes.push_back(cat(name, "/"));
    return {};
  }

  ColumnPage& page_;
  const AisRows rows_;
};

// Refuses what two readers could understand differently: a member that comes twice.
class Seen {
 public:
  bool is_first(uint32_t member) {
    const bool first = (seen_ & member) == 0;
    seen_ |= member;
    return first;
  }
  bool has(uint32_t member) const { return (seen_ & member) != 0; }

 private:
  uint32_t seen_ = 0;
};
enum : uint32_t {
  kOther = 0,
  kName = 1,
  kSize = 2,
  kVersion = 4,
  kChecksum = 8,
  kFlags = 16,
  kUuid = 32,
  kContinuation = 64,
  kEntries = 128,
};

std::unexpected<Error> too_many() {
  return corrupt("a listing with more than ", ColumnPage::kMaxEntries, " entries");
}

// The token of the next page, "" after the last one.
Result<std::string> page_token(std::string_view uuid, std::string_view continuation) {
  if (continuation.empty()) return std::string();
  if (uuid.contains(' ')) return corrupt("a listing with a malformed uuid");
  return cat(uuid, " ", continuation);
}

// ── JSON ─────────────────────────────────────────────────────────────────────────────────────

uint32_t entry_member(std::string_view key) {
  if (key == "name") return kName;
  if (key == "size") return kSize;
  if (key == "version") return kVersion;
  if (key == "checksum") return kChecksum;
  if (key == "flags") return kFlags;
  return kOther;
}

Result<Entry> read_entry(const dom::element& element) {
  dom::object object;
  if (element.get(object) != simdjson::SUCCESS) {
    return corrupt("a listing with an entry that is not an object");
  }
  Entry entry;
  Seen seen;
  for (const auto [key, value] : object) {
    const uint32_t member = entry_member(key);
    if (member == kOther) continue;
    bool is_good = seen.is_first(member);
    if (!value.is_null()) {
      switch (member) {
        case kName: is_good &= value.get(entry.name) == simdjson::SUCCESS; break;
        case kSize: is_good &= to_number(value, entry.size_bytes); break;
        case kVersion: is_good &= value.get(entry.version) == simdjson::SUCCESS; break;
        case kChecksum: is_good &= value.get(entry.checksum) == simdjson::SUCCESS; break;
        default: is_good &= to_number(value, entry.flags); break;
      }
    }
    if (!is_good) return corrupt("a listing with an entry with a malformed '", key, "'");
  }
  return entry;
}

uint32_t page_member(std::string_view key) {
  if (key == "uuid") return kUuid;
  if (key == "continuation_token") return kContinuation;
  if (key == "entries") return kEntries;
  return kOther;
}

// ── MessagePack ──────────────────────────────────────────────────────────────────────────────

uint32_t msgpack_entry_member(std::string_view key) {
  if (key == "n") return kName;
  if (key == "s") return kSize;
  if (key == "v") return kVersion;
  if (key == "cs") return kChecksum;
  if (key == "f") return kFlags;
  return kOther;
}

Result<Entry> read_entry(MsgpackReader& reader) {
  Entry entry;
  Seen seen;
  size_t count = 0;
  if (!reader.map(count)) return corrupt("a listing with an entry that is not a map");
  for (; count > 0; --count) {
    std::string_view key;
    if (!reader.text(key)) return corrupt("a listing with an entry with a malformed key");
    const uint32_t member = msgpack_entry_member(key);
    bool is_good = member == kOther || seen.is_first(member);
    switch (member) {
      case kName: is_good &= reader.text(entry.name); break;
      case kSize: is_good &= reader.number(entry.size_bytes); break;
      case kVersion: is_good &= reader.text(entry.version); break;
      case kChecksum: is_good &= reader.text(entry.checksum); break;
      case kFlags: is_good &= reader.number(entry.flags); break;
      default: is_good &= reader.skip(); break;
    }
    if (!is_good) {
      return corrupt("a listing with an entry with a malformed '", printable_line(key), "'");
    }
  }
  return entry;
}

uint32_t msgpack_page_member(std::string_view key) {
  if (key == "UUID") return kUuid;
  if (key == "ContinuationToken") return kContinuation;
  if (key == "Entries") return kEntries;
  return kOther;
}

Result<void> read_entries(MsgpackReader& reader, size_t text_bytes, PageMaker& maker,
                          ColumnPage& page) {
  if (reader.take_nil()) return {};
  size_t count = 0;
  if (!reader.array(count)) return corrupt("a listing whose entries are no array");
  if (count > ColumnPage::kMaxEntries) return too_many();
  page.reserve(count, text_bytes);
  for (; count > 0; --count) {
    const Result<Entry> entry = read_entry(reader);
    if (!entry) return std::unexpected(entry.error());
    if (Result<void> added = maker.add(*entry); !added) return added;
  }
  return {};
}

}  // namespace

std::string ais_list_body(const AisListQuery& query) {
  const AisPageToken token = split_ais_page_token(query.page_token);
  // The size of a page must be a number, the flags must be a text.
  return cat("{\"action\":\"list\",\"value\":{\"prefix\":", json_quote(query.prefix),
             ",\"props\":", json_quote(query.props), ",\"pagesize\":", query.page_size,
             ",\"uuid\":", json_quote(token.uuid),
             ",\"continuation_token\":", json_quote(token.continuation), ",\"flags\":\"",
             query.flags, "\",\"start_after\":", json_quote(query.start_after), "}}");
}

AisPageToken split_ais_page_token(std::string_view text) {
  const size_t blank = text.find(' ');
  if (blank == text.npos) return {.uuid = {}, .continuation = text};
  return {.uuid = text.substr(0, blank), .continuation = text.substr(blank + 1)};
}

Result<ColumnPage> parse_ais_list(std::string_view json, AisRows rows) {
  const Result<dom::element> root = parse_json(json);
  if (!root) return std::unexpected(root.error());
  dom::object object;
  if (root->get(object) != simdjson::SUCCESS) return corrupt("a listing that is not an object");
  ColumnPage page;
  PageMaker maker(page, rows);
  std::string_view uuid, continuation;
  Seen seen;
  for (const auto [key, value] : object) {
    const uint32_t member = page_member(key);
    if (member == kOther) continue;
    bool is_good = seen.is_first(member);
    dom::array entries;
    if (!value.is_null()) {
      switch (member) {
        case kUuid: is_good &= value.get(uuid) == simdjson::SUCCESS; break;
        case kContinuation: is_good &= value.get(continuation) == simdjson::SUCCESS; break;
        default: is_good &= value.get(entries) == simdjson::SUCCESS; break;
      }
    }
    if (!is_good) return corrupt("a listing with a malformed '", key, "'");
    if (member != kEntries || value.is_null()) continue;
    // Beyond 16 million the size that the parser keeps is not exact, but not less than that.
    if (entries.size() > ColumnPage::kMaxEntries) return too_many();
    page.reserve(entries.size(), json.size() / 2);
    for (const dom::element each : entries) {
      const Result<Entry> entry = read_entry(each);
      if (!entry) return std::unexpected(entry.error());
      if (Result<void> added = maker.add(*entry); !added) {
        return std::unexpected(std::move(added.error()));
      }
    }
  }
  // An error that came with a good status must not look like an empty bucket.
  if (!seen.has(kEntries)) return corrupt("a listing without 'entries'");
  Result<std::string> token = page_token(uuid, continuation);
  if (!token) return std::unexpected(std::move(token.error()));
  page.next_page_token = std::move(*token);
  return page;
}

Result<ColumnPage> parse_ais_list_msgpack(std::string_view bytes, AisRows rows) {
  MsgpackReader reader(bytes);
  size_t count = 0;
  if (!reader.map(count)) return corrupt("a listing that is no MessagePack map");
  ColumnPage page;
  PageMaker maker(page, rows);
  std::string_view uuid, continuation;
  Seen seen;
  for (; count > 0; --count) {
    std::string_view key;
    if (!reader.text(key)) return corrupt("a listing with a malformed key");
    const uint32_t member = msgpack_page_member(key);
    bool is_good = member == kOther || seen.is_first(member);
    switch (member) {
      case kUuid: is_good &= reader.text(uuid); break;
      case kContinuation: is_good &= reader.text(continuation); break;
      case kEntries:
        if (is_good) {
          if (Result<void> read = read_entries(reader, bytes.size(), maker, page); !read) {
            return std::unexpected(std::move(read.error()));
          }
        }
        break;
      default: is_good &= reader.skip(); break;
    }
    if (!is_good) return corrupt("a listing with a malformed '", printable_line(key), "'");
  }
  if (!reader.at_end()) return corrupt("a listing with bytes behind its end");
  if (!seen.has(kEntries)) return corrupt("a listing without 'Entries'");
  Result<std::string> token = page_token(uuid, continuation);
  if (!token) return std::unexpected(std::move(token.error()));
  page.next_page_token = std::move(*token);
  return page;
}

}  // namespace headrace
