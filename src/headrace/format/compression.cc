#include "headrace/format/compression.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <limits>

namespace headrace {
namespace {

constexpr int kGzipOnly = 16 + MAX_WBITS;
constexpr int kMostWindowLog = 27;

struct Magic {
  std::string_view bytes;
  Compression compression;
};
constexpr std::array kMagics = {
    Magic{.bytes = "\x1f\x8b", .compression = Compression::kGzip},
    Magic{.bytes = "\x28\xb5\x2f\xfd", .compression = Compression::kZstd},
    Magic{.bytes = "BZh", .compression = Compression::kBzip2},
    Magic{.bytes = "\xfd"
                   "7zXZ",
          .compression = Compression::kXz},
    Magic{.bytes = "\x04\x22\x4d\x18", .compression = Compression::kLz4},
};
// Of a frame that zstd skips, behind a first byte from 0x50 to 0x5f. pzstd begins with one.
constexpr std::string_view kSkippable = "\x2a\x4d\x18";

class Gunzip final : public Decompressor {
 public:
  Gunzip() : Decompressor(Compression::kGzip) {}
  ~Gunzip() override { inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;
  bool is_ready() const { return status_ == Z_OK; }

  Result<Step> next(std::span<const std::byte> in, std::span<std::byte> out) override {
    Step step;
    while (step.produced < out.size()) {
      std::span<const std::byte> rest = in.subspan(step.consumed);
      if (at_start_ && !is_empty_) {  // zeros behind a member are padding, as for gzip itself
        const auto end = std::ranges::find_if(rest, [](std::byte b) { return b != std::byte{0}; });
        step.consumed += static_cast<size_t>(end - rest.begin());
        rest = in.subspan(step.consumed);
      }
      if (at_start_ && rest.empty()) break;
      const std::span<std::byte> room = out.subspan(step.produced);
      // zlib reads only; its declaration is older than const.
      stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(rest.data()));
      stream_.avail_in = clamped(rest.size());
      stream_.next_out = reinterpret_cast<Bytef*>(room.data());
      stream_.avail_out = clamped(room.size());
      const uInt in_before = stream_.avail_in, out_before = stream_.avail_out;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      const size_t consumed = in_before - stream_.avail_in;
      const size_t produced = out_before - stream_.avail_out;
      step.consumed += consumed;
      step.produced += produced;
      if (consumed > 0) at_start_ = is_empty_ = false;
      if (status == Z_STREAM_END) {
        at_start_ = true;
        inflateReset(&stream_);
      } else if (status == Z_MEM_ERROR) {
        return fail(Code::kExhausted, "zlib is out of memory");
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        return corrupt("gzip data: ", stream_.msg != nullptr ? stream_.msg : "malformed");
      } else if (consumed == 0 && produced == 0) {
        break;
      }
    }
    return step;
  }

 private:
  static uInt clamped(size_t size_bytes) {
    return static_cast<uInt>(std::min<size_t>(size_bytes, std::numeric_limits<uInt>::max()));
  }

  z_stream stream_{};
  const int status_ = inflateInit2(&stream_, kGzipOnly);
};

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

class Unzstd final : public Decompressor {
 public:
  Unzstd() : Decompressor(Compression::kZstd) {
    if (context_) ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMostWindowLog);
  }
  bool is_ready() const { return context_ != nullptr; }

  Result<Step> next(std::span<const std::byte> in, std::span<std::byte> out) override {
    ZSTD_inBuffer from{.src = in.data(), .size = in.size(), .pos = 0};
    ZSTD_outBuffer into{.dst = out.data(), .size = out.size(), .pos = 0};
    while (into.pos < into.size && !(at_start_ && from.pos == from.size)) {
      const size_t in_before = from.pos, out_before = into.pos;
      const size_t left = ZSTD_decompressStream(context_.get(), &into, &from);
      if (ZSTD_isError(left) != 0) return failed(left);
      if (from.pos > in_before) is_empty_ = false;
      at_start_ = left == 0;
      if (from.pos == in_before && into.pos == out_before) break;
    }
    return Step{.consumed = from.pos, .produced = into.pos};
  }

 private:
  static std::unexpected<Error> failed(size_t status) {
    switch (ZSTD_getErrorCode(status)) {
      case ZSTD_error_memory_allocation: return fail(Code::kExhausted, "zstd is out of memory");
      case ZSTD_error_frameParameter_windowTooLarge:
        return invalid_argument("zstd data that needs a window of more than ",
                                uint64_t{1} << (kMostWindowLog - 20),
                                " MiB: compress it without --ultra and --long");
      default: return corrupt("zstd data: ", ZSTD_getErrorName(status));
    }
  }

  std::unique_ptr<ZSTD_DCtx, FreeContext> context_{ZSTD_createDCtx()};
};

template <class Kind>
std::unique_ptr<Decompressor> made() {
  auto made = std::make_unique<Kind>();
  if (!made->is_ready()) return nullptr;
  return made;
}

}  // namespace

std::string_view to_string(Compression compression) {
  switch (compression) {
    case Compression::kNone: return "nothing";
    case Compression::kGzip: return "gzip";
    case Compression::kZstd: return "zstd";
    case Compression::kBzip2: return "bzip2";
    case Compression::kXz: return "xz";
    case Compression::kLz4: return "lz4";
  }
  return "";
}

Compression compression_of(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Magic& each : kMagics) {
    if (text.starts_with(each.bytes)) return each.compression;
  }
  const bool may_skip = !text.empty() && (static_cast<unsigned char>(text.front()) & 0xf0) == 0x50;
  if (may_skip && text.substr(1).starts_with(kSkippable)) return Compression::kZstd;
  return Compression::kNone;
}

std::unique_ptr<Decompressor> Decompressor::create(Compression compression) {
  if (compression == Compression::kGzip) return made<Gunzip>();
  if (compression == Compression::kZstd) return made<Unzstd>();
  return nullptr;
}

Result<void> Decompressor::finish() const {
  if (at_start_ && !is_empty_) return {};
  return corrupt(to_string(compression_), " data is cut");
}

}  // namespace headrace
