// Shared by the files of the S3 dialect: a request in, an answer out.
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "http.h"
#include "json.h"
#include "route.h"
#include "storage.h"
#include "world.h"

namespace faultserver::s3 {

// A request that was let in, to a bucket that exists.
struct Call {
  World& world;
  Storage& storage;
  Bucket& bucket;
  Request& request;
  const Route& route;
  const std::string& base_url;
};

// ── errors.cc

// An error as XML; `more` are further elements, already XML. 304 has no body.
Response error(const Route& route, int status, std::string_view code, std::string_view message,
               std::string_view more = {});
// The usual code and sentence of a status.
std::string_view usual_code(int status, bool has_object);
std::string_view usual_message(int status, bool has_object);
Response no_such_bucket(const Route& route);
Response no_such_key(const Route& route);
Response invalid_argument(const Route& route, std::string_view name, std::string_view value,
                          std::string_view message);

// ── buckets.cc

// For the control API: a sentence if there is no such member or value.
std::string set_bucket_member(S3Bucket& bucket, const std::string& member, const Json& value);
Response create_bucket(World& world, const Request& request, const Route& route);
// HEAD, ?location, ?versioning; DELETE.
Response read_bucket(const Call& call);
Response change_bucket(const Call& call);
Response delete_bucket(const Call& call);
Response list_all_buckets(const World& world, const Request& request);

// ── objects.cc

Response get_object(const Call& call);  // HEAD, too.
Response get_attributes(const Call& call);
Response put_object(const Call& call);
Response copy_object(const Call& call);
Response delete_object(const Call& call);
Response delete_objects(const Call& call);

// The version that `versionId` asks for, or the live one; null if there is none.
ObjectPtr find_object(const Call& call, const std::string& version_id);
std::string version_id_of(const Bucket& bucket, const Object& object);
std::string etag_of(const Object& object);  // Without quotes.
std::string quoted(std::string_view etag);
// Metadata, content headers and encryption that a request asks an object to have. An answer if some
// of it is wrong.
std::optional<Response> read_draft(const Call& call, Object& draft);
// x-amz-server-side-encryption and the like, of an object that was written or read.
void set_encryption_headers(Response& response, const Object& object);
// What the answers to writes say of the object: version, encryption, checksum.
void set_written_headers(const Call& call, Response& response, const Object& object);
// The source of a copy: what `x-amz-copy-source` names, once its conditions hold.
struct CopySource {
  ObjectPtr object{};
  std::optional<Response> failed{};
};
CopySource find_copy_source(const Call& call);

// ── upload_body.cc

// Takes a body in chunks apart and makes headers of its trailers. An answer if something is wrong
// with its form.
std::optional<Response> unwrap_body(Request& request, const Route& route);

// ── conditions.cc

// If-Match and If-None-Match of a write of `current` (null: there is no such object).
std::optional<Response> failed_write_condition(const Call& call, const Object* current);
std::optional<Response> failed_delete_condition(const Call& call, const Object* current);
// Of a read: 412, or 304.
std::optional<Response> failed_read_condition(const Call& call, const Object& current);
bool etag_matches(std::string_view header, const Object& object);

// ── likeness.cc

// For the control API: what `Dialect::set_likeness` says.
std::string set_likeness(Storage& storage, const Json& spec);
// The refusal of what the bucket's service does not have.
std::optional<Response> failed_likeness(const Call& call);
// Gives an answer the form that the bucket's service gives it.
void apply_likeness(const S3Bucket& bucket, Response& response);

// ── listing.cc, multipart.cc

Response list_objects(const Call& call);
Response list_versions(const Call& call);
Response multipart(const Call& call);

}  // namespace faultserver::s3
