// What a store says about an object, in the words of this project.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/format/checksum.h"

namespace headrace {

inline constexpr uint64_t kUnknownSize = UINT64_MAX;

// When an object was last used, if the store tells. It changes with every read, so that it is no
// part of what an object is: all are equal.
struct LastUse {
  std::chrono::system_clock::time_point at{};
  bool operator==(const LastUse&) const { return true; }
};

struct ObjectInfo {
  std::string name = {};
  uint64_t size_bytes = 0;      // kUnknownSize if not known
  std::string generation = {};  // the token for "this very version"
  Checksum checksum = {};       // of the bytes, if the store tells one
  std::string content_type = {}, content_encoding = {};
  std::chrono::system_clock::time_point updated{};  // the epoch if not known
  std::string storage_class = {};
  uint32_t component_count = 0;  // 0 unless the object was composed of parts
  uint64_t metageneration = 0;   // counts changes of metadata within one generation; 0 if unknown
  LastUse last_use{};            // read or written; of AIStore's stat only
  std::optional<Crc32c> crc32c() const { return checksum.crc32c(); }
  bool operator==(const ObjectInfo&) const = default;
};

}  // namespace headrace
