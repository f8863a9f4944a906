// Shared by the files of the AIStore dialect: a request in, an answer out.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "http.h"
#include "json.h"
#include "route.h"
#include "storage.h"
#include "world.h"

namespace faultserver::ais {

// A request that was let in.
struct Call {
  World& world;
  Request& request;
  const Route& route;
  bool is_proxy() const { return request.at_proxy; }
  bool is_a() const { return world.ais.personality == 'A'; }
  const Node& node() const { return world.cluster.nodes[request.node]; }
};

// ── names.cc

// What a bucket's key in the storage stands for: "b" is ais://b, others are written out, as in
// "ais://#namespace/b", "ais://@uuid#namespace/b" and "aws://b".
struct BucketName {
  std::string provider = "ais";  // As the server calls it: ais, aws, gcp, azure, oci, ht.
  std::string uuid{}, space{};   // Of the namespace.
  std::string name{};

  static BucketName from_key(std::string_view key);
  std::string key() const;
  std::string shown() const;  // As in messages: "ais://b", "s3://b", "ais://#ns/b".
  std::string unique_prefix() const;
};
// From the parameters `provider` and `namespace`; nothing for a provider that there is not.
std::optional<BucketName> bucket_name(const Request& request, std::string name);
const std::string& unique_prefix_of(Bucket& bucket);
// As the server keeps a name: a row of slashes is one.
std::string collapsed(std::string_view object);
bool is_valid_object_name(std::string_view name);

// ── errors.cc

// An error as JSON, on HEAD in the header `Hdr-Error`; an empty `code` is left out.
Response error(const Request& request, int status, std::string_view code, std::string_view message);
Response no_such_bucket(const Request& request, const std::string& key, int status = 404);
Response no_such_object(const Request& request, const std::string& key, std::string_view object);
Response invalid_uri(const Call& call);
Response method_not_allowed(std::string_view allowed);
Response invalid_action(const Request& request, std::string_view action);
// "p[pro00000]", "t[tar00001]".
std::string node_name(size_t node, bool is_proxy = false);  // 0 is always one

// ── redirect.cc

// 301 or 307 to `target`, which is what the proxy answers about an object.
Response redirect(const Call& call, size_t target);
Response redirect_to(const Call& call, size_t target, const std::string& path, int status);
// The target that the proxy's map gives an object to; 0: there is none.
size_t owner(const Call& call, Bucket& bucket, std::string_view object);
// The target that has it.
size_t place(const World& world, Bucket& bucket, const Object& object);
bool is_redirected(const Request& request);
// An answer when a request to a target lacks what a redirect adds, or that is not as it was.
std::optional<Response> failed_proof(const Call& call);

// ── sums.cc

bool is_checksum_type(const Call& call, std::string_view type);
// In hexadecimal; empty for "none".
std::string checksum_of(std::string_view type, const Body& body);
// The checksum of an object, that of a made one computed now.
struct Checksum {
  std::string type{}, value{};  // Empty: none.
};
Checksum checksum_of(Bucket& bucket, const Object& object);

// ── cluster_requests.cc

Response tell_map(const Call& call);
Response tell_health(const Call& call);

// ── buckets.cc

Response answer_bucket(const Call& call);  // Create, destroy, HEAD, list all of them.
std::string set_bucket_member(Bucket& bucket, const std::string& member, const Json& value);
std::string bucket_props(const Call& call, const Bucket& bucket);

// ── listing.cc

Response list_objects(const Call& call, Bucket& bucket);

// ── objects.cc

Response get_object(const Call& call, Bucket& bucket);  // HEAD, too.
Response put_object(const Call& call, Bucket& bucket);
Response delete_object(const Call& call, Bucket& bucket);
Response rename_object(const Call& call, Bucket& bucket);
Response describe_object(const Call& call, Bucket& bucket);
Response append_object(const Call& call, Bucket& bucket);
// The object if this node has it.
ObjectPtr find_here(const Call& call, Bucket& bucket, std::string_view name);
// Makes `bytes` an object of this node; what `draft` says of it stays.
ObjectPtr store_here(const Call& call, Bucket& bucket, Object draft, Body body);

// ── archives.cc

Response get_members(const Call& call, Bucket& bucket, const Object& object);

// ── multipart.cc

Response multipart(const Call& call, Bucket& bucket);

// ── moss.cc

Response moss(const Call& call);

// ── etl.cc

// What a transformation makes of an object's bytes; nothing if there is no such one.
std::optional<std::string> transformed(std::string_view etl_name, std::string_view arguments,
                                       const Body& body);

}  // namespace faultserver::ais
