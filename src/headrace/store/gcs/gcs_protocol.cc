#include "headrace/store/gcs/gcs_protocol.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/gcs_json.h"
#include "headrace/format/goog_hash.h"
#include "headrace/format/http_date.h"
#include "headrace/format/http_range.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/percent.h"
#include "headrace/store/bearer_signer.h"

namespace headrace {
namespace {

constexpr std::string_view kReadingFields = "name,size,generation,crc32c";

// The boundary of multipart/related bodies: long and odd, since binary data may contain any bytes.
constexpr std::string_view kBoundary = "headrace-7f3b1c52e9a84d06b1d2";

bool contains_any(std::string_view text, std::initializer_list<std::string_view> words) {
  const std::string lower = ascii_lower(text);
  return std::ranges::any_of(words, [&](std::string_view word) { return lower.contains(word); });
}

// https://cloud.google.com/storage/quotas and /storage/docs/request-rate
std::string throttled_message(const GcsError& said) {
  const bool bandwidth = contains_any(said.message, {"egress", "bandwidth"}) ||
                         contains_any(said.reason, {"egress", "bandwidth"});
  return cat(said.message,
             bandwidth
                 ? " [a bandwidth (egress) limit: ask for a higher egress quota, or read from "
                   "the bucket's own region]"
                 : " [a request-rate limit: fewer or larger objects, a gradual ramp-up, or "
                   "names that spread over the key range help]");
}

}  // namespace

GcsProtocol::GcsProtocol(std::string bucket, const std::string& user_project, Root root)
    : Protocol(std::move(root)),
      paths_(std::move(bucket), user_project, this->root()),
      composing_(paths_),
      copies_(paths_),
      multipart_(paths_),
      resumable_(paths_) {}

std::string GcsProtocol::url_of(std::string_view name) const {
  return cat("gs://", paths_.bucket(), "/", root().text(), name);
}

void GcsProtocol::build_read(HttpRequest& request, std::string_view name,
                             std::string_view generation, std::optional<ByteRange> range) const {
  request.target.append("/download");
  paths_.append_object(request.target, name);
  request.target.append("?alt=media");
  GcsPaths::append_parameter(request.target, "ifGenerationMatch", generation);
  request.target.append(paths_.user_project());
  request.add_header("Accept-Encoding", "gzip");
  if (range) {
    request.header_lines.append("Range: ");
    append_range(request.header_lines, *range);
    request.header_lines.append("\r\n");
  }
}

Checksum GcsProtocol::told_sum(const ResponseHead& head, ChecksumKind kind) const {
  if (kind != ChecksumKind::kCrc32c) return {};
  std::optional<Crc32c> crc32c;
  for (const HeaderField& field : head.fields()) {
    if (!same_ignoring_case(field.name, "x-goog-hash")) continue;
    if (const std::optional<Crc32c> said = crc32c_of_goog_hash(field.value)) crc32c = said;
  }
  return Checksum(crc32c);
}

ReadFacts GcsProtocol::read_facts(const ResponseHead& head) const {
  ReadFacts facts;
  bool sent_gzip = false;
  // In one pass: a read uses five of a dozen fields.
  for (const HeaderField& field : head.fields()) {
    if (same_ignoring_case(field.name, "x-goog-generation")) {
      facts.generation.assign(field.value);
    } else if (same_ignoring_case(field.name, "x-goog-hash")) {
      if (const std::optional<Crc32c> crc32c = crc32c_of_goog_hash(field.value)) {
        facts.checksum = *crc32c;
      }
    } else if (same_ignoring_case(field.name, "x-goog-stored-content-encoding")) {
      facts.stored_gzip = field.value == "gzip";
    } else if (same_ignoring_case(field.name, "content-encoding")) {
      sent_gzip = field.value == "gzip";
    } else if (same_ignoring_case(field.name, "x-goog-stored-content-length")) {
      facts.stored_bytes = parse_number(field.value);
    }
  }
  facts.decompressed_by_server = facts.stored_gzip && !sent_gzip;
  facts.stored_gzip = facts.stored_gzip || sent_gzip;
  return facts;
}

void GcsProtocol::build_list(HttpRequest& request, const ListRequest& list) const {
  request.target.append(paths_.objects()).append("?projection=noAcl");
  paths_.append_below(request.target, "prefix", list.prefix);
  GcsPaths::append_parameter(request.target, "delimiter", list.delimiter);
  GcsPaths::append_parameter(request.target, "pageToken", list.page_token);
  if (!list.start_offset.empty())
    paths_.append_below(request.target, "startOffset", list.start_offset);
  if (!list.end_offset.empty()) paths_.append_below(request.target, "endOffset", list.end_offset);
  if (list.max_results > 0) {
    GcsPaths::append_parameter(request.target, "maxResults", std::to_string(list.max_results));
  }
  const std::string_view fields =
      list.fields == ListFields::kAll ? kGcsObjectFields : kReadingFields;
  GcsPaths::append_parameter(
      request.target, "fields",
      cat("items(", fields, "),", list.delimiter.empty() ? "" : "prefixes,", "nextPageToken"));
  request.target.append(paths_.user_project());
}

Result<ColumnPage> GcsProtocol::parse_list(const Response& response, const ListRequest&) const {
  return parse_gcs_list(response.body);
}

void GcsProtocol::build_stat(HttpRequest& request, std::string_view name) const {
  paths_.append_object(request.target, name);
  request.target.append("?projection=noAcl");
  GcsPaths::append_parameter(request.target, "fields", kGcsObjectFields);
  request.target.append(paths_.user_project());
}

Result<ObjectInfo> GcsProtocol::parse_stat(const Response& response, std::string_view) const {
  return parse_gcs_object(response.body);
}

Result<ObjectInfo> GcsProtocol::parse_written(const Response& response, const WriteRequest&,
                                              uint64_t) const {
  return parse_gcs_object(response.body);
}

void GcsProtocol::build_write(HttpRequest& request, const WriteRequest& write,
                              std::span<const std::span<const std::byte>> bytes,
                              const SentSums& sums, std::string& scratch) const {
  request.method = "POST";
  request.target.append("/upload").append(paths_.objects()).append("?uploadType=multipart");
  GcsPaths::append_precondition(request.target, write.precondition);
  GcsPaths::append_parameter(request.target, "fields", kGcsObjectFields);
  request.target.append(paths_.user_project());
  request.add_header("Content-Type", cat("multipart/related; boundary=", kBoundary));
  const std::string metadata =
      cat("{\"name\":", paths_.quoted(write.name), ",\"crc32c\":\"",
          to_base64(sums.of(ChecksumKind::kCrc32c)), "\",",
          GcsPaths::content_members(request, write.content_type, write.content_encoding), "}");
  const std::string before =
      cat("--", kBoundary, "\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n", metadata,
          "\r\n--", kBoundary, "\r\nContent-Type: ", content_type_or_default(write.content_type),
          "\r\n\r\n");
  const std::string after = cat("\r\n--", kBoundary, "--\r\n");
  scratch = before + after;
  const std::span<const std::byte> around = std::as_bytes(std::span(scratch));
  request.body.push_back(around.first(before.size()));
  request.body.insert(request.body.end(), bytes.begin(), bytes.end());
  request.body.push_back(around.subspan(before.size()));
  request.has_body = true;
}

Result<void> GcsProtocol::check_new_name(std::string_view relative) const {
  if (relative.empty()) return invalid_argument(kEmptyName);
  const std::string name = root().full_name(relative);
  constexpr size_t kMaxNameBytes = 1024;
  constexpr std::string_view kForbidden = ".well-known/acme-challenge/";
  if (name.size() > kMaxNameBytes) {
    return invalid_argument("the name has ", name.size(), " bytes; the service takes at most ",
                            kMaxNameBytes);
  }
  if (name == "." || name == ".." || name.starts_with(kForbidden) ||
      name.find_first_of("\r\n") != name.npos) {
    return invalid_argument(
        "the service takes no object of this name: it must not be '.' or '..', ", "begin with ",
        kForbidden, " or contain a line break");
  }
  return {};
}

void GcsProtocol::build_remove(HttpRequest& request, std::string_view name,
                               const Precondition& precondition) const {
  request.method = "DELETE";
  paths_.append_object(request.target, name);
  // There must be something between '?' and the first '&'.
  request.target.append("?alt=json");
  GcsPaths::append_precondition(request.target, precondition);
  request.target.append(paths_.user_project());
}

std::unique_ptr<Signer> GcsProtocol::make_signer() const {
  return std::make_unique<BearerSigner>();
}

Refusal GcsProtocol::refusal(const ErrorResponse& response) const {
  GcsError said = parse_gcs_error(response.body);
  if (response.body.starts_with('<')) {  // the XML API
    XmlError error = parse_xml_error(response.body);
    if (!error.code.empty()) {
      said.reason = std::move(error.code);
      said.message = cat(said.reason, ": ", error.message);
    }
  }
  std::string message = said.message;
  Code code = Code::kInternal;
  const int status = response.head.status;
  const bool slow_down =
      contains_any(said.reason, {"ratelimit", "slowdown"}) ||
      contains_any(said.message, {"slowdown", "slow down", "rate limit", "request rate"});
  if (status == 429 || (status == 503 && slow_down) || (status == 403 && slow_down)) {
    code = Code::kThrottled;
    message = throttled_message(said);
  } else if (status == 401) {
    code = Code::kPermissionDenied;
    message = cat("not authenticated: ", said.message);
  } else if (status == 403) {
    code = Code::kPermissionDenied;
    if (contains_any(said.reason, {"retention", "activehold"})) {
      message += "; until then it can be neither replaced nor deleted";
      if (!response.of_removal) message += ": write to another name";
    }
  } else if (status == 404 || status == 410) {
    code = Code::kNotFound;
    // Google says which of the two; emulators and proxies say no more than this.
    if (message == "Not Found") message = "Not Found: is there such an object, and such a bucket?";
  } else if (status == 412 || status == 304) {
    code = Code::kPreconditionFailed;
    if (message.empty()) message = "the object is not in the expected generation";
  } else if (status == 408) {
    code = Code::kTimedOut;
  } else if (status == 409 || status >= 500) {
    code = Code::kUnavailable;  // 409: another change of the same object is under way
  } else if (status == 400 && (said.reason == "BadDigest" ||
                               contains_any(said.message, {"doesn't match calculated"}))) {
    code = Code::kCorrupt;  // of a CRC32C or an MD5, by either API
  } else if (status >= 400) {
    code = Code::kInvalidArgument;
  } else {
    message = cat("unexpected answer: ", said.message);
  }
  if (message.empty()) message = to_string(code);
  const std::string_view retry_after = response.head.find("retry-after").value_or("");
  const std::string_view request_id = response.head.find("x-guploader-uploadid").value_or("");
  return {.error = Error(code, std::move(message))
                       .with_http_status(status)
                       .with_request_id(std::string(request_id))
                       .with_retry_after(
                           parse_retry_after(retry_after, std::chrono::system_clock::now())),
          .stale_credentials = status == 401};
}

// Some proxies answer errors with 200.
std::optional<Refusal> GcsProtocol::late_refusal(const ErrorResponse& response) const {
  std::string_view body = response.body;
  if (shape_of(body) != BodyShape::kJson) return std::nullopt;
  body.remove_prefix(std::min(body.find('"'), body.size()));
  if (!body.starts_with("\"error\"")) return std::nullopt;
  ResponseHead head = response.head;
  const int code = parse_gcs_error(response.body).code;
  head.status = code >= 400 ? code : 500;
  return refusal({.head = head,
                  .body = response.body,
                  .of_removal = response.of_removal,
                  .of_replacement = response.of_replacement});
}

Result<Provider> gcs_provider(const Url& url, const StoreOptions& options) {
  constexpr std::string_view kGoogle = "https://storage.googleapis.com";
  Result<Endpoint> endpoint =
      parse_endpoint(options.endpoint.empty() ? kGoogle : std::string_view(options.endpoint), true);
  if (!endpoint) return std::unexpected(std::move(endpoint.error()));
  return Provider{
      .endpoint = std::move(*endpoint),
      .protocol_at = [bucket = url.bucket, user_project = options.gcs.user_project](Root root) {
        return std::make_unique<GcsProtocol>(bucket, user_project, std::move(root));
      }};
}

}  // namespace headrace
