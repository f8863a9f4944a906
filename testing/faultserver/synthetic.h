// Buckets of any size that are computed, not stored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "body.h"
#include "json.h"

namespace faultserver {

// What the names look like; `README.md` shows one of each.
enum class Shape {
  kPattern,
  kFlat,
  kUuid,
  kDeep,
  kOneFolder,
  kSkewed,
  kLongPrefix,
  kUnicode,
  kAllUnicode,
  kLastByte,
};

// The names and contents of a made bucket. A rank is a name's place in the sorted order.
// Thread: confined (it caches).
class Synthetic {
 public:
  // Nothing, and a sentence in `why`, for a wrong specification.
  static std::unique_ptr<Synthetic> from_json(const Json& spec, std::string& why);

  uint64_t count() const { return count_; }
  std::string name(uint64_t rank) const;
  // The rank of the first name that is not less than `name`.
  uint64_t lower_bound(std::string_view name) const;
  std::optional<uint64_t> find(std::string_view name) const;
  uint64_t size_bytes(uint64_t rank) const;
  Body content(uint64_t rank) const;
  uint32_t crc(uint64_t rank);

 private:
  Synthetic() = default;
  bool compile_pattern(std::string_view pattern, std::string& why);
  uint64_t index_of(uint64_t rank) const;
  std::string folder_name(uint64_t rank, std::string_view last_folder) const;

  struct Piece {  // Literal text, then a field.
    std::string text;
    enum class Field { kNone, kIndex, kShard } field = Field::kNone;
    int width = 1;
  };

  uint64_t count_ = 0;
  uint64_t min_size_bytes_ = 0, max_size_bytes_ = 0;
  uint64_t per_shard_ = 1000;
  uint64_t seed_ = 0;
  int width_ = 7;
  Shape shape_ = Shape::kPattern;
  std::string prefix_;
  std::vector<Piece> pieces_;
  std::vector<uint64_t> uuid_order_;  // Index by rank.
  std::shared_ptr<const std::string> pool_;
  std::unordered_map<uint64_t, uint32_t> crc_of_tail_;  // By place in the pool and length.
};

}  // namespace faultserver
