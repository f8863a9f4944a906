// Any bytes give the same in pieces as at once, or the same error; what zlib and zstd pack comes
// back, and no beginning of it passes for the whole.
#include <zstd.h>

#include <string>

#include "fuzz/check.h"
#include "headrace/format/compression.h"
#include "headrace/format/gzip_test_support.h"

using namespace headrace;
using fuzz::check;

namespace {

constexpr size_t kMostBytes = 1 << 20;

std::string zstd_frame(std::string_view text, int level) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t size = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), level);
  check(ZSTD_isError(size) == 0);
  out.resize(size);
  return out;
}

struct Outcome {
  std::string plain;
  bool failed = false;
  bool too_long = false;
  bool operator==(const Outcome&) const = default;
};

// Without choices: at once. Gives up behind `kMostBytes`.
Outcome read(Compression compression, std::string_view rest, fuzz::Choices* choices) {
  Outcome out;
  const std::unique_ptr<Decompressor> decompressor = Decompressor::create(compression);
  std::string room;
  while (out.plain.size() <= kMostBytes) {
    room.resize(choices == nullptr ? kMostBytes : 1 + (*choices)() % 3000);
    const std::string_view piece =
        rest.substr(0, choices == nullptr ? rest.size() : (*choices)() % 700);
    const auto step =
        decompressor->next(fuzz::as_bytes(piece), std::as_writable_bytes(std::span(room)));
    if (!step) {
      out.failed = true;
      return out;
    }
    check(step->consumed <= piece.size() && step->produced <= room.size());
    out.plain.append(room, 0, step->produced);
    rest.remove_prefix(step->consumed);
    if (step->produced == room.size() || !rest.empty()) continue;
    out.failed = !decompressor->finish().has_value();
    return out;
  }
  out.too_long = true;
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in = fuzz::as_text(data, size);
  fuzz::Choices choices(in);
  static_cast<void>(compression_of(fuzz::as_bytes(in)));
  for (const Compression compression : {Compression::kGzip, Compression::kZstd}) {
    const Outcome at_once = read(compression, in, nullptr),
                  pieces = read(compression, in, &choices);
    // How much came before an error depends on the pieces; whether there is one does not. One that
    // is behind the bound is met or not.
    check(at_once.too_long || pieces.too_long ||
          (at_once.failed == pieces.failed && (at_once.failed || at_once == pieces)));
    const size_t cut = choices() % (size + 1);
    const auto packed = [&](std::string_view text) {
      const int level = 1 + static_cast<int>(choices() % 6);
      return compression == Compression::kGzip ? gzipped(text, level) : zstd_frame(text, level);
    };
    const std::string first = packed(in.substr(0, cut)), whole = first + packed(in.substr(cut));
    check(compression_of(fuzz::as_bytes(whole)) == compression);
    check(read(compression, whole, &choices) == Outcome{.plain = std::string(in)});
    const std::string shorter = whole.substr(0, choices() % whole.size());
    check(read(compression, shorter, &choices).failed == (shorter.size() != first.size()));
  }
  return 0;
}
