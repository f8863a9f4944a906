// Uploads of the JSON API (media, multipart, resumable) and the XML API's PUT.
#include <algorithm>

#include "digest.h"
#include "gcs/gcs.h"
#include "text.h"

namespace faultserver {
namespace {

constexpr uint64_t kResumableUnitBytes = uint64_t{256} << 10;

// `multipart/related` taken apart: metadata, then the object's bytes, in the memory they came in.
struct RelatedParts {
  std::string metadata;
  std::string content_type;
  std::string bytes;
};

std::optional<RelatedParts> split_related(std::string_view content_type, std::string body) {
  size_t at = lower(content_type).find("boundary=");
  if (at == std::string::npos) return std::nullopt;
  std::string_view boundary = content_type.substr(at + 9);
  boundary = trim(boundary.substr(0, boundary.find(';')));
  if (boundary.size() >= 2 && (boundary.front() == '"' || boundary.front() == '\'')) {
    boundary = boundary.substr(1, boundary.size() - 2);
  }
  const std::string marker = "--" + std::string(boundary);
  RelatedParts parts;
  at = body.find(marker);
  for (int number = 0; number < 2; ++number) {
    if (at == std::string::npos) return std::nullopt;
    at += marker.size();
    const size_t line_end = body.find("\r\n", at);
    if (line_end == std::string::npos) return std::nullopt;
    // The blank line after the headers may be the very next one: a part need not have headers.
    const size_t head_end = body.find("\r\n\r\n", line_end);
    if (head_end == std::string::npos) return std::nullopt;
    const std::string_view head = std::string_view(body).substr(line_end, head_end - line_end);
    // The last boundary is sought from the end: the object's bytes may contain anything.
    const size_t end =
        number == 0 ? body.find("\r\n" + marker, head_end + 2) : body.rfind("\r\n" + marker + "--");
    if (end == std::string::npos || end < head_end + 2) return std::nullopt;
    const size_t begin = std::min(head_end + 4, end);
    if (number == 0) {
      parts.metadata = body.substr(begin, end - begin);
    } else {
      const size_t type_at = lower(head).find("content-type:");
      if (type_at != std::string::npos) {
        const std::string_view rest = head.substr(type_at + 13);
        parts.content_type = trim(rest.substr(0, rest.find("\r\n")));
      }
      body.resize(end);
      body.erase(0, begin);
      parts.bytes = std::move(body);
      break;
    }
    at = end + 2;
  }
  return parts;
}

Response uploaded(const Bucket& bucket, const Object& object, const Route& route,
                  const std::string& base_url) {
  if (route.xml) {
    Response response;
    set_object_headers(response, object);
    response.set("ETag", object.md5.empty() ? etag_of(object) : "\"" + hex(object.md5) + "\"");
    return response;
  }
  std::string body;
  append_object_json(body, bucket.name, object, base_url);
  Response response = json_response(200, std::move(body));
  response.set("ETag", etag_of(object));
  return response;
}

// Checks, then makes `bytes` the live object.
Response finish(Storage& storage, Bucket& bucket, Object draft, std::string bytes,
                const ExpectedSums& expected, const Preconditions& preconditions,
                const Route& route, const std::string& base_url, ObjectPtr* result = nullptr) {
  if (draft.name.empty()) return error_response(route, 400, "required", "Required: name");
  const std::string wrong = mismatch(expected, bytes, draft.crc);
  if (!wrong.empty()) return error_response(route, 400, "invalid", wrong);
  const int failed = preconditions.check(bucket.find(draft.name).get(), /*is_read=*/false);
  if (failed != 0) return precondition_response(route, failed);
  draft.body = Body(std::move(bytes));
  const ObjectPtr object = storage.commit(bucket, std::move(draft), /*with_md5=*/true);
  if (result) *result = object;
  return uploaded(bucket, *object, route, base_url);
}

void read_xml_headers(const Request& request, Object& draft) {
  constexpr std::string_view kMeta = "x-goog-meta-";
  draft.content_type = request.header("content-type");
  draft.content_encoding = request.header("content-encoding");
  draft.cache_control = request.header("cache-control");
  draft.content_disposition = request.header("content-disposition");
  for (const auto& [name, value] : request.headers) {
    const std::string small = lower(name);
    if (small.starts_with(kMeta)) draft.metadata.emplace_back(small.substr(kMeta.size()), value);
  }
}

// `Content-Range` of a resumable upload; `size_bytes` is missing while the client says '*'.
struct UploadRange {
  bool has_bytes = false;  // False for a question: "bytes */...".
  uint64_t begin = 0, end = 0;
  std::optional<uint64_t> size_bytes;
};

std::optional<UploadRange> parse_upload_range(std::string_view header) {
  if (!header.starts_with("bytes ")) return std::nullopt;
  header.remove_prefix(6);
  const size_t slash = header.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  UploadRange range;
  const std::string_view size = header.substr(slash + 1);
  if (size != "*") {
    range.size_bytes = parse_u64(size);
    if (!range.size_bytes) return std::nullopt;
  }
  const std::string_view span = header.substr(0, slash);
  if (span == "*") return range;
  const size_t dash = span.find('-');
  const std::optional<uint64_t> first = parse_u64(span.substr(0, dash));
  const std::optional<uint64_t> last =
      dash == std::string_view::npos ? std::nullopt : parse_u64(span.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  range.has_bytes = true;
  range.begin = *first;
  range.end = *last + 1;
  return range;
}

Response resume_incomplete(const ResumableSession& session) {
  Response response{.status = 308};
  if (!session.bytes.empty()) {
    response.set("Range", "bytes=0-" + std::to_string(session.bytes.size() - 1));
  }
  return response;
}

}  // namespace

Response simple_upload(Storage& storage, Bucket& bucket, Request& request, const Route& route,
                       const std::string& base_url) {
  Object draft{.name = route.object};
  ExpectedSums expected;
  expected.read_headers(request.headers);
  const Preconditions preconditions = Preconditions::from(request);
  if (route.xml) {
    read_xml_headers(request, draft);
    return finish(storage, bucket, std::move(draft), std::move(request.body), expected,
                  preconditions, route, base_url);
  }
  const std::string type = request.parameter("uploadType");
  if (type == "multipart") {
    std::optional<RelatedParts> parts =
        split_related(request.header("content-type"), std::move(request.body));
    const std::optional<Json> metadata = parts ? Json::parse(parts->metadata) : std::nullopt;
    if (!metadata) {
      return error_response(route, 400, "badContent", "Malformed multipart body.");
    }
    draft.content_type = parts->content_type;
    read_metadata(*metadata, draft);
    expected.read_json(*metadata);
    if (!route.object.empty()) draft.name = route.object;
    return finish(storage, bucket, std::move(draft), std::move(parts->bytes), expected,
                  preconditions, route, base_url);
  }
  if (type != "media") return error_response(route, 400, "invalid", "Bad uploadType.");
  draft.content_type = request.header("content-type");
  draft.content_encoding = request.parameter("contentEncoding");
  return finish(storage, bucket, std::move(draft), std::move(request.body), expected, preconditions,
                route, base_url);
}

Response resumable_start(Storage& storage, Bucket& bucket, const Request& request,
                         const Route& route, const std::string& base_url) {
  ResumableSession session{.bucket = bucket.name,
                           .draft = {.name = route.object},
                           .preconditions = Preconditions::from(request)};
  session.draft.content_type = request.header("x-upload-content-type");
  ExpectedSums expected;
  expected.read_headers(request.headers);
  if (!request.body.empty()) {
    const std::optional<Json> metadata = Json::parse(request.body);
    if (!metadata) return error_response(route, 400, "parseError", "Parse Error");
    read_metadata(*metadata, session.draft);
    expected.read_json(*metadata);
    if (!route.object.empty()) session.draft.name = route.object;
  }
  if (session.draft.name.empty()) return error_response(route, 400, "required", "Required: name");
  if (expected.malformed) return error_response(route, 400, "invalid", "Invalid hash.");
  session.expected_crc = expected.crc;
  session.expected_md5 = expected.md5;
  const int failed =
      session.preconditions.check(bucket.find(session.draft.name).get(), /*is_read=*/false);
  if (failed != 0) return precondition_response(route, failed);
  const std::string id = "R" + hex16(mix(static_cast<uint64_t>(storage.next_generation())));
  Response response;
  response.set("Location", base_url + "/upload/storage/v1/b/" + bucket.name +
                               "/o?uploadType=resumable&name=" +
                               percent_encode(session.draft.name) + "&upload_id=" + id);
  response.set("X-GUploader-UploadID", id);
  storage.sessions[id] = std::move(session);
  return response;
}

Response resumable_put(Storage& storage, Request& request, const Route& route,
                       const std::string& base_url, bool partial_body) {
  const auto at = storage.sessions.find(request.parameter("upload_id"));
  if (at == storage.sessions.end()) return error_response(route, 404, "notFound", "Not Found");
  ResumableSession& session = at->second;
  Bucket* const bucket = storage.find(session.bucket);
  if (session.cancelled || !bucket) return error_response(route, 499, "clientClosed", "Cancelled");
  if (session.result) return uploaded(*bucket, *session.result, route, base_url);

  UploadRange range;
  const std::string_view header = request.header("content-range");
  if (header.empty()) {
    range = {.has_bytes = true, .begin = 0, .end = request.body.size(), .size_bytes = {}};
    if (!partial_body) range.size_bytes = request.body.size();
  } else {
    const std::optional<UploadRange> parsed = parse_upload_range(header);
    if (!parsed)
      return error_response(route, 400, "badRequest", "Failed to parse Content-Range header.");
    range = *parsed;
  }
  if (range.has_bytes) {
    if (!partial_body && range.end - range.begin != request.body.size()) {
      return error_response(route, 400, "badRequest",
                            "Content-Range and the length of the body do not agree.");
    }
    const uint64_t kept = session.bytes.size();
    if (range.begin > kept) {
      return error_response(route, 400, "badRequest",
                            "Invalid request. The first byte sent is " +
                                std::to_string(range.begin) + ", expected " + std::to_string(kept) +
                                ".");
    }
    // What the server has already is skipped, as a client that lost an answer sends it again.
    const std::string_view fresh =
        std::string_view(request.body)
            .substr(std::min<uint64_t>(kept - range.begin, request.body.size()));
    session.bytes += fresh;
  }
  const bool is_last =
      !partial_body && range.size_bytes && session.bytes.size() == *range.size_bytes;
  if (!is_last) {
    if (range.size_bytes && session.bytes.size() > *range.size_bytes) {
      return error_response(route, 400, "badRequest", "More bytes than announced.");
    }
    // Only whole units of 256 KiB are kept before the end.
    session.bytes.resize(session.bytes.size() / kResumableUnitBytes * kResumableUnitBytes);
    return resume_incomplete(session);
  }
  ExpectedSums expected;
  expected.crc = session.expected_crc;
  expected.md5 = session.expected_md5;
  expected.read_headers(request.headers);
  Response response = finish(storage, *bucket, session.draft, std::move(session.bytes), expected,
                             session.preconditions, route, base_url, &session.result);
  session.bytes.clear();
  return response;
}

Response resumable_cancel(Storage& storage, const Request& request, const Route& route) {
  const auto at = storage.sessions.find(request.parameter("upload_id"));
  if (at == storage.sessions.end()) return error_response(route, 404, "notFound", "Not Found");
  at->second.cancelled = true;
  at->second.bytes.clear();
  return Response{.status = 499};
}

}  // namespace faultserver
