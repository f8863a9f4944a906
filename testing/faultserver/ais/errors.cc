// Errors: the same members for all of them.
#include "ais/ais.h"
#include "text.h"

namespace faultserver::ais {

std::string node_name(size_t node, bool is_proxy) {
  is_proxy = is_proxy || node == 0;
  return std::string(is_proxy ? "p" : "t") + "[" + node_id(node, is_proxy) + "]";
}

Response error(const Request& request, int status, std::string_view code,
               std::string_view message) {
  Json::Object members;
  if (!code.empty()) members.emplace_back("tcode", code);
  members.emplace_back("message", message);
  members.emplace_back("method", request.method);
  members.emplace_back("url_path", percent_decode(request.path, /*plus_is_space=*/false));
  members.emplace_back("remote_addr", request.peer);
  members.emplace_back("caller", "");
  members.emplace_back("node", node_name(request.node, request.at_proxy));
  members.emplace_back("status", status);
  std::string text = Json(std::move(members)).dump();
  Response response{.status = status};
  response.headers = {{"Content-Type", "application/json"}, {"X-Content-Type-Options", "nosniff"}};
  if (request.method == "HEAD") {
    response.headers.emplace_back("Hdr-Error", std::move(text));
    response.without_length = true;
  } else {
    response.body = Body(text + "\n");
  }
  return response;
}

Response no_such_bucket(const Request& request, const std::string& key, int status) {
  return error(request, status, "ErrBckNotFound",
               "bucket \"" + BucketName::from_key(key).shown() + "\" does not exist");
}

Response no_such_object(const Request& request, const std::string& key, std::string_view object) {
  return error(request, 404, "ErrNotFound",
               node_name(request.node) + ": " + BucketName::from_key(key).shown() + "/" +
                   std::string(object) + " does not exist");
}

Response invalid_uri(const Call& call) {
  std::string message = "invalid request URI: '" + call.request.method + " " +
                        percent_decode(call.request.target, /*plus_is_space=*/false) + "'";
  if (!call.is_a()) message += " from " + call.request.peer;
  return error(call.request, 400, "", message);
}

Response method_not_allowed(std::string_view allowed) {
  Response response{.status = 405, .body = Body("Method Not Allowed\n")};
  response.headers = {{"Allow", std::string(allowed)},
                      {"Content-Type", "text/plain; charset=utf-8"},
                      {"X-Content-Type-Options", "nosniff"}};
  return response;
}

Response invalid_action(const Request& request, std::string_view action) {
  return error(request, 400, "", "invalid action \"" + std::string(action) + "\"");
}

}  // namespace faultserver::ais
