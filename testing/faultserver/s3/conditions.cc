// If-Match and If-None-Match.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-requests.html
#include <algorithm>

#include "s3/s3.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {
namespace {

Response precondition_failed(const Route& route, std::string_view condition) {
  return error(route, 412, "PreconditionFailed", usual_message(412, true),
               element("Condition", condition));
}

Response not_implemented(const Route& route, std::string_view header) {
  return error(route, 501, "NotImplemented", usual_message(501, true), element("Header", header));
}

std::optional<Response> failed(const Call& call, const Object* current, S3Bucket::Support support) {
  const std::string_view match = call.request.header("if-match");
  const std::string_view none_match = call.request.header("if-none-match");
  if (match.empty() && none_match.empty()) return std::nullopt;
  if (support == S3Bucket::Support::kIgnored) return std::nullopt;
  if (support == S3Bucket::Support::kRefused) {
    return not_implemented(call.route, match.empty() ? "If-None-Match" : "If-Match");
  }
  if (support == S3Bucket::Support::kRefused400) {
    return invalid_argument(call.route, match.empty() ? "If-None-Match" : "If-Match",
                            match.empty() ? none_match : match, "This header is not supported.");
  }
  if (!none_match.empty()) {
    if (none_match != "*") return not_implemented(call.route, "If-None-Match");
    if (current) return precondition_failed(call.route, "If-None-Match");
  }
  if (!match.empty()) {
    if (!current) return no_such_key(call.route);
    if (!etag_matches(match, *current)) return precondition_failed(call.route, "If-Match");
  }
  return std::nullopt;
}

}  // namespace

bool etag_matches(std::string_view header, const Object& object) {
  const std::string etag = etag_of(object);
  return std::ranges::any_of(split(header, ','), [&etag](std::string_view each) {
    each = trim(each);
    if (each.size() >= 2 && each.front() == '"' && each.back() == '"') {
      each = each.substr(1, each.size() - 2);
    }
    return each == "*" || each == etag;
  });
}

std::optional<Response> failed_write_condition(const Call& call, const Object* current) {
  return failed(call, current, call.bucket.s3.conditional_writes);
}

std::optional<Response> failed_delete_condition(const Call& call, const Object* current) {
  return failed(call, current, call.bucket.s3.conditional_deletes);
}

std::optional<Response> failed_read_condition(const Call& call, const Object& current) {
  const std::string_view match = call.request.header("if-match");
  if (!match.empty() && !etag_matches(match, current)) {
    return precondition_failed(call.route, "If-Match");
  }
  const std::string_view none_match = call.request.header("if-none-match");
  if (!none_match.empty() && etag_matches(none_match, current)) {
    Response response = error(call.route, 304, {}, {});
    response.set("ETag", quoted(etag_of(current)));
    return response;
  }
  return std::nullopt;
}

}  // namespace faultserver::s3
