#include "headrace/store/gcs/gcs_uploads.h"

#include <vector>

#include "headrace/base/ascii.h"
#include "headrace/format/gcs_json.h"
#include "headrace/format/json_quote.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/percent.h"

namespace headrace {

void GcsComposing::build_compose(HttpRequest& request, const ComposeRequest& compose,
                                 std::string& scratch) const {
  request.method = "POST";
  paths_.append_object(request.target, compose.name);
  request.target.append("/compose?alt=json");
  GcsPaths::append_precondition(request.target, compose.precondition);
  GcsPaths::append_parameter(request.target, "fields", kGcsObjectFields);
  request.target.append(paths_.user_project());
  request.add_header("Content-Type", "application/json; charset=UTF-8");
  scratch = "{\"sourceObjects\":[";
  for (const ComposeSource& source : compose.sources) {
    if (scratch.back() == '}') scratch += ',';
    // Conditional on the generation, not addressed to it, like reads.
    scratch += cat(
        "{\"name\":", paths_.quoted(source.name),
        ",\"objectPreconditions\":{\"ifGenerationMatch\":", json_quote(source.generation), "}}");
  }
  scratch +=
      cat("],\"destination\":{",
          GcsPaths::content_members(request, compose.content_type, compose.content_encoding), "}}");
  request.body = {std::as_bytes(std::span(scratch))};
  request.has_body = true;
}

Result<ObjectInfo> GcsComposing::parse_composed(const Response& response) const {
  return parse_gcs_object(response.body);
}

void GcsMultipartUploads::build_start(HttpRequest& request, const WriteRequest& write,
                                      SumLevel) const {
  paths_.begin_xml(request, "POST", write.name, "uploads");
  request.check_text("content_type", write.content_type);
  request.add_header("Content-Type", content_type_or_default(write.content_type));
  request.has_body = true;
}

void GcsMultipartUploads::build_part(HttpRequest& request, std::string_view name,
                                     std::string_view upload_id, uint32_t part_number,
                                     std::span<const std::span<const std::byte>> bytes,
                                     const SentSums& sums) const {
  paths_.begin_xml(request, "PUT", name, cat("partNumber=", part_number));
  GcsPaths::append_parameter(request.target, "uploadId", upload_id);
  request.add_header("x-goog-hash", cat("crc32c=", to_base64(sums.of(ChecksumKind::kCrc32c))));
  request.body.assign(bytes.begin(), bytes.end());
  request.has_body = true;
}

void GcsMultipartUploads::build_complete(HttpRequest& request,
                                         const MultipartCompletion& completion,
                                         std::string& scratch) const {
  std::vector<SentPart> parts(completion.parts.begin(), completion.parts.end());
  for (SentPart& part : parts) part.checksum = {};  // the service takes no sums here
  scratch = completion_xml(parts);
  paths_.begin_xml(request, "POST", completion.name,
                   cat("uploadId=", percent_encode(completion.upload_id)));
  request.add_header("Content-Type", "application/xml");
  request.body = {std::as_bytes(std::span(scratch))};
  request.has_body = true;
}

void GcsMultipartUploads::build_abort(HttpRequest& request, std::string_view name,
                                      std::string_view upload_id) const {
  paths_.begin_xml(request, "DELETE", name, cat("uploadId=", percent_encode(upload_id)));
}

void GcsMultipartUploads::build_list(HttpRequest& request, std::string_view prefix,
                                     std::string_view after_name,
                                     std::string_view after_upload_id) const {
  paths_.begin_xml(request, "GET", "", "uploads");
  paths_.append_below(request.target, "prefix", prefix);
  if (!after_name.empty()) paths_.append_below(request.target, "key-marker", after_name);
  GcsPaths::append_parameter(request.target, "upload-id-marker", after_upload_id);
}

void GcsResumableUploads::build_start(HttpRequest& request, const WriteRequest& write,
                                      std::string& scratch) const {
  request.method = "POST";
  request.target.append("/upload").append(paths_.objects()).append("?uploadType=resumable");
  GcsPaths::append_precondition(request.target, write.precondition);
  GcsPaths::append_parameter(request.target, "fields", kGcsObjectFields);
  request.target.append(paths_.user_project());
  request.add_header("Content-Type", "application/json; charset=UTF-8");
  scratch =
      cat("{\"name\":", paths_.quoted(write.name), ",",
          GcsPaths::content_members(request, write.content_type, write.content_encoding), "}");
  request.body = {std::as_bytes(std::span(scratch))};
  request.has_body = true;
}

// The session is on this host, whatever host name its URL has.
std::string GcsResumableUploads::session(const ResponseHead& head) const {
  const std::string_view url = head.find("location").value_or("");
  const size_t scheme = url.find("://");
  const size_t path = url.find('/', scheme == url.npos ? 0 : scheme + 3);
  if (path == url.npos || !is_visible_ascii(url.substr(path))) return "";
  return std::string(url.substr(path));
}

void GcsResumableUploads::build_put(HttpRequest& request, const ResumablePut& put) const {
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

uint64_t GcsResumableUploads::received_bytes(const ResponseHead& head) const {
  const std::string_view range = head.find("range").value_or("");  // "bytes=0-N"
  const size_t dash = range.rfind('-');
  const auto last = parse_number(range.substr(dash == range.npos ? range.size() : dash + 1));
  return last ? *last + 1 : 0;
}

void GcsResumableUploads::build_cancel(HttpRequest& request, std::string_view session) const {
  request.method = "DELETE";
  request.target.append(session);
  request.has_body = true;
}

void GcsCopies::build_copy(HttpRequest& request, const CopyRequest& copy,
                           std::string_view token) const {
  request.method = "POST";
  paths_.append_object(request.target, copy.source_name);
  request.target.append("/rewriteTo/b/");
  percent_encode_to(request.target, paths_.bucket());
  request.target.append("/o/");
  paths_.append_path(request.target, copy.name);
  request.target.append("?projection=noAcl");
  GcsPaths::append_parameter(request.target, "ifSourceGenerationMatch", copy.source_generation);
  GcsPaths::append_precondition(request.target, copy.precondition);
  GcsPaths::append_parameter(request.target, "rewriteToken", token);
  request.target.append(paths_.user_project());
  request.has_body = true;
}

Result<CopyStep> GcsCopies::parse_copy(const Response& response) const {
  Result<GcsRewrite> rewrite = parse_gcs_rewrite(response.body);
  if (!rewrite) return std::unexpected(std::move(rewrite.error()));
  return CopyStep{.done = rewrite->done,
                  .token = std::move(rewrite->token),
                  .object = std::move(rewrite->object)};
}

}  // namespace headrace
