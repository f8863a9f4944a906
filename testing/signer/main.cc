// headrace-sign: signs the requests that it reads from standard input, one JSON object a line, and
// answers each with a line.
//
//   {"method": "GET", "target": "/bucket/name?versionId=1", "authority": "s3.amazonaws.com",
//    "headers": "x-amz-meta-a: 1\r\n", "payload": "UNSIGNED-PAYLOAD", "time_s": 1369353600,
//    "access_key_id": "...", "secret_access_key": "...", "session_token": "",
//    "region": "us-east-1", "service": "s3", "as": "headers"}
//
// The answer is {"headers": all header lines} to "headers"; {"target": with the signature} to
// "query", which needs "expires_s"; {"signature": ...} to "signature", in which all headers are
// signed; and {"error": why not} to what cannot be signed.
#include <simdjson.h>

#include <iostream>
#include <string>
#include <string_view>

#include "headrace/format/json_quote.h"
#include "headrace/format/sigv4.h"

namespace {

using headrace::cat;
using headrace::json_quote;

std::string answer(const simdjson::dom::object& json) {
  const auto text = [&json](const char* name) {
    std::string_view value;
    const bool is_there = json[name].get(value) == simdjson::SUCCESS;
    return is_there ? std::string(value) : std::string();
  };
  const auto seconds = [&json](const char* name) {
    int64_t value = 0;
    const bool is_there = json[name].get(value) == simdjson::SUCCESS;
    return std::chrono::seconds(is_there ? value : 0);
  };
  const std::chrono::system_clock::time_point now(seconds("time_s"));
  const headrace::Result<headrace::SigV4Key> key =
      headrace::SigV4Key::derive({.access_key_id = text("access_key_id"),
                                  .secret_access_key = text("secret_access_key"),
                                  .session_token = text("session_token")},
                                 text("region"), text("service"), now);
  if (!key) return cat("{\"error\": ", json_quote(key.error().message()), "}");
  const std::string method = text("method"), authority = text("authority");
  const std::string payload = text("payload"), as = text("as");
  std::string target = text("target"), headers = text("headers");
  const headrace::SigV4Request request{.method = method, .target = target, .authority = authority};
  if (as == "headers") {
    sign_headers(request, payload, *key, now, headers);
    return cat("{\"headers\": ", json_quote(headers), "}");
  }
  if (as == "query") {
    presign(method, authority, headers, *key, now, seconds("expires_s"), target);
    return cat("{\"target\": ", json_quote(target), "}");
  }
  const std::array<char, 64> hex = sigv4_signature(request, headers, payload, *key, now);
  return cat("{\"signature\": \"", std::string_view(hex.data(), hex.size()), "\"}");
}

}  // namespace

int main() {
  simdjson::dom::parser parser;
  for (std::string line; std::getline(std::cin, line);) {
    simdjson::dom::object json;
    if (parser.parse(line).get(json) != simdjson::SUCCESS) {
      std::cerr << "headrace-sign: a line that is no JSON object\n";
      return 2;
    }
    std::cout << answer(json) << std::endl;
  }
  return 0;
}
