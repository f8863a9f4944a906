#include "headrace/store/s3/s3_urls.h"

#include "headrace/format/sigv4.h"
#include "headrace/store/s3/s3_errors.h"

namespace headrace {
namespace {

constexpr std::chrono::seconds kLongest = std::chrono::days(7);

}  // namespace

Result<std::string> S3Urls::signed_url(const UrlRequest& request, const Credential& credential,
                                       std::chrono::system_clock::time_point now) const {
  if (!is_one_of(request.method, {"GET", "HEAD", "PUT", "DELETE"})) {
    return invalid_argument("a URL cannot be signed for the method ", request.method,
                            "; it can for GET, HEAD, PUT and DELETE");
  }
  if (request.valid_for < std::chrono::seconds(1) || request.valid_for > kLongest) {
    return invalid_argument("a URL cannot be valid for ", request.valid_for.count(),
                            " seconds; it can for 1 to ", kLongest.count());
  }
  if (has_customer_key_) {
    return invalid_argument(
        "requests for objects under a customer_key carry the key, which belongs in no URL");
  }
  if (has_encryption_ && request.method == "PUT") {
    return invalid_argument(
        "a URL cannot say how a new object is encrypted: use a store without "
        "S3Options(encryption=) and the bucket's default encryption");
  }
  const Result<SigV4Key> key = SigV4Key::derive({.access_key_id = credential.access_key,
                                                 .secret_access_key = credential.secret_key,
                                                 .session_token = credential.session_token},
                                                home_->region(), "s3", now);
  if (!key) return std::unexpected(key.error());
  const std::shared_ptr<const Endpoint> moved_to = home_->moved_to();
  const Endpoint& at = moved_to != nullptr ? *moved_to : home_->first_endpoint();
  HttpRequest unsigned_request;
  paths_.begin(unsigned_request, request.method, request.name);
  std::string target = at.base_path + unsigned_request.target;
  paths_.append_common_parameters(target);
  presign(request.method, at.authority(), "", *key, now, request.valid_for, target);
  return cat(at.tls ? "https://" : "http://", at.authority(), target);
}

}  // namespace headrace
