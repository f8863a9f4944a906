#include "headrace/store/gcs/gcs_protocol.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/gcs_json.h"
#include "headrace/format/goog_hash.h"
#include "headrace/format/http_date.h"
#include "headrace/format/http_range.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/percent.h"

namespace headrace {
namespace {

constexpr std::string_view kObjectFields =
    "name,size,generation,metageneration,crc32c,contentType,contentEncoding,updated,storageClass,"
    "componentCount";

constexpr std::string_view kReadingFields = "name,size,generation,crc32c";

// The boundary of multipart/related bodies: long and odd, since binary data may contain any bytes.
constexpr std::string_view kBoundary = "headrace-7f3b1c52e9a84d06b1d2";

void append_parameter(std::string& target, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  target.append("&").append(name).append("=");
  percent_encode_to(target, value);
}

void append_precondition(std::string& target, const Precondition& precondition) {
  if (!precondition.generation) return;
  append_parameter(target, "ifGenerationMatch",
                   precondition.generation->empty() ? "0" : *precondition.generation);
}

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

GcsProtocol::GcsProtocol(std::string bucket, std::string user_project, Root root)
    : Protocol(std::move(root)),
      bucket_(std::move(bucket)),
      objects_path_(cat("/storage/v1/b/", percent_encode(bucket_), "/o")),
      root_path_(percent_encode(this->root().text())),
      user_project_(user_project.empty() ? "" : cat("&userProject=", percent_encode(user_project))),
      xml_project_(std::move(user_project)) {}

std::string GcsProtocol::url_of(std::string_view name) const {
  return cat("gs://", bucket_, "/", root().text(), name);
}

void GcsProtocol::append_path(std::string& target, std::string_view name) const {
  target.append(root_path_);
  percent_encode_to(target, name);
}

void GcsProtocol::append_below(std::string& target, std::string_view parameter,
                               std::string_view name) const {
  if (root_path_.empty() && name.empty()) return;
  target.append("&").append(parameter).append("=");
  append_path(target, name);
}

std::string GcsProtocol::quoted(std::string_view name) const {
  return json_quote(root().full_name(name));
}

void GcsProtocol::build_read(HttpRequest& request, std::string_view name,
                             std::string_view generation, std::optional<ByteRange> range) const {
  request.target.append("/download").append(objects_path_).append("/");
  append_path(request.target, name);
  request.target.append("?alt=media");
  append_parameter(request.target, "ifGenerationMatch", generation);
  request.target.append(user_project_);
  request.add_header("Accept-Encoding", "gzip");
  if (range) {
    request.header_lines.append("Range: ");
    append_range(request.header_lines, *range);
    request.header_lines.append("\r\n");
  }
}

ReadFacts GcsProtocol::read_facts(const ResponseHead& head) const {
  ReadFacts facts;
  const auto is = same_ignoring_case;
  bool sent_gzip = false;
  // In one pass: a read uses five of a dozen fields.
  for (const HeaderField& field : head.fields()) {
    if (is(field.name, "x-goog-generation")) {
      facts.generation = field.value;
    } else if (is(field.name, "x-goog-hash")) {
      if (const std::optional<Crc32c> crc32c = crc32c_of_goog_hash(field.value)) {
        facts.crc32c = crc32c;
      }
    } else if (is(field.name, "x-goog-stored-content-encoding")) {
      facts.stored_gzip = field.value == "gzip";
    } else if (is(field.name, "content-encoding")) {
      sent_gzip = field.value == "gzip";
    } else if (is(field.name, "x-goog-stored-content-length")) {
      uint64_t bytes = 0;
      const auto parsed = std::from_chars(field.value.begin(), field.value.end(), bytes);
      if (parsed.ec == std::errc() && parsed.ptr == field.value.end()) facts.stored_bytes = bytes;
    }
  }
  facts.decompressed_by_server = facts.stored_gzip && !sent_gzip;
  facts.stored_gzip = facts.stored_gzip || sent_gzip;
  return facts;
}

void GcsProtocol::build_list(HttpRequest& request, const ListRequest& list) const {
  request.target.append(objects_path_).append("?projection=noAcl");
  append_below(request.target, "prefix", list.prefix);
  append_parameter(request.target, "delimiter", list.delimiter);
  append_parameter(request.target, "pageToken", list.page_token);
  if (!list.start_offset.empty()) append_below(request.target, "startOffset", list.start_offset);
  if (!list.end_offset.empty()) append_below(request.target, "endOffset", list.end_offset);
  if (list.max_results > 0) {
    append_parameter(request.target, "maxResults", std::to_string(list.max_results));
  }
  const std::string_view fields = list.fields == ListFields::kAll ? kObjectFields : kReadingFields;
  append_parameter(
      request.target, "fields",
      cat("items(", fields, "),", list.delimiter.empty() ? "" : "prefixes,", "nextPageToken"));
  request.target.append(user_project_);
}

Result<ObjectPage> GcsProtocol::parse_objects(std::string_view body) const {
  return parse_gcs_objects(body);
}

Result<ColumnPage> GcsProtocol::parse_columns(std::string_view body) const {
  return parse_gcs_columns(body);
}

void GcsProtocol::build_stat(HttpRequest& request, std::string_view name) const {
  request.target.append(objects_path_).append("/");
  append_path(request.target, name);
  request.target.append("?projection=noAcl");
  append_parameter(request.target, "fields", kObjectFields);
  request.target.append(user_project_);
}

Result<ObjectInfo> GcsProtocol::parse_object(std::string_view body) const {
  return parse_gcs_object(body);
}

void GcsProtocol::build_write(HttpRequest& request, const WriteRequest& write,
                              std::span<const std::span<const std::byte>> bytes, Crc32c crc32c,
                              std::string& scratch) const {
  request.method = "POST";
  request.target.append("/upload").append(objects_path_).append("?uploadType=multipart");
  append_precondition(request.target, write.precondition);
  append_parameter(request.target, "fields", kObjectFields);
  request.target.append(user_project_);
  request.add_header("Content-Type", cat("multipart/related; boundary=", kBoundary));
  const std::string content_type =
      write.content_type.empty() ? "application/octet-stream" : write.content_type;
  request.check_text("content_type", content_type);  // a header inside of the body
  request.check_text("content_encoding", write.content_encoding);
  std::string metadata = cat("{\"name\":", quoted(write.name), ",\"crc32c\":\"", crc32c.to_base64(),
                             "\",\"contentType\":", json_quote(content_type));
  if (!write.content_encoding.empty()) {
    metadata += cat(",\"contentEncoding\":", json_quote(write.content_encoding));
  }
  metadata += "}";
  const std::string before =
      cat("--", kBoundary, "\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n", metadata,
          "\r\n--", kBoundary, "\r\nContent-Type: ", content_type, "\r\n\r\n");
  const std::string after = cat("\r\n--", kBoundary, "--\r\n");
  scratch = before + after;
  const std::span<const std::byte> around = std::as_bytes(std::span(scratch));
  request.body.push_back(around.first(before.size()));
  request.body.insert(request.body.end(), bytes.begin(), bytes.end());
  request.body.push_back(around.subspan(before.size()));
  request.has_body = true;
}

Result<void> GcsProtocol::check_new_name(std::string_view relative) const {
  if (relative.empty()) return invalid_argument("an object's name must not be empty");
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
  request.target.append(objects_path_).append("/");
  append_path(request.target, name);
  // There must be something between '?' and the first '&'.
  request.target.append("?alt=json");
  append_precondition(request.target, precondition);
  request.target.append(user_project_);
}

void GcsProtocol::build_copy(HttpRequest& request, const CopyRequest& copy,
                             std::string_view token) const {
  request.method = "POST";
  request.target.append(objects_path_).append("/");
  append_path(request.target, copy.source_name);
  request.target.append("/rewriteTo/b/");
  percent_encode_to(request.target, bucket_);
  request.target.append("/o/");
  append_path(request.target, copy.name);
  request.target.append("?projection=noAcl");
  append_parameter(request.target, "ifSourceGenerationMatch", copy.source_generation);
  append_precondition(request.target, copy.precondition);
  append_parameter(request.target, "rewriteToken", token);
  request.target.append(user_project_);
  request.has_body = true;
}

Result<CopyStep> GcsProtocol::parse_copy(std::string_view body) const {
  Result<GcsRewrite> rewrite = parse_gcs_rewrite(body);
  if (!rewrite) return std::unexpected(std::move(rewrite.error()));
  return CopyStep{.done = rewrite->done,
                  .token = std::move(rewrite->token),
                  .object = std::move(rewrite->object)};
}

void GcsProtocol::build_compose(HttpRequest& request, const ComposeRequest& compose,
                                std::string& scratch) const {
  request.method = "POST";
  request.target.append(objects_path_).append("/");
  append_path(request.target, compose.name);
  request.target.append("/compose?alt=json");
  append_precondition(request.target, compose.precondition);
  append_parameter(request.target, "fields", kObjectFields);
  request.target.append(user_project_);
  request.add_header("Content-Type", "application/json; charset=UTF-8");
  request.check_text("content_type", compose.content_type);
  request.check_text("content_encoding", compose.content_encoding);
  scratch = "{\"sourceObjects\":[";
  for (const ComposeSource& source : compose.sources) {
    if (scratch.back() == '}') scratch += ',';
    // Conditional on the generation, not addressed to it, like reads.
    scratch += cat(
        "{\"name\":", quoted(source.name),
        ",\"objectPreconditions\":{\"ifGenerationMatch\":", json_quote(source.generation), "}}");
  }
  scratch += cat(
      "],\"destination\":{\"contentType\":",
      json_quote(compose.content_type.empty() ? "application/octet-stream" : compose.content_type));
  if (!compose.content_encoding.empty()) {
    scratch += cat(",\"contentEncoding\":", json_quote(compose.content_encoding));
  }
  scratch += "}}";
  request.body = {std::as_bytes(std::span(scratch))};
  request.has_body = true;
}

void GcsProtocol::begin_xml(HttpRequest& request, std::string_view method, std::string_view name,
                            std::string_view what) const {
  request.method = method;
  request.target.append("/");
  percent_encode_to(request.target, bucket_);
  if (!name.empty()) {
    request.target.append("/");
    append_path(request.target, name);
  }
  request.target.append("?").append(what);
  if (!xml_project_.empty()) request.add_header("x-goog-user-project", xml_project_);
}

void GcsProtocol::build_multipart_start(HttpRequest& request, const WriteRequest& write) const {
  begin_xml(request, "POST", write.name, "uploads");
  request.check_text("content_type", write.content_type);
  request.add_header("Content-Type",
                     write.content_type.empty() ? "application/octet-stream" : write.content_type);
  request.has_body = true;
}

void GcsProtocol::build_multipart_part(HttpRequest& request, std::string_view name,
                                       std::string_view upload_id, uint32_t part_number,
                                       std::span<const std::span<const std::byte>> bytes,
                                       Crc32c crc32c) const {
  begin_xml(request, "PUT", name, cat("partNumber=", part_number));
  append_parameter(request.target, "uploadId", upload_id);
  request.add_header("x-goog-hash", cat("crc32c=", crc32c.to_base64()));
  request.body.assign(bytes.begin(), bytes.end());
  request.has_body = true;
}

void GcsProtocol::build_multipart_complete(HttpRequest& request, std::string_view name,
                                           std::string_view upload_id,
                                           std::string_view completion) const {
  begin_xml(request, "POST", name, cat("uploadId=", percent_encode(upload_id)));
  request.add_header("Content-Type", "application/xml");
  request.body = {std::as_bytes(std::span(completion))};
  request.has_body = true;
}

void GcsProtocol::build_multipart_abort(HttpRequest& request, std::string_view name,
                                        std::string_view upload_id) const {
  begin_xml(request, "DELETE", name, cat("uploadId=", percent_encode(upload_id)));
}

void GcsProtocol::build_multipart_list(HttpRequest& request, std::string_view prefix,
                                       std::string_view after_name,
                                       std::string_view after_upload_id) const {
  begin_xml(request, "GET", "", "uploads");
  append_below(request.target, "prefix", prefix);
  if (!after_name.empty()) append_below(request.target, "key-marker", after_name);
  append_parameter(request.target, "upload-id-marker", after_upload_id);
}

void GcsProtocol::build_resumable_start(HttpRequest& request, const WriteRequest& write,
                                        std::string& scratch) const {
  request.method = "POST";
  request.target.append("/upload").append(objects_path_).append("?uploadType=resumable");
  append_precondition(request.target, write.precondition);
  append_parameter(request.target, "fields", kObjectFields);
  request.target.append(user_project_);
  request.add_header("Content-Type", "application/json; charset=UTF-8");
  request.check_text("content_type", write.content_type);
  request.check_text("content_encoding", write.content_encoding);
  scratch =
      cat("{\"name\":", quoted(write.name), ",\"contentType\":",
          json_quote(write.content_type.empty() ? "application/octet-stream" : write.content_type));
  if (!write.content_encoding.empty()) {
    scratch += cat(",\"contentEncoding\":", json_quote(write.content_encoding));
  }
  scratch += "}";
  request.body = {std::as_bytes(std::span(scratch))};
  request.has_body = true;
}

// The session is on this host, whatever host name its URL has.
std::string GcsProtocol::resumable_session(const ResponseHead& head) const {
  const std::string_view url = head.find("location").value_or("");
  const size_t scheme = url.find("://");
  const size_t path = url.find('/', scheme == url.npos ? 0 : scheme + 3);
  if (path == url.npos || !is_visible_ascii(url.substr(path))) return "";
  return std::string(url.substr(path));
}

void GcsProtocol::build_resumable_put(HttpRequest& request, const ResumablePut& put) const {
  request.method = "PUT";
  request.target.append(put.session);
  const std::string total = put.object_bytes ? std::to_string(*put.object_bytes) : "*";
  const bool has_bytes = put.range && put.range->size_bytes() > 0;
  request.add_header("Content-Range", has_bytes ? cat("bytes ", put.range->begin, "-",
                                                      put.range->end - 1, "/", total)
                                                : cat("bytes */", total));
  if (put.range && put.object_bytes && put.crc32c) {
    request.add_header("X-Goog-Hash", cat("crc32c=", put.crc32c->to_base64()));
  }
  request.body.assign(put.bytes.begin(), put.bytes.end());
  request.has_body = true;
}

uint64_t GcsProtocol::resumable_bytes(const ResponseHead& head) const {
  const std::string_view range = head.find("range").value_or("");  // "bytes=0-N"
  const size_t dash = range.rfind('-');
  uint64_t last = 0;
  if (dash == range.npos ||
      std::from_chars(range.data() + dash + 1, range.data() + range.size(), last).ec !=
          std::errc()) {
    return 0;
  }
  return last + 1;
}

void GcsProtocol::build_resumable_cancel(HttpRequest& request, std::string_view session) const {
  request.method = "DELETE";
  request.target.append(session);
  request.has_body = true;
}

Error GcsProtocol::to_error(const ErrorResponse& refusal) const {
  GcsError said = parse_gcs_error(refusal.body);
  if (refusal.body.starts_with('<')) {  // the XML API
    XmlError error = parse_xml_error(refusal.body);
    if (!error.code.empty()) {
      said.reason = std::move(error.code);
      said.message = cat(said.reason, ": ", error.message);
    }
  }
  std::string message = said.message;
  Code code = Code::kInternal;
  const int status = refusal.http_status;
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
      if (!refusal.of_removal) message += ": write to another name";
    }
  } else if (status == 404 || status == 410) {
    code = Code::kNotFound;
  } else if (status == 412 || status == 304) {
    code = Code::kPreconditionFailed;
    if (message.empty()) message = "the object is not in the expected generation";
  } else if (status == 408) {
    code = Code::kTimedOut;
  } else if (status == 409 || status >= 500) {
    code = Code::kUnavailable;  // 409: another change of the same object is under way
  } else if (status >= 400) {
    code = Code::kInvalidArgument;
  } else {
    message = cat("unexpected answer: ", said.message);
  }
  if (message.empty()) message = to_string(code);
  return Error(code, std::move(message))
      .with_http_status(status)
      .with_request_id(std::string(refusal.request_id))
      .with_retry_after(parse_retry_after(refusal.retry_after, std::chrono::system_clock::now()));
}

}  // namespace headrace
