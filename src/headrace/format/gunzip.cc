#include "headrace/format/gunzip.h"

#include <algorithm>
#include <array>
#include <memory>

#include "headrace/base/units.h"
#include "headrace/format/compression.h"

namespace headrace {
namespace {

constexpr size_t kScratchBytes = 32 * kKiB;

// Gives at most `max_bytes` to `room(total)`, which says where the bytes from `total` on go.
template <class Room>
Result<uint64_t> inflate_all(std::span<const std::byte> in, uint64_t max_bytes, Room&& room) {
  const std::unique_ptr<Decompressor> gzip = Decompressor::create(Compression::kGzip);
  if (!gzip) return fail(Code::kExhausted, "zlib cannot start");
  uint64_t total_bytes = 0;
  std::byte spare{};  // takes the byte that is one too many
  for (;;) {
    const bool is_full = total_bytes == max_bytes;
    const std::span<std::byte> out = is_full ? std::span(&spare, 1) : room(total_bytes);
    const Result<Decompressor::Step> step = gzip->next(in, out);
    if (!step) return std::unexpected(step.error());
    if (is_full && step->produced != 0) {
      return fail(Code::kExhausted, "gzip data expands to more than ", max_bytes, " bytes");
    }
    in = in.subspan(step->consumed);
    total_bytes += step->produced;
    if (step->produced == out.size()) continue;
    if (Result<void> whole = gzip->finish(); !whole) return std::unexpected(whole.error());
    return total_bytes;
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
