// The GCS JSON and XML APIs over `Storage`: a request in, an answer out.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "http.h"
#include "json.h"
#include "route.h"
#include "storage.h"

namespace faultserver {

// From the head of the request alone.
Route route(const Request& request);

// Answers everything but kConnect and kControl. `base_url` is how the client called this server.
// With `partial_body` only the first part of the announced body came: a resumable upload keeps it,
// anything else is not done.
Response answer(Storage& storage, Request& request, const Route& route, const std::string& base_url,
                bool partial_body);

// An error in the form that this kind of request gets.
Response error_response(const Route& route, int status, std::string_view reason,
                        std::string_view message);

// The names in a `fields=` parameter. Asked some twenty times for each object of a listing: most
// names are told apart by their length.
class Fields {
 public:
  void emplace(std::string_view name) {
    lengths_ |= bit_of(name);
    names_.emplace(name);
  }
  bool contains(std::string_view name) const {
    return (lengths_ & bit_of(name)) != 0 && names_.contains(name);
  }
  bool empty() const { return names_.empty(); }
  void clear() {
    lengths_ = 0;
    names_.clear();
  }

 private:
  static uint64_t bit_of(std::string_view name) { return uint64_t{1} << (name.size() % 64); }
  uint64_t lengths_ = 0;
  std::set<std::string, std::less<>> names_;
};

// ── Shared by the files of this module.

// With only the members in `fields`, when it is given.
void append_object_json(std::string& out, const std::string& bucket, const Object& object,
                        const std::string& base_url, const Fields* fields = nullptr);
Response list_objects(Bucket& bucket, const Request& request, const std::string& base_url);
// x-goog-hash, generation and the like, as they stand on every answer about an object.
void set_object_headers(Response& response, const Object& object);
std::string etag_of(const Object& object);
// From `x-goog-hash` headers or the metadata's `crc32c` and `md5Hash`.
struct ExpectedSums {
  std::optional<uint32_t> crc;
  std::string md5;
  bool malformed = false;
  void read_json(const Json& json);
  void read_headers(const Headers& headers);
};
// A sentence when the sums of `bytes` are not the expected ones. `crc` becomes that of `bytes`.
std::string mismatch(const ExpectedSums& expected, std::string_view bytes, uint32_t& crc);
Response precondition_response(const Route& route, int status);

Response simple_upload(Storage& storage, Bucket& bucket, Request& request, const Route& route,
                       const std::string& base_url);
Response resumable_start(Storage& storage, Bucket& bucket, const Request& request,
                         const Route& route, const std::string& base_url);
Response resumable_put(Storage& storage, Request& request, const Route& route,
                       const std::string& base_url, bool partial_body);
Response resumable_cancel(Storage& storage, const Request& request, const Route& route);
Response xml_multipart(Storage& storage, Bucket& bucket, Request& request, const Route& route,
                       const std::string& base_url);

}  // namespace faultserver
