// Buckets: making, describing, listing and destroying them.
#include <algorithm>

#include "ais/ais.h"
#include "text.h"

namespace faultserver::ais {
namespace {

Response no_content() { return {}; }

bool is_bucket_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
}

Response bad_name(const Call& call, std::string_view name) {
  const std::string of = call.is_a() ? " \"" + std::string(name) + "\"" : "";
  const std::string_view tail = call.is_a() ? ", and dots (.)" : "";
  return error(call.request, 400, "",
               "bucket name" + of +
                   " is invalid: may only contain letters, numbers, dashes (-), underscores (_), "
                   "and dots (.)" +
                   std::string(tail));
}

// "aws" in quotes, or AWS without.
std::string backend_text(const Call& call, std::string provider) {
  if (call.is_a()) return "\"" + provider + "\"";
  for (char& c : provider) c = static_cast<char>(c - 'a' + 'A');
  return provider;
}

Response create(const Call& call, const Json& message) {
  const std::string& key = call.route.bucket;
  const BucketName name = BucketName::from_key(key);
  if (!is_bucket_name(name.name)) return bad_name(call, name.name);
  if (call.world.storage.find(key)) {
    return error(call.request, 409, "ErrBucketAlreadyExists",
                 "bucket \"" + name.shown() + "\" already exists");
  }
  const std::string type = message["value"]["checksum"]["type"].text("xxhash");
  if (!is_checksum_type(call, type)) {
    return error(call.request, 400, "",
                 "invalid checksum type \"" + type +
                     "\" (expecting [crc32c md5 sha256 sha512 xxhash none])");
  }
  call.world.storage.create(key).ais.checksum_type = type;
  return no_content();
}

Response list_all(const Call& call) {
  const std::string wanted_provider = call.request.parameter("provider");
  const bool has_space = call.request.has_parameter("namespace");
  const std::optional<BucketName> wanted = bucket_name(call.request, "");
  std::vector<BucketName> found;
  for (const auto& [key, bucket] : call.world.storage.buckets()) {
    BucketName name = BucketName::from_key(key);
    if (wanted && !wanted_provider.empty() && name.provider != wanted->provider) continue;
    if (wanted && has_space && (name.uuid != wanted->uuid || name.space != wanted->space)) continue;
    found.push_back(std::move(name));
  }
  std::ranges::sort(found, {}, [](const BucketName& name) {
    return std::make_tuple(name.provider, name.uuid, name.space, name.name);
  });
  Json::Array out;
  for (const BucketName& name : found) {
    out.push_back(
        Json::Object{{"name", name.name},
                     {"provider", name.provider},
                     {"namespace", Json::Object{{"uuid", name.uuid}, {"name", name.space}}}});
  }
  Response response{.body = Body(Json(std::move(out)).dump() + "\n")};
  response.set("Content-Type", "application/json; charset=utf-8");
  return response;
}

}  // namespace

std::string bucket_props(const Call& call, const Bucket& bucket) {
  const BucketName name = BucketName::from_key(bucket.name);
  const std::string created = std::to_string(bucket.created_us * 1000);
  const std::string checksum =
      "\"checksum\":{\"type\":" + Json(bucket.ais.checksum_type).dump() +
      ",\"validate_cold_get\":false,\"validate_warm_get\":false,\"validate_obj_move\":false,"
      "\"enable_read_range\":false}";
  const std::string head =
      "{\"backend_bck\":{\"name\":\"\",\"provider\":\"\",\"namespace\":{\"uuid\":\"\",\"name\":"
      "\"\"}},";
  const std::string policy =
      "\"write_policy\":{\"data\":\"immediate\",\"md\":\"immediate\"},\"provider\":" +
      Json(name.provider).dump() + ",\"Renamed\":\"\",";
  const std::string mirror = "\"mirror\":{\"copies\":2,\"burst_buffer\":128,\"enabled\":false},";
  const std::string access = "\"access\":\"18446744073709551615\",\"features\":\"0\",";
  const std::string tail = "\"bid\":\"" + std::to_string(bucket.created_us) + "\",\"created\":\"" +
                           created +
                           "\",\"versioning\":{\"enabled\":true,\"validate_warm_get\":false,"
                           "\"synchronize\":false}}";
  if (call.is_a()) {
    return head + "\"extra\":{\"aws\":{},\"http\":{},\"hdfs\":{}}," + policy + checksum +
           ",\"ec\":{\"compression\":\"never\",\"objsize_limit\":262144,\"data_slices\":1,"
           "\"parity_slices\":1,\"bundle_multiplier\":2,\"enabled\":false,\"disk_only\":false},"
           "\"lru\":{\"dont_evict_time\":\"2h0m\",\"capacity_upd_time\":\"10m\",\"enabled\":false}"
           "," +
           mirror + access + tail;
  }
  return head + policy + checksum +
         ",\"extra\":{\"aws\":{},\"gcp\":{},\"oci\":{}},\"rate_limit\":{\"backend\":{\"interval\":"
         "\"1m\",\"max_tokens\":1000,\"enabled\":false,\"num_retries\":3},\"frontend\":{"
         "\"interval\":\"1m\",\"max_tokens\":1000,\"enabled\":false,\"burst_size\":375}},\"ec\":{"
         "\"compression\":\"never\",\"bundle_multiplier\":2,\"burst_buffer\":512,"
         "\"objsize_limit\":262144,\"data_slices\":1,\"parity_slices\":1,\"enabled\":false,"
         "\"disk_only\":false},\"chunks\":{\"objsize_limit\":\"0B\",\"max_monolithic_size\":"
         "\"1TiB\",\"chunk_size\":\"1GiB\"}," +
         mirror +
         "\"lru\":{\"dont_evict_time\":\"2h0m\",\"capacity_upd_time\":\"10m\",\"batch_size\":32768,"
         "\"enabled\":false}," +
         access + tail;
}

Response answer_bucket(const Call& call) {
  const Request& request = call.request;
  const std::string& key = call.route.bucket;
  Bucket* const bucket = call.world.storage.find(key);
  if (call.route.kind == Kind::kBucketList) return list_all(call);
  if (request.method == "HEAD") {
    const BucketName name = BucketName::from_key(key);
    if (!bucket && name.provider != "ais") {
      const std::string_view what = call.is_a() ? "Cloud bucket " : "bucket ";
      return error(request, 404, "ErrFailedTo",
                   node_name(0) + ": failed to lookup " + std::string(what) + name.shown() +
                       ", err: " + backend_text(call, name.provider) +
                       " backend is missing in the cluster configuration");
    }
    if (!bucket) return no_such_bucket(request, key);
    Response response;
    response.headers.emplace_back("Ais-Bucket-Props", bucket_props(call, *bucket));
    response.without_length = true;
    return response;
  }
  const std::optional<Json> message = Json::parse(request.body);
  if (!message) {
    return error(request, 400, "",
                 node_name(0) + ": failed to unmarshal [*apc.ActMsg] (" + request.method +
                     "), err: EOF (htrun.go, #" + (call.is_a() ? "2217" : "2910") + ")");
  }
  const std::string action = (*message)["action"].text();
  if (request.method == "POST" && action == "create-bck") return create(call, *message);
  if (request.method == "DELETE" && action == "destroy-bck") {
    if (!bucket) return no_such_bucket(request, key);
    call.world.storage.erase(key);
    return no_content();
  }
  if (request.method == "DELETE" && action == "delete-listrange") {
    if (!bucket) return no_such_bucket(request, key);
    for (const Json& each : (*message)["value"]["objnames"].array()) bucket->erase(each.text());
    if (const std::string prefix = (*message)["value"]["template"].text(); !prefix.empty()) {
      std::vector<std::string> names;
      Bucket::Cursor cursor(*bucket);
      for (cursor.seek(prefix); cursor.valid() && cursor.name().starts_with(prefix);
           cursor.advance()) {
        names.push_back(cursor.name());
      }
      for (const std::string& name : names) bucket->erase(name);
    }
    Response response{.body = Body(hex16(mix(++call.world.ais.last_number)).substr(0, 9))};
    response.set("Content-Type", "text/plain; charset=utf-8");
    return response;
  }
  return invalid_action(request, action);
}

std::string set_bucket_member(Bucket& bucket, const std::string& member, const Json& value) {
  using ListFault = AisBucket::ListFault;
  const std::string text = value.text();
  if (member == "checksum") {
    bucket.ais.checksum_type = text;
    bucket.ais.made_sums.clear();
  } else if (member == "list_fault") {
    if (text == "none") {
      bucket.ais.list_fault = ListFault::kNone;
    } else if (text == "drops_page") {
      bucket.ais.list_fault = ListFault::kDropsPage;
    } else if (text == "ends_early") {
      bucket.ais.list_fault = ListFault::kEndsEarly;
    } else if (text == "repeats_token") {
      bucket.ais.list_fault = ListFault::kRepeatsToken;
    } else {
      return "list_fault cannot be " + value.dump();
    }
  } else {
    return "no such member of a bucket: " + member;
  }
  return {};
}

}  // namespace faultserver::ais
