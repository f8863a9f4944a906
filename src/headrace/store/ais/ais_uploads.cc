#include "headrace/store/ais/ais_uploads.h"

#include "headrace/format/json_quote.h"
#include "headrace/format/percent.h"

namespace headrace {
namespace {

std::string action(std::string_view name) { return cat("{\"action\":\"", name, "\"}"); }

}  // namespace

// ── Multipart ────────────────────────────────────────────────────────────────────────────────

void AisMultipartUploads::build_start(HttpRequest& request, const WriteRequest& write,
                                      SumLevel) const {
  paths_.begin(request, "POST", write.name);
  request.own_body(action("mpt-upload"));
}

Result<std::string> AisMultipartUploads::parse_started(const Response& response) const {
  return std::string(response.body);
}

void AisMultipartUploads::build_part(HttpRequest& request, std::string_view name,
                                     std::string_view upload_id, uint32_t part_number,
                                     std::span<const std::span<const std::byte>> bytes,
                                     const SentSums&) const {
  paths_.begin(request, "PUT", name);
  AisPaths::append_parameter(request.target, "uploadId", upload_id);
  AisPaths::append_parameter(request.target, "partNumber", std::to_string(part_number));
  request.body.assign(bytes.begin(), bytes.end());
  request.has_body = true;
  request.waits_for_continue = true;
}

void AisMultipartUploads::build_complete(HttpRequest& request,
                                         const MultipartCompletion& completion,
                                         std::string&) const {
  paths_.begin(request, "POST", completion.name);
  AisPaths::append_parameter(request.target, "uploadId", completion.upload_id);
  std::string body = R"({"action":"mpt-complete","value":[)";
  for (const SentPart& part : completion.parts) {
    body += cat(part.part_number > 1 ? "," : "", R"({"part-number":)", part.part_number,
                R"(,"etag":""})");
  }
  request.own_body(body + "]}");
}

void AisMultipartUploads::build_abort(HttpRequest& request, std::string_view name,
                                      std::string_view upload_id) const {
  paths_.begin(request, "DELETE", name);
  AisPaths::append_parameter(request.target, "uploadId", upload_id);
  request.own_body(action("mpt-abort"));
}

void AisMultipartUploads::build_list(HttpRequest& request, std::string_view, std::string_view,
                                     std::string_view) const {
  request.refused = Error(Code::kInvalidArgument, "AIStore lists no unfinished uploads");
}

// ── What an object is ────────────────────────────────────────────────────────────────────────

std::string ais_custom_value(std::string_view plain) {
  constexpr std::string_view kPlain = "-._~/;=+* \"'";
  std::string out;
  for (const char c : plain) {
    const bool is_word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (is_word || kPlain.contains(c)) {
      out.push_back(c);
    } else {
      percent_encode_to(out, std::string_view(&c, 1));
    }
  }
  return out;
}

std::string ais_plain_value(std::string_view custom) {
  return percent_decode(custom).value_or(std::string(custom));
}

void AisDescribing::build_describe(HttpRequest& request, std::string_view name,
                                   const WriteRequest& like) const {
  paths_.begin(request, "PATCH", name);
  // Both, also where one is empty: an object that was replaced leaves its own. All others stay; of
  // a cloud's object they say what it is there.
  request.own_body(cat(R"({"value":{")", kAisContentType, R"(":)",
                       json_quote(ais_custom_value(like.content_type)), R"(,")",
                       kAisContentEncoding, R"(":)",
                       json_quote(ais_custom_value(like.content_encoding)), "}}"));
}

// ── Append ───────────────────────────────────────────────────────────────────────────────────

bool AisAppends::lacks_multipart(const Error& refusal) const {
  return refusal.http_status() == 400 &&
         refusal.message().contains("invalid action \"mpt-upload\"");
}

void AisAppends::build_append(HttpRequest& request, std::string_view name, std::string_view handle,
                              std::span<const std::span<const std::byte>> bytes) const {
  paths_.begin(request, "PUT", name);
  request.object = {};  // the handle belongs to one target, which the proxy reads from it
  request.target.append("&append_type=append");
  AisPaths::append_parameter(request.target, "append_handle", handle);
  request.body.assign(bytes.begin(), bytes.end());
  request.has_body = true;
  request.waits_for_continue = true;
  request.on_new_connection = true;
}

std::string AisAppends::handle(const ResponseHead& head) const {
  return std::string(head.find("ais-append-handle").value_or(""));
}

void AisAppends::build_flush(HttpRequest& request, std::string_view name,
                             std::string_view handle) const {
  paths_.begin(request, "PUT", name);
  request.object = {};
  request.target.append("&append_type=flush");
  AisPaths::append_parameter(request.target, "append_handle", handle);
  request.has_body = true;
}

void AisAppends::build_rename(HttpRequest& request, std::string_view from,
                              std::string_view to) const {
  paths_.begin(request, "POST", from);
  request.own_body(cat(R"({"action":"rename-obj","name":)", json_quote(paths_.full_name(to)), "}"));
}

}  // namespace headrace
