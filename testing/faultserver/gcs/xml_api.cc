// The XML API's multipart uploads.
#include <algorithm>

#include "digest.h"
#include "gcs/gcs.h"
#include "text.h"

namespace faultserver {
namespace {

Response xml_response(std::string body) {
  Response response{.body = Body("<?xml version='1.0' encoding='UTF-8'?>" + std::move(body))};
  response.headers = {{"Content-Type", "application/xml; charset=UTF-8"}};
  return response;
}

std::string element(std::string_view name, std::string_view text) {
  std::string out = "<";
  out += name;
  out += ">" + xml_escape(text) + "</";
  out += name;
  return out + ">";
}

// The text of the first `<name>` in `xml`.
std::string_view inner(std::string_view xml, std::string_view name) {
  const std::string open = "<" + std::string(name) + ">";
  const size_t begin = xml.find(open);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = xml.substr(begin + open.size());
  return rest.substr(0, rest.find("</"));
}

struct ListedPart {
  int64_t number = 0;
  std::string etag;
};

std::string unquoted_etag(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text.starts_with("&quot;")) {
      text.remove_prefix(6);
    } else if (text.starts_with("&#34;")) {
      text.remove_prefix(5);
    } else {
      if (text.front() != '"') out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

std::vector<ListedPart> read_completion(std::string_view xml) {
  std::vector<ListedPart> parts;
  while (true) {
    const size_t begin = xml.find("<Part>");
    const size_t end = xml.find("</Part>");
    if (begin == std::string_view::npos || end == std::string_view::npos) return parts;
    const std::string_view part = xml.substr(begin, end - begin);
    parts.push_back({.number = parse_i64(trim(inner(part, "PartNumber"))).value_or(0),
                     .etag = unquoted_etag(trim(inner(part, "ETag")))});
    xml.remove_prefix(end + 7);
  }
}

Response start(Storage& storage, Bucket& bucket, const Request& request, const Route& route) {
  MultipartUpload upload;
  upload.draft.name = route.object;
  upload.draft.content_type = request.header("content-type");
  upload.draft.content_encoding = request.header("content-encoding");
  upload.draft.cache_control = request.header("cache-control");
  for (const auto& [name, value] : request.headers) {
    const std::string small = lower(name);
    if (small.starts_with("x-goog-meta-")) {
      upload.draft.metadata.emplace_back(small.substr(12), value);
    }
  }
  const std::string id = "M" + hex16(mix(static_cast<uint64_t>(storage.next_generation())));
  bucket.multipart_uploads[id] = std::move(upload);
  return xml_response(
      "<InitiateMultipartUploadResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>" +
      element("Bucket", bucket.name) + element("Key", route.object) + element("UploadId", id) +
      "</InitiateMultipartUploadResult>");
}

Response put_part(Storage& storage, MultipartUpload& upload, Request& request, const Route& route) {
  const int64_t number = parse_i64(request.parameter("partNumber")).value_or(0);
  if (number < 1 || number > 10000) {
    return error_response(route, 400, "InvalidArgument", "Part number is not in [1, 10000].");
  }
  ExpectedSums expected;
  expected.read_headers(request.headers);
  uint32_t crc = 0;
  const std::string wrong = mismatch(expected, request.body, crc);
  if (!wrong.empty()) return error_response(route, 400, "BadDigest", wrong);
  std::string hash = "crc32c=" + crc32c_text(crc);
  MultipartUpload::Part part{.body = {}, .crc = crc, .etag = {}, .updated_us = now_us()};
  if (storage.compute_md5) {
    const std::string sum = md5(request.body);
    part.etag = hex(sum);
    hash += ",md5=" + base64_encode(sum);
  } else {
    part.etag = hex16(crc) + hex16(request.body.size());
  }
  part.body = Body(std::move(request.body));
  Response response;
  response.set("ETag", "\"" + part.etag + "\"");
  response.set("x-goog-hash", hash);
  upload.parts[number] = std::move(part);
  return response;
}

Response complete(Storage& storage, Bucket& bucket, const std::string& id, const Request& request,
                  const Route& route, const std::string& base_url) {
  MultipartUpload& upload = bucket.multipart_uploads[id];
  const std::vector<ListedPart> listed = read_completion(request.body);
  if (listed.empty()) return error_response(route, 400, "MalformedXML", "No parts.");
  Object draft = upload.draft;
  std::vector<Body> parts;
  for (size_t i = 0; i < listed.size(); ++i) {
    if (i > 0 && listed[i].number <= listed[i - 1].number) {
      return error_response(route, 400, "InvalidPartOrder",
                            "The list of parts was not in ascending order.");
    }
    const auto part = upload.parts.find(listed[i].number);
    if (part == upload.parts.end() || part->second.etag != listed[i].etag) {
      return error_response(route, 400, "InvalidPart",
                            "One or more of the specified parts could not be found, or its ETag "
                            "did not match.");
    }
    if (i + 1 < listed.size() && part->second.body.size_bytes() < storage.min_part_bytes) {
      return error_response(route, 400, "EntityTooSmall",
                            "Your proposed upload is smaller than the minimum allowed size.");
    }
    parts.push_back(part->second.body);
    draft.crc = crc32c_joined(draft.crc, part->second.crc, part->second.body.size_bytes());
  }
  draft.body = Body::joined(std::move(parts));
  bucket.multipart_uploads.erase(id);
  const ObjectPtr object = storage.commit(bucket, std::move(draft), /*with_md5=*/false);
  Response response = xml_response(
      "<CompleteMultipartUploadResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>" +
      element("Location", base_url + "/" + bucket.name + "/" + percent_encode(object->name)) +
      element("Bucket", bucket.name) + element("Key", object->name) +
      element("ETag", "\"" + etag_of(*object) + "\"") + "</CompleteMultipartUploadResult>");
  set_object_headers(response, *object);
  return response;
}

Response list_uploads(const Bucket& bucket, const Request& request) {
  const std::string prefix = request.parameter("prefix");
  std::string body =
      "<ListMultipartUploadsResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>" +
      element("Bucket", bucket.name);
  for (const auto& [id, upload] : bucket.multipart_uploads) {
    if (!upload.draft.name.starts_with(prefix)) continue;
    body += "<Upload>" + element("Key", upload.draft.name) + element("UploadId", id) +
            element("StorageClass", "STANDARD") + "</Upload>";
  }
  return xml_response(body + element("IsTruncated", "false") + "</ListMultipartUploadsResult>");
}

Response list_parts(const Bucket& bucket, const std::string& id, const MultipartUpload& upload) {
  std::string body = "<ListPartsResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>" +
                     element("Bucket", bucket.name) + element("Key", upload.draft.name) +
                     element("UploadId", id);
  for (const auto& [number, part] : upload.parts) {
    body += "<Part>" + element("PartNumber", std::to_string(number)) +
            element("LastModified", iso_time(part.updated_us)) +
            element("ETag", "\"" + part.etag + "\"") +
            element("Size", std::to_string(part.body.size_bytes())) + "</Part>";
  }
  return xml_response(body + element("IsTruncated", "false") + "</ListPartsResult>");
}

}  // namespace

Response xml_multipart(Storage& storage, Bucket& bucket, Request& request, const Route& route,
                       const std::string& base_url) {
  // https://cloud.google.com/storage/docs/multipart-uploads: preconditions are not supported.
  for (const auto& [name, value] : request.headers) {
    const std::string small = lower(name);
    if (small.starts_with("x-goog-if-") || small == "if-match" || small == "if-none-match") {
      return error_response(route, 400, "InvalidArgument",
                            "Preconditions are not supported for multipart uploads.");
    }
  }
  if (route.kind == Kind::kMultipartStart) return start(storage, bucket, request, route);
  if (route.kind == Kind::kMultipartList && !request.has_parameter("uploadId")) {
    return list_uploads(bucket, request);
  }
  const std::string id = request.parameter("uploadId");
  const auto at = bucket.multipart_uploads.find(id);
  if (at == bucket.multipart_uploads.end() || at->second.draft.name != route.object) {
    Response response = error_response(route, 404, "NoSuchUpload", "");
    response.body = Body(
        "<?xml version='1.0' encoding='UTF-8'?><Error><Code>NoSuchUpload</Code><Message>The "
        "requested upload was not found.</Message></Error>");
    return response;
  }
  if (route.kind == Kind::kMultipartPart) return put_part(storage, at->second, request, route);
  if (route.kind == Kind::kMultipartList) return list_parts(bucket, id, at->second);
  if (route.kind == Kind::kMultipartAbort) {
    bucket.multipart_uploads.erase(at);
    return Response{.status = 204};
  }
  return complete(storage, bucket, id, request, route, base_url);
}

}  // namespace faultserver
