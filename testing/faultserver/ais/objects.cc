// Objects: reading, writing, appending, renaming, deleting them, at the target that has them.
#include <algorithm>
#include <set>

#include "ais/ais.h"
#include "ais/placement.h"
#include "text.h"

namespace faultserver::ais {
namespace {

void set_object_headers(Bucket& bucket, const Object& object, Response& response) {
  const auto add = [&response](std::string_view name, std::string value) {
    response.headers.emplace_back(name, std::move(value));
  };
  add("Ais-Atime", std::to_string(object.updated_us * 1000));
  if (Checksum sum = checksum_of(bucket, object); !sum.value.empty()) {
    add("Ais-Checksum-Type", std::move(sum.type));
    add("Ais-Checksum-Value", std::move(sum.value));
  }
  for (const auto& [name, value] : object.metadata) add("Ais-Custom-Md", name + "=" + value);
  add("Ais-Version", std::to_string(std::max<int64_t>(1, object.ais.version)));
}

// The range that `Range` asks for, by the server's own rules.
struct Asked {
  bool is_range = false;
  uint64_t begin = 0, end = 0;
  std::optional<Response> refused{};
};

Asked read_range(const Call& call, const Bucket& bucket, const Object& object) {
  const Request& request = call.request;
  const uint64_t size = object.body.size_bytes();
  const std::string_view header = request.header("range");
  if (header.empty()) return {.end = size};
  const auto refuse = [&](std::string_view code, const std::string& message, bool tells_size) {
    Asked out{.refused = error(request, 416, code, message)};
    if (tells_size) out.refused->set("Content-Range", "bytes */" + std::to_string(size));
    return out;
  };
  const auto invalid = [&](std::string_view text, std::string_view part) {
    return refuse("",
                  "read range \"" + std::string(text) + "\" is invalid (" + std::string(part) + ")",
                  false);
  };
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return invalid(header, "prefix");
  const std::string_view text = header.substr(kUnit.size());
  if (text.contains(',')) {
    return refuse("ErrUnsupp",
                  "cannot multi-range read " + BucketName::from_key(bucket.name).shown() + "/" +
                      object.name + " - operation not supported",
                  false);
  }
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return invalid(text, "dash");
  const std::string_view first_text = trim(text.substr(0, dash));
  const std::string_view last_text = trim(text.substr(dash + 1));
  const std::optional<uint64_t> first = parse_u64(first_text);
  const std::optional<uint64_t> last = parse_u64(last_text);
  if (first_text.empty()) {
    if (!last) return invalid(text, "end");
    return {.is_range = true, .begin = size - std::min(*last, size), .end = size};
  }
  if (!first) return invalid(text, "start");
  if (!last_text.empty() && (!last || *last < *first)) return invalid(text, "end");
  if (*first >= size) {
    const std::string message = call.is_a()
                                    ? "object size = " + std::to_string(size) + ", range [" +
                                          std::string(text) + "] not satisfiable"
                                    : "size=" + std::to_string(size) + ": not satisfiable range [" +
                                          std::string(text) + "]";
    return refuse("ErrRangeNotSatisfiable", message, true);
  }
  const uint64_t end = last && *last < size - 1 ? *last + 1 : size;
  return {.is_range = true, .begin = *first, .end = end};
}

// What only HEAD tells.
Response head_object(const Call& call, Bucket& bucket, const Object& object) {
  const BucketName name = BucketName::from_key(bucket.name);
  const std::string props = call.request.parameter("props");
  Response response;
  set_object_headers(bucket, object, response);
  const auto add = [&response](std::string_view header, std::string value) {
    response.headers.emplace_back(header, std::move(value));
  };
  add("Ais-Bucket-Name", name.name);
  add("Ais-Bucket-Provider", name.provider);
  add("Ais-Location", node_name(call.request.node) + ":mp[/faultserver/mp1, memory]");
  add("Ais-Mirror-Copies", "1");
  add("Ais-Mirror-Paths", "[/faultserver/mp1]");
  add("Ais-Name", object.name);
  add("Ais-Present", object.ais.is_cold ? "false" : "true");
  response.body = object.body;
  response.without_length = object.body.size_bytes() == 0;
  if (props.empty() || call.is_a()) {
    std::ranges::sort(response.headers);
    return response;
  }
  std::set<std::string_view> wanted;
  for (const std::string_view each : split(props, ',')) wanted.insert(trim(each));
  constexpr std::pair<std::string_view, std::string_view> kOfProperty[] = {
      {"atime", "Ais-Atime"},
      {"checksum", "Ais-Checksum-Type"},
      {"checksum", "Ais-Checksum-Value"},
      {"version", "Ais-Version"},
      {"custom", "Ais-Custom-Md"},
      {"location", "Ais-Location"},
      {"copies", "Ais-Mirror-Copies"},
      {"copies", "Ais-Mirror-Paths"}};
  for (const std::string_view each : wanted) {
    const bool is_known =
        each == "name" || each == "size" || each == "etag" || each == "last-modified" ||
        each == "cached" || each == "status" || each == "chunked" || each == "ec" ||
        std::ranges::any_of(kOfProperty, [each](const auto& pair) { return pair.first == each; });
    if (!is_known) {
      return error(call.request, 400, "",
                   "invalid property \"" + std::string(each) + "\" in props list");
    }
  }
  std::erase_if(response.headers, [&](const auto& header) {
    if (header.first == "Ais-Present") return false;
    return !std::ranges::any_of(kOfProperty, [&](const auto& pair) {
      return pair.second == header.first && wanted.contains(pair.first);
    });
  });
  if (wanted.contains("etag")) {
    const Checksum sum = checksum_of(bucket, object);
    response.set("Etag", "\"v" + std::to_string(std::max<int64_t>(1, object.ais.version)) + "-" +
                             sum.value + "-" + hex16(static_cast<uint64_t>(object.generation)) +
                             "\"");
  }
  if (wanted.contains("last-modified")) {
    response.set("Last-Modified", http_date(object.updated_us));
  }
  std::ranges::sort(response.headers);
  return response;
}

void set_custom(Object& draft, const std::string& name, const std::string& value) {
  std::erase_if(draft.metadata, [&](const auto& each) { return each.first == name; });
  draft.metadata.emplace_back(name, value);
}

// "k=v" of each header; a header without "=" is left out.
void read_custom(const Request& request, Object& draft) {
  for (const auto& [name, value] : request.headers) {
    if (!equal_ignoring_case(name, "ais-custom-md")) continue;
    const size_t equals = value.find('=');
    if (equals == std::string::npos) continue;
    set_custom(draft, value.substr(0, equals), value.substr(equals + 1));
  }
}

std::optional<Response> bad_object_name(const Call& call) {
  if (is_valid_object_name(call.route.object)) return std::nullopt;
  return error(call.request, 400, call.is_a() ? "ErrInvalidObjName" : "errInvalidPath",
               "invalid object name \"" + call.route.object + "\"");
}

}  // namespace

ObjectPtr find_here(const Call& call, Bucket& bucket, std::string_view name) {
  ObjectPtr object = bucket.find(name);
  if (object && place(call.world, bucket, *object) != call.request.node) return nullptr;
  return object;
}

ObjectPtr store_here(const Call& call, Bucket& bucket, Object draft, Body body) {
  const ObjectPtr old = bucket.find(draft.name);
  draft.body = std::move(body);
  draft.ais.version = old ? std::max<int64_t>(1, old->ais.version) + 1 : 1;
  if (draft.ais.checksum.empty()) {
    draft.ais.checksum_type = bucket.ais.checksum_type;
    draft.ais.checksum = checksum_of(draft.ais.checksum_type, draft.body);
  }
  if (draft.ais.checksum.empty()) draft.ais.checksum_type.clear();
  draft.ais.node = call.request.node;
  draft.ais.placement = call.world.ais.placement;
  draft.ais.is_cold = false;
  return call.world.storage.commit(bucket, std::move(draft), /*with_md5=*/false);
}

Response get_object(const Call& call, Bucket& bucket) {
  const Request& request = call.request;
  ObjectPtr object = find_here(call, bucket, call.route.object);
  if (!object) return no_such_object(request, bucket.name, call.route.object);
  if (request.method == "HEAD") return head_object(call, bucket, *object);
  if (object->ais.is_cold) {
    // A read fetches it, and from then on the cluster has it.
    Object warm = *object;
    warm.ais.is_cold = false;
    object = std::make_shared<const Object>(std::move(warm));
    bucket.put(object);
  }
  if (request.query.contains("arch")) {
    if (request.has_parameter("archpath") || request.has_parameter("archregx")) {
      return get_members(call, bucket, *object);
    }
  }
  if (request.has_parameter("etl_name")) {
    const std::string name = request.parameter("etl_name");
    std::optional<std::string> made =
        transformed(name, request.parameter("etl_args"), object->body);
    if (!made) {
      return error(request, 404, "",
                   node_name(request.node) + ": etl job " + name +
                       " does not exist - try starting new ETL with \"" +
                       call.world.cluster.nodes[0].address().url + "/v1/etl/init\" endpoint");
    }
    // A transformer answers as it likes: in chunks, and without a checksum.
    Response response{.body = Body(std::move(*made)), .chunked = true};
    response.set("Content-Type", "application/octet-stream");
    return response;
  }
  Asked asked = read_range(call, bucket, *object);
  if (asked.refused) return std::move(*asked.refused);
  Response response;
  if (asked.is_range) response.headers.emplace_back("Accept-Ranges", "bytes");
  set_object_headers(bucket, *object, response);
  response.body = object->body;
  if (asked.is_range) {
    response.status = call.is_a() ? 200 : 206;
    response.body = object->body.slice(asked.begin, asked.end);
    // Of no bytes, too, where the last comes before the first.
    response.headers.emplace_back("Content-Range",
                                  "bytes " + std::to_string(asked.begin) + "-" +
                                      std::to_string(static_cast<int64_t>(asked.end) - 1) + "/" +
                                      std::to_string(object->body.size_bytes()));
  }
  response.headers.emplace_back("Content-Type", "application/octet-stream");
  return response;
}

Response put_object(const Call& call, Bucket& bucket) {
  Request& request = call.request;
  if (std::optional<Response> bad = bad_object_name(call)) return *bad;
  const std::string type(request.header("ais-checksum-type"));
  const std::string value = lower(request.header("ais-checksum-value"));
  const ObjectPtr old = bucket.find(call.route.object);
  // Who sends what is there already is told so before the body is looked at.
  if (old && !type.empty() && !value.empty() && old->ais.checksum_type == type &&
      old->ais.checksum == value && place(call.world, bucket, *old) == request.node) {
    return {};
  }
  Body body(std::move(request.body));
  const bool must_match = !type.empty() && type != "none" && (call.is_a() || !value.empty());
  if (must_match) {
    if (!is_checksum_type(call, type)) {
      return error(request, 400, "", "invalid checksum type \"" + type + "\"");
    }
    const std::string actual = checksum_of(type, body);
    if (actual != value) {
      const std::string context =
          call.is_a() ? "o[" + BucketName::from_key(bucket.name).name + "/" + call.route.object +
                            (old ? "" : "(-)") + "]"
                      : BucketName::from_key(bucket.name).shown() + "/" + call.route.object;
      return error(request, 500, "ErrBadCksum",
                   "BAD DATA CHECKSUM: " + type + "(" + value + " != " + actual +
                       ") (context: " + context + ")");
    }
  }
  Object draft{.name = call.route.object};
  // What an object has of this stays when its bytes are replaced.
  if (old) draft.metadata = old->metadata;
  read_custom(request, draft);
  const ObjectPtr stored = store_here(call, bucket, std::move(draft), std::move(body));
  Response response;
  set_object_headers(bucket, *stored, response);
  return response;
}

Response delete_object(const Call& call, Bucket& bucket) {
  if (!find_here(call, bucket, call.route.object)) {
    return error(
        call.request, 404, "",
        BucketName::from_key(bucket.name).shown() + "/" + call.route.object + " doesn't exist");
  }
  bucket.erase(call.route.object);
  return {};
}

Response rename_object(const Call& call, Bucket& bucket) {
  const Request& request = call.request;
  const std::optional<Json> message = Json::parse(request.body);
  const std::string action = message ? (*message)["action"].text() : "";
  if (action != "rename-obj") return invalid_action(request, action);
  const std::string to = collapsed((*message)["name"].text());
  if (!is_valid_object_name(to)) {
    return error(request, 400, call.is_a() ? "ErrInvalidObjName" : "errInvalidPath",
                 "invalid object name \"" + to + "\"");
  }
  const ObjectPtr object = find_here(call, bucket, call.route.object);
  if (!object) {
    if (!call.is_a()) return no_such_object(request, bucket.name, call.route.object);
    return error(request, 404, "PathError",
                 "[fs-path] " + BucketName::from_key(bucket.name).shown() + "/" +
                     call.route.object + ": content type object does not exist");
  }
  Object moved = *object;
  const Checksum sum = checksum_of(bucket, *object);
  moved.name = to;
  moved.ais.checksum_type = sum.type;
  moved.ais.checksum = sum.value;
  moved.ais.version = 1;
  moved.ais.node = owner(call, bucket, to);
  if (call.is_a() && moved.ais.node != object->ais.node) {
    // It is sent there with one property, and adds that to those of what it replaces.
    const ObjectPtr old = bucket.find(to);
    moved.metadata.clear();
    if (old) moved.metadata = old->metadata;
    if (!object->metadata.empty()) {
      set_custom(moved, object->metadata.back().first, object->metadata.back().second);
    }
  }
  moved.ais.placement = call.world.ais.placement;
  bucket.erase(call.route.object);
  call.world.storage.commit(bucket, std::move(moved), /*with_md5=*/false);
  return {};
}

// Adds custom properties to those that the object has.
Response describe_object(const Call& call, Bucket& bucket) {
  const ObjectPtr object = find_here(call, bucket, call.route.object);
  if (!object) return no_such_object(call.request, bucket.name, call.route.object);
  const std::optional<Json> message = Json::parse(call.request.body);
  if (!message || !(*message)["value"].is_object()) {
    return error(call.request, 400, "", "failed to unmarshal set-custom");
  }
  Object described = *object;
  for (const auto& [name, value] : (*message)["value"].object()) {
    set_custom(described, name, value.text());
  }
  bucket.put(std::make_shared<const Object>(std::move(described)));
  return {};
}

Response append_object(const Call& call, Bucket& bucket) {
  Request& request = call.request;
  if (std::optional<Response> bad = bad_object_name(call)) return *bad;
  const std::string type = request.parameter("append_type");
  const std::string handle = request.parameter("append_handle");
  auto& appends = call.world.ais.appends;
  if (type != "append" && type != "flush") {
    return error(request, 400, "",
                 "invalid operation \"" + type +
                     "\" (expecting either \"append\" or \"flush\") - check \"append_type\" query");
  }
  if (handle.empty() && type == "flush") {
    return error(request, 400, "",
                 "failed to finalize append-file operation: empty source in the "
                 "{partialCksum:<nil> nodeID: workFQN:} handle");
  }
  // "NODE|work file|xxhash|how far it is": the first two parts name the append.
  const std::vector<std::string_view> parts = split(handle, '|');
  std::string name = parts.size() == 4 ? std::string(parts[0]) + "|" + std::string(parts[1]) : "";
  if (handle.empty()) {
    name =
        call.node().id + "|/faultserver/mp1/append." + std::to_string(++call.world.ais.last_number);
    appends[name] = {.bucket = bucket.name, .object = call.route.object};
  }
  const auto found = appends.find(name);
  if (found == appends.end() || found->second.bucket != bucket.name ||
      found->second.object != call.route.object || !name.starts_with(call.node().id + "|")) {
    return error(request, 400, "", "invalid append handle \"" + handle + "\"");
  }
  AisState::Append& append = found->second;
  append.bytes += request.body;
  if (type == "flush") {
    store_here(call, bucket, {.name = call.route.object}, Body(std::move(append.bytes)));
    appends.erase(found);
    return {};
  }
  Response response;
  response.set("Ais-Append-Handle",
               name + "|xxhash|" + base64_encode(std::to_string(append.bytes.size())));
  return response;
}

}  // namespace faultserver::ais
