#include "gcs/gcs.h"

#include <algorithm>
#include <array>
#include <span>

#include "digest.h"
#include "text.h"

namespace faultserver {

namespace {

bool is_read(const Request& request) { return request.method == "GET" || request.method == "HEAD"; }

std::string decoded(std::string_view text) { return percent_decode(text, /*plus_is_space=*/false); }

Kind upload_kind(const Request& request) {
  if (request.has_parameter("upload_id")) {
    if (request.method == "DELETE") return Kind::kResumableCancel;
    if (request.method != "PUT" && request.method != "POST") return Kind::kOther;
    const bool asks = request.header("content-range").starts_with("bytes */");
    return asks ? Kind::kResumableQuery : Kind::kResumablePut;
  }
  if (request.method != "POST") return Kind::kOther;
  return request.parameter("uploadType") == "resumable" ? Kind::kResumableStart : Kind::kUpload;
}

// `parts` are the segments after "/storage/v1/b".
Route route_json(const Request& request, std::span<const std::string_view> parts, bool download) {
  Route out;
  const bool reads = is_read(request);
  const std::string& method = request.method;
  if (parts.empty() || (parts.size() == 1 && parts[0].empty())) {
    out.kind = reads ? Kind::kBucketList : method == "POST" ? Kind::kBucketCreate : Kind::kOther;
    return out;
  }
  out.bucket = decoded(parts[0]);
  if (parts.size() == 1) {
    out.kind = reads ? Kind::kBucketGet : method == "DELETE" ? Kind::kBucketDelete : Kind::kOther;
  } else if (parts.size() == 3 && parts[1] == "iam" && parts[2] == "testPermissions") {
    out.kind = Kind::kIam;
  } else if (parts[1] != "o") {
    out.kind = Kind::kOther;
  } else if (parts.size() == 2 || (parts.size() == 3 && parts[2].empty())) {
    out.kind = reads ? Kind::kList : Kind::kOther;
  } else {
    out.object = decoded(parts[2]);
    if (parts.size() == 3) {
      const bool media = download || request.parameter("alt") == "media";
      out.kind = reads                ? (media ? Kind::kMedia : Kind::kGet)
                 : method == "DELETE" ? Kind::kDelete
                 : method == "PATCH"  ? Kind::kPatch
                                      : Kind::kOther;
    } else if (parts.size() == 4 && parts[3] == "compose" && method == "POST") {
      out.kind = Kind::kCompose;
    } else if (parts.size() == 8 && parts[4] == "b" && parts[6] == "o" && method == "POST") {
      out.kind = parts[3] == "rewriteTo" ? Kind::kRewrite
                 : parts[3] == "copyTo"  ? Kind::kCopy
                                         : Kind::kOther;
      out.destination_bucket = decoded(parts[5]);
      out.destination_object = decoded(parts[7]);
    }
  }
  return out;
}

Route route_xml(const Request& request) {
  Route out{.xml = true};
  const std::string_view path = std::string_view(request.path).substr(1);
  const size_t slash = path.find('/');
  out.bucket = decoded(path.substr(0, slash));
  if (slash != std::string_view::npos) out.object = decoded(path.substr(slash + 1));
  const std::string& method = request.method;
  if (out.bucket.empty()) return out;
  if (out.object.empty()) {
    if (method == "GET" && request.has_parameter("uploads")) out.kind = Kind::kMultipartList;
    return out;
  }
  if (request.has_parameter("uploads")) {
    if (method == "POST") out.kind = Kind::kMultipartStart;
  } else if (request.has_parameter("uploadId")) {
    if (method == "PUT") out.kind = Kind::kMultipartPart;
    if (method == "POST") out.kind = Kind::kMultipartComplete;
    if (method == "DELETE") out.kind = Kind::kMultipartAbort;
    if (method == "GET") out.kind = Kind::kMultipartList;
  } else if (is_read(request)) {
    out.kind = Kind::kMedia;
  } else if (method == "PUT") {
    out.kind = Kind::kUpload;
  } else if (method == "DELETE") {
    out.kind = Kind::kDelete;
  }
  return out;
}

}  // namespace

Route route(const Request& request) {
  std::string_view path = request.path;
  const auto take = [&path](std::string_view prefix) {
    if (!path.starts_with(prefix)) return false;
    path.remove_prefix(prefix.size());
    return true;
  };
  if (take("/upload/storage/v1/b/") || take("/resumable/upload/storage/v1/b/")) {
    Route out{.kind = upload_kind(request)};
    const std::vector<std::string_view> parts = split(path, '/');
    if (parts.size() < 2 || parts[1] != "o") return {};
    out.bucket = decoded(parts[0]);
    out.object = request.parameter("name");
    return out;
  }
  if (take("/download/storage/v1/b/")) return route_json(request, split(path, '/'), true);
  if (take("/storage/v1/b/")) return route_json(request, split(path, '/'), false);
  if (path == "/storage/v1/b") return route_json(request, {}, false);
  if (path.starts_with("/storage/v1/") || !path.starts_with('/')) return {};
  return route_xml(request);
}

Response error_response(const Route& route, int status, std::string_view reason,
                        std::string_view message) {
  Response response{.status = status};
  if (status == 304) return response;
  if (route.xml) {
    const std::string_view code = status == 404 && route.object.empty() ? "NoSuchBucket"
                                  : status == 404                       ? "NoSuchKey"
                                  : status == 412                       ? "PreconditionFailed"
                                  : status == 401                       ? "AuthenticationRequired"
                                  : status == 416                       ? "InvalidRange"
                                  : status == 429                       ? "SlowDown"
                                                                        : reason;
    std::string body = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>";
    body += xml_escape(code) + "</Code><Message>" + xml_escape(message) + "</Message></Error>";
    response.headers = {{"Content-Type", "application/xml; charset=UTF-8"}};
    response.body = Body(std::move(body));
    return response;
  }
  if (route.kind == Kind::kMedia && status != 401 && status != 429) {
    // Downloads answer errors with the bare sentence.
    response.headers = {{"Content-Type", "text/html; charset=UTF-8"}};
    response.body = Body(std::string(message));
    return response;
  }
  Json::Object detail = {{"message", message}, {"domain", "global"}, {"reason", reason}};
  if (status == 412) {
    detail.emplace_back("locationType", "header");
    detail.emplace_back("location", "If-Match");
  } else if (status == 401) {
    detail.emplace_back("locationType", "header");
    detail.emplace_back("location", "Authorization");
  }
  const Json body(
      Json::Object{{"error", Json::Object{{"code", status},
                                          {"message", message},
                                          {"errors", Json::Array{Json(std::move(detail))}}}}});
  response = json_response(status, body.dump());
  if (status == 401)
    response.set("WWW-Authenticate", "Bearer realm=\"https://accounts.google.com/\"");
  return response;
}

Response precondition_response(const Route& route, int status) {
  return error_response(route, status, "conditionNotMet",
                        "At least one of the pre-conditions you specified did not hold.");
}

std::string etag_of(const Object& object) {
  std::string bytes;
  const auto put = [&bytes](char tag, int64_t number) {
    bytes += tag;
    for (auto left = static_cast<uint64_t>(number);; left >>= 7) {
      if (left < 128) {
        bytes += static_cast<char>(left);
        return;
      }
      bytes += static_cast<char>((left & 127) | 128);
    }
  };
  put('\x08', object.generation);
  put('\x10', object.metageneration);
  return base64_encode(bytes);
}

void append_object_json(std::string& out, const std::string& bucket, const Object& object,
                        const std::string& base_url, const Fields* fields) {
  bool first = true;
  out += '{';
  const auto wants = [fields](std::string_view name) { return !fields || fields->contains(name); };
  const auto put = [&](std::string_view name, std::string_view value) {
    if (!wants(name)) return;
    if (!first) out += ',';
    first = false;
    out += '"';
    out += name;
    out += "\":";
    append_json_string(out, value);
  };
  const auto put_if = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) put(name, value);
  };
  const std::string generation = std::to_string(object.generation);
  put("kind", "storage#object");
  if (wants("id")) put("id", bucket + "/" + object.name + "/" + generation);
  if (wants("selfLink") || wants("mediaLink")) {
    const std::string path = "/storage/v1/b/" + bucket + "/o/" + percent_encode(object.name);
    put("selfLink", base_url + path);
    put("mediaLink", base_url + "/download" + path + "?generation=" + generation + "&alt=media");
  }
  put("name", object.name);
  put("bucket", bucket);
  put("generation", generation);
  put("metageneration", std::to_string(object.metageneration));
  put_if("contentType", object.content_type);
  put("storageClass", object.storage_class);
  put("size", std::to_string(object.body.size_bytes()));
  if (!object.md5.empty() && wants("md5Hash")) put("md5Hash", base64_encode(object.md5));
  if (wants("crc32c")) put("crc32c", crc32c_text(object.crc));
  if (wants("etag")) put("etag", etag_of(object));
  if (wants("timeCreated")) put("timeCreated", iso_time(object.created_us));
  if (wants("updated")) put("updated", iso_time(object.updated_us));
  if (wants("timeStorageClassUpdated")) {
    put("timeStorageClassUpdated", iso_time(object.created_us));
  }
  put_if("contentEncoding", object.content_encoding);
  put_if("contentDisposition", object.content_disposition);
  put_if("contentLanguage", object.content_language);
  put_if("cacheControl", object.cache_control);
  put_if("customTime", object.custom_time);
  if (object.component_count > 0 && wants("componentCount")) {
    out += first ? "" : ",";
    first = false;
    out += "\"componentCount\":" + std::to_string(object.component_count);
  }
  if (!object.metadata.empty() && wants("metadata")) {
    Json::Object members;
    for (const auto& [name, value] : object.metadata) members.emplace_back(name, value);
    out += first ? "" : ",";
    out += "\"metadata\":";
    Json(std::move(members)).append_to(out);
  }
  out += '}';
}

void set_object_headers(Response& response, const Object& object) {
  std::string hash = "crc32c=" + crc32c_text(object.crc);
  if (!object.md5.empty()) hash += ",md5=" + base64_encode(object.md5);
  const auto add = [&response](std::string_view name, std::string value) {
    response.headers.emplace_back(name, std::move(value));
  };
  add("x-goog-hash", std::move(hash));
  add("x-goog-generation", std::to_string(object.generation));
  add("x-goog-metageneration", std::to_string(object.metageneration));
  add("x-goog-stored-content-encoding",
      object.content_encoding.empty() ? "identity" : object.content_encoding);
  add("x-goog-stored-content-length", std::to_string(object.body.size_bytes()));
  add("x-goog-storage-class", object.storage_class);
  if (object.component_count > 0) {
    add("x-goog-component-count", std::to_string(object.component_count));
  }
}

void ExpectedSums::read_json(const Json& json) {
  if (json["crc32c"].is_string()) {
    const std::optional<std::string> bytes = base64_decode(json["crc32c"].text());
    if (!bytes || bytes->size() != 4) {
      malformed = true;
    } else {
      uint32_t value = 0;
      for (const char c : *bytes) value = (value << 8) | static_cast<uint8_t>(c);
      crc = value;
    }
  }
  if (json["md5Hash"].is_string()) {
    md5 = base64_decode(json["md5Hash"].text()).value_or("");
    malformed = malformed || md5.size() != 16;
  }
}

void ExpectedSums::read_headers(const Headers& headers) {
  for (const auto& [name, value] : headers) {
    if (equal_ignoring_case(name, "content-md5")) {
      read_json(Json::Object{{"md5Hash", value}});
    }
    if (!equal_ignoring_case(name, "x-goog-hash")) continue;
    for (std::string_view piece : split(value, ',')) {
      piece = trim(piece);
      if (piece.starts_with("crc32c=")) read_json(Json::Object{{"crc32c", piece.substr(7)}});
      if (piece.starts_with("md5=")) read_json(Json::Object{{"md5Hash", piece.substr(4)}});
    }
  }
}

std::string mismatch(const ExpectedSums& expected, std::string_view bytes, uint32_t& crc) {
  crc = crc32c(bytes);
  if (expected.malformed) return "Invalid value for a hash: not base64 of the right length.";
  if (expected.crc && *expected.crc != crc) {
    return "Provided CRC32C \"" + crc32c_text(*expected.crc) +
           "\" doesn't match calculated CRC32C \"" + crc32c_text(crc) + "\".";
  }
  if (!expected.md5.empty()) {
    const std::string sum = md5(bytes);
    if (sum != expected.md5) {
      return "Provided MD5 hash \"" + base64_encode(expected.md5) +
             "\" doesn't match calculated MD5 hash \"" + base64_encode(sum) + "\".";
    }
  }
  return {};
}

namespace {

constexpr int64_t kMaxComposeSources = 32;

std::optional<int64_t> generation_parameter(const Request& request, std::string_view name) {
  return parse_i64(request.parameter(name));
}

std::string no_such_object(const Route& route) {
  if (route.xml) return "The specified key does not exist.";
  return "No such object: " + route.bucket + "/" + route.object;
}

Response object_response(const std::string& bucket, const Object& object,
                         const std::string& base_url, const Request& request) {
  Fields fields;
  const std::string asked = request.parameter("fields");
  if (!asked.empty() && asked != "*") {
    for (const std::string_view field : split(asked, ',')) fields.emplace(field);
  }
  std::string body;
  append_object_json(body, bucket, object, base_url, fields.empty() ? nullptr : &fields);
  Response response = json_response(200, std::move(body));
  response.set("ETag", etag_of(object));
  return response;
}

Response media(const Object& object, const Request& request, const Route& route) {
  Response response;
  set_object_headers(response, object);
  const auto add = [&response](std::string_view name, const std::string& value) {
    if (!value.empty()) response.headers.emplace_back(name, value);
  };
  add("ETag", route.xml && !object.md5.empty() ? "\"" + hex(object.md5) + "\"" : etag_of(object));
  add("Content-Type",
      object.content_type.empty() ? "application/octet-stream" : object.content_type);
  add("Last-Modified", http_date(object.updated_us));
  add("Accept-Ranges", "bytes");
  add("Content-Disposition", object.content_disposition);
  add("Content-Language", object.content_language);
  add("Cache-Control", object.cache_control);
  for (const auto& [name, value] : object.metadata) {
    if (route.xml) add("x-goog-meta-" + name, value);
  }
  if (object.content_encoding == "gzip" && !request.header("accept-encoding").contains("gzip") &&
      !object.cache_control.contains("no-transform")) {
    // https://cloud.google.com/storage/docs/transcoding: the whole is served, a range is ignored.
    response.body = Body(gunzip(object.body.copy()).value_or(""));
    response.chunked = true;
    response.remove("Accept-Ranges");
    response.set("Warning", "214 UploadServer gunzipped");
    response.set("Vary", "Accept-Encoding");
    return response;
  }
  add("Content-Encoding", object.content_encoding);
  const uint64_t size = object.body.size_bytes();
  const Range range = parse_range(request.header("range"), size);
  if (range.kind == Range::Kind::kUnsatisfiable) {
    Response refused =
        error_response(route, 416, "requestedRangeNotSatisfiable", "Request range not satisfiable");
    refused.set("Content-Range", "bytes */" + std::to_string(size));
    return refused;
  }
  response.body = object.body;
  if (range.kind == Range::Kind::kSatisfiable) {
    response.status = 206;
    response.body = object.body.slice(range.begin, range.end);
    response.set("Content-Range", "bytes " + std::to_string(range.begin) + "-" +
                                      std::to_string(range.end - 1) + "/" + std::to_string(size));
  }
  return response;
}

Response read_object(Bucket& bucket, const Request& request, const Route& route,
                     const std::string& base_url) {
  const ObjectPtr object = bucket.find(route.object, generation_parameter(request, "generation"));
  if (!object) return error_response(route, 404, "notFound", no_such_object(route));
  const int failed = Preconditions::from(request).check(object.get(), /*is_read=*/true);
  if (failed != 0) return precondition_response(route, failed);
  if (route.kind == Kind::kMedia) return media(*object, request, route);
  return object_response(bucket.name, *object, base_url, request);
}

Response delete_object(Bucket& bucket, const Request& request, const Route& route) {
  const ObjectPtr object = bucket.find(route.object, generation_parameter(request, "generation"));
  if (!object) return error_response(route, 404, "notFound", no_such_object(route));
  const int failed = Preconditions::from(request).check(object.get(), /*is_read=*/false);
  if (failed != 0) return precondition_response(route, failed);
  bucket.erase(route.object);
  return Response{.status = 204};
}

Response patch_object(Bucket& bucket, const Request& request, const Route& route,
                      const std::string& base_url) {
  const ObjectPtr object = bucket.find(route.object, generation_parameter(request, "generation"));
  if (!object) return error_response(route, 404, "notFound", no_such_object(route));
  const int failed = Preconditions::from(request).check(object.get(), /*is_read=*/false);
  if (failed != 0) return precondition_response(route, failed);
  const std::optional<Json> changes = Json::parse(request.body);
  if (!changes) return error_response(route, 400, "parseError", "Parse Error");
  Object changed = *object;
  read_metadata(*changes, changed);
  changed.name = object->name;
  changed.metageneration += 1;
  changed.updated_us = now_us();
  const auto kept = std::make_shared<const Object>(std::move(changed));
  bucket.put(kept);
  return object_response(bucket.name, *kept, base_url, request);
}

Response compose(Storage& storage, Bucket& bucket, const Request& request, const Route& route,
                 const std::string& base_url) {
  const std::optional<Json> body = Json::parse(request.body);
  if (!body) return error_response(route, 400, "parseError", "Parse Error");
  const Json::Array& sources = (*body)["sourceObjects"].array();
  const auto source_count = static_cast<int64_t>(sources.size());
  if (source_count == 0) {
    return error_response(route, 400, "required",
                          "You must provide at least one source component.");
  }
  if (source_count > kMaxComposeSources) {
    return error_response(route, 400, "invalid",
                          "The number of source components provided (" +
                              std::to_string(source_count) + ") exceeds the maximum (32)");
  }
  Object draft{.name = route.object};
  read_metadata((*body)["destination"], draft);
  draft.name = route.object;
  std::vector<Body> parts;
  for (const Json& source : sources) {
    const std::string name = source["name"].text();
    std::optional<int64_t> generation;
    if (source.has("generation")) generation = source["generation"].integer();
    const ObjectPtr object = bucket.find(name, generation);
    if (!object) {
      return error_response(route, 404, "notFound", "Object " + name + " not found");
    }
    const Json& condition = source["objectPreconditions"]["ifGenerationMatch"];
    if (!condition.is_null() && condition.integer() != object->generation) {
      return precondition_response(route, 412);
    }
    parts.push_back(object->body);
    draft.crc = crc32c_joined(draft.crc, object->crc, object->body.size_bytes());
    draft.component_count += std::max<int64_t>(1, object->component_count);
    if (draft.content_type.empty()) draft.content_type = object->content_type;
  }
  const int failed =
      Preconditions::from(request).check(bucket.find(route.object).get(), /*is_read=*/false);
  if (failed != 0) return precondition_response(route, failed);
  draft.body = Body::joined(std::move(parts));
  const ObjectPtr object = storage.commit(bucket, std::move(draft), /*with_md5=*/false);
  for (const Json& source : sources) {
    const std::string name = source["name"].text();
    if ((*body)["deleteSourceObjects"].boolean() && name != route.object) bucket.erase(name);
  }
  return object_response(bucket.name, *object, base_url, request);
}

Response copy_object(Storage& storage, Bucket& bucket, const Request& request, const Route& route,
                     const std::string& base_url) {
  Bucket* const target = storage.find(route.destination_bucket);
  const ObjectPtr source =
      bucket.find(route.object, generation_parameter(request, "sourceGeneration"));
  if (!target || !source) return error_response(route, 404, "notFound", no_such_object(route));
  const std::optional<int64_t> source_match =
      generation_parameter(request, "ifSourceGenerationMatch");
  if (source_match && *source_match != source->generation) return precondition_response(route, 412);
  const int failed = Preconditions::from(request).check(
      target->find(route.destination_object).get(), /*is_read=*/false);
  if (failed != 0) return precondition_response(route, failed);
  const uint64_t size = source->body.size_bytes();
  const std::string size_text = std::to_string(size);
  if (route.kind == Kind::kRewrite) {
    // The token carries how far the copy has come; nothing is written before the last call.
    const uint64_t per_call =
        parse_u64(request.parameter("maxBytesRewrittenPerCall")).value_or(size);
    const uint64_t before =
        parse_u64(base64_decode(request.parameter("rewriteToken")).value_or("")).value_or(0);
    if (per_call > 0 && before + per_call < size) {
      const std::string done = std::to_string(before + per_call);
      return json_response(200, Json(Json::Object{{"kind", "storage#rewriteResponse"},
                                                  {"totalBytesRewritten", done},
                                                  {"objectSize", size_text},
                                                  {"done", false},
                                                  {"rewriteToken", base64_encode(done)}})
                                    .dump());
    }
  }
  Object draft = *source;
  if (const std::optional<Json> metadata = Json::parse(request.body)) {
    read_metadata(*metadata, draft);
  }
  draft.name = route.destination_object;
  const ObjectPtr object = storage.commit(*target, std::move(draft), /*with_md5=*/false);
  if (route.kind == Kind::kCopy) return object_response(target->name, *object, base_url, request);
  std::string body = "{\"kind\":\"storage#rewriteResponse\",\"totalBytesRewritten\":\"" +
                     size_text + "\",\"objectSize\":\"" + size_text +
                     "\",\"done\":true,\"resource\":";
  append_object_json(body, target->name, *object, base_url);
  return json_response(200, body + "}");
}

Json bucket_json(const Bucket& bucket, const std::string& base_url) {
  Json::Object out = {{"kind", "storage#bucket"},
                      {"id", bucket.name},
                      {"selfLink", base_url + "/storage/v1/b/" + bucket.name},
                      {"name", bucket.name},
                      {"projectNumber", "1"},
                      {"metageneration", "1"},
                      {"location", "US"},
                      {"locationType", "multi-region"},
                      {"storageClass", "STANDARD"},
                      {"etag", "CAE="},
                      {"timeCreated", iso_time(bucket.created_us)},
                      {"updated", iso_time(bucket.created_us)}};
  if (bucket.versioning) out.emplace_back("versioning", Json::Object{{"enabled", true}});
  if (bucket.requester_pays) out.emplace_back("billing", Json::Object{{"requesterPays", true}});
  return out;
}

Response test_permissions(const Bucket& bucket, const Request& request) {
  Json::Array granted;
  for (const std::string& permission : request.parameters("permissions")) {
    if (!bucket.denied_permissions.contains(permission)) granted.emplace_back(permission);
  }
  Json::Object out = {{"kind", "storage#testIamPermissionsResponse"}};
  if (!granted.empty()) out.emplace_back("permissions", std::move(granted));
  return json_response(200, Json(std::move(out)).dump());
}

Response create_bucket(Storage& storage, const Request& request, const Route& route,
                       const std::string& base_url) {
  const std::optional<Json> body = Json::parse(request.body);
  const std::string name = body ? (*body)["name"].text() : "";
  if (name.empty()) return error_response(route, 400, "required", "Required: name");
  if (storage.find(name)) {
    return error_response(route, 409, "conflict",
                          "Your previous request to create the named bucket succeeded and you "
                          "already own it.");
  }
  Bucket& bucket = storage.create(name);
  bucket.versioning = (*body)["versioning"]["enabled"].boolean();
  bucket.requester_pays = (*body)["billing"]["requesterPays"].boolean();
  return json_response(200, bucket_json(bucket, base_url).dump());
}

Response list_buckets(const Storage& storage, const std::string& base_url) {
  Json::Array items;
  for (const auto& [name, bucket] : storage.buckets()) {
    items.push_back(bucket_json(*bucket, base_url));
  }
  Json::Object out = {{"kind", "storage#buckets"}};
  if (!items.empty()) out.emplace_back("items", std::move(items));
  return json_response(200, Json(std::move(out)).dump());
}

// The precondition of `request` that is no decimal number; empty if there is none.
std::string_view malformed_precondition(const Request& request) {
  constexpr std::array<std::string_view, 5> kParameters = {
      "ifGenerationMatch", "ifGenerationNotMatch", "ifMetagenerationMatch",
      "ifMetagenerationNotMatch", "ifSourceGenerationMatch"};
  constexpr std::array<std::string_view, 4> kHeaders = {
      "x-goog-if-generation-match", "x-goog-if-generation-not-match",
      "x-goog-if-metageneration-match", "x-goog-if-metageneration-not-match"};
  for (const std::string_view name : kParameters) {
    if (request.has_parameter(name) && !parse_i64(request.parameter(name))) return name;
  }
  for (const std::string_view name : kHeaders) {
    const std::string_view value = request.header(name);
    if (!value.empty() && !parse_i64(value)) return name;
  }
  return {};
}

}  // namespace

Response answer(Storage& storage, Request& request, const Route& route, const std::string& base_url,
                bool partial_body) {
  if (route.kind == Kind::kBucketCreate) return create_bucket(storage, request, route, base_url);
  if (route.kind == Kind::kBucketList) return list_buckets(storage, base_url);
  if (route.kind == Kind::kOther) return error_response(route, 404, "notFound", "Not Found");
  Bucket* const bucket = storage.find(route.bucket);
  if (!bucket) {
    return error_response(route, 404, "notFound", "The specified bucket does not exist.");
  }
  if (!bucket->tokens.empty()) {
    const std::string_view given = request.header("authorization");
    if (!given.starts_with("Bearer ") || !bucket->tokens.contains(std::string(given.substr(7)))) {
      return error_response(route, 401, given.empty() ? "required" : "authError",
                            given.empty() ? "Anonymous caller does not have access to the bucket."
                                          : "Invalid Credentials");
    }
  }
  if (bucket->requester_pays && !request.has_parameter("userProject") &&
      request.header("x-goog-user-project").empty()) {
    return error_response(route, 400, "required",
                          "Bucket is requester pays bucket but no user project provided.");
  }
  if (partial_body && route.kind != Kind::kResumablePut) return {};
  if (const std::string_view name = malformed_precondition(request); !name.empty()) {
    return error_response(route, 400, "invalidParameter",
                          "Invalid value for: " + std::string(name) + " is not a valid integer");
  }
  Response response;
  switch (route.kind) {
    case Kind::kList: response = list_objects(*bucket, request, base_url); break;
    case Kind::kGet:
    case Kind::kMedia: response = read_object(*bucket, request, route, base_url); break;
    case Kind::kUpload: response = simple_upload(storage, *bucket, request, route, base_url); break;
    case Kind::kResumableStart:
      response = resumable_start(storage, *bucket, request, route, base_url);
      break;
    case Kind::kResumablePut:
    case Kind::kResumableQuery:
      response = resumable_put(storage, request, route, base_url, partial_body);
      break;
    case Kind::kResumableCancel: response = resumable_cancel(storage, request, route); break;
    case Kind::kMultipartStart:
    case Kind::kMultipartPart:
    case Kind::kMultipartComplete:
    case Kind::kMultipartAbort:
    case Kind::kMultipartList:
      response = xml_multipart(storage, *bucket, request, route, base_url);
      break;
    case Kind::kCompose: response = compose(storage, *bucket, request, route, base_url); break;
    case Kind::kRewrite:
    case Kind::kCopy: response = copy_object(storage, *bucket, request, route, base_url); break;
    case Kind::kDelete: response = delete_object(*bucket, request, route); break;
    case Kind::kPatch: response = patch_object(*bucket, request, route, base_url); break;
    case Kind::kBucketGet:
      response = json_response(200, bucket_json(*bucket, base_url).dump());
      break;
    case Kind::kBucketDelete:
      if (!bucket->empty()) {
        response =
            error_response(route, 409, "conflict", "The bucket you tried to delete is not empty.");
        break;
      }
      storage.erase(route.bucket);
      response.status = 204;
      break;
    case Kind::kIam: response = test_permissions(*bucket, request); break;
    case Kind::kBucketCreate:
    case Kind::kBucketList:
    case Kind::kBucketPatch:
    case Kind::kListVersions:
    case Kind::kMultipartPartCopy:
    case Kind::kDeleteMany:
    case Kind::kSmap:
    case Kind::kHealth:
    case Kind::kMoss:
    case Kind::kRename:
    case Kind::kAppend:
    case Kind::kConnect:
    case Kind::kControl:
    case Kind::kOther: break;
  }
  response.head_only = request.method == "HEAD";
  return response;
}

}  // namespace faultserver
