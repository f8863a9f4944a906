// Google Cloud Storage as a dialect: credentials, checksums and errors as faults need them.
#include "dialect.h"

#include "digest.h"
#include "gcs/gcs.h"
#include "text.h"
#include "world.h"

namespace faultserver {
namespace {

std::string_view reason_for(int status) {
  switch (status) {
    case 400: return "invalid";
    case 401: return "authError";
    case 403: return "forbidden";
    case 404: return "notFound";
    case 412: return "conditionNotMet";
    case 429: return "rateLimitExceeded";
    default: return "backendError";
  }
}

class Gcs final : public Dialect {
 public:
  Route route(const Request& request) const override { return faultserver::route(request); }

  std::optional<Response> refuse(World& world, const Request& request, const Route& route,
                                 const std::string&) const override {
    const std::string_view given = request.header("authorization");
    const bool known =
        given.starts_with("Bearer ") && world.tokens.contains(std::string(given.substr(7)));
    if (world.tokens.empty() || known) return std::nullopt;
    return error_response(route, 401, given.empty() ? "required" : "authError",
                          given.empty() ? "Login Required." : "Invalid Credentials");
  }

  Response answer(World& world, Request& request, const Route& route, const std::string& base_url,
                  bool partial_body) const override {
    return faultserver::answer(world.storage, request, route, base_url, partial_body);
  }

  Response error(const Request&, const Route& route, int status, std::string_view reason,
                 std::string_view message) const override {
    // A reason only shows in JSON, so the answer is JSON even where downloads get plain text.
    Route form = route;
    if (!reason.empty() && !form.xml) form.kind = Kind::kGet;
    return error_response(form, status, reason.empty() ? reason_for(status) : reason,
                          message.empty() ? reason_phrase(status) : message);
  }

  Response throttled(const Request&, const Route& route, int status) const override {
    return error_response(route, status != 0 ? status : 429, "rateLimitExceeded",
                          "The rate of requests exceeds the limit. Reduce your request rate and "
                          "retry.");
  }

  void spoil_checksums(Response& response) const override {
    const auto spoil = [](std::string& text, size_t at) {
      // The first of the base64 characters: it carries six bits of the sum.
      text[at] = text[at] == 'A' ? 'B' : 'A';
    };
    for (auto& [name, value] : response.headers) {
      if (!equal_ignoring_case(name, "x-goog-hash")) continue;
      for (const std::string_view key : {"crc32c=", "md5="}) {
        if (const size_t at = value.find(key); at != std::string::npos) {
          spoil(value, at + key.size());
        }
      }
    }
    if (!is_json(response)) return;
    std::string body = response.body.copy();
    for (const std::string_view key : {"\"crc32c\":\"", "\"md5Hash\":\""}) {
      for (size_t at = body.find(key); at != std::string::npos; at = body.find(key, at + 1)) {
        spoil(body, at + key.size());
      }
    }
    response.body = Body(std::move(body));
  }

  void remove_checksums(Response& response) const override {
    response.remove("x-goog-hash");
    if (!is_json(response)) return;
    std::string body = response.body.copy();
    for (const std::string_view key : {"\"crc32c\":\"", "\"md5Hash\":\""}) {
      for (size_t at = body.find(key); at != std::string::npos; at = body.find(key, at)) {
        // With the comma behind it, or the one before it if it is the last member.
        size_t end = body.find('"', at + key.size()) + 1;
        if (body[end] == ',') {
          ++end;
        } else if (body[at - 1] == ',') {
          --at;
        }
        body.erase(at, end - at);
      }
    }
    response.body = Body(std::move(body));
  }

  void stamp(Response& response, uint64_t unique) const override {
    if (find_header(response.headers, "x-guploader-uploadid").empty()) {
      response.headers.emplace_back("X-GUploader-UploadID", "F" + hex16(mix(unique)));
    }
    response.headers.emplace_back("Server", "UploadServer");
  }

  ObjectPtr store(Storage& storage, Bucket& bucket, Object draft,
                  std::string bytes) const override {
    draft.crc = crc32c(bytes);
    draft.body = Body(std::move(bytes));
    // Composite objects have no MD5, and neither have those that replace an object without one.
    const bool is_new = draft.generation == 0;
    const bool with_md5 = draft.component_count == 0 && (is_new || !draft.md5.empty());
    return storage.commit(bucket, std::move(draft), with_md5);
  }

  std::string set_bucket_member(Bucket&, const std::string& member, const Json&) const override {
    return "no such member of a bucket: " + member;
  }

  std::string describe(const Bucket& bucket, const Object& object) const override {
    std::string out;
    append_object_json(out, bucket.name, object, "");
    return out;
  }

 private:
  static bool is_json(const Response& response) {
    return find_header(response.headers, "content-type").starts_with("application/json");
  }
};

}  // namespace

std::unique_ptr<Dialect> make_gcs() { return std::make_unique<Gcs>(); }

}  // namespace faultserver
