// ListObjectsV2, the older ListObjects, and ListObjectVersions.
#include <algorithm>
#include <map>
#include <utility>

#include "s3/checksum.h"
#include "s3/s3.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {
namespace {

// As `encoding-type=url` asks: a space becomes '+', slashes and stars stay.
std::string url_encoded(std::string_view text) {
  std::string out;
  while (true) {
    // Stretch by stretch: a server that lists a million names must not be what the test measures.
    const size_t end = std::min(text.find_first_of(" /*"), text.size());
    out += percent_encode(text.substr(0, end));
    if (end == text.size()) return out;
    out += text[end] == ' ' ? '+' : text[end];
    text.remove_prefix(end + 1);
  }
}

// The first string after all that start with `prefix`; empty when there is none.
std::string after_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<uint8_t>(prefix.back()) == 0xff) prefix.pop_back();
  if (!prefix.empty()) prefix.back() = static_cast<char>(static_cast<uint8_t>(prefix.back()) + 1);
  return prefix;
}

struct Asked {
  std::string prefix{}, delimiter{};
  uint64_t max_keys = 1000;
  bool encodes = false;
  bool with_owner = false;
  std::string name(std::string_view text) const {
    return encodes ? url_encoded(text) : escape(text);
  }
};

std::optional<Response> read(const Call& call, Asked& asked) {
  const Request& request = call.request;
  asked.prefix = request.parameter("prefix");
  asked.delimiter = request.parameter("delimiter");
  asked.with_owner = request.parameter("fetch-owner") == "true";
  asked.max_keys = call.bucket.max_page.value_or(1000);
  if (request.has_parameter("max-keys")) {
    const std::string text = request.parameter("max-keys");
    const std::optional<int64_t> number = parse_i64(text);
    if (!number || *number < 0) {
      return invalid_argument(call.route, "max-keys", text,
                              number ? "Argument max-keys must be an integer between 0 and "
                                       "2147483647"
                                     : "Provided max-keys not an integer or within integer range");
    }
    asked.max_keys = std::min<uint64_t>(static_cast<uint64_t>(*number), asked.max_keys);
  }
  if (request.has_parameter("encoding-type") && call.bucket.s3.has_encoding_type) {
    const std::string kind = request.parameter("encoding-type");
    if (kind != "url") {
      return invalid_argument(call.route, "encoding-type", kind,
                              "Invalid Encoding Method specified in Request");
    }
    asked.encodes = true;
  }
  return std::nullopt;
}

std::string owner() {
  return wrapped("Owner", element("ID", "headrace") + element("DisplayName", "headrace"));
}

// A time in words is made once for all objects that have it in a row.
const std::string& iso_time_of(int64_t us) {
  thread_local int64_t last_us = -1;
  thread_local std::string last;
  if (us != last_us) {
    last = iso_time(us);
    last_us = us;
  }
  return last;
}

// Written piece by piece: a server that lists a million names must not be what the test measures.
void append_facts(std::string& out, const Call& call, const Object& object) {
  out += "<LastModified>";
  out += iso_time_of(object.updated_us);
  out += "</LastModified><ETag>&quot;";
  out += etag_of(object);
  out += "&quot;</ETag>";
  if (call.bucket.s3.has_checksums()) {
    if (object.is_made) {
      out +=
          "<ChecksumAlgorithm>CRC32C</ChecksumAlgorithm>"
          "<ChecksumType>FULL_OBJECT</ChecksumType>";
    } else if (!object.s3.checksum.empty()) {
      out += element("ChecksumAlgorithm", object.s3.checksum_algorithm) +
             element("ChecksumType", checksum_type(object.s3));
    }
  }
  out += "<Size>";
  append_number(out, object.body.size_bytes());
  out += "</Size><StorageClass>";
  out += object.storage_class;
  out += "</StorageClass>";
}

void append_contents(std::string& out, const Call& call, const Asked& asked, const Object& object) {
  out += "<Contents><Key>";
  out += asked.name(object.name);
  out += "</Key>";
  append_facts(out, call, object);
  if (asked.with_owner) out += owner();
  out += "</Contents>";
}

// One page from `from` on: entries and common prefixes in their order, and where the next begins.
struct Page {
  std::string entries{};
  std::vector<size_t> begins{};  // Of the entries in `entries`.
  std::string prefixes{};
  uint64_t count = 0;
  bool is_truncated = false;
  std::string last_name{};    // The last entry or common prefix.
  std::string resume_from{};  // The first name that the next page may have.
};

Page walk(const Call& call, const Asked& asked, const std::string& from) {
  Page page;
  Bucket::Cursor cursor(call.bucket);
  cursor.seek(std::max(asked.prefix, from));
  const auto more = [&] { return cursor.valid() && cursor.name().starts_with(asked.prefix); };
  while (more() && page.count < asked.max_keys) {
    const std::string& name = cursor.name();
    const size_t split_at = asked.delimiter.empty()
                                ? std::string::npos
                                : name.find(asked.delimiter, asked.prefix.size());
    ++page.count;
    if (split_at != std::string::npos) {
      page.last_name = name.substr(0, split_at + asked.delimiter.size());
      page.prefixes += wrapped("CommonPrefixes", wrapped("Prefix", asked.name(page.last_name)));
      page.resume_from = after_prefix(page.last_name);
      cursor.seek(page.resume_from);
      continue;
    }
    page.begins.push_back(page.entries.size());
    append_contents(page.entries, call, asked, *cursor.object());
    page.last_name = name;
    page.resume_from = name + '\0';
    cursor.advance();
  }
  page.is_truncated = asked.max_keys > 0 && more();
  return page;
}

// Where a listing begins that follows `marker`. A marker that is a common prefix stands for all
// that is under it.
std::string after_marker(const Asked& asked, const std::string& marker) {
  if (marker.empty()) return {};
  const bool is_folder = !asked.delimiter.empty() && marker.size() > asked.prefix.size() &&
                         marker.starts_with(asked.prefix) && marker.ends_with(asked.delimiter);
  return is_folder ? after_prefix(marker) : marker + '\0';
}

std::string all_entries(const Call& call, const Page& page) {
  if (call.bucket.s3.list_fault != S3Bucket::ListFault::kUnordered) return page.entries;
  std::string out;
  size_t end = page.entries.size();
  for (size_t i = page.begins.size(); i-- > 0; end = page.begins[i]) {
    out += page.entries.substr(page.begins[i], end - page.begins[i]);
  }
  return out;
}

// What a token holds: how many pages came before, and the first name that the page may have.
struct Place {
  uint64_t page = 0;
  std::string from{};
};

std::string make_token(const Place& place) {
  return base64_encode(std::to_string(place.page) + ":" + place.from);
}

std::optional<Place> read_token(std::string_view token) {
  const std::optional<std::string> text = base64_decode(token);
  const size_t colon = text ? text->find(':') : std::string::npos;
  if (colon == std::string::npos) return std::nullopt;
  const std::optional<uint64_t> page = parse_u64(std::string_view(*text).substr(0, colon));
  if (!page) return std::nullopt;
  return Place{.page = *page, .from = text->substr(colon + 1)};
}

Response list_v2(const Call& call, const Asked& asked) {
  using ListFault = S3Bucket::ListFault;
  const Request& request = call.request;
  const std::string token = request.parameter("continuation-token");
  const std::string start_after = request.parameter("start-after");
  Place place{.page = 0, .from = after_marker(asked, start_after)};
  if (request.has_parameter("continuation-token")) {
    const std::optional<Place> told = read_token(token);
    if (!told) {
      return invalid_argument(call.route, "continuation-token", token,
                              "The continuation token provided is incorrect");
    }
    place = *told;
  }
  Page page = walk(call, asked, place.from);
  std::string next = make_token({.page = place.page + 1, .from = page.resume_from});
  const ListFault fault = call.bucket.s3.list_fault;
  if (fault == ListFault::kRepeatsPage) {
    // Another token each time, and the same names: only the names tell.
    next = make_token({.page = place.page + 1, .from = place.from});
    page.is_truncated = page.count > 0;
  } else if (fault == ListFault::kRepeatsToken) {
    next = token.empty() ? make_token(place) : token;
    page.is_truncated = page.count > 0;
  }
  std::string out = element("Name", call.bucket.name);
  out += wrapped("Prefix", asked.name(asked.prefix));
  if (!asked.delimiter.empty()) out += wrapped("Delimiter", asked.name(asked.delimiter));
  out += element("MaxKeys", asked.max_keys) + element("KeyCount", page.count);
  out += element("IsTruncated", page.is_truncated ? "true" : "false");
  if (asked.encodes) out += element("EncodingType", "url");
  if (!start_after.empty()) out += wrapped("StartAfter", asked.name(start_after));
  if (!token.empty()) out += element("ContinuationToken", token);
  if (page.is_truncated) out += element("NextContinuationToken", next);
  out += all_entries(call, page) + page.prefixes;
  return document("ListBucketResult", out);
}

Response list_v1(const Call& call, Asked asked) {
  asked.with_owner = true;
  const std::string marker = call.request.parameter("marker");
  const Page page = walk(call, asked, after_marker(asked, marker));
  std::string out = element("Name", call.bucket.name);
  out += wrapped("Prefix", asked.name(asked.prefix)) + wrapped("Marker", asked.name(marker));
  out += element("MaxKeys", asked.max_keys);
  if (!asked.delimiter.empty()) out += wrapped("Delimiter", asked.name(asked.delimiter));
  out += element("IsTruncated", page.is_truncated ? "true" : "false");
  if (asked.encodes) out += element("EncodingType", "url");
  // Without a delimiter the last name is the marker.
  if (page.is_truncated && !asked.delimiter.empty()) {
    out += wrapped("NextMarker", asked.name(page.last_name));
  }
  out += all_entries(call, page) + page.prefixes;
  return document("ListBucketResult", out);
}

}  // namespace

Response list_objects(const Call& call) {
  Asked asked;
  if (std::optional<Response> wrong = read(call, asked)) return *wrong;
  const std::string type = call.request.parameter("list-type");
  if (type.empty()) return list_v1(call, std::move(asked));
  if (type != "2") return invalid_argument(call.route, "list-type", type, "Invalid List Type");
  return list_v2(call, asked);
}

Response list_versions(const Call& call) {
  Asked asked;
  if (std::optional<Response> wrong = read(call, asked)) return *wrong;
  if (!asked.delimiter.empty()) {
    return error(call.route, 501, "NotImplemented", "Versions are not listed by delimiter here.");
  }
  const std::string key_marker = call.request.parameter("key-marker");
  const std::string version_marker = call.request.parameter("version-id-marker");
  // By name, the newest first.
  std::map<std::pair<std::string, int64_t>, std::pair<ObjectPtr, bool>> versions;
  Bucket::Cursor cursor(call.bucket);
  for (cursor.seek(asked.prefix); cursor.valid() && cursor.name().starts_with(asked.prefix);
       cursor.advance()) {
    const ObjectPtr object = cursor.object();
    versions[{object->name, -object->generation}] = {object, true};
  }
  for (const auto& [key, object] : call.bucket.noncurrent()) {
    if (!object->name.starts_with(asked.prefix)) continue;
    const ObjectPtr newest = call.bucket.newest_noncurrent(object->name);
    const bool is_latest = !call.bucket.find(object->name) && newest == object;
    versions[{object->name, -object->generation}] = {object, is_latest};
  }
  std::string entries;
  std::string last_name, last_version;
  uint64_t count = 0;
  bool is_truncated = false;
  bool passed_marker = version_marker.empty();
  const auto id_of = [&call](const Object& object) {
    const bool has_ids = call.bucket.versioning || !call.bucket.noncurrent().empty();
    return has_ids ? version_id_of(call.bucket, object) : std::string("null");
  };
  for (const auto& [key, entry] : versions) {
    const auto& [object, is_latest] = entry;
    const std::string id = id_of(*object);
    if (key.first < key_marker) continue;
    if (key.first == key_marker) {
      // With no version named, all of that name have been listed.
      if (passed_marker && version_marker.empty()) continue;
      if (!passed_marker) {
        passed_marker = id == version_marker;
        continue;
      }
    }
    if (count == asked.max_keys) {
      is_truncated = true;
      break;
    }
    ++count;
    last_name = object->name;
    last_version = id;
    std::string xml = wrapped("Key", asked.name(object->name)) + element("VersionId", id) +
                      element("IsLatest", is_latest ? "true" : "false");
    if (object->s3.is_delete_marker) {
      xml += element("LastModified", iso_time(object->updated_us));
      entries += wrapped("DeleteMarker", xml + owner());
      continue;
    }
    append_facts(xml, call, *object);
    entries += wrapped("Version", xml + owner());
  }
  std::string out = element("Name", call.bucket.name);
  out += wrapped("Prefix", asked.name(asked.prefix));
  out += wrapped("KeyMarker", asked.name(key_marker)) + element("VersionIdMarker", version_marker);
  out += element("MaxKeys", asked.max_keys);
  if (asked.encodes) out += element("EncodingType", "url");
  out += element("IsTruncated", is_truncated ? "true" : "false");
  if (is_truncated) {
    out += wrapped("NextKeyMarker", asked.name(last_name)) +
           element("NextVersionIdMarker", last_version);
  }
  return document("ListVersionsResult", out + entries);
}

}  // namespace faultserver::s3
