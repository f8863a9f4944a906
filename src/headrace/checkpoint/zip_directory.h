// Reads the directory of a zip whose files are stored uncompressed. The end of the file says where
// the directory is; the directory says where everything else is. Sans-IO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/crc32.h"
#include "headrace/format/crc32c.h"

namespace headrace {

// How much of the end of a file find_directory() needs for files by torch.save and by headrace.
inline constexpr size_t kLeastTailBytes = 512;

// Where the directory begins. `tail` holds the last bytes of a file of `file_bytes` bytes.
// Errors: kCorrupt if the file is not a zip, or was truncated.
Result<uint64_t> find_directory(std::span<const std::byte> tail, uint64_t file_bytes);

// One record, as the directory describes it.
struct ZipEntry {
  std::string name;
  uint64_t header_offset_bytes = 0;
  uint64_t size_bytes = 0;
  uint64_t next = 0;  // where the next record, or the directory, begins
  Crc32 crc32;
  std::optional<Crc32c> crc32c;  // only in files written by headrace
  // Where the content begins. None: the local header must be read first (content_begin()).
  std::optional<uint64_t> begin;
};

// Bytes between the contents, and where they must be.
struct ZipFrame {
  uint64_t begin = 0;
  std::string bytes;
};

// A checked directory: names are unique; records lie within the file, before the directory, and do
// not overlap. Entries are in file order.
struct ZipDirectory {
  std::vector<ZipEntry> entries;
  uint64_t begin = 0;
  // True for a file written by headrace: each entry has a CRC-32C, the directory's own CRC-32C
  // matched, and nothing but frames() stands between the contents.
  bool sealed = false;

  // Sealed files only: the bytes around the contents, in file order.
  std::vector<ZipFrame> frames() const;
  // Sealed files only: the CRC-32C that the whole file must have. `directory` is the argument that
  // parse_directory() got.
  Crc32c crc32c(std::span<const std::byte> directory) const;
};

// `directory` is the file from the directory's first byte to the end.
// Errors: kCorrupt; kInvalidArgument for a valid zip that is compressed or encrypted.
Result<ZipDirectory> parse_directory(std::span<const std::byte> directory, uint64_t begin);

// Where the content of `entry` begins, from the first 30 bytes of its local header.
// Errors: kCorrupt if the header does not belong to this entry, or puts the content elsewhere.
Result<uint64_t> content_begin(const ZipEntry& entry, std::span<const std::byte> local_header);

}  // namespace headrace
