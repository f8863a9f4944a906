// Errors: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
#include <atomic>

#include "s3/s3.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {

std::string_view usual_code(int status, bool has_object) {
  switch (status) {
    case 200: return "InternalError";
    case 301: return "PermanentRedirect";
    case 304: return "NotModified";
    case 307: return "TemporaryRedirect";
    case 400: return "InvalidRequest";
    case 401:
    case 403: return "AccessDenied";
    case 404: return has_object ? "NoSuchKey" : "NoSuchBucket";
    case 405: return "MethodNotAllowed";
    case 408: return "RequestTimeout";
    case 409: return "OperationAborted";
    case 411: return "MissingContentLength";
    case 412: return "PreconditionFailed";
    case 413: return "EntityTooLarge";
    case 416: return "InvalidRange";
    case 429: return "SlowDown";
    case 501: return "NotImplemented";
    case 503: return "ServiceUnavailable";
    default: return "InternalError";
  }
}

std::string_view usual_message(int status, bool has_object) {
  switch (status) {
    case 401:
    case 403: return "Access Denied";
    case 404:
      return has_object ? "The specified key does not exist."
                        : "The specified bucket does not exist";
    case 412: return "At least one of the pre-conditions you specified did not hold";
    case 416: return "The requested range is not satisfiable";
    case 429: return "Please reduce your request rate.";
    case 200:
    case 500: return "We encountered an internal error. Please try again.";
    case 501: return "A header you provided implies functionality that is not implemented.";
    case 503: return "Service is unable to handle request.";
    default: return reason_phrase(status);
  }
}

Response error(const Route& route, int status, std::string_view code, std::string_view message,
               std::string_view more) {
  Response response{.status = status};
  if (status == 304) return response;
  static std::atomic<uint64_t> next_id = 1;
  // The same in the head and in the body, which is why it is made here.
  std::string id = "E" + hex16(mix(next_id++)).substr(1);
  for (char& c : id) {
    if (c >= 'a' && c <= 'f') c = static_cast<char>(c - ('a' - 'A'));
  }
  const std::string host_id = base64_encode("host-of-" + id);
  std::string body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>";
  body += element("Code", code) + element("Message", message);
  if (!route.bucket.empty()) body += element("BucketName", route.bucket);
  if (!route.object.empty()) body += element("Key", route.object);
  body += more;
  body += element("RequestId", id) + element("HostId", host_id) + "</Error>";
  response.headers = {
      {"Content-Type", "application/xml"}, {"x-amz-request-id", id}, {"x-amz-id-2", host_id}};
  response.body = Body(std::move(body));
  return response;
}

Response no_such_bucket(const Route& route) {
  return error(route, 404, "NoSuchBucket", usual_message(404, false));
}

Response no_such_key(const Route& route) {
  return error(route, 404, "NoSuchKey", usual_message(404, true));
}

Response invalid_argument(const Route& route, std::string_view name, std::string_view value,
                          std::string_view message) {
  return error(route, 400, "InvalidArgument", message,
               element("ArgumentName", name) + element("ArgumentValue", value));
}

}  // namespace faultserver::s3
