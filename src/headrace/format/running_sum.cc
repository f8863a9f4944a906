#include "headrace/format/running_sum.h"

#include <array>

#include <openssl/evp.h>

#include "headrace/format/crc32.h"
#include "headrace/format/crc64nvme.h"

namespace headrace {
namespace {

// Null for kinds without one. OpenSSL looks a digest up under a lock, so that is done once, for the
// life of the process; AWS-LC has constants.
const EVP_MD* digest_of(ChecksumKind kind) {
#ifdef OPENSSL_IS_AWSLC
  static const EVP_MD* const sha1 = EVP_sha1();
  static const EVP_MD* const sha256 = EVP_sha256();
  static const EVP_MD* const md5 = EVP_md5();
#else
  static const EVP_MD* const sha1 = EVP_MD_fetch(nullptr, "SHA1", nullptr);
  static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  static const EVP_MD* const md5 = EVP_MD_fetch(nullptr, "MD5", nullptr);
#endif
  switch (kind) {
    case ChecksumKind::kSha1: return sha1;
    case ChecksumKind::kSha256: return sha256;
    case ChecksumKind::kMd5: return md5;
    case ChecksumKind::kNone:
    case ChecksumKind::kCrc32:
    case ChecksumKind::kCrc32c:
    case ChecksumKind::kCrc64Nvme:
    case ChecksumKind::kXxh64: return nullptr;
  }
  return nullptr;
}

EVP_MD_CTX* context(void* digest) { return static_cast<EVP_MD_CTX*>(digest); }

// What `combine` makes of two CRCs of one kind; of no kind if they are no such sums.
template <class Combine>
Checksum with_crcs(const Checksum& one, const Checksum& other, Combine&& combine) {
  if (one.kind() != other.kind()) return {};
  const auto combined = [&]<class Crc, class Word>() {
    return Checksum(one.kind(), uint64_t{combine(Crc(static_cast<Word>(one.number())),
                                                 Crc(static_cast<Word>(other.number())))
                                             .value()});
  };
  switch (one.kind()) {
    case ChecksumKind::kCrc32: return combined.template operator()<Crc32, uint32_t>();
    case ChecksumKind::kCrc32c: return combined.template operator()<Crc32c, uint32_t>();
    case ChecksumKind::kCrc64Nvme: return combined.template operator()<Crc64Nvme, uint64_t>();
    case ChecksumKind::kNone:
    case ChecksumKind::kSha1:
    case ChecksumKind::kSha256:
    case ChecksumKind::kMd5:
    case ChecksumKind::kXxh64: return {};
  }
  return {};
}

}  // namespace

void RunningSum::FreeDigest::operator()(void* digest) const { EVP_MD_CTX_free(context(digest)); }

bool can_join(ChecksumKind kind) {
  return kind == ChecksumKind::kCrc32 || kind == ChecksumKind::kCrc32c ||
         kind == ChecksumKind::kCrc64Nvme;
}

bool RunningSum::can_sum(ChecksumKind kind) {
  return can_join(kind) || kind == ChecksumKind::kXxh64 || digest_of(kind) != nullptr;
}

RunningSum::RunningSum(ChecksumKind kind) {
  if (can_join(kind)) {
    kind_ = kind;
  } else if (kind == ChecksumKind::kXxh64) {
    kind_ = kind;
    xxh64_ = std::make_unique<Xxh64>();
  } else if (const EVP_MD* const algorithm = digest_of(kind)) {
    digest_.reset(EVP_MD_CTX_new());
    if (digest_ && EVP_DigestInit_ex(context(digest_.get()), algorithm, nullptr) == 1) {
      kind_ = kind;
    }
  }
}

void RunningSum::extend_other(std::span<const std::byte> bytes) {
  switch (kind_) {
    case ChecksumKind::kCrc32:
      number_ = Crc32(static_cast<uint32_t>(number_)).extended(bytes).value();
      break;
    case ChecksumKind::kCrc64Nvme: number_ = Crc64Nvme(number_).extended(bytes).value(); break;
    case ChecksumKind::kSha1:
    case ChecksumKind::kSha256:
    case ChecksumKind::kMd5:
      if (!digest_ || EVP_DigestUpdate(context(digest_.get()), bytes.data(), bytes.size()) != 1) {
        digest_.reset();  // moved from: no sum, rather than a wrong one
      }
      break;
    case ChecksumKind::kXxh64:
      if (xxh64_) xxh64_->extend(bytes);
      break;
    case ChecksumKind::kNone:
    case ChecksumKind::kCrc32c: break;
  }
}

Checksum RunningSum::value() const {
  if (can_join(kind_)) return Checksum(kind_, number_);
  if (xxh64_) return Checksum(kind_, xxh64_->value());
  if (!digest_) return {};
  const std::unique_ptr<void, FreeDigest> copy(EVP_MD_CTX_new());
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
  if (!copy || EVP_MD_CTX_copy_ex(context(copy.get()), context(digest_.get())) != 1 ||
      EVP_DigestFinal_ex(context(copy.get()), bytes.data(), nullptr) != 1) {
    return {};
  }
  return Checksum(kind_, std::as_bytes(std::span(bytes)).first(checksum_size(kind_)));
}

RunningSum RunningSum::joined(const RunningSum& next, uint64_t next_size_bytes) const {
  RunningSum out;
  if (kind_ != next.kind_ || !can_join(kind_)) return out;
  out.kind_ = kind_;
  out.number_ =
      headrace::joined(Checksum(kind_, number_), Checksum(kind_, next.number_), next_size_bytes)
          .number();
  return out;
}

Checksum joined(const Checksum& first, const Checksum& next, uint64_t next_size_bytes) {
  return with_crcs(first, next, [&](auto a, auto b) { return a.joined(b, next_size_bytes); });
}

Checksum without_last(const Checksum& whole, const Checksum& last, uint64_t last_size_bytes) {
  return with_crcs(whole, last, [&](auto a, auto b) { return a.without_last(b, last_size_bytes); });
}

Checksum sum_of(ChecksumKind kind, std::span<const std::byte> bytes) {
  if (kind == ChecksumKind::kXxh64) return Checksum(kind, xxh64(bytes));
  RunningSum sum(kind);
  sum.extend(bytes);
  return sum.value();
}

}  // namespace headrace
