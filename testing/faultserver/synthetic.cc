#include "synthetic.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "digest.h"
#include "text.h"

namespace faultserver {
namespace {

constexpr uint64_t kHeadBytes = 16;
constexpr uint64_t kPoolBytes = (uint64_t{1} << 20) - 3;  // Odd, so that no period hides a shift.
constexpr uint64_t kStarts = 256;  // Contents begin at this many places of the pool.

std::shared_ptr<const std::string> make_pool(uint64_t seed) {
  std::string bytes(kPoolBytes + 8, '\0');
  for (size_t at = 0; at < kPoolBytes; at += 8) {
    const uint64_t word = mix(seed + at);
    std::memcpy(&bytes[at], &word, 8);
  }
  bytes.resize(kPoolBytes);
  return std::make_shared<const std::string>(std::move(bytes));
}

std::optional<Shape> shape_from(std::string_view text) {
  if (text == "pattern") return Shape::kPattern;
  if (text == "flat") return Shape::kFlat;
  if (text == "uuid") return Shape::kUuid;
  if (text == "deep") return Shape::kDeep;
  if (text == "one_folder") return Shape::kOneFolder;
  if (text == "skewed") return Shape::kSkewed;
  if (text == "long_prefix") return Shape::kLongPrefix;
  if (text == "unicode") return Shape::kUnicode;
  if (text == "all_unicode") return Shape::kAllUnicode;
  if (text == "last_byte") return Shape::kLastByte;
  return std::nullopt;
}

// The characters that a name may have, from U+0001 on: no carriage return, line feed or surrogate.
constexpr uint64_t kCharacters = 0x10FFFF - 2 - 0x800;

void append_character(std::string& out, uint64_t number) {
  uint64_t c = number + 1;
  if (c >= '\n') ++c;
  if (c >= '\r') ++c;
  if (c >= 0xD800) c += 0x800;
  append_utf8(out, static_cast<uint32_t>(c));
}

int digits_of(uint64_t value) { return static_cast<int>(std::to_string(value).size()); }

}  // namespace

std::unique_ptr<Synthetic> Synthetic::from_json(const Json& spec, std::string& why) {
  std::unique_ptr<Synthetic> made(new Synthetic);
  made->count_ = static_cast<uint64_t>(spec["count"].integer());
  made->seed_ = static_cast<uint64_t>(spec["seed"].integer(1));
  made->prefix_ = spec["prefix"].text();
  made->per_shard_ = std::max<uint64_t>(1, static_cast<uint64_t>(spec["per_shard"].integer(1000)));
  const Json& size = spec["size_bytes"];
  if (size.is_array() && size.array().size() == 2) {
    made->min_size_bytes_ = static_cast<uint64_t>(size.array()[0].integer());
    made->max_size_bytes_ = static_cast<uint64_t>(size.array()[1].integer());
  } else {
    made->min_size_bytes_ = made->max_size_bytes_ = static_cast<uint64_t>(size.integer());
  }
  if (made->max_size_bytes_ < made->min_size_bytes_) {
    why = "size_bytes is a number or [least, most]";
    return nullptr;
  }
  const std::string pattern = spec["name_pattern"].text("sample-{index:07d}.bin");
  const std::optional<Shape> shape = shape_from(spec["shape"].text("pattern"));
  if (!shape) {
    why = "no such shape: " + spec["shape"].text();
    return nullptr;
  }
  made->shape_ = *shape;
  made->width_ = std::max(7, digits_of(made->count_));
  if (*shape == Shape::kPattern && !made->compile_pattern(pattern, why)) return nullptr;
  if (*shape == Shape::kUuid) {
    made->uuid_order_.resize(made->count_);
    std::iota(made->uuid_order_.begin(), made->uuid_order_.end(), uint64_t{0});
    // Hexadecimal digits sort as the number does. `mix` is a bijection, so no two are alike.
    std::ranges::sort(made->uuid_order_, {},
                      [seed = made->seed_](uint64_t index) { return mix(seed ^ index); });
  }
  made->pool_ = make_pool(mix(made->seed_));
  return made;
}

bool Synthetic::compile_pattern(std::string_view pattern, std::string& why) {
  while (!pattern.empty()) {
    Piece piece;
    const size_t open = pattern.find('{');
    piece.text = pattern.substr(0, open);
    if (open != std::string_view::npos) {
      const size_t close = pattern.find('}', open);
      if (close == std::string_view::npos) {
        why = "name_pattern: { without }";
        return false;
      }
      const std::string_view field = pattern.substr(open + 1, close - open - 1);
      const std::string_view called = field.substr(0, field.find(':'));
      if (called != "index" && called != "shard") {
        why = "name_pattern knows {index} and {shard}, not {" + std::string(called) + "}";
        return false;
      }
      piece.field = called == "index" ? Piece::Field::kIndex : Piece::Field::kShard;
      // The order by rank is the order by name only when every number is as wide as the widest.
      piece.width = digits_of(count_);
      if (called != field) {
        const std::string_view format = field.substr(called.size() + 1);
        const std::string_view digits = format.substr(0, format.find('d'));
        piece.width = std::max(piece.width, static_cast<int>(parse_u64(digits).value_or(1)));
        if (called == "shard") piece.width = static_cast<int>(parse_u64(digits).value_or(1));
      }
      if (called == "shard") {
        piece.width = std::max(piece.width, digits_of(count_ / per_shard_));
      }
      pattern.remove_prefix(close + 1);
    } else {
      pattern = {};
    }
    pieces_.push_back(std::move(piece));
  }
  return true;
}

uint64_t Synthetic::index_of(uint64_t rank) const {
  return shape_ == Shape::kUuid ? uuid_order_[rank] : rank;
}

std::string Synthetic::name(uint64_t rank) const {
  std::string out = prefix_;
  switch (shape_) {
    case Shape::kPattern:
      for (const Piece& piece : pieces_) {
        out += piece.text;
        if (piece.field == Piece::Field::kIndex) append_padded(out, rank, piece.width);
        if (piece.field == Piece::Field::kShard) append_padded(out, rank / per_shard_, piece.width);
      }
      return out;
    case Shape::kFlat: append_padded(out, rank, width_); return out;
    case Shape::kUuid: {
      const uint64_t high = mix(seed_ ^ uuid_order_[rank]);
      const std::string digits = hex16(high) + hex16(mix(high));
      for (size_t i = 0; i < digits.size(); ++i) {
        if (i == 8 || i == 12 || i == 16 || i == 20) out += '-';
        out += digits[i];
      }
      return out;
    }
    case Shape::kDeep: {
      // A folder per hexadecimal digit but the last; 16 objects in the deepest ones.
      constexpr char kDigits[] = "0123456789abcdef";
      int digit_count = 1;
      for (uint64_t most = count_; most >= 16; most >>= 4) ++digit_count;
      for (int i = digit_count - 1; i > 0; --i) {
        out += kDigits[(rank >> (4 * i)) & 15];
        out += '/';
      }
      out += "file-";
      append_padded(out, rank, width_);
      return out;
    }
    case Shape::kOneFolder: {
      const uint64_t small = count_ / 100;
      if (rank >= small) {
        out += "huge/";
        append_padded(out, rank, width_);
        return out;
      }
      out += "folder-";
      append_padded(out, rank / 10, width_);
      out += '/';
      append_padded(out, rank, width_);
      return out;
    }
    case Shape::kSkewed: {
      const uint64_t twentieth = count_ / 20;
      const bool low = rank < twentieth;
      const bool high = rank >= count_ - twentieth;
      out += low ? "aa/" : high ? "zz/" : "mm/";
      append_padded(out, rank, width_);
      return out;
    }
    case Shape::kLongPrefix:
      out.append(200, 'p');
      append_padded(out, rank, width_);
      return out;
    case Shape::kUnicode:
      out += "данные/写真 é+%/";
      append_padded(out, rank, width_);
      out += "-\U0001F600.jpg";
      return out;
    case Shape::kAllUnicode:
      append_character(out, rank * kCharacters / count_);
      append_padded(out, rank, width_);
      return out;
    case Shape::kLastByte:
      append_padded(out, rank / 2, width_);
      out += rank % 2 == 0 ? 'a' : 'b';
      return out;
  }
  return out;
}

uint64_t Synthetic::lower_bound(std::string_view name_wanted) const {
  uint64_t begin = 0, length = count_;
  while (length > 0) {
    const uint64_t half = length / 2;
    if (name(begin + half) < name_wanted) {
      begin += half + 1;
      length -= half + 1;
    } else {
      length = half;
    }
  }
  return begin;
}

std::optional<uint64_t> Synthetic::find(std::string_view wanted) const {
  const uint64_t rank = lower_bound(wanted);
  if (rank < count_ && name(rank) == wanted) return rank;
  return std::nullopt;
}

uint64_t Synthetic::size_bytes(uint64_t rank) const {
  const uint64_t spread = max_size_bytes_ - min_size_bytes_;
  if (spread == 0) return min_size_bytes_;
  return min_size_bytes_ + mix(seed_ + 77 + index_of(rank)) % (spread + 1);
}

Body Synthetic::content(uint64_t rank) const {
  // The head says whose bytes these are, so no two objects of a bucket are alike.
  const uint64_t start = (index_of(rank) % kStarts) * 4093 % kPoolBytes;
  return Body::made(hex16(index_of(rank)), pool_, start, size_bytes(rank));
}

uint32_t Synthetic::crc(uint64_t rank) {
  const uint64_t size = size_bytes(rank);
  const Body body = content(rank);
  if (size <= 4096) {
    uint32_t crc = 0;
    for (uint64_t at = 0; at < size;) {
      const std::string_view piece = body.view(at).substr(0, size - at);
      crc = crc32c(piece, crc);
      at += piece.size();
    }
    return crc;
  }
  // Objects whose contents begin at the same place of the pool share all but the head.
  const uint64_t tail_bytes = size - kHeadBytes;
  const uint64_t key = tail_bytes * kStarts + index_of(rank) % kStarts;
  auto found = crc_of_tail_.find(key);
  if (found == crc_of_tail_.end()) {
    uint32_t crc = 0;
    for (uint64_t at = kHeadBytes; at < size;) {
      const std::string_view piece = body.view(at);
      crc = crc32c(piece, crc);
      at += piece.size();
    }
    found = crc_of_tail_.emplace(key, crc).first;
  }
  return crc32c_joined(crc32c(hex16(index_of(rank))), found->second, tail_bytes);
}

}  // namespace faultserver
