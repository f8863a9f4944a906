// GetBatch: many objects, ranges and members by one request. Only B has it.
#include <algorithm>

#include "ais/ais.h"
#include "ais/archives.h"
#include "ais/placement.h"
#include "digest.h"
#include "text.h"

namespace faultserver::ais {
namespace {

using Moss = AisState::Moss;

struct MossEntry {
  std::string bucket{}, object{}, archpath{}, opaque{};
  bool names_bucket = false;
  int64_t start = 0, length = 0;
  bool is_range() const { return start != 0 || length != 0; }
};

struct Batch {
  std::string mime = ".tar";
  std::vector<MossEntry> entries{};
  bool continues = false, only_names = false, streams = false;
};

struct Part {
  std::string name{};
  Body body{};
  int64_t modified_us = 0;
  std::string why{};  // It is missing.
};

Response bad_message(const Call& call, const std::string& why) {
  return error(call.request, 400, "", "unmarshalerDecoder: " + why);
}

std::string normal_mime(const std::string& mime) {
  if (mime.empty()) return ".tar";
  std::string out = mime.starts_with('.') ? mime : "." + mime;
  return out == ".tar.gz" ? ".tgz" : out;
}

// "ais/@uuid#name/bucket/"
std::string key_of_unique(std::string_view unique) {
  const std::vector<std::string_view> parts = split(unique, '/');
  if (parts.size() < 3) return {};
  const std::string_view space = parts[1];
  const std::string where = space == "@#" ? "" : std::string(space) + "/";
  const std::string text = std::string(parts[0]) + "://" + where + std::string(parts[2]);
  return BucketName::from_key(text).key();
}

std::optional<Response> read_batch(const Call& call, Batch& batch) {
  const std::optional<Json> message = Json::parse(call.request.body);
  if (!message || !message->is_object()) {
    return error(call.request, 400, "",
                 node_name(call.request.node) +
                     ": failed to unmarshal [*apc.MossReq] (GET), err: not a JSON object");
  }
  batch.mime = normal_mime((*message)["mime"].text());
  batch.continues = (*message)["coer"].boolean();
  batch.only_names = (*message)["onob"].boolean();
  batch.streams = (*message)["strm"].boolean();
  for (const Json& each : (*message)["in"].array()) {
    MossEntry entry{.bucket = call.route.bucket,
                    .object = collapsed(each["objname"].text()),
                    .archpath = each["archpath"].text(),
                    .opaque = each["opaque"].text(),
                    .start = each["start"].integer(),
                    .length = each["length"].integer()};
    if (!is_valid_object_name(entry.object)) {
      return bad_message(call, "invalid object name \"" + entry.object + "\"");
    }
    if (entry.start < 0 || entry.length < -1 || (entry.start > 0 && entry.length == 0)) {
      return bad_message(call, "not satisfiable range [start=" + std::to_string(entry.start) +
                                   ",length=" + std::to_string(entry.length) + " (oname: \"" +
                                   entry.object + "\")]");
    }
    if (const std::string unique = each["uname"].text(); !unique.empty()) {
      entry.bucket = key_of_unique(unique);
    } else if (const std::string name = each["bucket"].text(); !name.empty()) {
      const std::string provider = each["provider"].text("ais");
      entry.bucket = BucketName::from_key(provider + "://" + name).key();
    }
    batch.entries.push_back(std::move(entry));
  }
  if (batch.entries.empty()) return error(call.request, 400, "", "moss: empty input");
  const std::string_view mime = batch.mime;
  if (mime != ".tar" && mime != ".tgz" && mime != ".zip") {
    return error(call.request, 400, "errUnknownMime", "unknown mime type \"" + batch.mime + "\"");
  }
  return std::nullopt;
}

std::string member_name(const MossEntry& entry, bool only_names) {
  std::string name =
      only_names ? entry.object : BucketName::from_key(entry.bucket).name + "/" + entry.object;
  return entry.archpath.empty() ? name : name + "/" + entry.archpath;
}

// How the server does what it should not, when a range lies outside of its object.
Moss::OutOfRange out_of_range(const Call& call) {
  using enum Moss::OutOfRange;
  const Moss& moss = call.world.ais.moss;
  if (moss.out_of_range != kSeeded) return moss.out_of_range;
  switch (mix(moss.seed ^ ++call.world.ais.last_number) % 3) {
    case 0: return kHangs;
    case 1: return kEmpty;
    default: return kWhole;
  }
}

class Collector {
 public:
  Collector(const Call& call, const Batch& batch) : call_(call), batch_(batch) {}

  std::vector<Part> parts{};
  bool hangs = false;                // Nothing follows what there is.
  bool ends_early = false;           // Nothing follows, and the archive looks complete.
  std::optional<Response> failed{};  // Of a batch that does not stream.

  void collect() {
    const Moss& moss = call_.world.ais.moss;
    for (const MossEntry& entry : batch_.entries) {
      if (parts.size() >= moss.ends_after) {
        ends_early = true;
        return;
      }
      if (!take(entry)) return;
    }
  }

 private:
  // Whether the batch goes on.
  bool take(const MossEntry& entry) {
    Part part{.name = member_name(entry, batch_.only_names)};
    Bucket* const bucket = call_.world.storage.find(entry.bucket);
    const ObjectPtr object = bucket ? bucket->find(entry.object) : nullptr;
    const std::string shown = BucketName::from_key(entry.bucket).shown() + "/" + entry.object;
    if (!object || object->ais.is_cold || !is_reachable(*bucket, *object)) {
      return take_missing(entry, std::move(part),
                          node_name(call_.request.node) + ": " + shown + " does not exist");
    }
    part.body = object->body;
    part.modified_us = object->updated_us;
    if (!entry.archpath.empty()) {
      const std::vector<Member> members = members_of(*object);
      const auto found = std::ranges::find(members, entry.archpath, &Member::name);
      if (found == members.end()) {
        return take_missing(entry, std::move(part),
                            node_name(call_.request.node) + ": " + entry.archpath + " in " + shown +
                                " does not exist");
      }
      part.body = found->body;
      part.modified_us = 0;
    }
    if (entry.is_range() && !cut(entry, part)) return false;
    parts.push_back(std::move(part));
    return true;
  }

  // Nobody has it whose node is down or has left.
  bool is_reachable(Bucket& bucket, const Object& object) const {
    const Node& node = call_.world.cluster.nodes[place(call_.world, bucket, object)];
    return node.is_up && node.in_map;
  }

  bool cut(const MossEntry& entry, Part& part) {
    const uint64_t size = part.body.size_bytes();
    const auto begin = static_cast<uint64_t>(entry.start);
    const uint64_t end = entry.length < 0 ? size : begin + static_cast<uint64_t>(entry.length);
    if (begin < size && end <= size) {
      // A whole object keeps its time.
      if (begin > 0 || end < size) part.modified_us = 0;
      part.body = part.body.slice(begin, end);
      return true;
    }
    switch (out_of_range(call_)) {
      case Moss::OutOfRange::kHangs: hangs = true; return false;
      case Moss::OutOfRange::kEmpty: ends_early = true; return false;
      case Moss::OutOfRange::kSeeded:
      case Moss::OutOfRange::kWhole: return true;
    }
    return true;
  }

  bool take_missing(const MossEntry& entry, Part part, std::string why) {
    const Moss& moss = call_.world.ais.moss;
    if (!batch_.streams && !batch_.continues) {
      failed = error(call_.request, 404, "ErrNotFound", why);
      return false;
    }
    const bool is_too_many = batch_.continues && ++soft_errors_ > moss.max_soft_errors;
    if (is_too_many && !batch_.streams) {
      failed = error(call_.request, 400, "",
                     "x-get-batch: exceeded soft-errors limit: " + std::to_string(soft_errors_) +
                         " (max: " + std::to_string(moss.max_soft_errors) + ")");
      return false;
    }
    if (!batch_.continues && ends_at(entry)) {
      ends_early = true;
      return false;
    }
    part.name = "__404__/" + part.name;
    part.body = Body(std::string());
    part.modified_us = 0;
    part.why = std::move(why);
    parts.push_back(std::move(part));
    // The one that is too many is still told, and after it the archive ends as if it were complete.
    ends_early = is_too_many;
    return !is_too_many;
  }

  // A strict stream ends where the target that sends it misses something of its own.
  bool ends_at(const MossEntry& entry) const {
    switch (call_.world.ais.moss.missing) {
      case Moss::Missing::kEndsEarly: return true;
      case Moss::Missing::kMarker: return false;
      case Moss::Missing::kByOwner: break;
    }
    const Cluster& cluster = call_.world.cluster;
    const std::string unique = BucketName::from_key(entry.bucket).unique_prefix() + entry.object;
    return owner_among(cluster.nodes, eligible_targets(cluster), unique) == call_.request.node;
  }

  const Call& call_;
  const Batch& batch_;
  uint64_t soft_errors_ = 0;
};

struct Packed {
  Body body{};
  std::string content_type{};
};

Packed packed(const std::string& mime, std::vector<Part>& parts, bool is_open) {
  if (mime == ".zip") {
    std::vector<Member> members;
    for (Part& part : parts) members.push_back({.name = part.name, .body = part.body});
    return {.body = Body(zip_of(members)), .content_type = "application/zip"};
  }
  std::vector<Body> pieces;
  for (const Part& part : parts) {
    append_tar_member(pieces, part.name, part.body, part.modified_us);
  }
  if (!is_open) pieces.push_back(tar_end());
  Body tar = Body::joined(std::move(pieces));
  if (mime == ".tgz") {
    return {.body = Body(gzip_of(tar.copy())), .content_type = "application/gzip"};
  }
  return {.body = std::move(tar), .content_type = "application/x-tar"};
}

std::string metadata(const Batch& batch, const std::vector<Part>& parts, const std::string& uuid) {
  Json::Array out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const MossEntry& entry = batch.entries[i];
    const BucketName name = BucketName::from_key(entry.bucket);
    Json::Object line = {{"objname", entry.object}};
    if (!entry.archpath.empty()) line.emplace_back("archpath", entry.archpath);
    line.emplace_back("bucket", name.name);
    line.emplace_back("provider", name.provider);
    if (!parts[i].why.empty()) line.emplace_back("err_msg", parts[i].why);
    if (!entry.opaque.empty()) line.emplace_back("opaque", entry.opaque);
    line.emplace_back("size", parts[i].body.size_bytes());
    out.push_back(std::move(line));
  }
  return Json(Json::Object{{"uuid", uuid}, {"out", std::move(out)}}).dump() + "\n";
}

Response at_proxy(const Call& call, const Batch& batch) {
  const std::vector<size_t> targets = eligible_targets(call.world.cluster);
  if (targets.empty()) return redirect_to(call, 0, call.request.path, 307);
  const uint64_t number = ++call.world.ais.last_number;
  size_t chosen = targets[mix(number) % targets.size()];
  if (call.request.parameter("coloc") == "1") {
    // The one that most of the entries belong to.
    std::vector<uint64_t> counts(call.world.cluster.nodes.size());
    for (const MossEntry& entry : batch.entries) {
      const std::string unique = BucketName::from_key(entry.bucket).unique_prefix() + entry.object;
      ++counts[owner_among(call.world.cluster.nodes, targets, unique)];
    }
    chosen = static_cast<size_t>(std::ranges::max_element(counts) - counts.begin());
  }
  const std::string work = "pro0000-" + hex16(mix(number)).substr(0, 5);
  call.world.ais.batches[work] = chosen;
  std::string path = call.request.path;
  if (path.ends_with('/')) path.pop_back();
  return redirect_to(call, chosen, path + "/gbt-fault0000/" + work + "/1", 307);
}

}  // namespace

Response moss(const Call& call) {
  if (call.is_a()) return invalid_uri(call);
  if (call.request.method != "GET") return method_not_allowed("GET");
  Batch batch;
  if (std::optional<Response> wrong = read_batch(call, batch)) return *wrong;
  if (!call.route.bucket.empty() && !call.world.storage.find(call.route.bucket)) {
    return no_such_bucket(call.request, call.route.bucket);
  }
  for (const MossEntry& entry : batch.entries) {
    if (entry.bucket.empty()) {
      return error(call.request, 400, "",
                   "missing bucket specification for object \"" + entry.object + "\"");
    }
  }
  if (call.is_proxy()) return at_proxy(call, batch);
  if (!is_redirected(call.request)) {
    return error(call.request, 401, "", "direct target access denied");
  }
  if (std::optional<Response> failed = failed_proof(call)) return *failed;
  // Each batch is prepared once, by the proxy, for one target, and fetched once.
  const std::vector<std::string_view> parts_of_path = split(call.request.path, '/');
  const std::string work =
      parts_of_path.size() >= 2 ? std::string(parts_of_path[parts_of_path.size() - 2]) : "";
  const auto prepared = call.world.ais.batches.find(work);
  if (prepared == call.world.ais.batches.end() || prepared->second != call.request.node) {
    return error(call.request, 404, "ErrNotFound",
                 "x-get-batch: wid=\"" + work + "\" (prep-rx not done?) does not exist");
  }
  call.world.ais.batches.erase(prepared);
  Collector collector(call, batch);
  collector.collect();
  if (collector.failed) return std::move(*collector.failed);
  Packed archive = packed(batch.mime, collector.parts, collector.hangs);
  Response response{.chunked = true, .stalls = collector.hangs};
  if (batch.streams) {
    response.body = std::move(archive.body);
    response.set("Content-Type", archive.content_type);
    return response;
  }
  const std::string uuid = "gbt-fault0000";
  const std::string boundary = hex(sha256(work)).substr(0, 60);
  std::vector<Body> pieces;
  pieces.emplace_back(
      "--" + boundary + "\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n" +
      metadata(batch, collector.parts, uuid) + "\r\n--" + boundary +
      "\r\nContent-Disposition: form-data; name=\"archive\"; filename=\"get-batch[" + uuid +
      "]\"\r\nContent-Type: application/octet-stream\r\n\r\n");
  pieces.push_back(std::move(archive.body));
  pieces.emplace_back("\r\n--" + boundary + "--\r\n");
  response.body = Body::joined(std::move(pieces));
  response.set("Content-Type", "multipart/mixed; boundary=" + boundary);
  return response;
}

}  // namespace faultserver::ais
