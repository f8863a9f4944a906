// S3 as a dialect: which request asks for what, who may ask, and where.
#include "dialect.h"

#include <algorithm>
#include <array>

#include "digest.h"
#include "json.h"
#include "s3/checksum.h"
#include "s3/s3.h"
#include "s3/sigv4.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver {
namespace {

using namespace s3;  // NOLINT(google-build-using-namespace): this file is the door of the folder.

bool has_any_parameter(const Request& request, auto names) {
  return std::ranges::any_of(names,
                             [&](std::string_view name) { return request.has_parameter(name); });
}

Kind bucket_kind(const Request& request) {
  constexpr auto kOthers = std::to_array<std::string_view>({"accelerate",
                                                            "acl",
                                                            "analytics",
                                                            "cors",
                                                            "encryption",
                                                            "intelligent-tiering",
                                                            "inventory",
                                                            "lifecycle",
                                                            "logging",
                                                            "metrics",
                                                            "notification",
                                                            "object-lock",
                                                            "ownershipControls",
                                                            "policy",
                                                            "policyStatus",
                                                            "publicAccessBlock",
                                                            "replication",
                                                            "requestPayment",
                                                            "session",
                                                            "tagging",
                                                            "website"});
  const std::string& method = request.method;
  if (has_any_parameter(request, kOthers)) return Kind::kOther;
  if (method == "HEAD") return Kind::kBucketGet;
  if (method == "GET") {
    if (request.has_parameter("uploads")) return Kind::kMultipartList;
    if (request.has_parameter("versions")) return Kind::kListVersions;
    if (request.has_parameter("location") || request.has_parameter("versioning")) {
      return Kind::kBucketGet;
    }
    return Kind::kList;
  }
  if (method == "PUT") {
    return request.has_parameter("versioning") ? Kind::kBucketPatch : Kind::kBucketCreate;
  }
  if (method == "DELETE") return Kind::kBucketDelete;
  if (method == "POST" && request.has_parameter("delete")) return Kind::kDeleteMany;
  return Kind::kOther;
}

Kind object_kind(const Request& request) {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"acl", "legal-hold", "restore", "retention", "select", "tagging", "torrent"});
  const std::string& method = request.method;
  if (has_any_parameter(request, kOthers)) return Kind::kOther;
  const bool is_of_upload = request.has_parameter("uploadId");
  const bool copies = !request.header("x-amz-copy-source").empty();
  if (method == "HEAD") return Kind::kGet;
  if (method == "GET") {
    return is_of_upload                          ? Kind::kMultipartList
           : request.has_parameter("attributes") ? Kind::kGet
                                                 : Kind::kMedia;
  }
  if (method == "PUT") {
    if (is_of_upload) return copies ? Kind::kMultipartPartCopy : Kind::kMultipartPart;
    return copies ? Kind::kCopy : Kind::kUpload;
  }
  if (method == "POST") {
    return is_of_upload                       ? Kind::kMultipartComplete
           : request.has_parameter("uploads") ? Kind::kMultipartStart
                                              : Kind::kOther;
  }
  if (method == "DELETE") return is_of_upload ? Kind::kMultipartAbort : Kind::kDelete;
  return Kind::kOther;
}

std::string_view permission_for(Kind kind) {
  switch (kind) {
    case Kind::kGet:
    case Kind::kMedia: return "s3:GetObject";
    case Kind::kList:
    case Kind::kBucketGet: return "s3:ListBucket";
    case Kind::kListVersions: return "s3:ListBucketVersions";
    case Kind::kUpload:
    case Kind::kCopy:
    case Kind::kMultipartStart:
    case Kind::kMultipartPart:
    case Kind::kMultipartPartCopy:
    case Kind::kMultipartComplete: return "s3:PutObject";
    case Kind::kMultipartAbort: return "s3:AbortMultipartUpload";
    case Kind::kMultipartList: return "s3:ListBucketMultipartUploads";
    case Kind::kDelete:
    case Kind::kDeleteMany: return "s3:DeleteObject";
    default: return {};
  }
}

std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  return colon == std::string_view::npos || host.ends_with(']') ? host : host.substr(0, colon);
}

// To the place where the bucket lives, when the request came elsewhere.
std::optional<Response> redirect(const Bucket& bucket, const Request& request, const Route& route,
                                 const std::string& base_url) {
  const std::string& home = bucket.s3.redirect_to;
  const std::string host = lower(request.header("host"));
  const std::string home_of_bucket = route.virtual_host ? bucket.name + "." + home : home;
  if (home.empty() || host == home_of_bucket) return std::nullopt;
  const bool is_for_good = bucket.s3.redirect_status != 307;
  Response response = error(
      route, bucket.s3.redirect_status, is_for_good ? "PermanentRedirect" : "TemporaryRedirect",
      is_for_good ? "The bucket you are attempting to access must be addressed using the specified "
                    "endpoint. Please send all future requests to this endpoint."
                  : "Please re-send this request to the specified temporary endpoint. Continue to "
                    "use the original request endpoint for future requests.",
      element("Endpoint", home_of_bucket) + element("Bucket", bucket.name));
  if (!bucket.s3.region.empty()) response.set("x-amz-bucket-region", bucket.s3.region);
  if (!is_for_good) {
    const std::string_view scheme = std::string_view(base_url).substr(0, base_url.find("://") + 3);
    std::string target = request.path;
    if (!request.query.empty()) target += "?" + request.query;
    response.set("Location", std::string(scheme) + home_of_bucket + target);
  }
  return response;
}

// Calls `change` with the place and length of each checksum in the elements of `body`.
void each_checksum(std::string_view body, auto change) {
  constexpr std::string_view kOpening = "<Checksum";
  for (size_t at = body.find(kOpening); at != std::string::npos; at = body.find(kOpening, at + 1)) {
    const size_t name_end = body.find('>', at);
    const std::string name(body.substr(at + 1, name_end - at - 1));
    const std::string closing = "</" + name + ">";
    const size_t end = body.find(closing, name_end);
    if (name == "Checksum" || end == std::string::npos) continue;
    change(name, at, name_end + 1, end, end + closing.size());
  }
}

bool is_sum_header(std::string_view name) {
  constexpr std::string_view kPrefix = "x-amz-checksum-";
  return lower(name).starts_with(kPrefix) && algorithm_from(name.substr(kPrefix.size()));
}

class S3 final : public Dialect {
 public:
  explicit S3(std::vector<std::string> domains) : domains_(std::move(domains)) {
    for (std::string& domain : domains_) domain = "." + lower(domain);
  }

  Route route(const Request& request) const override {
    Route out;
    const std::string host = lower(without_port(request.header("host")));
    std::string path = percent_decode(request.path, /*plus_is_space=*/false);
    if (!path.starts_with('/')) return out;
    path.erase(0, 1);
    for (const std::string& domain : domains_) {
      if (!host.ends_with(domain) || host.size() == domain.size()) continue;
      out.virtual_host = true;
      out.bucket = host.substr(0, host.size() - domain.size());
      out.object = path;
    }
    if (!out.virtual_host) {
      const size_t slash = path.find('/');
      out.bucket = path.substr(0, slash);
      if (slash != std::string::npos) out.object = path.substr(slash + 1);
    }
    if (out.bucket.empty()) {
      out.kind = request.method == "GET" ? Kind::kBucketList : Kind::kOther;
    } else {
      out.kind = out.object.empty() ? bucket_kind(request) : object_kind(request);
    }
    return out;
  }

  std::optional<Response> refuse(World& world, const Request& request, const Route& route,
                                 const std::string& base_url) const override {
    const Bucket* const bucket = world.storage.find(route.bucket);
    if (bucket) {
      if (std::optional<Response> elsewhere = redirect(*bucket, request, route, base_url)) {
        return elsewhere;
      }
    }
    const std::string_view region = bucket ? std::string_view(bucket->s3.region) : "";
    const Credential credential = credential_of(request);
    if (world.access_keys.empty()) return std::nullopt;
    if (!credential.is_given) {
      if (bucket && bucket->s3.is_public) return std::nullopt;
      return s3::error(route, 403, "AccessDenied", "Access Denied");
    }
    if (std::optional<Response> failed = failed_signature(world, request, route, region)) {
      return failed;
    }
    if (bucket && !bucket->s3.access_keys.empty() &&
        !bucket->s3.access_keys.contains(credential.access_key)) {
      return s3::error(route, 403, "AccessDenied", "Access Denied");
    }
    return std::nullopt;
  }

  Response answer(World& world, Request& request, const Route& route, const std::string& base_url,
                  bool partial_body) const override {
    if (partial_body) return {};
    if (route.kind == Kind::kOther) {
      return s3::error(route, 501, "NotImplemented", "This server does not have that operation.");
    }
    if (route.kind == Kind::kBucketList) return list_all_buckets(world, request);
    if (route.kind == Kind::kBucketCreate) return create_bucket(world, request, route);
    Bucket* const bucket = world.storage.find(route.bucket);
    if (!bucket) return no_such_bucket(route);
    const Call call{.world = world,
                    .storage = world.storage,
                    .bucket = *bucket,
                    .request = request,
                    .route = route,
                    .base_url = base_url};
    const std::string_view permission = permission_for(route.kind);
    const bool is_denied =
        !permission.empty() && bucket->denied_permissions.contains(std::string(permission));
    const bool pays = request.header("x-amz-request-payer") == "requester" ||
                      request.parameter("x-amz-request-payer") == "requester";
    if (is_denied || (bucket->requester_pays && !pays)) {
      return s3::error(route, 403, "AccessDenied", "Access Denied");
    }
    if (route.kind == Kind::kUpload || route.kind == Kind::kMultipartPart) {
      if (std::optional<Response> wrong = unwrap_body(request, route)) return *wrong;
    }
    Response response;
    if (std::optional<Response> refusal = failed_likeness(call)) {
      response = std::move(*refusal);
    } else {
      response = answer_call(call);
    }
    // Who may not list is not told whether an object exists.
    if (response.status == 404 && !route.object.empty() &&
        bucket->denied_permissions.contains("s3:ListBucket")) {
      response = s3::error(route, 403, "AccessDenied", "Access Denied");
    }
    apply_likeness(bucket->s3, response);
    return response;
  }

  Response error(const Request&, const Route& route, int status, std::string_view reason,
                 std::string_view message) const override {
    return s3::error(route, status,
                     reason.empty() ? usual_code(status, !route.object.empty()) : reason,
                     message.empty() ? usual_message(status, !route.object.empty()) : message);
  }

  Response throttled(const Request&, const Route& route, int status) const override {
    return s3::error(route, status != 0 ? status : 503, "SlowDown",
                     "Please reduce your request rate.");
  }

  void spoil_checksums(Response& response) const override {
    const auto spoil = [](std::string& text, size_t at) { text[at] = text[at] == 'A' ? 'B' : 'A'; };
    for (auto& [name, value] : response.headers) {
      if (is_sum_header(name) && !value.empty()) spoil(value, 0);
    }
    if (!is_result(response)) return;
    std::string body = response.body.copy();
    each_checksum(body, [&](std::string_view name, size_t, size_t begin, size_t, size_t) {
      if (name != "ChecksumAlgorithm" && name != "ChecksumType") spoil(body, begin);
    });
    response.body = Body(std::move(body));
  }

  void remove_checksums(Response& response) const override {
    std::erase_if(response.headers, [](const auto& header) {
      return is_sum_header(header.first) ||
             equal_ignoring_case(header.first, "x-amz-checksum-type");
    });
    if (!is_result(response)) return;
    const std::string body = response.body.copy();
    std::string kept;
    size_t from = 0;
    each_checksum(body, [&](std::string_view, size_t begin, size_t, size_t, size_t end) {
      kept += body.substr(from, begin - from);
      from = end;
    });
    response.body = Body(kept + body.substr(from));
  }

  void stamp(Response& response, uint64_t unique) const override {
    if (!has_header(response.headers, "x-amz-request-id")) {
      response.headers.emplace_back("x-amz-request-id", hex16(mix(unique)));
      response.headers.emplace_back("x-amz-id-2", base64_encode(hex16(mix(~unique))));
    }
    response.headers.emplace_back("Server", "AmazonS3");
  }

  ObjectPtr store(Storage& storage, Bucket& bucket, Object draft,
                  std::string bytes) const override {
    const bool is_new = draft.generation == 0;
    S3Facts& facts = draft.s3;
    facts.checksum_algorithm = facts_of(draft).checksum_algorithm;
    if (is_new && facts.checksum_algorithm.empty()) {
      facts.checksum_algorithm = bucket.s3.default_checksum;
    }
    draft.body = Body(std::move(bytes));
    facts.etag.clear();
    draft.md5.clear();
    if (!facts.parts.empty()) {
      describe_parts(draft);
    } else {
      set_full_checksum(facts, draft.body);
      if (storage.compute_md5) facts.etag = hex(md5_of(draft.body));
    }
    return storage.commit(bucket, std::move(draft), /*with_md5=*/false);
  }

  std::string set_bucket_member(Bucket& bucket, const std::string& member,
                                const Json& value) const override {
    return s3::set_bucket_member(bucket.s3, member, value);
  }

  std::string set_likeness(Storage& storage, const Json& spec) const override {
    return s3::set_likeness(storage, spec);
  }

  std::string describe(const Bucket& bucket, const Object& object) const override {
    const S3Facts facts = facts_of(object);
    Json::Object out = {{"name", object.name},
                        {"bucket", bucket.name},
                        {"size", object.body.size_bytes()},
                        {"etag", etag_of(object)},
                        {"updated", iso_time(object.updated_us)}};
    if (bucket.versioning) out.emplace_back("versionId", version_id_of(bucket, object));
    if (!facts.checksum.empty()) {
      out.emplace_back("checksumAlgorithm", facts.checksum_algorithm);
      out.emplace_back("checksum", facts.checksum);
      out.emplace_back("checksumType", checksum_type(facts));
    }
    return Json(std::move(out)).dump();
  }

 private:
  static Response answer_call(const Call& call) {
    switch (call.route.kind) {
      case Kind::kList: return list_objects(call);
      case Kind::kListVersions: return list_versions(call);
      case Kind::kGet:
        return call.request.method == "HEAD" ? get_object(call) : get_attributes(call);
      case Kind::kMedia: return get_object(call);
      case Kind::kUpload: return put_object(call);
      case Kind::kCopy: return copy_object(call);
      case Kind::kDelete: return delete_object(call);
      case Kind::kDeleteMany: return delete_objects(call);
      case Kind::kMultipartStart:
      case Kind::kMultipartPart:
      case Kind::kMultipartPartCopy:
      case Kind::kMultipartComplete:
      case Kind::kMultipartAbort:
      case Kind::kMultipartList: return multipart(call);
      case Kind::kBucketGet: return read_bucket(call);
      case Kind::kBucketPatch: return change_bucket(call);
      case Kind::kBucketDelete: return delete_bucket(call);
      default: return {};
    }
  }

  // An object as a multipart upload of parts of these sizes would have left it.
  static void describe_parts(Object& draft) {
    S3Facts& facts = draft.s3;
    const std::optional<Algorithm> algorithm = algorithm_from(facts.checksum_algorithm);
    facts.tells_parts = algorithm.has_value();
    std::string md5s, sums;
    uint64_t at = 0;
    for (S3Facts::Part& part : facts.parts) {
      const Body body = draft.body.slice(at, at + part.size_bytes);
      at += part.size_bytes;
      md5s += md5_of(body);
      if (!algorithm) continue;
      const std::string sum = sum_of(*algorithm, body);
      part.checksum = base64_encode(sum);
      sums += sum;
    }
    const std::string count = "-" + std::to_string(facts.parts.size());
    facts.etag = hex(md5(md5s)) + count;
    if (!algorithm) return;
    facts.checksum = base64_encode(facts.is_composite ? sum_of(*algorithm, std::string_view(sums))
                                                      : sum_of(*algorithm, draft.body));
    if (facts.is_composite) facts.checksum += count;
  }

  std::vector<std::string> domains_;  // Each with its dot in front.
};

}  // namespace

std::unique_ptr<Dialect> make_s3(std::vector<std::string> domains) {
  return std::make_unique<S3>(std::move(domains));
}

}  // namespace faultserver
