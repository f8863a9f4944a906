#include "control.h"

#include <unistd.h>

#include <algorithm>

#include "text.h"

namespace faultserver {

void World::wake_all() {
  ++wakes;
  const uint64_t one = 1;
  for (const int fd : wake_fds) {
    // An eventfd only refuses when its counter is full, and then the thread is awake anyway.
    [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
  }
}

namespace {

Response wrong(std::string_view message) {
  return json_response(400, Json(Json::Object{{"error", message}}).dump());
}

Response fine(const Json& body = Json::Object{}) { return json_response(200, body.dump()); }

Response reset(World& world, const Json& spec) {
  world.faults.clear();
  world.throttle = Throttle();
  world.shapes_bytes = false;
  world.record.clear();
  world.tokens.clear();
  world.connect_map.clear();
  world.access_keys.clear();
  world.clock_offset_us = 0;
  world.idle_close_s = 0;
  world.cluster.reset();
  const char personality = world.ais.first_personality;
  world.ais = {.personality = personality, .first_personality = personality};
  if (!spec["keep_buckets"].boolean()) world.storage.clear();
  ++world.release_epoch;
  world.wake_all();
  return fine();
}

Response set_bucket(World& world, const Json& spec) {
  const std::string name = spec["name"].text();
  if (name.empty()) return wrong("a bucket needs a name");
  Bucket& bucket = world.storage.create(name);
  for (const auto& [member, value] : spec.object()) {
    if (member == "requester_pays") {
      bucket.requester_pays = value.boolean();
    } else if (member == "versioning") {
      bucket.versioning = value.boolean();
    } else if (member == "list_delay_ms") {
      bucket.list_delay_ms = value.integer();
    } else if (member == "max_page") {
      bucket.max_page = static_cast<uint64_t>(std::max<int64_t>(1, value.integer()));
    } else if (member == "tokens") {
      bucket.tokens.clear();
      for (const Json& token : value.array()) bucket.tokens.insert(token.text());
    } else if (member == "denied_permissions") {
      bucket.denied_permissions.clear();
      for (const Json& permission : value.array()) {
        bucket.denied_permissions.insert(permission.text());
      }
    } else if (member != "name") {
      const std::string why = world.dialect->set_bucket_member(bucket, member, value);
      if (!why.empty()) return wrong(why);
    }
  }
  return fine();
}

Response make_synthetic(World& world, const Json& spec) {
  const std::string name = spec["bucket"].text();
  if (name.empty()) return wrong("bucket is missing");
  std::string why;
  std::unique_ptr<Synthetic> made = Synthetic::from_json(spec, why);
  if (!made) return wrong(why);
  world.storage.erase(name);
  Bucket& bucket = world.storage.create(name);
  bucket.list_delay_ms = spec["list_delay_ms"].integer();
  Json::Array sample;
  for (uint64_t rank = 0; rank < std::min<uint64_t>(3, made->count()); ++rank) {
    sample.emplace_back(made->name(rank));
  }
  bucket.synthetic = std::move(made);
  return fine(Json::Object{{"first_names", std::move(sample)}});
}

Response put_object(World& world, Request& request) {
  const std::string bucket_name = request.parameter("bucket");
  Object draft;
  int64_t age_s = 0;
  uint64_t part_bytes = 0;
  if (const std::optional<Json> metadata = Json::parse(request.parameter("meta"))) {
    read_metadata(*metadata, draft);
    draft.component_count = (*metadata)["componentCount"].integer();
    age_s = (*metadata)["ageSeconds"].integer();
    part_bytes = static_cast<uint64_t>((*metadata)["partBytes"].integer());
    draft.ais.is_cold = (*metadata)["isCold"].boolean();
    draft.s3.checksum_algorithm = (*metadata)["checksumAlgorithm"].text();
    draft.s3.is_composite = (*metadata)["checksumType"].text() == "COMPOSITE";
  }
  draft.name = request.parameter("name");
  if (bucket_name.empty() || draft.name.empty()) return wrong("bucket or name is missing");
  if (draft.content_type.empty()) draft.content_type = "application/octet-stream";
  if (part_bytes > 0) {
    for (uint64_t at = 0; at < request.body.size(); at += part_bytes) {
      const uint64_t size_bytes = std::min<uint64_t>(part_bytes, request.body.size() - at);
      draft.s3.parts.push_back({.size_bytes = size_bytes});
    }
  }
  Bucket& bucket = world.storage.create(bucket_name);
  ObjectPtr object =
      world.dialect->store(world.storage, bucket, std::move(draft), std::move(request.body));
  if (age_s > 0) {
    Object older = *object;
    older.created_us = older.updated_us = object->updated_us - age_s * 1'000'000;
    object = std::make_shared<const Object>(std::move(older));
    bucket.put(object);
  }
  return json_response(200, world.dialect->describe(bucket, *object));
}

Response get_object(World& world, const Request& request) {
  Bucket* const bucket = world.storage.find(request.parameter("bucket"));
  const ObjectPtr object = bucket ? bucket->find(request.parameter("name")) : nullptr;
  if (!object) return json_response(404, "{}");
  Response response{.body = object->body};
  response.set("Content-Type", "application/octet-stream");
  return response;
}

Response names(World& world, const Request& request) {
  Bucket* const bucket = world.storage.find(request.parameter("bucket"));
  Json::Array out;
  if (bucket) {
    Bucket::Cursor cursor(*bucket);
    for (cursor.seek(request.parameter("prefix"));
         cursor.valid() && cursor.name().starts_with(request.parameter("prefix"));
         cursor.advance()) {
      out.emplace_back(cursor.name());
    }
  }
  return fine(std::move(out));
}

Response pending_uploads(World& world) {
  Json::Array resumable;
  for (const auto& [id, session] : world.storage.sessions) {
    if (session.result || session.cancelled) continue;
    resumable.push_back(Json::Object{{"bucket", session.bucket},
                                     {"name", session.draft.name},
                                     {"bytes", uint64_t{session.bytes.size()}}});
  }
  Json::Array multipart;
  for (const auto& [name, bucket] : world.storage.buckets()) {
    for (const auto& [id, upload] : bucket->multipart_uploads) {
      multipart.push_back(Json::Object{
          {"bucket", name}, {"name", upload.draft.name}, {"parts", uint64_t{upload.parts.size()}}});
    }
  }
  return fine(
      Json::Object{{"resumable", std::move(resumable)}, {"multipart", std::move(multipart)}});
}

Response set_keys(World& world, const Json& spec) {
  std::vector<AccessKey> keys;
  for (const Json& each : spec["keys"].array()) {
    keys.push_back({.id = each["access_key"].text(),
                    .secret = each["secret_key"].text(),
                    .session_token = each["session_token"].text(),
                    .expired = each["expired"].boolean()});
    if (keys.back().id.empty() || keys.back().secret.empty()) {
      return wrong("a key needs access_key and secret_key");
    }
  }
  world.access_keys = std::move(keys);
  return fine();
}

Response age_uploads(World& world, const Json& spec) {
  for (const auto& [name, bucket] : world.storage.buckets()) {
    for (auto& [id, upload] : bucket->multipart_uploads) {
      upload.started_us -= spec["seconds"].integer() * 1'000'000;
    }
  }
  return fine();
}

Json nodes_json(const World& world) {
  Json::Array out;
  for (const Node& node : world.cluster.nodes) {
    out.push_back(Json::Object{{"id", node.id},
                               {"url", node.address().url},
                               {"up", node.is_up},
                               {"in_map", node.in_map},
                               {"map_flags", node.map_flags}});
  }
  return out;
}

Response close_connections(World& world, const Json& spec) {
  world.close_with_reset = spec["mode"].text() == "rst";
  ++world.close_epoch;
  world.wake_all();
  return fine();
}

}  // namespace

Response control(World& world, Request& request) {
  const std::lock_guard lock(world.mutex);
  const std::string_view path = std::string_view(request.path).substr(sizeof("/_control/") - 1);
  const bool posts = request.method == "POST" || request.method == "PUT";
  if (path == "object") return posts ? put_object(world, request) : get_object(world, request);
  if (path == "names") return names(world, request);
  if (path == "uploads") return pending_uploads(world);
  if (path == "settled") return fine(Json(world.has_settled()));
  if (path == "nodes") return fine(nodes_json(world));
  if (path == "stats") return fine(world.record.stats());
  if (path == "log") {
    return json_response(
        200, world.record.log_json(parse_u64(request.parameter("since")).value_or(0),
                                   parse_u64(request.parameter("limit")).value_or(UINT64_MAX)));
  }
  if (!posts) {
    if (path == "faults") return fine(world.faults.to_json());
    if (path == "limit" || path == "latency") return fine(world.throttle.to_json());
    return json_response(404, "{\"error\":\"no such control\"}");
  }
  Json spec = Json::Object{};
  if (!request.body.empty()) {
    std::optional<Json> parsed = Json::parse(request.body);
    if (!parsed) return wrong("the body is not JSON");
    spec = std::move(*parsed);
  }
  if (path == "reset") return reset(world, spec);
  if (path == "faults") {
    const std::string why = world.faults.set_rules(spec);
    return why.empty() ? fine() : wrong(why);
  }
  if (path == "limit") {
    world.throttle.set_limit(spec, world.now_s());
    world.shapes_bytes = world.throttle.shapes_bytes();
    return fine();
  }
  if (path == "latency") {
    world.throttle.set_latency(spec);
    return fine();
  }
  if (path == "bucket") return set_bucket(world, spec);
  if (path == "like") {
    const std::string why = world.dialect->set_likeness(world.storage, spec);
    return why.empty() ? fine() : wrong(why);
  }
  if (path == "synthetic") return make_synthetic(world, spec);
  if (path == "close_connections") return close_connections(world, spec);
  if (path == "release") {
    ++world.release_epoch;
    world.wake_all();
    return fine();
  }
  if (path == "auth") {
    world.tokens.clear();
    for (const Json& token : spec["tokens"].array()) world.tokens.insert(token.text());
    return fine();
  }
  if (path == "keys") return set_keys(world, spec);
  if (path == "age_uploads") return age_uploads(world, spec);
  if (path == "idle") {
    world.idle_close_s = spec["close_s"].number();
    world.wake_all();
    return fine();
  }
  if (path == "node") {
    const std::string why = world.cluster.change_node(spec);
    world.wake_all();
    return why.empty() ? fine(nodes_json(world)) : wrong(why);
  }
  if (path == "cluster") {
    for (const auto& [member, value] : spec.object()) {
      const std::string why = world.dialect->set_cluster_member(world, member, value);
      if (!why.empty()) return wrong(why);
    }
    return fine();
  }
  if (path == "clock") {
    world.clock_offset_us = static_cast<int64_t>(spec["offset_s"].number() * 1e6);
    return fine();
  }
  if (path == "connect") {
    world.connect_map.clear();
    for (const auto& [from, to] : spec["map"].object()) world.connect_map[from] = to.text();
    return fine();
  }
  if (path == "uploads_config") {
    for (const auto& [name, value] : spec.object()) {
      if (name == "min_part_bytes") {
        world.storage.min_part_bytes = static_cast<uint64_t>(value.integer());
      } else if (name == "max_parts") {
        world.storage.max_parts = static_cast<uint64_t>(value.integer());
      } else if (name == "equal_parts") {
        const std::string why =
            world.dialect->set_likeness(world.storage, Json::Object{{name, value}});
        if (!why.empty()) return wrong(why);
      } else {
        return wrong("uploads_config: " + name);
      }
    }
    return fine();
  }
  return json_response(404, "{\"error\":\"no such control\"}");
}

}  // namespace faultserver
