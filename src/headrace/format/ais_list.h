// Listings of AIStore: the body of the request, and the answer in JSON and in MessagePack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/column_page.h"

namespace headrace {

// Flags of a request.
inline constexpr uint64_t kAisListMembers = 8;      // of shards, as "shard.tar/member"
inline constexpr uint64_t kAisListNotBelow = 2048;  // names and directories of one level
inline constexpr uint64_t kAisListNoDirectories = 8192;

struct AisListQuery {
  std::string_view prefix = {};
  std::string_view page_token = {};   // ColumnPage::next_page_token of the page before
  std::string_view start_after = {};  // what comes after this name
  std::string_view props = "name,size,version,checksum";
  uint32_t page_size = 0;  // 0: as many as a page has at most
  uint64_t flags = 0;
};
std::string ais_list_body(const AisListQuery& query);

// Which entries become rows. A server that was asked for members also lists the shards.
enum class AisRows : uint8_t {
  kObjects,
  // Of a bucket behind the cluster. What the cluster has not fetched yet has no generation and no
  // checksum: the cloud's own, which is listed, is not the one with which the object will come.
  kCloudObjects,
  kMembers,
};

// What a page's token consists of: the text is "UUID CONTINUATION", "" on the last page.
struct AisPageToken {
  std::string_view uuid = {}, continuation = {};
};
AisPageToken split_ais_page_token(std::string_view text);

// Names are full names; directories go to `prefixes`, with one '/' at the end. Rows get the
// generation and the checksum if the request asked for them.
// Objects out of their places, and replicas, are listed only on request, which is no flag of ours.
// Errors: kCorrupt for what is cut off, has wrong types or no entries at all, and kUnavailable for
// a listing of objects that are out of their places. Never a part of a page.
Result<ColumnPage> parse_ais_list(std::string_view json, AisRows rows = AisRows::kObjects);
Result<ColumnPage> parse_ais_list_msgpack(std::string_view bytes, AisRows rows = AisRows::kObjects);

}  // namespace headrace
