// AIStore as a dialect: which request asks for what, of whom, and who may ask.
#include "dialect.h"

#include <algorithm>

#include "ais/ais.h"
#include "text.h"

namespace faultserver {
namespace {

using namespace ais;  // NOLINT(google-build-using-namespace): this file is the door of the folder.

constexpr std::string_view kObjects = "/v1/objects/";
constexpr std::string_view kBuckets = "/v1/buckets";
constexpr std::string_view kMoss = "/v1/ml/moss";

Kind object_kind(const Request& request) {
  const std::string& method = request.method;
  if (method == "GET") return Kind::kMedia;
  if (method == "HEAD") return Kind::kGet;
  if (method == "PUT") {
    if (request.has_parameter("append_type")) return Kind::kAppend;
    return request.has_parameter("uploadId") ? Kind::kMultipartPart : Kind::kUpload;
  }
  if (method == "DELETE") {
    return request.has_parameter("uploadId") ? Kind::kMultipartAbort : Kind::kDelete;
  }
  if (method == "PATCH") return Kind::kPatch;
  if (method != "POST") return Kind::kOther;
  // What a POST does stands in its body; only completing an upload is told by its query.
  return request.has_parameter("uploadId") ? Kind::kMultipartComplete : Kind::kRename;
}

Kind bucket_kind(const Request& request, bool names_bucket) {
  const std::string& method = request.method;
  if (method == "HEAD") return Kind::kBucketGet;
  if (method == "GET") return names_bucket ? Kind::kList : Kind::kBucketList;
  if (method == "POST") return Kind::kBucketCreate;
  return method == "DELETE" ? Kind::kBucketDelete : Kind::kOther;
}

// Swaps a digit of a hexadecimal sum for another one.
void spoil_hex(std::string& text, size_t at) {
  if (at < text.size()) text[at] = text[at] == '0' ? '1' : '0';
}

class Ais final : public Dialect {
 public:
  Route route(const Request& request) const override {
    Route out;
    const std::string path = percent_decode(request.path, /*plus_is_space=*/false);
    const std::string_view view = path;
    std::string bucket;
    if (view.starts_with(kObjects)) {
      const std::string_view rest = view.substr(kObjects.size());
      const size_t slash = rest.find('/');
      bucket = rest.substr(0, slash);
      if (slash != std::string_view::npos) out.object = collapsed(rest.substr(slash + 1));
      out.kind = out.object.empty() ? Kind::kOther : object_kind(request);
    } else if (view.starts_with(kBuckets)) {
      std::string_view rest = view.substr(kBuckets.size());
      if (rest.starts_with('/')) rest.remove_prefix(1);
      bucket = rest.substr(0, rest.find('/'));
      out.kind = bucket_kind(request, !bucket.empty());
    } else if (view.starts_with(kMoss)) {
      std::string_view rest = view.substr(kMoss.size());
      if (rest.starts_with('/')) rest.remove_prefix(1);
      bucket = rest.substr(0, rest.find('/'));
      // Behind /v1/ml/moss come a batch's own parts, where no bucket does.
      if (bucket.starts_with("gbt-")) bucket.clear();
      out.kind = Kind::kMoss;
    } else if (view == "/v1/daemon" || view == "/v1/cluster") {
      out.kind = request.method == "GET" ? Kind::kSmap : Kind::kOther;
    } else if (view == "/v1/health") {
      out.kind = Kind::kHealth;
    }
    if (!bucket.empty()) {
      const std::optional<BucketName> name = bucket_name(request, bucket);
      out.bucket = name ? name->key() : bucket;
    }
    return out;
  }

  std::optional<Response> refuse(World& world, const Request& request, const Route& route,
                                 const std::string&) const override {
    if (world.tokens.empty() || route.kind == Kind::kHealth) return std::nullopt;
    const std::string_view given = request.header("authorization");
    constexpr std::string_view kScheme = "Bearer ";
    if (!given.starts_with(kScheme)) return ais::error(request, 401, "", "token required");
    if (world.tokens.contains(std::string(given.substr(kScheme.size())))) return std::nullopt;
    return ais::error(request, 401, "",
                      world.ais.tokens_have_expired ? "token expired" : "invalid token");
  }

  Response answer(World& world, Request& request, const Route& route, const std::string&,
                  bool partial_body) const override {
    if (partial_body) return {};
    const Call call{.world = world, .request = request, .route = route};
    switch (route.kind) {
      case Kind::kSmap: return tell_map(call);
      case Kind::kHealth: return tell_health(call);
      case Kind::kMoss: return moss(call);
      default: break;
    }
    const bool is_object = request.path.starts_with(kObjects);
    if (!is_object && !request.path.starts_with(kBuckets)) return invalid_uri(call);
    if (const std::string provider = request.parameter("provider");
        !bucket_name(request, "").has_value()) {
      return ais::error(request, 400, "ErrInvalidBackendProvider",
                        "invalid backend provider \"" + provider + "\": must be one of " +
                            (call.is_a() ? "[ais, aws (s3://), gcp (gs://), azure (az://), ht://]"
                                         : "[ais, aws (s3://), gcp (gs://), azure (az://), oci "
                                           "(oc://)]"));
    }
    if (!is_object) return answer_buckets(call);
    if (route.object.empty()) {
      std::string shown = percent_decode(request.path, /*plus_is_space=*/false);
      return ais::error(request, 400, "",
                        "URL '" + shown.substr(1) + "' is too short: expected 4 items, got 3");
    }
    Bucket* const bucket = world.storage.find(route.bucket);
    if (!bucket) {
      // A target that is asked past its proxy calls that a bad request.
      const bool is_direct_get = !call.is_proxy() && request.method == "GET";
      return no_such_bucket(request, route.bucket, is_direct_get ? 400 : 404);
    }
    return call.is_proxy() ? at_proxy(call, *bucket) : at_target(call, *bucket);
  }

  Response error(const Request& request, const Route&, int status, std::string_view reason,
                 std::string_view message) const override {
    return ais::error(request, status, reason, message.empty() ? reason_phrase(status) : message);
  }

  Response throttled(const Request& request, const Route&, int status) const override {
    return ais::error(request, status != 0 ? status : 429, "ErrTooManyRequests",
                      "too many requests");
  }

  bool answers_at_head(const Request& request, const Route& route) const override {
    // The server waits for a small body before it sends a redirect, unless the client has said that
    // it waits, or that it goes; it does not wait for a large one.
    constexpr uint64_t kReadsBeforeAnswering = uint64_t{256} << 10;
    const bool redirects = request.at_proxy && request.method == "PUT" && !route.object.empty();
    if (!redirects) return false;
    return !request.header("expect").empty() || request.wants_close() ||
           parse_u64(request.header("content-length")).value_or(0) >= kReadsBeforeAnswering;
  }

  std::string set_cluster_member(World& world, const std::string& member,
                                 const Json& value) const override {
    AisState& state = world.ais;
    const std::string text = value.text();
    if (member == "personality") {
      if (text != "A" && text != "B") return "personality is A or B";
      state.personality = text.front();
    } else if (member == "signed_redirects") {
      state.signs_redirects = value.boolean();
    } else if (member == "refuses_direct") {
      state.refuses_direct = value.boolean();
    } else if (member == "tokens_have_expired") {
      state.tokens_have_expired = value.boolean();
    } else if (member == "rebalance") {
      if (value.boolean()) rebalance(world);
    } else if (member == "moss") {
      return set_moss(state.moss, value);
    } else {
      return "no such member of a cluster: " + member;
    }
    return {};
  }

  void spoil_checksums(Response& response) const override {
    for (auto& [name, value] : response.headers) {
      if (equal_ignoring_case(name, "ais-checksum-value")) spoil_hex(value, 0);
    }
    if (!is_json(response)) return;
    constexpr std::string_view kKey = "\"checksum\":\"";
    std::string body = response.body.copy();
    for (size_t at = body.find(kKey); at != std::string::npos; at = body.find(kKey, at + 1)) {
      spoil_hex(body, at + kKey.size());
    }
    response.body = Body(std::move(body));
  }

  void remove_checksums(Response& response) const override {
    response.remove("ais-checksum-type");
    response.remove("ais-checksum-value");
    if (!is_json(response)) return;
    constexpr std::string_view kKey = "\"checksum\":\"";
    std::string body = response.body.copy();
    for (size_t at = body.find(kKey); at != std::string::npos; at = body.find(kKey, at)) {
      // With the comma behind it; a name always stands in front.
      size_t end = body.find('"', at + kKey.size()) + 1;
      if (body[end] == ',') ++end;
      body.erase(at, end - at);
    }
    response.body = Body(std::move(body));
  }

  void stamp(Response&, uint64_t) const override {}

  ObjectPtr store(Storage& storage, Bucket& bucket, Object draft,
                  std::string bytes) const override {
    const ObjectPtr old = bucket.find(draft.name);
    draft.body = Body(std::move(bytes));
    const std::string& type = bucket.ais.checksum_type;
    draft.ais.checksum = checksum_of(type, draft.body);
    draft.ais.checksum_type = draft.ais.checksum.empty() ? "" : type;
    draft.ais.version = old ? std::max<int64_t>(1, old->ais.version) + 1 : 1;
    return storage.commit(bucket, std::move(draft), /*with_md5=*/false);
  }

  std::string set_bucket_member(Bucket& bucket, const std::string& member,
                                const Json& value) const override {
    return ais::set_bucket_member(bucket, member, value);
  }

  std::string describe(const Bucket& bucket, const Object& object) const override {
    return Json(Json::Object{{"name", object.name},
                             {"bucket", bucket.name},
                             {"size", object.body.size_bytes()},
                             {"version", object.ais.version},
                             {"checksumType", object.ais.checksum_type},
                             {"checksum", object.ais.checksum},
                             {"updated", iso_time(object.updated_us)}})
        .dump();
  }

 private:
  static bool is_json(const Response& response) {
    return find_header(response.headers, "content-type").starts_with("application/json");
  }

  static Response answer_buckets(const Call& call) {
    if (call.route.kind == Kind::kOther && !call.is_proxy()) {
      return method_not_allowed("DELETE, GET, HEAD, POST");
    }
    if (!call.is_proxy()) {
      return ais::error(call.request, 400, "",
                        call.is_a()
                            ? node_name(call.request.node) + ": expected INTRA-CONTROL request"
                            : "list-objects: invalid UUID \"\"");
    }
    // It asks the primary, which may be gone.
    if (const Node& primary = call.world.cluster.primary(); !primary.is_up) {
      return ais::error(call.request, 502, "",
                        "dial tcp " + primary.address().host + ": connect: connection refused");
    }
    if (call.route.kind != Kind::kList) return answer_bucket(call);
    Bucket* const bucket = call.world.storage.find(call.route.bucket);
    if (!bucket) return no_such_bucket(call.request, call.route.bucket);
    return list_objects(call, *bucket);
  }

  static Response at_proxy(const Call& call, Bucket& bucket) {
    const Request& request = call.request;
    if (!call.is_a() && !is_valid_object_name(call.route.object)) {
      return ais::error(request, 400, "errInvalidPath",
                        "invalid object name \"" + call.route.object + "\"");
    }
    if (request.method == "POST") {
      const std::optional<Json> message = Json::parse(request.body);
      const std::string action = message ? (*message)["action"].text() : "";
      const bool is_known = action == "rename-obj" || (!call.is_a() && action.starts_with("mpt-"));
      if (!is_known) return invalid_action(request, action);
    }
    return redirect(call, owner(call, bucket, call.route.object));
  }

  static Response at_target(const Call& call, Bucket& bucket) {
    if (std::optional<Response> failed = failed_proof(call)) return *failed;
    switch (call.route.kind) {
      case Kind::kMedia:
      case Kind::kGet: return get_object(call, bucket);
      case Kind::kMultipartPart:
        // A does not know the parameters, and takes the part for the object.
        return call.is_a() ? put_object(call, bucket) : multipart(call, bucket);
      case Kind::kUpload: return put_object(call, bucket);
      case Kind::kAppend: return append_object(call, bucket);
      case Kind::kMultipartAbort:
        return call.is_a() ? delete_object(call, bucket) : multipart(call, bucket);
      case Kind::kDelete: return delete_object(call, bucket);
      case Kind::kPatch: return describe_object(call, bucket);
      case Kind::kMultipartComplete:
      case Kind::kRename: {
        const std::optional<Json> message = Json::parse(call.request.body);
        const bool is_multipart = message && (*message)["action"].text().starts_with("mpt-");
        return is_multipart && !call.is_a() ? multipart(call, bucket) : rename_object(call, bucket);
      }
      default: return method_not_allowed("DELETE, GET, HEAD, POST, PUT");
    }
  }

  static void rebalance(World& world) {
    world.ais.homes = {};
    for (size_t k = 1; k < world.cluster.nodes.size(); ++k) {
      const Node& node = world.cluster.nodes[k];
      if (!node.is_proxy && node.in_map) world.ais.homes.push_back(k);
    }
    ++world.ais.placement;
    ++world.cluster.map_version;
  }

  static std::string set_moss(AisState::Moss& moss, const Json& spec) {
    using Moss = AisState::Moss;
    for (const auto& [member, value] : spec.object()) {
      const std::string text = value.text();
      if (member == "missing") {
        if (text == "by_owner") {
          moss.missing = Moss::Missing::kByOwner;
        } else if (text == "ends_early") {
          moss.missing = Moss::Missing::kEndsEarly;
        } else if (text == "marker") {
          moss.missing = Moss::Missing::kMarker;
        } else {
          return "missing is by_owner, ends_early or marker";
        }
      } else if (member == "out_of_range") {
        if (text == "seeded") {
          moss.out_of_range = Moss::OutOfRange::kSeeded;
        } else if (text == "hangs") {
          moss.out_of_range = Moss::OutOfRange::kHangs;
        } else if (text == "empty") {
          moss.out_of_range = Moss::OutOfRange::kEmpty;
        } else if (text == "whole") {
          moss.out_of_range = Moss::OutOfRange::kWhole;
        } else {
          return "out_of_range is seeded, hangs, empty or whole";
        }
      } else if (member == "max_soft_errors") {
        moss.max_soft_errors = static_cast<uint64_t>(value.integer());
      } else if (member == "seed") {
        moss.seed = static_cast<uint64_t>(value.integer());
      } else if (member == "ends_after") {
        moss.ends_after = value.is_null() ? UINT64_MAX : static_cast<uint64_t>(value.integer());
      } else {
        return "no such member of moss: " + member;
      }
    }
    return {};
  }
};

}  // namespace

std::unique_ptr<Dialect> make_ais() { return std::make_unique<Ais>(); }

}  // namespace faultserver
