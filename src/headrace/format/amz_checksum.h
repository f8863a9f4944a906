// The checksums that S3 keeps for an object: x-amz-checksum-*, and ETags that are MD5s.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/checksum.h"

namespace headrace {

// What S3 calls a kind: in a header ("x-amz-checksum-crc32c"), in an XML element
// ("ChecksumCRC32C"), and as the name of an algorithm ("CRC32C"). "" for kinds that S3 has no such
// names for, MD5 among them: that stands in ETags and in Content-MD5.
struct AmzNames {
  std::string_view header = {}, element = {}, algorithm = {};
};
AmzNames amz_names(ChecksumKind kind);
// What follows "x-amz-checksum-" in the name of a header, "" for other headers. Letters may be of
// either case.
std::string_view amz_checksum_suffix(std::string_view name);
// kNone for other texts.
ChecksumKind kind_of_amz_suffix(std::string_view suffix);
ChecksumKind kind_of_amz_element(std::string_view name);

// The sum of the parts' sums, which S3 keeps for an object that was uploaded in parts. Checking it
// takes the sizes of the parts. It is a type of its own, so that nothing compares it with the sum
// of an object's bytes. Thread: any (immutable).
class CompositeChecksum {
 public:
  // A `part_count` of 0 is unknown.
  CompositeChecksum(Checksum of_sums, uint32_t part_count)
      : of_sums_(of_sums), part_count_(part_count) {}
  // Of an object whose parts have these sums, in their order. None if there are no parts, if their
  // kinds differ, or if the kind cannot be summed here.
  static std::optional<CompositeChecksum> of(std::span<const Checksum> parts);

  ChecksumKind kind() const { return of_sums_.kind(); }
  const Checksum& of_sums() const { return of_sums_; }
  uint32_t part_count() const { return part_count_; }
  // True if it is that of these parts.
  bool is_of(std::span<const Checksum> parts) const;
  bool operator==(const CompositeChecksum&) const = default;

 private:
  Checksum of_sums_;
  uint32_t part_count_ = 0;
};

using StoredChecksum = std::variant<Checksum, CompositeChecksum>;

// The value of a header or element of that kind: "4waSgw==", or "4waSgw==-3" for three parts.
// `type` is that of x-amz-checksum-type or ChecksumType; "" where the server does not say.
// Errors: kCorrupt, also where value and type contradict each other.
Result<StoredChecksum> parse_amz_checksum(ChecksumKind kind, std::string_view value,
                                          std::string_view type);

// What one answer tells of the sums of one object: a value for each kind that the service keeps.
// Thread: confined. Borrows the values.
class ToldSums {
 public:
  void add(ChecksumKind kind, std::string_view value);
  // As for parse_amz_checksum: it is that of all of them.
  void set_type(std::string_view type) { type_ = type; }
  bool empty() const { return count_ == 0; }
  // Those that are well-formed, the best first: of the whole object before those of parts, and what
  // can be joined before what cannot.
  // Errors: kCorrupt if none is well-formed though there are some, or if two of one kind differ.
  Result<std::vector<StoredChecksum>> all() const;
  // The first of them that is of the whole object; of no kind if there is none.
  // Errors: kCorrupt if two of one kind differ.
  Result<Checksum> whole() const;

 private:
  static constexpr size_t kMost = 5;  // kinds
  struct Told {
    ChecksumKind kind = ChecksumKind::kNone;
    std::string_view value = {};
  };
  void add_another(Told& told, std::string_view value);
  Result<void> agree() const;
  std::array<Told, kMost> told_{};  // in the order of kinds
  size_t count_ = 0;
  ChecksumKind contradicted_ = ChecksumKind::kNone;
  std::string_view type_;
};

// What parse_amz_checksum reads.
std::string to_text(const StoredChecksum& sum);

// ETags are kept without their quotes. That of a weak comparison (W/"...") stays as it is.
std::string_view unquoted_etag(std::string_view etag);
std::string quoted_etag(std::string_view etag);
// An ETag of 32 hexadecimal digits as an MD5; none if it is something else. Whether the store
// writes MD5s is for the caller to know: where it encrypts, it does not.
std::optional<Checksum> md5_of_etag(std::string_view etag);
// The ETag of a multipart upload, "(32 digits)-(number of parts)", as the MD5 of the parts' MD5s.
std::optional<CompositeChecksum> composite_md5_of_etag(std::string_view etag);

}  // namespace headrace
