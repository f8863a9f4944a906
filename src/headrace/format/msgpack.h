// MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), as far as listings of
// AIStore use it: maps with texts as keys, arrays, texts, integers, nil.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headrace {

// Reads one value after the other. What is cut off, or of another type than asked for, gives false,
// and nothing can be read after it. Never looks beyond the bytes, and makes no allocation.
// Thread: confined. Borrows the bytes, and so do the texts.
class MsgpackReader {
 public:
  explicit MsgpackReader(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }
  // Takes a nil if the next value is one.
  bool take_nil();
  bool text(std::string_view& out);
  bool number(uint64_t& out);  // false for a negative one
  // The values that follow belong to the array, or in pairs to the map. There are at least as many
  // bytes as values.
  bool array(size_t& count);
  bool map(size_t& count);
  bool skip();  // any value with all that is in it

 private:
  bool fail() {
    rest_ = {};
    return false;
  }
  bool byte(uint8_t& out);
  bool big_endian(size_t size, uint64_t& out);
  bool bytes(uint64_t size, std::string_view& out);
  bool counted(uint64_t count, uint64_t values_each, size_t& out);

  std::string_view rest_;
};

}  // namespace headrace
