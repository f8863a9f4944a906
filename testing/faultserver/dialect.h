// What a provider's protocol adds to the server. Each dialect is a folder: ais/, gcs/, s3/.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http.h"
#include "json.h"
#include "route.h"
#include "storage.h"

namespace faultserver {

struct World;

// Thread: any (immutable). What takes a `World` or a `Storage` is called with the world's lock
// held.
class Dialect {
 public:
  Dialect() = default;
  Dialect(const Dialect&) = delete;
  Dialect& operator=(const Dialect&) = delete;
  virtual ~Dialect() = default;

  // From the head of the request alone. Control requests and CONNECT never come here.
  virtual Route route(const Request& request) const = 0;

  // An answer in place of the request's own when its credentials are missing or wrong, or it came
  // to the wrong place.
  virtual std::optional<Response> refuse(World& world, const Request& request, const Route& route,
                                         const std::string& base_url) const = 0;

  // Carries the request out. `base_url` is how the client called this server. With `partial_body`
  // only the first part of the announced body came: a resumable upload keeps it, anything else is
  // not done.
  virtual Response answer(World& world, Request& request, const Route& route,
                          const std::string& base_url, bool partial_body) const = 0;

  // An error in the form that this kind of request gets. An empty reason or message: the usual one
  // for the status.
  virtual Response error(const Request& request, const Route& route, int status,
                         std::string_view reason, std::string_view message) const = 0;
  // The refusal of a request that came too soon; with status 0 the dialect's usual one.
  virtual Response throttled(const Request& request, const Route& route, int status) const = 0;

  // Whether a request is answered at its head, so that its body need not come.
  virtual bool answers_at_head(const Request&, const Route&) const { return false; }
  // Sets what a member of the control request `cluster` says; a sentence if there is none such.
  virtual std::string set_cluster_member(World&, const std::string& member, const Json&) const {
    return "no such member of a cluster: " + member;
  }

  // Make every checksum of an answer that of other bytes; leave them all out.
  virtual void spoil_checksums(Response& response) const = 0;
  virtual void remove_checksums(Response& response) const = 0;

  // Adds what stands on every answer; `unique` is another number each time.
  virtual void stamp(Response& response, uint64_t unique) const = 0;

  // Makes `bytes` the content of the live object that `draft` describes, with all sums that the
  // draft asks for.
  virtual ObjectPtr store(Storage& storage, Bucket& bucket, Object draft,
                          std::string bytes) const = 0;
  // Sets what only this dialect's buckets have; a sentence if there is no such member or value.
  virtual std::string set_bucket_member(Bucket& bucket, const std::string& member,
                                        const Json& value) const = 0;
  // Makes all buckets, and those to come, like those of the services that `spec` names: `names`,
  // and members of buckets. A sentence if there is no such name, member or value.
  virtual std::string set_likeness(Storage&, const Json&) const {
    return "only S3 has services that differ";
  }
  // What the control API tells of a stored object.
  virtual std::string describe(const Bucket& bucket, const Object& object) const = 0;
};

std::unique_ptr<Dialect> make_gcs();
std::unique_ptr<Dialect> make_ais();
// `domains`: hosts below which a bucket's name may stand, as in "bucket.DOMAIN".
std::unique_ptr<Dialect> make_s3(std::vector<std::string> domains);

}  // namespace faultserver
