// However the bytes are cut, sums are the sum of the whole; those of CRCs can be joined, and are
// the same in every way to compute them. Texts of sums are read back.
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "headrace/format/amz_checksum.h"
#include "headrace/format/crc64nvme.h"
#include "headrace/format/running_sum.h"

using namespace headrace;
using fuzz::check;

namespace {

uint64_t crc64_bit_by_bit(std::string_view bytes) {
  uint64_t state = ~uint64_t{0};
  for (const char c : bytes) {
    state ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) ? 0x9A6C9329AC4BC9B5 : 0);
    }
  }
  return ~state;
}

void check_sums(std::string_view bytes, ChecksumKind kind, fuzz::Choices& choices) {
  const Checksum whole = sum_of(kind, fuzz::as_bytes(bytes));
  RunningSum sum(kind), added(kind);
  check(sum.kind() == kind);
  std::vector<Checksum> parts;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::string_view piece = rest.substr(0, 1 + choices() % rest.size());
    rest.remove_prefix(piece.size());
    sum.extend(fuzz::as_bytes(piece));
    RunningSum next(kind);
    next.extend(fuzz::as_bytes(piece));
    parts.push_back(next.value());
    if (can_join(kind)) added = added.joined(next, piece.size());
  }
  check(sum.value() == whole);
  if (can_join(kind)) check(added.value() == whole);

  check(checksum_from_base64(kind, to_base64(whole)).value() == whole);
  check(checksum_from_hex(kind, to_hex(whole)).value() == whole);
  const std::optional<CompositeChecksum> composite = CompositeChecksum::of(parts);
  check(composite.has_value() == !parts.empty());
  if (!composite) return;
  check(composite->is_of(parts));
  check(std::get<CompositeChecksum>(parse_amz_checksum(kind, to_text(*composite), "").value()) ==
        *composite);
  std::swap(parts.front(), parts.back());
  check(composite->is_of(parts) == (parts.front() == parts.back()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  const uint64_t crc64 = crc64_bit_by_bit(text);
  for (const Crc64Nvme::Way way :
       {Crc64Nvme::Way::kTables, Crc64Nvme::Way::kMultiply, Crc64Nvme::Way::kMultiplyWide}) {
    const auto sum = Crc64Nvme().extended(fuzz::as_bytes(text), way);
    check(!sum || sum->value() == crc64);
  }
  for (const ChecksumKind kind :
       {ChecksumKind::kCrc32, ChecksumKind::kCrc32c, ChecksumKind::kCrc64Nvme, ChecksumKind::kSha1,
        ChecksumKind::kSha256, ChecksumKind::kMd5}) {
    check_sums(text, kind, choices);
    for (const char* type : {"", "FULL_OBJECT", "COMPOSITE"}) {
      const Result<StoredChecksum> sum = parse_amz_checksum(kind, text, type);
      if (sum) check(to_text(*sum) == text);
    }
  }
  // A library's: however the bytes come, it is the same.
  const std::string_view first = text.substr(0, choices() % (text.size() + 1));
  RunningSum in_pieces(ChecksumKind::kXxh64);
  in_pieces.extend(fuzz::as_bytes(first));
  in_pieces.extend(fuzz::as_bytes(text.substr(first.size())));
  check(in_pieces.value() == sum_of(ChecksumKind::kXxh64, fuzz::as_bytes(text)));
  if (const auto md5 = md5_of_etag(text)) {
    check(to_hex(*md5).size() == 32 && !composite_md5_of_etag(text));
  }
  if (const auto composite = composite_md5_of_etag(text)) check(composite->part_count() > 0);
  return 0;
}
