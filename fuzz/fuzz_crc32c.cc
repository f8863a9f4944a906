// However the bytes are cut, the joined sums are the sum of the whole, and both are what a
// bit-by-bit sum gives.
#include "fuzz/check.h"

using namespace headrace;
using fuzz::check;

namespace {

uint32_t sum_bit_by_bit(std::string_view bytes) {
  uint32_t state = 0xFFFFFFFF;
  for (const char c : bytes) {
    state ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state & 1 ? 0x82F63B78u : 0);
  }
  return ~state;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::as_text(data, size);
  fuzz::Choices choices(bytes);
  const Crc32c whole(sum_bit_by_bit(bytes));
  Crc32c extended, joined;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::string_view piece = rest.substr(0, 1 + choices() % rest.size());
    extended = extended.extended(fuzz::as_bytes(piece));
    joined = joined.joined(Crc32c().extended(fuzz::as_bytes(piece)), piece.size());
    rest.remove_prefix(piece.size());
  }
  check(extended == whole && joined == whole);
  check(Crc32c::from_base64(whole.to_base64()).value() == whole);

  // Joining is associative, at lengths that no memory holds too.
  const Crc32c other(choices());
  const uint64_t other_size = uint64_t{choices()} << 16, third_size = choices();
  const Crc32c third(choices());
  check(whole.joined(other, other_size).joined(third, third_size) ==
        whole.joined(other.joined(third, third_size), other_size + third_size));
  return 0;
}
