#include "headrace/format/msgpack.h"

namespace headrace {
namespace {

// The first bytes of values.
enum : uint8_t {
  kFixMap = 0x80,    // and 15 more
  kFixArray = 0x90,  // and 15 more
  kFixText = 0xA0,   // and 31 more
  kNil = 0xC0,
  kNeverUsed = 0xC1,
  kFalse = 0xC2,
  kTrue = 0xC3,
  kBin8 = 0xC4,
  kExt8 = 0xC7,
  kFloat32 = 0xCA,
  kFloat64 = 0xCB,
  kUint8 = 0xCC,
  kInt8 = 0xD0,
  kFixExt1 = 0xD4,
  kText8 = 0xD9,
  kArray16 = 0xDC,
  kMap16 = 0xDE,
  kNegative = 0xE0,  // and 31 more
};

}  // namespace

bool MsgpackReader::byte(uint8_t& out) {
  if (rest_.empty()) return fail();
  out = static_cast<uint8_t>(rest_.front());
  rest_.remove_prefix(1);
  return true;
}

bool MsgpackReader::big_endian(size_t size, uint64_t& out) {
  if (rest_.size() < size) return fail();
  out = 0;
  for (size_t i = 0; i < size; ++i) out = out << 8 | static_cast<uint8_t>(rest_[i]);
  rest_.remove_prefix(size);
  return true;
}

bool MsgpackReader::bytes(uint64_t size, std::string_view& out) {
  if (rest_.size() < size) return fail();
  out = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

bool MsgpackReader::counted(uint64_t count, uint64_t values_each, size_t& out) {
  if (count * values_each > rest_.size()) return fail();  // no overflow: a count has 32 bits
  out = count;
  return true;
}

bool MsgpackReader::take_nil() {
  if (rest_.empty() || static_cast<uint8_t>(rest_.front()) != kNil) return false;
  rest_.remove_prefix(1);
  return true;
}

bool MsgpackReader::text(std::string_view& out) {
  uint8_t first = 0;
  if (!byte(first)) return false;
  uint64_t size = first & 31;
  if ((first & 0xE0) != kFixText) {
    if (first < kText8 || first > kText8 + 2) return fail();
    if (!big_endian(size_t{1} << (first - kText8), size)) return false;
  }
  return bytes(size, out);
}

bool MsgpackReader::number(uint64_t& out) {
  uint8_t first = 0;
  if (!byte(first)) return false;
  out = first;
  if (first < kFixMap) return true;
  if (first < kUint8 || first > kInt8 + 3) return fail();
  const bool is_signed = first >= kInt8;
  const size_t size = size_t{1} << (first - (is_signed ? kInt8 : kUint8));
  if (!big_endian(size, out)) return false;
  return !is_signed || (out >> (8 * size - 1)) == 0 || fail();
}

bool MsgpackReader::array(size_t& count) {
  uint8_t first = 0;
  if (!byte(first)) return false;
  uint64_t read = first & 15;
  if ((first & 0xF0) != kFixArray) {
    if (first < kArray16 || first > kArray16 + 1) return fail();
    if (!big_endian(size_t{2} << (first - kArray16), read)) return false;
  }
  return counted(read, 1, count);
}

bool MsgpackReader::map(size_t& count) {
  uint8_t first = 0;
  if (!byte(first)) return false;
  uint64_t read = first & 15;
  if ((first & 0xF0) != kFixMap) {
    if (first < kMap16 || first > kMap16 + 1) return fail();
    if (!big_endian(size_t{2} << (first - kMap16), read)) return false;
  }
  return counted(read, 2, count);
}

bool MsgpackReader::skip() {
  std::string_view ignored;
  // Counts what is left instead of descending: no depth is too much. Every value has a byte, so
  // that the count cannot overflow.
  for (uint64_t left = 1; left > 0; --left) {
    if (rest_.empty()) return fail();
    const auto first = static_cast<uint8_t>(rest_.front());
    size_t count = 0;
    uint64_t size = 0;
    if ((first & 0xF0) == kFixArray || first == kArray16 || first == kArray16 + 1) {
      if (!array(count)) return false;
      left += count;
    } else if ((first & 0xF0) == kFixMap || first == kMap16 || first == kMap16 + 1) {
      if (!map(count)) return false;
      left += 2 * uint64_t{count};
    } else if ((first & 0xE0) == kFixText || (first >= kText8 && first <= kText8 + 2)) {
      if (!text(ignored)) return false;
    } else {
      rest_.remove_prefix(1);
      bool is_good = first != kNeverUsed;
      if (first >= kBin8 && first < kExt8) {
        is_good = big_endian(size_t{1} << (first - kBin8), size) && bytes(size, ignored);
      } else if (first >= kExt8 && first < kFloat32) {
        is_good = big_endian(size_t{1} << (first - kExt8), size) && bytes(size + 1, ignored);
      } else if (first == kFloat32 || first == kFloat64) {
        is_good = bytes(size_t{4} << (first - kFloat32), ignored);
      } else if (first >= kUint8 && first < kFixExt1) {
        is_good = bytes(size_t{1} << ((first - kUint8) & 3), ignored);
      } else if (first >= kFixExt1 && first < kText8) {
        is_good = bytes((size_t{1} << (first - kFixExt1)) + 1, ignored);
      }  // else small integers, nil, false, true
      if (!is_good) return fail();
    }
  }
  return true;
}

}  // namespace headrace
