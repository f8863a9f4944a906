// Multipart uploads.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
#include <algorithm>
#include <functional>
#include <tuple>

#include "digest.h"
#include "s3/checksum.h"
#include "s3/s3.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {
namespace {

// The algorithm of an upload that names none is the bucket's own, and nothing has to be sent for
// it.
std::optional<Response> read_checksum_wishes(const Call& call, S3Facts& facts) {
  const std::string_view name = call.request.header("x-amz-checksum-algorithm");
  const std::string_view type = call.request.header("x-amz-checksum-type");
  if (!call.bucket.s3.has_checksums()) return std::nullopt;
  const std::optional<Algorithm> algorithm =
      algorithm_from(name.empty() ? std::string_view(call.bucket.s3.default_checksum) : name);
  if (!name.empty() && !algorithm) {
    return error(call.route, 400, "InvalidRequest", "Checksum algorithm provided is unsupported.");
  }
  if (!algorithm) return std::nullopt;
  if (name.empty() && !type.empty()) {
    return error(call.route, 400, "InvalidRequest",
                 "The x-amz-checksum-type header can only be used with the "
                 "x-amz-checksum-algorithm header.");
  }
  // What can be a sum of the whole only, or of the parts only, is that by default.
  facts.is_composite = !type.empty()  ? type == "COMPOSITE"
                       : name.empty() ? !is_linear(*algorithm)
                                      : *algorithm != Algorithm::kCrc64Nvme;
  const bool is_possible =
      facts.is_composite ? *algorithm != Algorithm::kCrc64Nvme : is_linear(*algorithm);
  if (!is_possible || (!type.empty() && type != "COMPOSITE" && type != "FULL_OBJECT")) {
    return error(call.route, 400, "InvalidRequest",
                 "The " + std::string(type) + " checksum type cannot be used with the " +
                     lower(algorithm_name(*algorithm)) + " checksum algorithm.");
  }
  facts.checksum_algorithm = algorithm_name(*algorithm);
  facts.tells_parts = !name.empty();
  return std::nullopt;
}

Response start(const Call& call) {
  MultipartUpload upload{.started_us = now_us()};
  if (std::optional<Response> wrong = read_draft(call, upload.draft)) return *wrong;
  if (std::optional<Response> wrong = read_checksum_wishes(call, upload.draft.s3)) return *wrong;
  const auto number = static_cast<uint64_t>(call.storage.next_generation());
  // As long as the service's, and with its characters.
  std::string id;
  for (uint64_t i = 0; i < 6; ++i) id += hex16(mix(number + i));
  id += "_.-";
  Response response = document("InitiateMultipartUploadResult",
                               element("Bucket", call.bucket.name) +
                                   element("Key", call.route.object) + element("UploadId", id));
  const S3Facts& facts = upload.draft.s3;
  set_encryption_headers(response, upload.draft);
  if (!call.request.header("x-amz-checksum-algorithm").empty()) {
    response.set("x-amz-checksum-algorithm", facts.checksum_algorithm);
    response.set("x-amz-checksum-type", std::string(checksum_type(facts)));
  }
  call.bucket.multipart_uploads[id] = std::move(upload);
  return response;
}

std::optional<Response> wrong_part_number(const Call& call, int64_t& number) {
  const std::string text = call.request.parameter("partNumber");
  number = parse_i64(text).value_or(0);
  const uint64_t most = call.storage.max_parts;
  if (number >= 1 && static_cast<uint64_t>(number) <= most) return std::nullopt;
  return invalid_argument(
      call.route, "partNumber", text,
      "Part number must be an integer between 1 and " + std::to_string(most) + ", inclusive");
}

// Gives the part its sum by the upload's algorithm, and its ETag; makes it one of the upload's.
const MultipartUpload::Part& keep_part(const Call& call, MultipartUpload& upload, int64_t number,
                                       MultipartUpload::Part part) {
  const std::optional<Algorithm> algorithm = algorithm_from(upload.draft.s3.checksum_algorithm);
  if (algorithm && part.sum.empty()) part.sum = sum_of(*algorithm, part.body);
  part.updated_us = now_us();
  if (call.storage.compute_md5) {
    part.etag = hex(md5_of(part.body));
  } else {
    const auto unique = static_cast<uint64_t>(call.storage.next_generation());
    part.etag = hex16(mix(unique)) + hex16(mix(unique + 1));
  }
  return upload.parts[number] = std::move(part);
}

std::optional<Response> failed_upload_key(const Call& call, const MultipartUpload& upload) {
  const std::string_view given =
      call.request.header("x-amz-server-side-encryption-customer-key-md5");
  if (given == upload.draft.s3.customer_key_md5) return std::nullopt;
  return error(call.route, 400, "InvalidRequest",
               "The multipart upload initiate requested encryption. Subsequent part requests must "
               "include the appropriate encryption parameters.");
}

Response put_part(const Call& call, MultipartUpload& upload) {
  int64_t number = 0;
  if (std::optional<Response> wrong = wrong_part_number(call, number)) return *wrong;
  if (std::optional<Response> wrong = failed_upload_key(call, upload)) return *wrong;
  const bool has_checksums = call.bucket.s3.has_checksums();
  const Given given = has_checksums ? given_checksum(call.request, call.route) : Given{};
  if (given.wrong) return *given.wrong;
  MultipartUpload::Part part;
  std::string sum;
  if (std::optional<Response> wrong =
          check_body(call.request, call.route, given, call.request.body, sum)) {
    return *wrong;
  }
  const std::optional<Algorithm> algorithm = algorithm_from(upload.draft.s3.checksum_algorithm);
  const S3Facts& facts = upload.draft.s3;
  if (given.algorithm && given.algorithm == algorithm) {
    part.sum = sum;
  } else if (facts.tells_parts && (given.algorithm || facts.is_composite)) {
    return error(call.route, 400, "InvalidRequest",
                 "Checksum Type mismatch occurred, expected checksum Type: " +
                     lower(facts.checksum_algorithm) + ", actual checksum Type: " +
                     (given.algorithm ? lower(algorithm_name(*given.algorithm)) : "null"));
  }
  part.body = Body(std::move(call.request.body));
  const MultipartUpload::Part& kept = keep_part(call, upload, number, std::move(part));
  Response response;
  response.set("ETag", quoted(kept.etag));
  set_encryption_headers(response, upload.draft);
  if (given.algorithm) response.set(header_name(*given.algorithm), given.text);
  return response;
}

Response copy_part(const Call& call, MultipartUpload& upload) {
  int64_t number = 0;
  if (std::optional<Response> wrong = wrong_part_number(call, number)) return *wrong;
  const CopySource source = find_copy_source(call);
  if (source.failed) return *source.failed;
  MultipartUpload::Part part{.body = source.object->body};
  const std::string_view range_text = call.request.header("x-amz-copy-source-range");
  if (!range_text.empty()) {
    const Range range = parse_range(range_text, part.body.size_bytes());
    if (range.kind != Range::Kind::kSatisfiable) {
      return error(call.route, 416, "InvalidRange", usual_message(416, true));
    }
    part.body = part.body.slice(range.begin, range.end);
  }
  const MultipartUpload::Part& kept = keep_part(call, upload, number, std::move(part));
  std::string out =
      element("LastModified", iso_time(kept.updated_us)) + element("ETag", quoted(kept.etag));
  const std::optional<Algorithm> algorithm = algorithm_from(upload.draft.s3.checksum_algorithm);
  if (algorithm && upload.draft.s3.tells_parts && call.bucket.s3.has_copy_sums) {
    out += element(element_name(*algorithm), base64_encode(kept.sum));
  }
  Response response = document("CopyPartResult", out);
  set_encryption_headers(response, upload.draft);
  return response;
}

Response invalid_part(const Call& call) {
  return error(call.route, 400, "InvalidPart",
               "One or more of the specified parts could not be found.  The part may not have "
               "been uploaded, or the specified entity tag may not match the part's entity tag.");
}

// What the parts make together: body, ETag, sizes and checksum, in `draft`.
std::optional<Response> join_parts(const Call& call, const MultipartUpload& upload, Object& draft) {
  const std::vector<std::string_view> listed = each(call.request.body, "Part");
  if (listed.empty() || listed.size() > call.storage.max_parts) {
    return error(call.route, 400, "MalformedXML",
                 "The XML you provided was not well-formed or did not validate against our "
                 "published schema");
  }
  std::vector<int64_t> numbers;
  numbers.reserve(listed.size());
  for (const std::string_view part : listed) {
    numbers.push_back(parse_i64(trim(inner(part, "PartNumber"))).value_or(0));
  }
  const bool rises =
      std::ranges::adjacent_find(numbers, std::ranges::greater_equal()) == numbers.end();
  if (numbers.front() < 1 || !rises) {
    return error(call.route, 400, "InvalidPartOrder",
                 "The list of parts was not in ascending order. Parts must be ordered by part "
                 "number.");
  }
  const std::optional<Algorithm> algorithm = algorithm_from(draft.s3.checksum_algorithm);
  std::vector<Body> bodies;
  std::string md5s, sums, sum;
  for (size_t i = 0; i < listed.size(); ++i) {
    const int64_t number = numbers[i];
    const auto found = upload.parts.find(number);
    std::string etag = inner(listed[i], "ETag");
    std::erase(etag, '"');
    if (found == upload.parts.end() || found->second.etag != trim(etag)) return invalid_part(call);
    const MultipartUpload::Part& part = found->second;
    const uint64_t size = part.body.size_bytes();
    if (i + 1 < listed.size() && size < call.storage.min_part_bytes) {
      return error(
          call.route, 400, "EntityTooSmall",
          "Your proposed upload is smaller than the minimum allowed size",
          element("ETag", part.etag) + element("MinSizeAllowed", call.storage.min_part_bytes) +
              element("ProposedSize", size) + element("PartNumber", static_cast<uint64_t>(number)));
    }
    const uint64_t first_size = upload.parts.at(numbers.front()).body.size_bytes();
    const bool is_last = i + 1 == listed.size();
    if (call.bucket.s3.equal_parts && (is_last ? size > first_size : size != first_size)) {
      return error(call.route, 400, "InvalidPart",
                   "All non-trailing parts must have the same length.");
    }
    if (algorithm) {
      const std::string text = base64_encode(part.sum);
      const std::string told = inner(listed[i], element_name(*algorithm));
      if (!told.empty() && told != text) return invalid_part(call);
      if (told.empty() && draft.s3.tells_parts && draft.s3.is_composite) {
        return error(call.route, 400, "InvalidRequest",
                     "The upload was created using a " + lower(draft.s3.checksum_algorithm) +
                         " checksum. The complete request must include the checksum for each "
                         "part. It was missing for part " +
                         std::to_string(number) + " in the request.");
      }
      sums += part.sum;
      if (!draft.s3.is_composite) {
        sum = sum.empty() ? part.sum : joined(*algorithm, sum, part.sum, size);
      }
      draft.s3.parts.push_back({.size_bytes = size, .checksum = text});
    } else {
      draft.s3.parts.push_back({.size_bytes = size});
    }
    // The ETag of a part is 16 bytes in hexadecimal, its MD5 or not.
    for (size_t at = 0; at + 1 < part.etag.size(); at += 2) {
      md5s += static_cast<char>(std::stoi(part.etag.substr(at, 2), nullptr, 16));
    }
    bodies.push_back(part.body);
  }
  const std::string count = "-" + std::to_string(listed.size());
  draft.body = Body::joined(std::move(bodies));
  draft.s3.etag = hex(md5(md5s)) + count;
  if (algorithm) {
    draft.s3.checksum = draft.s3.is_composite ? base64_encode(sum_of(*algorithm, sums)) + count
                                              : base64_encode(sum);
  }
  return std::nullopt;
}

std::optional<Response> wrong_whole(const Call& call, const Object& draft) {
  const Request& request = call.request;
  const std::string_view size_text = request.header("x-amz-mp-object-size");
  if (!size_text.empty() && parse_u64(size_text) != draft.body.size_bytes()) {
    return error(
        call.route, 400, "InvalidRequest",
        "The provided 'x-amz-mp-object-size' header value " + std::string(size_text) +
            " does not match what was computed: " + std::to_string(draft.body.size_bytes()));
  }
  if (!call.bucket.s3.has_checksums()) return std::nullopt;
  const std::string_view type = request.header("x-amz-checksum-type");
  if (!type.empty() && type != checksum_type(draft.s3)) {
    return error(call.route, 400, "InvalidRequest",
                 "The upload was created using the " + std::string(checksum_type(draft.s3)) +
                     " checksum mode. The complete request must use the same checksum mode.");
  }
  const Given given = given_checksum(request, call.route);
  if (given.wrong) return given.wrong;
  if (!given.algorithm) return std::nullopt;
  if (algorithm_name(*given.algorithm) != draft.s3.checksum_algorithm) {
    return error(call.route, 400, "InvalidRequest",
                 "The upload was created using the " + draft.s3.checksum_algorithm +
                     " checksum algorithm. The complete request must use the same.");
  }
  // Of a composite the count may be left out.
  const std::string& whole = draft.s3.checksum;
  if (given.text != whole && given.text != whole.substr(0, whole.find('-'))) {
    return error(call.route, 400, "BadDigest",
                 "The " + draft.s3.checksum_algorithm +
                     " you specified did not match the calculated checksum.");
  }
  return std::nullopt;
}

std::string location_of(const Call& call, const Object& object) {
  const std::string folder = call.route.virtual_host ? "" : call.bucket.name + "/";
  return call.base_url + "/" + folder + percent_encode(object.name);
}

Response completed(const Call& call, const Object& object) {
  Response response = document(
      "CompleteMultipartUploadResult",
      element("Location", location_of(call, object)) + element("Bucket", call.bucket.name) +
          element("Key", object.name) + element("ETag", quoted(etag_of(object))) +
          (call.bucket.s3.has_checksums() ? checksum_elements(object) : ""));
  set_encryption_headers(response, object);
  if (call.bucket.versioning) {
    response.set("x-amz-version-id", version_id_of(call.bucket, object));
  }
  return response;
}

Response complete(const Call& call, const std::string& id) {
  MultipartUpload& upload = call.bucket.multipart_uploads[id];
  Object draft = upload.draft;
  if (std::optional<Response> wrong = join_parts(call, upload, draft)) return *wrong;
  if (std::optional<Response> wrong = wrong_whole(call, draft)) return *wrong;
  const ObjectPtr current = call.bucket.find(call.route.object);
  // The upload stays: it may be completed under another condition, or aborted.
  if (std::optional<Response> failed = failed_write_condition(call, current.get())) return *failed;
  call.bucket.multipart_uploads.erase(id);
  const ObjectPtr object = call.storage.commit(call.bucket, std::move(draft), /*with_md5=*/false);
  if (call.bucket.s3.completes_again) call.bucket.s3.completed[id] = object;
  return completed(call, *object);
}

uint64_t count_asked(const Call& call, std::string_view name) {
  return std::min<uint64_t>(parse_u64(call.request.parameter(name)).value_or(1000), 1000);
}

Response list_uploads(const Call& call) {
  const Request& request = call.request;
  const std::string prefix = request.parameter("prefix");
  const std::string key_marker = request.parameter("key-marker");
  const std::string id_marker = request.parameter("upload-id-marker");
  const uint64_t max_uploads = count_asked(call, "max-uploads");
  const bool encodes = request.parameter("encoding-type") == "url";
  const auto name_of = [encodes](std::string_view name) {
    return encodes ? percent_encode(name) : escape(name);
  };
  // By name, the oldest first.
  std::vector<std::tuple<std::string, int64_t, std::string>> found;
  for (const auto& [id, upload] : call.bucket.multipart_uploads) {
    if (!upload.draft.name.starts_with(prefix)) continue;
    found.emplace_back(upload.draft.name, upload.started_us, id);
  }
  std::ranges::sort(found);
  std::string uploads, last_name, last_id;
  uint64_t count = 0;
  bool is_truncated = false;
  bool passed = id_marker.empty();
  for (const auto& [name, started_us, id] : found) {
    if (name < key_marker) continue;
    if (name == key_marker && !key_marker.empty()) {
      if (id_marker.empty()) continue;
      if (!passed) {
        passed = id == id_marker;
        continue;
      }
    }
    if (count == max_uploads) {
      is_truncated = true;
      break;
    }
    ++count;
    last_name = name;
    last_id = id;
    const S3Facts& facts = call.bucket.multipart_uploads[id].draft.s3;
    std::string one = wrapped("Key", name_of(name)) + element("UploadId", id) +
                      element("StorageClass", "STANDARD") +
                      element("Initiated", iso_time(started_us));
    if (facts.tells_parts) {
      one += element("ChecksumAlgorithm", facts.checksum_algorithm) +
             element("ChecksumType", checksum_type(facts));
    }
    uploads += wrapped("Upload", one);
  }
  std::string out = element("Bucket", call.bucket.name);
  out += wrapped("KeyMarker", name_of(key_marker)) + element("UploadIdMarker", id_marker);
  if (is_truncated) {
    out += wrapped("NextKeyMarker", name_of(last_name)) + element("NextUploadIdMarker", last_id);
  }
  out += wrapped("Prefix", name_of(prefix)) + element("MaxUploads", max_uploads);
  if (encodes) out += element("EncodingType", "url");
  out += element("IsTruncated", is_truncated ? "true" : "false");
  return document("ListMultipartUploadsResult", out + uploads);
}

Response list_parts(const Call& call, const std::string& id, const MultipartUpload& upload) {
  const int64_t marker = parse_i64(call.request.parameter("part-number-marker")).value_or(0);
  const uint64_t max_parts = count_asked(call, "max-parts");
  const std::optional<Algorithm> algorithm = algorithm_from(upload.draft.s3.checksum_algorithm);
  std::string parts;
  uint64_t count = 0;
  int64_t last = 0;
  bool is_truncated = false;
  for (auto at = upload.parts.upper_bound(marker); at != upload.parts.end(); ++at) {
    if (count == max_parts) {
      is_truncated = true;
      break;
    }
    ++count;
    last = at->first;
    const MultipartUpload::Part& part = at->second;
    std::string one = element("PartNumber", static_cast<uint64_t>(at->first)) +
                      element("LastModified", iso_time(part.updated_us)) +
                      element("ETag", quoted(part.etag)) + element("Size", part.body.size_bytes());
    if (algorithm && upload.draft.s3.tells_parts) {
      one += element(element_name(*algorithm), base64_encode(part.sum));
    }
    parts += wrapped("Part", one);
  }
  std::string out =
      element("Bucket", call.bucket.name) + element("Key", upload.draft.name) +
      element("UploadId", id) +
      element("PartNumberMarker", static_cast<uint64_t>(std::max<int64_t>(marker, 0)));
  if (is_truncated) out += element("NextPartNumberMarker", static_cast<uint64_t>(last));
  out += element("MaxParts", max_parts) + element("IsTruncated", is_truncated ? "true" : "false") +
         element("StorageClass", upload.draft.storage_class);
  if (algorithm && upload.draft.s3.tells_parts) {
    out += element("ChecksumAlgorithm", algorithm_name(*algorithm)) +
           element("ChecksumType", checksum_type(upload.draft.s3));
  }
  return document("ListPartsResult", out + parts);
}

}  // namespace

Response multipart(const Call& call) {
  if (call.route.kind == Kind::kMultipartStart) return start(call);
  if (call.route.kind == Kind::kMultipartList && call.route.object.empty()) {
    return list_uploads(call);
  }
  const std::string id = call.request.parameter("uploadId");
  const auto at = call.bucket.multipart_uploads.find(id);
  if (at == call.bucket.multipart_uploads.end() || at->second.draft.name != call.route.object) {
    const auto done = call.bucket.s3.completed.find(id);
    if (call.route.kind == Kind::kMultipartComplete && done != call.bucket.s3.completed.end()) {
      return completed(call, *done->second);
    }
    return error(call.route, 404, "NoSuchUpload",
                 "The specified upload does not exist. The upload ID may be invalid, or the upload "
                 "may have been aborted or completed.",
                 element("UploadId", id));
  }
  switch (call.route.kind) {
    case Kind::kMultipartPart: return put_part(call, at->second);
    case Kind::kMultipartPartCopy: return copy_part(call, at->second);
    case Kind::kMultipartList: return list_parts(call, id, at->second);
    case Kind::kMultipartComplete: return complete(call, id);
    default: break;
  }
  call.bucket.multipart_uploads.erase(at);
  return Response{.status = 204};
}

}  // namespace faultserver::s3
