#include "headrace/format/ais_batch.h"

#include "headrace/base/ascii.h"
#include "headrace/base/result.h"
#include "headrace/format/json_quote.h"

namespace headrace {

std::string ais_batch_body(std::span<const AisBatchEntry> entries) {
  std::string body = R"({"mime":".tar","in":[)";
  for (const AisBatchEntry& entry : entries) {
    if (body.back() != '[') body += ',';
    body.append(R"({"objname":)").append(json_quote(entry.name));
    if (!entry.member.empty()) body.append(R"(,"archpath":)").append(json_quote(entry.member));
    if (entry.range) {
      body += cat(R"(,"start":)", entry.range->begin, R"(,"length":)", entry.range->size_bytes());
    }
    body += '}';
  }
  // Go on after what is missing; names without the bucket; send while it is made.
  return body + R"(],"coer":true,"onob":true,"strm":true})";
}

std::string ais_batch_member_name(const AisBatchEntry& entry) {
  if (entry.member.empty()) return entry.name;
  return cat(entry.name, entry.member.starts_with('/') ? "" : "/", entry.member);
}

std::string ais_batch_missing_name(const AisBatchEntry& entry) {
  return cat("__404__/", ais_batch_member_name(entry));
}

std::string_view ais_batch_redirect_path(std::string_view location) {
  const size_t scheme_end = location.find("://");
  if (scheme_end == std::string_view::npos) return "";
  const size_t begin = location.find('/', scheme_end + 3);
  if (begin == std::string_view::npos) return "";
  const std::string_view path = location.substr(begin, location.find('?', begin) - begin);
  return path.starts_with("/v1/ml/moss/") ? path : "";
}

bool is_ais_batch_unknown(int http_status, std::string_view message) {
  return (http_status == 400 || http_status == 404) &&
         ascii_lower(message).contains("invalid request uri");
}

}  // namespace headrace
