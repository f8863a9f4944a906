// No beginning of a complete listing is a listing; what is written is read back, from JSON as from
// MessagePack; what a reader of MessagePack takes is what was there.
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "headrace/format/ais_list.h"
#include "headrace/format/ais_test_support.h"
#include "headrace/format/msgpack.h"

using namespace headrace;
using fuzz::check;

namespace {

// The entries that would make such a page.
std::vector<AisTestEntry> entries_of(const ColumnPage& page, AisRows rows) {
  std::vector<AisTestEntry> entries;
  for (const std::string& prefix : page.prefixes) entries.push_back({.name = prefix, .flags = 256});
  for (size_t i = 0; i < page.size(); ++i) {
    // A generation as a checksum alone is the same generation.
    entries.push_back({.name = std::string(page.name(i)),
                       .size_bytes = page.row(i).size_bytes,
                       .checksum = std::string(page.generation(i)),
                       .flags = rows == AisRows::kMembers ? 128u : 64u});
  }
  return entries;
}

void check_same(const Result<ColumnPage>& again, const ColumnPage& page) {
  check(again.has_value() && again->prefixes == page.prefixes && again->size() == page.size());
  check(again->next_page_token == page.next_page_token);
  for (size_t i = 0; i < page.size(); ++i) {
    check(again->name(i) == page.name(i) && again->generation(i) == page.generation(i));
    check(again->row(i).size_bytes == page.row(i).size_bytes);
  }
}

template <class Parse>
void check_listing(std::string_view bytes, const Parse& parse, bool is_text,
                   fuzz::Choices& choices) {
  for (const AisRows rows : {AisRows::kObjects, AisRows::kCloudObjects, AisRows::kMembers}) {
    const Result<ColumnPage> page = parse(bytes, rows);
    if (!page) {
      check(page.error().code() == Code::kCorrupt || page.error().code() == Code::kUnavailable);
      continue;
    }
    for (size_t i = 0; i < page->size(); ++i) check(!page->name(i).empty());
    for (const std::string& prefix : page->prefixes) {
      check(prefix.size() > 1 && prefix.ends_with('/') && !prefix.ends_with("//"));
    }
    const auto entries = entries_of(*page, rows);
    const AisPageToken token = split_ais_page_token(page->next_page_token);
    const std::string packed = ais_msgpack_page(token.uuid, token.continuation, entries);
    check_same(parse_ais_list_msgpack(packed, rows), *page);
    check(
        !parse_ais_list_msgpack(std::string_view(packed).substr(0, choices() % packed.size()), rows)
             .has_value());
    if (!is_text) continue;  // names that are no UTF-8 cannot be written as JSON
    const std::string json = ais_json_page(token.uuid, token.continuation, entries);
    check_same(parse_ais_list(json, rows), *page);
    check(!parse_ais_list(std::string_view(json).substr(0, choices() % json.size()), rows)
               .has_value());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  check_listing(text, parse_ais_list, true, choices);
  check_listing(text, parse_ais_list_msgpack, false, choices);

  // Skipping a value of an array takes as much as reading it.
  MsgpackReader reader(text), skipping(text);
  std::string_view read;
  if (reader.text(read)) {
    check(read.size() < text.size());
    check(skipping.skip() && skipping.at_end() == reader.at_end());
  }
  MsgpackReader counting(text);
  uint64_t number = 0;
  if (counting.number(number)) {
    MsgpackReader skipped(text);
    check(skipped.skip() && skipped.at_end() == counting.at_end());
  }
  // Any text is sent as it is, up to what is no UTF-8.
  const std::string body = ais_list_body({.prefix = text, .page_token = text});
  check(body.starts_with("{\"action\":\"list\"") && body.ends_with("}}"));
  return 0;
}
