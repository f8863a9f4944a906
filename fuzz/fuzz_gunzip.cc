// Any bytes give data or kCorrupt, within the bound; what zlib packs comes back.
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "headrace/format/gunzip.h"
#include "headrace/format/gzip_test_support.h"

using namespace headrace;
using fuzz::check;

namespace {

// Counted, then decompressed; both must agree.
Result<std::vector<std::byte>> unzipped(std::string_view bytes, uint64_t max_bytes) {
  const std::span<const std::byte> in = fuzz::as_bytes(bytes);
  const Result<uint64_t> size_bytes = gunzipped_bytes(in, max_bytes);
  if (!size_bytes) return std::unexpected(size_bytes.error());
  std::vector<std::byte> out(*size_bytes);
  check(gunzip(in, out).value() == *size_bytes);
  static_cast<void>(gunzipped_bytes_hint(in));
  return out;
}

bool same(const Result<std::vector<std::byte>>& bytes, std::string_view text) {
  return bytes.has_value() && bytes->size() == text.size() &&
         (text.empty() || std::memcmp(bytes->data(), text.data(), text.size()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  const std::string_view in = fuzz::as_text(data, size);
  fuzz::Choices choices(in);

  const auto out = unzipped(in, kMaxBytes);
  if (out) {
    check(out->size() <= kMaxBytes);
    check(unzipped(in, out->size()).value() == *out);
    if (!out->empty()) {
      check(unzipped(in, out->size() - 1).error().code() == Code::kExhausted);
    }
  } else {
    check(out.error().code() == Code::kCorrupt || out.error().code() == Code::kExhausted);
  }

  const size_t cut = choices() % (size + 1);
  const std::string packed = gzipped(in.substr(0, cut), static_cast<int>(choices() % 10)) +
                             gzipped(in.substr(cut), static_cast<int>(choices() % 10));
  check(same(unzipped(packed, size), in));
  const std::string shorter = packed.substr(0, packed.size() - 1 - choices() % 8);
  check(unzipped(shorter, kMaxBytes).error().code() == Code::kCorrupt);
  return 0;
}
