#include "headrace/format/gunzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "headrace/base/units.h"

namespace headrace {
namespace {

constexpr int kGzipOnly = 16 + MAX_WBITS;
constexpr uint64_t kFirstBytes = 16 * kKiB;

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

}  // namespace

Result<std::vector<std::byte>> gunzip(std::span<const std::byte> in, uint64_t max_bytes) {
  Inflater inflater;
  z_stream& stream = inflater.stream;
  if (inflater.status != Z_OK) return fail(Code::kExhausted, "zlib cannot start");

  std::vector<std::byte> out;
  size_t size_bytes = 0;  // of `out`, what is written
  bool at_start = false;  // between two members
  Bytef spare = 0;        // takes the byte that is one too many
  for (;;) {
    if (at_start && in.empty()) break;
    if (size_bytes == out.size()) {
      const uint64_t wanted = std::max<uint64_t>({out.size() * 2, in.size() * 4, kFirstBytes});
      out.resize(static_cast<size_t>(std::min(wanted, max_bytes)));
    }
    const bool is_full = size_bytes == out.size();
    // zlib reads only; its declaration is older than const.
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
    stream.avail_in = clamped(in.size());
    stream.next_out = is_full ? &spare : reinterpret_cast<Bytef*>(out.data() + size_bytes);
    stream.avail_out = is_full ? 1 : clamped(out.size() - size_bytes);
    const uInt in_before = stream.avail_in, out_before = stream.avail_out;

    const int status = inflate(&stream, Z_NO_FLUSH);
    const size_t consumed = in_before - stream.avail_in;
    const size_t produced = out_before - stream.avail_out;
    in = in.subspan(consumed);
    if (is_full && produced != 0) {
      return fail(Code::kExhausted, "gzip data expands to more than ", max_bytes, " bytes");
    }
    size_bytes += produced;
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
  out.resize(size_bytes);
  return out;
}

}  // namespace headrace
