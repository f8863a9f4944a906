// Checksums of every kind, while the bytes arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "headrace/format/checksum.h"
#include "headrace/format/crc32c.h"
#include "headrace/format/xxh64.h"

namespace headrace {

// The sum of bytes that come in pieces. CRCs take a number and no allocation; SHA-1, SHA-256 and
// MD5 take OpenSSL's context, and XXH64 its 88 bytes. A RunningSum() of no kind ignores what it is
// given.
// Thread: confined.
class RunningSum {
 public:
  // False for kinds that the system's OpenSSL refuses (MD5 in FIPS mode).
  static bool can_sum(ChecksumKind kind);

  RunningSum() = default;
  // Of no kind if that kind cannot be summed.
  explicit RunningSum(ChecksumKind kind);

  ChecksumKind kind() const { return kind_; }

  void extend(std::span<const std::byte> bytes) {
    if (kind_ == ChecksumKind::kCrc32c) [[likely]] {
      number_ = Crc32c(static_cast<uint32_t>(number_)).extended(bytes).value();
    } else {
      extend_other(bytes);
    }
  }

  // The sum of these bytes followed by the `next_size_bytes` bytes of `next`, without reading them
  // again. Only for sums of one kind that can be joined; of no kind otherwise.
  RunningSum joined(const RunningSum& next, uint64_t next_size_bytes) const;

  // The sum so far. More may follow.
  Checksum value() const;

 private:
  struct FreeDigest {
    void operator()(void* digest) const;
  };

  void extend_other(std::span<const std::byte> bytes);

  ChecksumKind kind_ = ChecksumKind::kNone;
  uint64_t number_ = 0;                         // of a CRC
  std::unique_ptr<void, FreeDigest> digest_{};  // of SHA-1, SHA-256 and MD5: an EVP_MD_CTX
  std::unique_ptr<Xxh64> xxh64_{};
};

// True for CRCs: sums of pieces give the sum of the whole.
bool can_join(ChecksumKind kind);
// The sum of the bytes of `first` followed by the `next_size_bytes` bytes of `next`; of no kind
// unless both are of one kind that can be joined.
Checksum joined(const Checksum& first, const Checksum& next, uint64_t next_size_bytes);
// The sum of the bytes before the `last_size_bytes` bytes of `last`, if `whole` is that of both; of
// no kind unless both are of one kind that can be joined.
Checksum without_last(const Checksum& whole, const Checksum& last, uint64_t last_size_bytes);

// The sum of some bytes; of no kind if that kind cannot be summed.
Checksum sum_of(ChecksumKind kind, std::span<const std::byte> bytes);

}  // namespace headrace
