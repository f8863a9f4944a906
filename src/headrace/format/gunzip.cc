#include "headrace/format/gunzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "headrace/base/units.h"

namespace headrace {
namespace {

constexpr int kGzipOnly = 16 + MAX_WBITS;
constexpr size_t kScratchBytes = 32 * kKiB;

struct Inflater {
  z_stream stream{};
  int status = inflateInit2(&stream, kGzipOnly);
  Inflater() = default;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

uInt clamped(uint64_t size_bytes) {
  return static_cast<uInt>(std::min<uint64_t>(size_bytes, std::numeric_limits<uInt>::max()));
}

// Gives at most `max_bytes` to `room(total)`, which says where the bytes from `total` on go.
template <class Room>
Result<uint64_t> inflate_all(std::span<const std::byte> in, uint64_t max_bytes, Room&& room) {
  Inflater inflater;
  z_stream& stream = inflater.stream;
  if (inflater.status != Z_OK) return fail(Code::kExhausted, "zlib cannot start");

  uint64_t total_bytes = 0;
  bool at_start = false;  // between two members
  Bytef spare = 0;        // takes the byte that is one too many
  for (;;) {
    if (at_start && in.empty()) return total_bytes;
    const bool is_full = total_bytes == max_bytes;
    const std::span<std::byte> out = is_full ? std::span<std::byte>() : room(total_bytes);
    // zlib reads only; its declaration is older than const.
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
    stream.avail_in = clamped(in.size());
    stream.next_out = is_full ? &spare : reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = is_full ? 1 : clamped(out.size());
    const uInt in_before = stream.avail_in, out_before = stream.avail_out;

    const int status = inflate(&stream, Z_NO_FLUSH);
    const size_t consumed = in_before - stream.avail_in;
    const size_t produced = out_before - stream.avail_out;
    in = in.subspan(consumed);
    if (is_full && produced != 0) {
      return fail(Code::kExhausted, "gzip data expands to more than ", max_bytes, " bytes");
    }
    total_bytes += produced;
    at_start = status == Z_STREAM_END;
    if (at_start) {
      inflateReset(&stream);
    } else if (status == Z_MEM_ERROR) {
      return fail(Code::kExhausted, "zlib is out of memory");
    } else if (status == Z_BUF_ERROR || (status == Z_OK && consumed == 0 && produced == 0)) {
      return corrupt("gzip data is cut");  // it had input and room, if there was any
    } else if (status != Z_OK) {
      return corrupt("gzip data: ", stream.msg != nullptr ? stream.msg : "malformed");
    }
  }
}

}  // namespace

Result<uint64_t> gunzip(std::span<const std::byte> in, std::span<std::byte> out) {
  return inflate_all(in, out.size(), [out](uint64_t done) { return out.subspan(done); });
}

Result<uint64_t> gunzipped_bytes(std::span<const std::byte> in, uint64_t max_bytes) {
  std::array<std::byte, kScratchBytes> scratch;
  return inflate_all(in, max_bytes, [&](uint64_t done) {
    return std::span(scratch).first(std::min<uint64_t>(kScratchBytes, max_bytes - done));
  });
}

uint64_t gunzipped_bytes_hint(std::span<const std::byte> in) {
  if (in.size() < 4) return 0;
  uint64_t hint = 0;
  for (size_t i = 0; i < 4; ++i) {
    hint |= std::to_integer<uint64_t>(in[in.size() - 4 + i]) << (8 * i);
  }
  return hint;
}

}  // namespace headrace
