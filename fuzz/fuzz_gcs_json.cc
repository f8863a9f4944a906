// No beginning of a complete answer is an answer; what is written with json_quote is read back.
#include <string>

#include "fuzz/check.h"
#include "headrace/format/format_test_support.h"
#include "headrace/format/gcs_json.h"
#include "headrace/format/http_date.h"
#include "headrace/format/json_quote.h"

using namespace headrace;
using fuzz::check;

namespace {

std::string to_json(const ObjectInfo& info) {
  std::string json = cat("{\"name\":", json_quote(info.name), ",\"size\":\"", info.size_bytes,
                         "\",\"metageneration\":", info.metageneration,
                         ",\"componentCount\":", info.component_count,
                         ",\"contentType\":", json_quote(info.content_type),
                         ",\"contentEncoding\":", json_quote(info.content_encoding),
                         ",\"storageClass\":", json_quote(info.storage_class), ",\"updated\":\"",
                         format_rfc3339(info.updated), "\"");
  if (!info.generation.empty()) json += cat(",\"generation\":\"", info.generation, "\"");
  if (const auto sum = info.crc32c()) json += cat(",\"crc32c\":\"", sum->to_base64(), "\"");
  return json + "}";
}

std::string to_json(const ColumnPage& page) {
  std::string json = "{\"items\":[";
  for (size_t i = 0; i < page.size(); ++i) {
    json += cat(i == 0 ? "" : ",", to_json(page.info(i)));
  }
  json += "],\"prefixes\":[";
  for (size_t i = 0; i < page.prefixes.size(); ++i) {
    json += cat(i == 0 ? "" : ",", json_quote(page.prefixes[i]));
  }
  return json + cat("],\"nextPageToken\":", json_quote(page.next_page_token), "}");
}

// Up to the last brace: what is behind it may be white space.
std::string_view cut_off(std::string_view json, fuzz::Choices& choices) {
  const size_t brace = json.rfind('}');
  return brace == std::string_view::npos ? json : json.substr(0, choices() % (brace + 1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json = fuzz::as_text(data, size);
  fuzz::Choices choices(json);

  if (const Result<ObjectInfo> info = parse_gcs_object(json)) {
    check(!info->name.empty());
    check(parse_gcs_object(to_json(*info)).value() == *info);
    check(!parse_gcs_object(cut_off(json, choices)).has_value());
  } else {
    check(info.error().code() == Code::kCorrupt);
  }

  if (const Result<ColumnPage> page = parse_gcs_list(json)) {
    const ColumnPage listed = *page;
    const ColumnPage again = parse_gcs_list(to_json(listed)).value();
    check(again.objects() == listed.objects() && again.prefixes == listed.prefixes);
    check(again.next_page_token == listed.next_page_token);
    check(!parse_gcs_list(cut_off(json, choices)).has_value());
  } else {
    check(page.error().code() == Code::kCorrupt);
  }

  if (const Result<GcsRewrite> rewrite = parse_gcs_rewrite(json)) {
    check(rewrite->done == rewrite->token.empty());
    check(rewrite->done == !rewrite->object.name.empty());
  }

  const GcsError error = parse_gcs_error(json);
  check(error.message.size() <= 200 && error.reason.size() <= 200);
  for (const char c : error.message + error.reason) check(c >= ' ' && c < 0x7F);

  // Any text survives as a name, except for bytes that are no UTF-8, which are replaced once.
  ObjectInfo named;
  named.name = "n" + std::string(json);
  const ObjectInfo read = parse_gcs_object(to_json(named)).value();
  check(parse_gcs_object(to_json(read)).value() == read);
  return 0;
}
