// No beginning of a complete listing is a listing; what is written is read back, with names encoded
// and as they are.
#include <string>

#include "fuzz/check.h"
#include "headrace/format/format_test_support.h"
#include "headrace/format/percent.h"
#include "headrace/format/s3_xml.h"
#include "headrace/format/xml.h"

using namespace headrace;
using fuzz::check;

namespace {

std::string to_xml(const ObjectPage& page, bool is_encoded) {
  const auto append = [](std::string& xml, std::string_view name, std::string_view text) {
    xml += cat("<", name, ">");
    append_xml(xml, text);
    xml += cat("</", name, ">");
  };
  const auto named = [is_encoded](std::string_view name) {
    return is_encoded ? percent_encode_path(name) : std::string(name);
  };
  std::string xml = "<ListBucketResult>";
  for (const ObjectInfo& info : page.objects) {
    xml += "<Contents>";
    append(xml, "Key", named(info.name));
    append(xml, "Size", std::to_string(info.size_bytes));
    append(xml, "ETag", quoted_etag(info.generation));
    append(xml, "LastModified", format_rfc3339(info.updated));
    append(xml, "StorageClass", info.storage_class);
    xml += "</Contents>";
  }
  for (const std::string& prefix : page.prefixes) {
    xml += "<CommonPrefixes>";
    append(xml, "Prefix", named(prefix));
    xml += "</CommonPrefixes>";
  }
  if (is_encoded) append(xml, "EncodingType", "url");
  append(xml, "IsTruncated", page.next_page_token.empty() ? "false" : "true");
  append(xml, "NextContinuationToken", page.next_page_token);
  append(xml, "KeyCount", std::to_string(page.objects.size() + page.prefixes.size()));
  return xml + "</ListBucketResult>";
}

bool fits(const ObjectPage& page, bool is_encoded) {
  bool fit = fits_xml(page.next_page_token);
  for (const ObjectInfo& info : page.objects) {
    fit = fit && fits_xml(info.generation) && fits_xml(info.storage_class);
    fit = fit && (is_encoded || fits_xml(info.name));
    // A quote at both ends that was not doubled is one that was never there.
    fit = fit && unquoted_etag(quoted_etag(info.generation)) == info.generation;
  }
  for (const std::string& prefix : page.prefixes) fit = fit && (is_encoded || fits_xml(prefix));
  return fit;
}

void check_same(const ObjectPage& a, const ObjectPage& b) {
  check(a.objects == b.objects && a.prefixes == b.prefixes);
  check(a.next_page_token == b.next_page_token);
}

Result<ObjectPage> objects_of(std::string_view xml) {
  const Result<ColumnPage> page = parse_s3_list(xml);
  if (!page) return std::unexpected(page.error());
  return to_objects(*page);
}

void check_listing(std::string_view xml, fuzz::Choices& choices) {
  const Result<ObjectPage> page = objects_of(xml);
  if (!page) return check(page.error().code() == Code::kCorrupt);
  for (const ObjectInfo& info : page->objects) check(!info.name.empty());
  for (const bool is_encoded : {false, true}) {
    if (!fits(*page, is_encoded)) continue;
    const std::string written = to_xml(*page, is_encoded);
    const Result<ObjectPage> again = objects_of(written);
    check(again.has_value());
    check_same(*page, *again);
    check(!objects_of(std::string_view(written).substr(0, choices() % written.size())));
  }
  // A comment may stand behind the listing: without it, it is the same.
  if (const Result<ObjectPage> cut = objects_of(xml.substr(0, choices() % xml.size()))) {
    check_same(*page, *cut);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  check_listing(text, choices);

  const XmlError error = parse_xml_error(text);
  for (const std::string* each : {&error.code, &error.message, &error.region, &error.endpoint,
                                  &error.bucket, &error.request_id}) {
    check(each->size() <= 200);
    for (const char c : *each) check(c >= ' ' && c < 0x7F);
  }
  if (const Answer<CopiedObject> copied = parse_copied(text)) {
    check(*copied ? !(*copied)->generation.empty() : copied->error().code == error.code);
  }
  if (const Answer<std::string> region = parse_location(text); region && *region) {
    check(!(*region)->empty());
  }
  if (const Answer<DeleteResult> result = parse_deleted(text); result && *result) {
    for (const DeleteResult::Deleted& each : (*result)->deleted) check(!each.name.empty());
    for (const DeleteResult::Failure& each : (*result)->failures) {
      check(!each.name.empty() && !each.code.empty());
    }
  }

  // A request to delete names what it was given, or says that it cannot.
  const DeleteTarget target{.name = "n" + std::string(text)};
  const Result<std::string> request = delete_xml(std::span(&target, 1), (choices() & 1) != 0);
  check(request.has_value() == can_delete_together(target.name));
  if (request) {
    XmlDocument document;
    check(document.parse(*request));
    check(xml_text(document.root().first_child(), "Key") == target.name);
  }
  return 0;
}
