// Objects: reading, writing, copying, deleting.
#include <algorithm>
#include <array>

#include "digest.h"
#include "s3/checksum.h"
#include "s3/s3.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {
namespace {

constexpr std::string_view kMeta = "x-amz-meta-";
constexpr std::string_view kNullVersion = "null";
constexpr size_t kMaxMetadataBytes = 2048;

struct PartRange {
  uint64_t begin = 0, end = 0;
};

bool is_archived(const Object& object) {
  return object.storage_class == "GLACIER" || object.storage_class == "DEEP_ARCHIVE";
}

// SSE-C: a read must bring the key that the write brought. The server keeps its MD5 only.
std::optional<Response> failed_customer_key(const Call& call, const Object& object,
                                            std::string_view prefix) {
  const std::string_view given = call.request.header(std::string(prefix) + "customer-key-md5");
  const std::string& wanted = object.s3.customer_key_md5;
  if (given == wanted) return std::nullopt;
  if (wanted.empty()) {
    return error(call.route, 400, "InvalidRequest",
                 "The encryption parameters are not applicable to this object.");
  }
  if (given.empty()) {
    return error(call.route, 400, "InvalidRequest",
                 "The object was stored using a form of Server Side Encryption. The correct "
                 "parameters must be provided to retrieve the object.");
  }
  return error(call.route, 403, "AccessDenied", "Access Denied");
}

constexpr std::string_view kEncryption = "x-amz-server-side-encryption-";

std::optional<Response> read_encryption(const Call& call, S3Facts& facts) {
  const Request& request = call.request;
  const std::string base(kEncryption);
  facts.encryption = request.header("x-amz-server-side-encryption");
  facts.kms_key_id = request.header(base + "aws-kms-key-id");
  const std::string_view algorithm = request.header(base + "customer-algorithm");
  const std::string_view key_text = request.header(base + "customer-key");
  if (!facts.encryption.empty() && facts.encryption != "AES256" && facts.encryption != "aws:kms" &&
      facts.encryption != "aws:kms:dsse") {
    return invalid_argument(call.route, "x-amz-server-side-encryption", facts.encryption,
                            "The encryption method specified is not supported");
  }
  if (facts.encryption.starts_with("aws:kms") && facts.kms_key_id.empty()) {
    facts.kms_key_id = "arn:aws:kms:us-east-1:000000000000:key/default";
  }
  if (algorithm.empty() && key_text.empty()) return std::nullopt;
  const std::optional<std::string> key = base64_decode(key_text);
  const std::string_view md5_text = request.header(base + "customer-key-md5");
  if (algorithm != "AES256" || !key || key->size() != 32) {
    return invalid_argument(call.route, base + "customer-key", "",
                            "The secret key was invalid for the specified algorithm.");
  }
  if (md5_text != base64_encode(md5(*key))) {
    return invalid_argument(
        call.route, base + "customer-key-MD5", md5_text,
        "The calculated MD5 hash of the key did not match the hash that was provided.");
  }
  facts.customer_key_md5 = md5_text;
  return std::nullopt;
}

// Gives the draft its ETag: the MD5, unless a key that is not the service's own hides the content.
void set_etag(const Storage& storage, Object& draft) {
  const S3Facts& facts = draft.s3;
  const bool hidden = facts.encryption.starts_with("aws:kms") || !facts.customer_key_md5.empty();
  draft.md5.clear();
  draft.s3.etag.clear();
  if (storage.compute_md5 && !hidden) {
    draft.md5 = md5_of(draft.body);
    draft.s3.etag = hex(draft.md5);
  }
}

void set_object_headers(const Call& call, Response& response, const Object& object) {
  const auto add = [&response](std::string_view name, const std::string& value) {
    if (!value.empty()) response.headers.emplace_back(name, value);
  };
  add("Last-Modified", http_date(object.updated_us));
  add("ETag", quoted(etag_of(object)));
  add("Accept-Ranges", "bytes");
  add("Content-Type", object.content_type.empty() ? "binary/octet-stream" : object.content_type);
  add("Content-Encoding", object.content_encoding);
  add("Content-Disposition", object.content_disposition);
  add("Content-Language", object.content_language);
  add("Cache-Control", object.cache_control);
  add("Expires", object.s3.expires);
  for (const auto& [name, value] : object.metadata) add(std::string(kMeta) + name, value);
  if (object.storage_class != "STANDARD") add("x-amz-storage-class", object.storage_class);
  if (call.bucket.versioning || !call.bucket.noncurrent().empty()) {
    add("x-amz-version-id", version_id_of(call.bucket, object));
  }
  if (call.bucket.requester_pays) add("x-amz-request-charged", "requester");
  set_encryption_headers(response, object);
}

// 404, or 405 for a delete marker that was asked for by its version.
Response missing(const Call& call, const std::string& version_id) {
  const ObjectPtr newest = call.bucket.newest_noncurrent(call.route.object);
  if (!version_id.empty()) {
    for (const auto& [key, object] : call.bucket.noncurrent()) {
      if (key.first != call.route.object || !object->s3.is_delete_marker ||
          version_id_of(call.bucket, *object) != version_id) {
        continue;
      }
      Response response = error(call.route, 405, "MethodNotAllowed",
                                "The specified method is not allowed against this resource.");
      response.set("x-amz-delete-marker", "true");
      response.set("x-amz-version-id", version_id);
      response.set("Allow", "DELETE");
      return response;
    }
    return error(call.route, 404, "NoSuchVersion", "The specified version does not exist.");
  }
  Response response = no_such_key(call.route);
  if (newest && newest->s3.is_delete_marker) {
    response.set("x-amz-delete-marker", "true");
    response.set("x-amz-version-id", version_id_of(call.bucket, *newest));
  }
  return response;
}

// The bytes of part `number` of an object; an object of one piece is its own first part.
std::optional<PartRange> range_of_part(const Object& object, uint64_t number) {
  const std::vector<S3Facts::Part>& parts = object.s3.parts;
  if (parts.empty()) {
    if (number != 1) return std::nullopt;
    return PartRange{.begin = 0, .end = object.body.size_bytes()};
  }
  if (number < 1 || number > parts.size()) return std::nullopt;
  PartRange range;
  for (size_t i = 0; i < number; ++i) {
    range.begin = range.end;
    range.end += parts[i].size_bytes;
  }
  return range;
}

void set_content_range(Response& response, uint64_t begin, uint64_t end, uint64_t size) {
  response.set("Content-Range", "bytes " + std::to_string(begin) + "-" + std::to_string(end - 1) +
                                    "/" + std::to_string(size));
}

Response delete_marker(const Call& call) {
  Object marker{.name = call.route.object};
  marker.s3.is_delete_marker = true;
  marker.generation = call.storage.next_generation();
  marker.created_us = marker.updated_us = marker.generation;
  call.bucket.erase(call.route.object);
  const auto kept = std::make_shared<const Object>(std::move(marker));
  call.bucket.put_noncurrent(kept);
  Response response{.status = 204};
  response.set("x-amz-delete-marker", "true");
  response.set("x-amz-version-id", version_id_of(call.bucket, *kept));
  return response;
}

// Deletes what `route` names, or the version; the answer is 204 also when there was nothing.
Response erase(const Call& call, const std::string& version_id) {
  if (version_id.empty()) {
    if (call.bucket.versioning) return delete_marker(call);
    call.bucket.erase(call.route.object);
    return Response{.status = 204};
  }
  Response response{.status = 204};
  response.set("x-amz-version-id", version_id);
  ObjectPtr found = find_object(call, version_id);
  for (const auto& [key, object] : call.bucket.noncurrent()) {
    const bool is_it = key.first == call.route.object && object->s3.is_delete_marker &&
                       version_id_of(call.bucket, *object) == version_id;
    if (!is_it) continue;
    found = object;
    response.set("x-amz-delete-marker", "true");
    break;
  }
  if (found) call.bucket.erase_version(call.route.object, found->generation);
  return response;
}

}  // namespace

std::string quoted(std::string_view etag) { return "\"" + std::string(etag) + "\""; }

std::string etag_of(const Object& object) {
  if (!object.s3.etag.empty()) return object.s3.etag;
  return hex16(mix(static_cast<uint64_t>(object.generation))) +
         hex16(mix(object.body.size_bytes() ^ static_cast<uint64_t>(object.generation)));
}

std::string version_id_of(const Bucket& bucket, const Object& object) {
  std::string out;
  for (auto seed = static_cast<uint64_t>(object.generation);
       out.size() < bucket.s3.version_id_bytes; ++seed) {
    out += base64_encode(hex16(mix(seed))).substr(0, 20);
  }
  out.resize(bucket.s3.version_id_bytes);
  return out;
}

ObjectPtr find_object(const Call& call, const std::string& version_id) {
  ObjectPtr live = call.bucket.find(call.route.object);
  if (version_id.empty() || (version_id == kNullVersion && !call.bucket.versioning)) return live;
  if (live && version_id_of(call.bucket, *live) == version_id) return live;
  for (const auto& [key, object] : call.bucket.noncurrent()) {
    if (key.first == call.route.object && !object->s3.is_delete_marker &&
        version_id_of(call.bucket, *object) == version_id) {
      return object;
    }
  }
  return nullptr;
}

void set_encryption_headers(Response& response, const Object& object) {
  const std::string base(kEncryption);
  const S3Facts& facts = object.s3;
  if (!facts.customer_key_md5.empty()) {
    response.set(base + "customer-algorithm", "AES256");
    response.set(base + "customer-key-MD5", facts.customer_key_md5);
    return;
  }
  // Since 2023 every object is encrypted, by the service's own key if by no other.
  response.set("x-amz-server-side-encryption",
               facts.encryption.empty() ? "AES256" : facts.encryption);
  if (!facts.kms_key_id.empty()) response.set(base + "aws-kms-key-id", facts.kms_key_id);
}

void set_written_headers(const Call& call, Response& response, const Object& object) {
  set_encryption_headers(response, object);
  if (call.bucket.s3.has_checksums()) set_checksum_headers(response, object);
  if (call.bucket.versioning) {
    response.set("x-amz-version-id", version_id_of(call.bucket, object));
  }
  if (call.bucket.requester_pays) response.set("x-amz-request-charged", "requester");
}

std::optional<Response> read_draft(const Call& call, Object& draft) {
  const Request& request = call.request;
  draft.name = call.route.object;
  draft.content_type = request.header("content-type");
  draft.content_disposition = request.header("content-disposition");
  draft.content_language = request.header("content-language");
  draft.cache_control = request.header("cache-control");
  draft.s3.expires = request.header("expires");
  for (const std::string_view coding : split(request.header("content-encoding"), ',')) {
    if (trim(coding).empty() || trim(coding) == "aws-chunked") continue;
    if (!draft.content_encoding.empty()) draft.content_encoding += ",";
    draft.content_encoding += trim(coding);
  }
  if (const std::string_view kind = request.header("x-amz-storage-class"); !kind.empty()) {
    constexpr auto kClasses = std::to_array<std::string_view>(
        {"STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING",
         "GLACIER", "DEEP_ARCHIVE", "GLACIER_IR"});
    if (std::ranges::find(kClasses, kind) == kClasses.end()) {
      return error(call.route, 400, "InvalidStorageClass",
                   "The storage class you specified is not valid");
    }
    draft.storage_class = kind;
  }
  draft.metadata.clear();
  size_t metadata_bytes = 0;
  for (const auto& [name, value] : request.headers) {
    const std::string small = lower(name);
    if (!small.starts_with(kMeta)) continue;
    draft.metadata.emplace_back(small.substr(kMeta.size()), value);
    metadata_bytes += small.size() - kMeta.size() + value.size();
  }
  if (metadata_bytes > kMaxMetadataBytes) {
    return error(call.route, 400, "MetadataTooLarge",
                 "Your metadata headers exceed the maximum allowed metadata size");
  }
  if (draft.name.size() > 1024) {
    return error(call.route, 400, "KeyTooLongError", "Your key is too long");
  }
  return read_encryption(call, draft.s3);
}

Response get_object(const Call& call) {
  const Request& request = call.request;
  const std::string version_id = request.parameter("versionId");
  const ObjectPtr object = find_object(call, version_id);
  if (!object) return missing(call, version_id);
  if (std::optional<Response> failed = failed_read_condition(call, *object)) return *failed;
  if (std::optional<Response> failed = failed_customer_key(call, *object, kEncryption)) {
    return *failed;
  }
  if (is_archived(*object) && request.method == "GET") {
    return error(call.route, 403, "InvalidObjectState",
                 "The operation is not valid for the object's storage class",
                 element("StorageClass", object->storage_class));
  }
  Response response;
  set_object_headers(call, response, *object);
  const uint64_t size = object->body.size_bytes();
  response.body = object->body;
  bool is_whole = true;
  const bool asks_for_sum = call.bucket.s3.has_checksums() &&
                            equal_ignoring_case(request.header("x-amz-checksum-mode"), "enabled");
  if (request.has_parameter("partNumber")) {
    const uint64_t number = parse_u64(request.parameter("partNumber")).value_or(0);
    const std::optional<PartRange> part = range_of_part(*object, number);
    if (!part) {
      return error(call.route, 416, "InvalidPartNumber",
                   "The requested partnumber is not satisfiable");
    }
    response.status = 206;
    response.body = object->body.slice(part->begin, part->end);
    if (part->end > part->begin) set_content_range(response, part->begin, part->end, size);
    if (const std::vector<S3Facts::Part>& parts = object->s3.parts; !parts.empty()) {
      response.set("x-amz-mp-parts-count", std::to_string(parts.size()));
      is_whole = false;
      if (asks_for_sum && object->s3.tells_parts) {
        const auto algorithm = algorithm_from(object->s3.checksum_algorithm);
        if (algorithm) response.set(header_name(*algorithm), parts[number - 1].checksum);
      }
    }
  } else if (const Range range = parse_range(request.header("range"), size);
             range.kind == Range::Kind::kUnsatisfiable) {
    Response refused = error(
        call.route, 416, "InvalidRange", usual_message(416, true),
        element("RangeRequested", request.header("range")) + element("ActualObjectSize", size));
    refused.set("Content-Range", "bytes */" + std::to_string(size));
    return refused;
  } else if (range.kind == Range::Kind::kSatisfiable) {
    response.status = 206;
    response.body = object->body.slice(range.begin, range.end);
    set_content_range(response, range.begin, range.end, size);
    is_whole = false;
  }
  if (call.bucket.s3.has_stray_ranges && response.status == 200) {
    set_content_range(response, 0, std::max<uint64_t>(size, 1), size);
  }
  // Only of the whole: the sum of a range is not what the service has.
  if (is_whole && asks_for_sum) set_checksum_headers(response, *object);
  return response;
}

Response get_attributes(const Call& call) {
  const std::string version_id = call.request.parameter("versionId");
  const ObjectPtr object = find_object(call, version_id);
  if (!object) return missing(call, version_id);
  std::string wanted;
  for (const auto& [name, value] : call.request.headers) {
    if (equal_ignoring_case(name, "x-amz-object-attributes")) wanted += value + ",";
  }
  const S3Facts facts = facts_of(*object);
  const bool with_checksums = call.bucket.s3.has_checksums();
  std::string out;
  if (wanted.contains("ETag")) out += element("ETag", etag_of(*object));
  if (wanted.contains("Checksum") && with_checksums && !facts.checksum.empty()) {
    out += wrapped("Checksum", checksum_elements(*object));
  }
  if (wanted.contains("ObjectParts") && !facts.parts.empty()) {
    std::string parts;
    // Without a checksum that was asked for, only their number is told.
    const std::optional<Algorithm> algorithm = algorithm_from(facts.checksum_algorithm);
    for (size_t i = 0; facts.tells_parts && i < facts.parts.size(); ++i) {
      const S3Facts::Part& part = facts.parts[i];
      std::string one = element("PartNumber", i + 1) + element("Size", part.size_bytes);
      if (algorithm && with_checksums) {
        one += element(element_name(*algorithm), part.checksum);
      }
      parts += wrapped("Part", one);
    }
    out += wrapped("ObjectParts", element("PartsCount", facts.parts.size()) +
                                      element("IsTruncated", "false") + parts);
  }
  if (wanted.contains("StorageClass")) out += element("StorageClass", object->storage_class);
  if (wanted.contains("ObjectSize")) out += element("ObjectSize", object->body.size_bytes());
  Response response = document("GetObjectAttributesResponse", out);
  response.set("Last-Modified", http_date(object->updated_us));
  if (call.bucket.versioning) {
    response.set("x-amz-version-id", version_id_of(call.bucket, *object));
  }
  return response;
}

Response put_object(const Call& call) {
  Object draft;
  if (std::optional<Response> wrong = read_draft(call, draft)) return *wrong;
  const Given given =
      call.bucket.s3.has_checksums() ? given_checksum(call.request, call.route) : Given{};
  if (given.wrong) return *given.wrong;
  std::string sum;
  if (std::optional<Response> wrong =
          check_body(call.request, call.route, given, call.request.body, sum)) {
    return *wrong;
  }
  const ObjectPtr current = call.bucket.find(call.route.object);
  if (std::optional<Response> failed = failed_write_condition(call, current.get())) return *failed;
  draft.body = Body(std::move(call.request.body));
  if (given.algorithm) {
    draft.s3.checksum_algorithm = algorithm_name(*given.algorithm);
    draft.s3.checksum = base64_encode(sum);
  } else if (call.bucket.s3.has_checksums()) {
    draft.s3.checksum_algorithm = call.bucket.s3.default_checksum;
    set_full_checksum(draft.s3, draft.body);
  }
  set_etag(call.storage, draft);
  const ObjectPtr object = call.storage.commit(call.bucket, std::move(draft), /*with_md5=*/false);
  Response response;
  response.set("ETag", quoted(etag_of(*object)));
  set_written_headers(call, response, *object);
  return response;
}

CopySource find_copy_source(const Call& call) {
  const Request& request = call.request;
  std::string_view text = request.header("x-amz-copy-source");
  const size_t question = text.find("?versionId=");
  std::string version_id;
  if (question != std::string_view::npos) {
    version_id = percent_decode(text.substr(question + 11), false);
    text = text.substr(0, question);
  }
  std::string path = percent_decode(text, false);
  if (path.starts_with('/')) path.erase(0, 1);
  const size_t slash = path.find('/');
  if (slash == std::string::npos) {
    return {.failed = invalid_argument(call.route, "x-amz-copy-source", text,
                                       "Invalid copy source object key")};
  }
  const Route source_route{.bucket = path.substr(0, slash), .object = path.substr(slash + 1)};
  Bucket* const bucket = call.storage.find(source_route.bucket);
  if (!bucket) return {.failed = no_such_bucket(source_route)};
  const Call source_call{.world = call.world,
                         .storage = call.storage,
                         .bucket = *bucket,
                         .request = call.request,
                         .route = source_route,
                         .base_url = call.base_url};
  CopySource source{.object = find_object(source_call, version_id)};
  if (!source.object) return {.failed = missing(source_call, version_id)};
  source.failed =
      failed_customer_key(call, *source.object, "x-amz-copy-source-server-side-encryption-");
  const std::string_view match = request.header("x-amz-copy-source-if-match");
  const std::string_view none_match = request.header("x-amz-copy-source-if-none-match");
  const bool fails = (!match.empty() && !etag_matches(match, *source.object)) ||
                     (!none_match.empty() && etag_matches(none_match, *source.object));
  if (fails) {
    source.failed = error(call.route, 412, "PreconditionFailed", usual_message(412, true),
                          element("Condition", match.empty() ? "x-amz-copy-source-If-None-Match"
                                                             : "x-amz-copy-source-If-Match"));
  }
  return source;
}

Response copy_object(const Call& call) {
  const CopySource source = find_copy_source(call);
  if (source.failed) return *source.failed;
  Object asked;
  if (std::optional<Response> wrong = read_draft(call, asked)) return *wrong;
  const bool replaces =
      equal_ignoring_case(call.request.header("x-amz-metadata-directive"), "replace");
  const ObjectPtr current = call.bucket.find(call.route.object);
  const bool onto_itself = current && current->generation == source.object->generation;
  if (onto_itself && !replaces && call.request.header("x-amz-storage-class").empty() &&
      call.request.header("x-amz-server-side-encryption").empty()) {
    return error(call.route, 400, "InvalidRequest",
                 "This copy request is illegal because it is trying to copy an object to itself "
                 "without changing the object's metadata, storage class, website redirect "
                 "location or encryption attributes.");
  }
  if (std::optional<Response> failed = failed_write_condition(call, current.get())) return *failed;
  Object draft = replaces ? asked : *source.object;
  draft.name = call.route.object;
  draft.storage_class = asked.storage_class;
  draft.body = source.object->body;
  draft.s3 = asked.s3;
  // The copy is one piece, whatever the source was made of.
  const std::string_view named = call.request.header("x-amz-checksum-algorithm");
  draft.s3.checksum_algorithm = facts_of(*source.object).checksum_algorithm;
  draft.is_made = false;
  if (!named.empty()) {
    const std::optional<Algorithm> algorithm = algorithm_from(named);
    if (!algorithm) {
      return error(call.route, 400, "InvalidRequest",
                   "Checksum algorithm provided is unsupported.");
    }
    draft.s3.checksum_algorithm = algorithm_name(*algorithm);
  }
  if (!call.bucket.s3.has_copy_sums) draft.s3.checksum_algorithm.clear();
  set_full_checksum(draft.s3, draft.body);
  set_etag(call.storage, draft);
  const ObjectPtr object = call.storage.commit(call.bucket, std::move(draft), /*with_md5=*/false);
  Response response = document(
      "CopyObjectResult", element("LastModified", iso_time(object->updated_us)) +
                              element("ETag", quoted(etag_of(*object))) +
                              (call.bucket.s3.has_checksums() ? checksum_elements(*object) : ""));
  set_written_headers(call, response, *object);
  if (const std::optional<Algorithm> algorithm = algorithm_from(object->s3.checksum_algorithm)) {
    response.remove(header_name(*algorithm));  // It stands in the body.
    response.remove("x-amz-checksum-type");
  }
  return response;
}

Response delete_object(const Call& call) {
  const std::string version_id = call.request.parameter("versionId");
  const ObjectPtr current = find_object(call, version_id);
  if (std::optional<Response> failed = failed_delete_condition(call, current.get())) return *failed;
  return erase(call, version_id);
}

Response delete_objects(const Call& call) {
  constexpr size_t kMaxNames = 1000;
  const Request& request = call.request;
  const Given given = given_checksum(request, call.route);
  if (given.wrong) return *given.wrong;
  if (!given.algorithm && request.header("content-md5").empty()) {
    return error(call.route, 400, "InvalidRequest",
                 "Missing required header for this request: Content-MD5 OR x-amz-checksum-*");
  }
  std::string sum;
  if (std::optional<Response> wrong = check_body(request, call.route, given, request.body, sum)) {
    return *wrong;
  }
  const std::vector<std::string_view> objects = each(request.body, "Object");
  if (objects.empty() || objects.size() > kMaxNames) {
    return error(call.route, 400, "MalformedXML",
                 "The XML you provided was not well-formed or did not validate against our "
                 "published schema");
  }
  const bool quiet = inner(request.body, "Quiet") == "true";
  std::string out;
  for (const std::string_view xml : objects) {
    const std::string name = inner(xml, "Key");
    const std::string version_id = inner(xml, "VersionId");
    const std::string etag = inner(xml, "ETag");
    const Route route{.kind = call.route.kind, .bucket = call.route.bucket, .object = name};
    const Call one{.world = call.world,
                   .storage = call.storage,
                   .bucket = call.bucket,
                   .request = call.request,
                   .route = route,
                   .base_url = call.base_url};
    if (!etag.empty() && call.bucket.s3.conditional_deletes != S3Bucket::Support::kIgnored) {
      const ObjectPtr current = find_object(one, version_id);
      const bool refuses = call.bucket.s3.conditional_deletes != S3Bucket::Support::kYes;
      const std::string_view code = refuses                         ? "NotImplemented"
                                    : !current                      ? "NoSuchKey"
                                    : !etag_matches(etag, *current) ? "PreconditionFailed"
                                                                    : "";
      if (!code.empty()) {
        const int status = refuses ? 501 : current ? 412 : 404;
        out += wrapped("Error", element("Key", name) + element("Code", code) +
                                    element("Message", usual_message(status, true)));
        continue;
      }
    }
    const Response done = erase(one, version_id);
    if (quiet) continue;
    std::string one_out = element("Key", name);
    if (!version_id.empty()) one_out += element("VersionId", version_id);
    if (has_header(done.headers, "x-amz-delete-marker")) {
      one_out += element("DeleteMarker", "true") +
                 element("DeleteMarkerVersionId", find_header(done.headers, "x-amz-version-id"));
    }
    out += wrapped("Deleted", one_out);
  }
  return document("DeleteResult", out);
}

}  // namespace faultserver::s3
