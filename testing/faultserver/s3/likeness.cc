// Services that call themselves S3 and differ from it: what each lacks, and how it writes.
#include <algorithm>
#include <array>
#include <utility>

#include "s3/checksum.h"
#include "s3/s3.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {
namespace {

// README.md has the same table in words.
constexpr auto kLikenesses = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"crc64-only", R"({"checksums":"crc64_only"})"},
    {"composite-only", R"({"checksums":"composite_only","default_checksum":"none"})"},
    {"no-sums", R"({"checksums":"ignored"})"},
    {"sums-501", R"({"checksums":"refused"})"},
    {"sums-400", R"({"checksums":"refused_400"})"},
    {"no-object-size", R"({"refused_headers":{"x-amz-mp-object-size":501}})"},
    {"no-conditions", R"({"conditional_writes":"ignored","conditional_deletes":"ignored"})"},
    {"conditions-501", R"({"conditional_writes":"refused","conditional_deletes":"refused"})"},
    {"conditions-400",
     R"({"conditional_writes":"refused_400","conditional_deletes":"refused_400"})"},
    {"no-copy-sums", R"({"copy_checksums":false})"},
    {"equal-parts", R"({"equal_parts":true})"},
    {"closes", R"({"closes":true})"},
    {"resets", R"({"closes":"reset"})"},
    {"resets-next", R"({"closes":"reset_next"})"},
    {"closes-idle", R"({"idle_close_ms":5})"},
    {"short-root", R"({"xml":["short_root"]})"},
    {"no-namespace", R"({"xml":["no_namespace"]})"},
    {"prefix", R"({"xml":["prefix"]})"},
    {"cdata", R"({"xml":["cdata"]})"},
    {"no-delete-many", R"({"delete_many":false})"},
    {"unordered", R"({"list_fault":"unordered"})"},
    {"file-tree", R"({"parent_conflict":"ObjectParentIsFile"})"},
    {"stray-range", R"({"stray_ranges":true})"},
    {"no-reason", R"({"reasons":false})"},
});

std::string set_member(Storage& storage, const std::string& member, const Json& value) {
  std::string why = set_bucket_member(storage.new_s3, member, value);
  if (!why.empty()) return why;
  for (const auto& [name, bucket] : storage.buckets()) set_bucket_member(bucket->s3, member, value);
  return {};
}

// Headers that only a service with checksums reads. A read that asks for one is no such thing: who
// has none to tell answers without.
bool brings_sum(std::string_view name, std::string_view value) {
  constexpr std::string_view kPrefix = "x-amz-checksum-";
  if (name == "x-amz-trailer") return lower(value).starts_with(kPrefix);
  if (name == "x-amz-sdk-checksum-algorithm") return true;
  return name.starts_with(kPrefix) && name != "x-amz-checksum-mode";
}

Response refused_header(const Route& route, int status, std::string_view name,
                        std::string_view value) {
  if (status == 501) {
    return error(route, 501, "NotImplemented", usual_message(501, true), element("Header", name));
  }
  Response response = invalid_argument(route, name, value, "This header is not supported.");
  response.status = status;
  return response;
}

// A checksum that the service has not, or has not so.
std::optional<Response> failed_sums(const Call& call) {
  using Sums = S3Bucket::Sums;
  const Sums sums = call.bucket.s3.sums;
  const bool is_composite_only = sums == Sums::kCompositeOnly;
  if (sums != Sums::kCrc64Only && !is_composite_only) return std::nullopt;
  constexpr std::string_view kPrefix = "x-amz-checksum-";
  const auto unsupported = [&call] {
    return error(call.route, 400, "InvalidRequest", "Checksum algorithm provided is unsupported.");
  };
  for (const auto& [full_name, value] : call.request.headers) {
    const std::string name = lower(full_name);
    if (!brings_sum(name, value)) continue;
    if (name == "x-amz-checksum-type") {
      if (value == (is_composite_only ? "FULL_OBJECT" : "COMPOSITE")) {
        return error(call.route, 400, "InvalidRequest",
                     "The checksum type " + value + " is not supported.");
      }
      continue;
    }
    const bool is_value = name == "x-amz-checksum-algorithm" || name == "x-amz-trailer" ||
                          name == "x-amz-sdk-checksum-algorithm";
    std::string kind = is_value ? lower(value) : name;
    if (kind.starts_with(kPrefix)) kind.erase(0, kPrefix.size());
    const std::optional<Algorithm> algorithm = algorithm_from(kind);
    if (algorithm && (*algorithm == Algorithm::kCrc64Nvme) == is_composite_only) {
      return unsupported();
    }
  }
  return std::nullopt;
}

bool writes(Kind kind) {
  return kind == Kind::kUpload || kind == Kind::kCopy || kind == Kind::kMultipartStart ||
         kind == Kind::kMultipartComplete;
}

// Where names are paths of files, nothing can lie below an object.
std::optional<Response> failed_parent(const Call& call) {
  const std::string& name = call.route.object;
  for (size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
    if (!call.bucket.find(name.substr(0, at))) continue;
    return error(call.route, 409, call.bucket.s3.parent_conflict,
                 "A parent of this object is an object itself.");
  }
  return std::nullopt;
}

bool is_name_start(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// Each element of `xml` with a prefix, and the namespace bound to it.
std::string prefixed(std::string_view xml) {
  std::string out;
  for (size_t i = 0; i < xml.size(); ++i) {
    out += xml[i];
    if (xml[i] != '<' || i + 1 >= xml.size()) continue;
    if (xml[i + 1] == '/') out += xml[++i];
    if (i + 1 < xml.size() && is_name_start(xml[i + 1])) out += "s3:";
  }
  if (const size_t at = out.find(" xmlns="); at != std::string::npos) {
    out.replace(at, 7, " xmlns:s3=");
  } else if (const size_t end = out.find('>', out.find("<s3:")); end != std::string::npos) {
    out.insert(end, " xmlns:s3=\"" + std::string(kNamespace) + "\"");
  }
  return out;
}

// Texts as sections of characters instead of escapes. A reference to a character stays one.
std::string with_sections(std::string_view xml) {
  std::string out;
  while (true) {
    const size_t text_at = xml.find('>');
    if (text_at == std::string_view::npos) return out += xml;
    out += xml.substr(0, text_at + 1);
    xml.remove_prefix(text_at + 1);
    const size_t end = std::min(xml.find('<'), xml.size());
    const std::string_view text = xml.substr(0, end);
    const std::string plain = unescaped(text);
    if (text.find_first_not_of(" \n") == std::string_view::npos || text.contains("&#") ||
        plain.contains("]]>")) {
      out += text;
    } else {
      out += "<![CDATA[" + plain + "]]>";
    }
    xml.remove_prefix(end);
  }
}

void erase_all(std::string& text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) {
    text.erase(at, part.size());
  }
}

}  // namespace

std::string set_likeness(Storage& storage, const Json& spec) {
  for (const Json& each : spec["names"].array()) {
    const auto* const found =
        std::ranges::find(kLikenesses, each.text(), [](const auto& like) { return like.first; });
    if (found == kLikenesses.end()) return "no such service: " + each.text();
    const Json members = Json::parse(found->second).value();
    for (const auto& [member, value] : members.object()) {
      if (std::string why = set_member(storage, member, value); !why.empty()) return why;
    }
  }
  for (const auto& [member, value] : spec.object()) {
    if (member == "names") continue;
    if (std::string why = set_member(storage, member, value); !why.empty()) return why;
  }
  return {};
}

std::optional<Response> failed_likeness(const Call& call) {
  const S3Bucket& bucket = call.bucket.s3;
  if (call.route.kind == Kind::kDeleteMany && !bucket.deletes_many) {
    return error(call.route, 501, "NotImplemented", "This server does not have that operation.");
  }
  const bool refuses_sums =
      bucket.sums == S3Bucket::Sums::kRefused || bucket.sums == S3Bucket::Sums::kRefused400;
  for (const auto& [full_name, value] : call.request.headers) {
    const std::string name = lower(full_name);
    if (const auto at = bucket.refused_headers.find(name); at != bucket.refused_headers.end()) {
      return refused_header(call.route, at->second, full_name, value);
    }
    if (refuses_sums && brings_sum(name, value)) {
      const int status = bucket.sums == S3Bucket::Sums::kRefused ? 501 : 400;
      return refused_header(call.route, status, full_name, value);
    }
  }
  if (std::optional<Response> failed = failed_sums(call)) return failed;
  if (!bucket.parent_conflict.empty() && writes(call.route.kind)) return failed_parent(call);
  return std::nullopt;
}

void apply_likeness(const S3Bucket& bucket, Response& response) {
  response.ends = bucket.ends;
  response.idle_close_s = bucket.idle_close_s;
  response.without_reason = !bucket.has_reasons;
  if (bucket.xml_forms.empty() || !is_result(response) || response.body.size_bytes() == 0) return;
  std::string xml = response.body.copy();
  const auto writes_so = [&bucket](const char* form) { return bucket.xml_forms.contains(form); };
  if (writes_so("no_namespace")) {
    erase_all(xml, " xmlns=\"" + std::string(kNamespace) + "\"");
  }
  if (writes_so("short_root")) {
    constexpr std::string_view kRoot = "InitiateMultipartUploadResult", kSuffix = "Result";
    for (size_t at = xml.find(kRoot); at != std::string::npos; at = xml.find(kRoot, at + 1)) {
      xml.erase(at + kRoot.size() - kSuffix.size(), kSuffix.size());
    }
  }
  if (writes_so("cdata")) xml = with_sections(xml);
  if (writes_so("prefix")) xml = prefixed(xml);
  response.body = Body(std::move(xml));
}

}  // namespace faultserver::s3
