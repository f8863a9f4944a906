// Listings as servers write them, which only tests, fuzzers and benchmarks need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/ais_checksum.h"
#include "headrace/format/json_quote.h"

namespace headrace {

struct AisTestEntry {
  std::string name = {};
  uint64_t size_bytes = 0;
  std::string checksum = {}, version = {};
  uint64_t flags = 0;
};

// Members that are empty are left out.
inline std::string ais_json_page(std::string_view uuid, std::string_view continuation,
                                 const std::vector<AisTestEntry>& entries) {
  std::string json = cat("{\"uuid\":", json_quote(uuid),
                         ",\"continuation_token\":", json_quote(continuation), ",\"entries\":[");
  for (const AisTestEntry& entry : entries) {
    if (json.back() != '[') json += ',';
    json += cat("{\"name\":", json_quote(entry.name));
    if (!entry.checksum.empty()) json += cat(",\"checksum\":", json_quote(entry.checksum));
    if (!entry.version.empty()) json += cat(",\"version\":", json_quote(entry.version));
    if (entry.size_bytes != 0) json += cat(",\"size\":\"", entry.size_bytes, "\"");
    if (entry.flags != 0) json += cat(",\"flags\":", entry.flags);
    json += '}';
  }
  return json + "],\"flags\":0}";
}

inline void append_msgpack(std::string& out, uint64_t number) {
  const int size = number < 128                 ? 0
                   : number < 1 << 8            ? 1
                   : number < 1 << 16           ? 2
                   : number < uint64_t{1} << 32 ? 4
                                                : 8;
  if (size > 0)
    out += static_cast<char>(size == 1 ? 0xCC : size == 2 ? 0xCD : size == 4 ? 0xCE : 0xCF);
  if (size == 0) out += static_cast<char>(number);
  for (int i = size - 1; i >= 0; --i) out += static_cast<char>(number >> (8 * i));
}

inline void append_msgpack(std::string& out, std::string_view text) {
  const size_t size = text.size();
  if (size < 32) {
    out += static_cast<char>(0xA0 | size);
  } else {
    const int width = size < 256 ? 1 : size < 65536 ? 2 : 4;
    out += static_cast<char>(width == 1 ? 0xD9 : width == 2 ? 0xDA : 0xDB);
    for (int i = width - 1; i >= 0; --i) out += static_cast<char>(size >> (8 * i));
  }
  out += text;
}

inline std::string ais_msgpack_page(std::string_view uuid, std::string_view continuation,
                                    const std::vector<AisTestEntry>& entries) {
  std::string out = "\x84";
  const auto text = [&out](std::string_view key, std::string_view value) {
    append_msgpack(out, key);
    append_msgpack(out, value);
  };
  text("UUID", uuid);
  text("ContinuationToken", continuation);
  append_msgpack(out, std::string_view("Entries"));
  out += static_cast<char>(0xDD);
  for (int i = 24; i >= 0; i -= 8) out += static_cast<char>(entries.size() >> i);
  for (const AisTestEntry& entry : entries) {
    out += static_cast<char>(0x81 + !entry.checksum.empty() + !entry.version.empty() +
                             (entry.size_bytes != 0) + (entry.flags != 0));
    text("n", entry.name);
    if (!entry.checksum.empty()) text("cs", entry.checksum);
    if (!entry.version.empty()) text("v", entry.version);
    if (entry.size_bytes != 0) {
      append_msgpack(out, std::string_view("s"));
      append_msgpack(out, entry.size_bytes);
    }
    if (entry.flags != 0) {
      append_msgpack(out, std::string_view("f"));
      append_msgpack(out, entry.flags);
    }
  }
  append_msgpack(out, std::string_view("Flags"));
  append_msgpack(out, uint64_t{0});
  return out;
}

}  // namespace headrace
