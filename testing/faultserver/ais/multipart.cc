// Uploads in parts, which only B has.
#include <algorithm>

#include "ais/ais.h"
#include "digest.h"
#include "text.h"

namespace faultserver::ais {
namespace {

using Upload = MultipartUpload;

Upload* find_upload(const Call& call, Bucket& bucket, const std::string& id) {
  const auto found = bucket.multipart_uploads.find(id);
  if (found == bucket.multipart_uploads.end()) return nullptr;
  const Object& draft = found->second.draft;
  const bool is_here = draft.name == call.route.object && draft.ais.node == call.request.node;
  return is_here ? &found->second : nullptr;
}

Response start(const Call& call, Bucket& bucket) {
  const std::string id = hex16(mix(++call.world.ais.last_number)).substr(0, 9);
  Upload& upload = bucket.multipart_uploads[id];
  upload.draft.name = call.route.object;
  upload.draft.ais.node = call.request.node;
  upload.started_us = now_us();
  Response response{.body = Body(id)};
  response.set("Content-Type", "text/plain; charset=utf-8");
  return response;
}

Response no_such_upload(const Call& call, const Bucket& bucket, const std::string& id) {
  return error(call.request, 404, "ErrNotFound",
               "o[" + BucketName::from_key(bucket.name).name + "/" + call.route.object +
                   "(-)]: " + id + " does not exist");
}

Response take_part(const Call& call, Bucket& bucket, const std::string& id) {
  Request& request = call.request;
  Upload* const upload = find_upload(call, bucket, id);
  if (!upload) return no_such_upload(call, bucket, id);
  const int64_t number = parse_i64(request.parameter("partNumber")).value_or(0);
  if (number < 1 || number > 10'000) {
    return error(request, 500, "",
                 "chunk-manifest[" + BucketName::from_key(bucket.name).shown() + "/" +
                     call.route.object + ", id=" + id + "]: invalid chunk number (" +
                     std::to_string(number) + ")");
  }
  // The checksum of a part is not looked at (tried).
  Upload::Part& part = upload->parts[number];
  part.body = Body(std::move(request.body));
  part.updated_us = now_us();
  return {};
}

Response complete(const Call& call, Bucket& bucket, const std::string& id, const Json& wanted) {
  Upload* const upload = find_upload(call, bucket, id);
  if (!upload) return no_such_upload(call, bucket, id);
  if (wanted.array().size() != upload->parts.size()) {
    return error(call.request, 400, "",
                 "partial completion is not allowed: requested " +
                     std::to_string(wanted.array().size()) + " parts, have " +
                     std::to_string(upload->parts.size()));
  }
  std::vector<Body> bodies;
  for (const Json& each : wanted.array()) {
    const int64_t number = each["part-number"].integer();
    const auto part = upload->parts.find(number);
    if (part == upload->parts.end()) {
      return error(call.request, 400, "", "part " + std::to_string(number) + " not found");
    }
    bodies.push_back(part->second.body);
  }
  Object draft = upload->draft;
  Body whole = Body::joined(std::move(bodies));
  // Whatever the bucket's own type is.
  draft.ais.checksum_type = "crc32c";
  draft.ais.checksum = checksum_of("crc32c", whole);
  bucket.multipart_uploads.erase(id);
  store_here(call, bucket, std::move(draft), std::move(whole));
  return {};
}

}  // namespace

Response multipart(const Call& call, Bucket& bucket) {
  const Request& request = call.request;
  const std::string id = request.parameter("uploadId");
  if (request.method == "PUT") return take_part(call, bucket, id);
  const std::optional<Json> message = Json::parse(request.body);
  const std::string action = message ? (*message)["action"].text() : "";
  if (action == "mpt-upload") return start(call, bucket);
  if (action == "mpt-complete") return complete(call, bucket, id, (*message)["value"]);
  if (action != "mpt-abort") return invalid_action(request, action);
  if (!find_upload(call, bucket, id)) {
    return error(request, 404, "wrapError",
                 "failed to load partial chunk-manifest[" +
                     BucketName::from_key(bucket.name).shown() + "/" + call.route.object +
                     ", id=" + id + "]: no such file or directory");
  }
  bucket.multipart_uploads.erase(id);
  return {};
}

}  // namespace faultserver::ais
