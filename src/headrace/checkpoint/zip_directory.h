// What is in a zip whose files are stored as they are: read from its end, which says where the
// directory is, and from the directory, which says where everything else is. Sans-IO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/checkpoint/crc32.h"
#include "headrace/format/crc32c.h"

namespace headrace {

// The least bytes of the end of a file with which find_directory() finds everything that torch.save
// and we write.
inline constexpr size_t kLeastTailBytes = 512;

// Where the directory begins. `tail` are the last bytes of a file of `file_bytes`.
// Errors: kCorrupt for what is no zip, or one that was cut.
Result<uint64_t> find_directory(std::span<const std::byte> tail, uint64_t file_bytes);

// One record, as the directory tells of it.
struct ZipEntry {
  std::string name;
  uint64_t header_offset_bytes = 0;
  uint64_t size_bytes = 0;
  Crc32 crc32;
  std::optional<Crc32c> crc32c;  // of files that we wrote
  // Where the content begins. None: only the local header can tell (content_begin()).
  std::optional<uint64_t> begin;
};

// A piece of the file that is no content, and what must stand there.
struct ZipFrame {
  uint64_t begin = 0;
  std::string bytes;
};

// A directory that was checked: names are unique, and records lie within the file, before the
// directory, and apart from each other. Entries are in the order of the file.
struct ZipDirectory {
  std::vector<ZipEntry> entries;
  uint64_t begin = 0;
  // We wrote the file: each entry has its CRC-32C, the directory's own was right, and between the
  // contents there are frames() and nothing else.
  bool sealed = false;

  // Of a sealed file: what stands around the contents, in the order of the file.
  std::vector<ZipFrame> frames() const;
  // Of a sealed file: the CRC-32C that the whole of it must have. `directory` is what
  // parse_directory() was given.
  Crc32c crc32c(std::span<const std::byte> directory) const;
};

// `directory` is all of the file from the directory on.
// Errors: kCorrupt; kInvalidArgument for what is a sound zip, but compressed or encrypted.
Result<ZipDirectory> parse_directory(std::span<const std::byte> directory, uint64_t begin);

// Where the content of `entry` begins, by its local header, of which the first 30 bytes are given.
// Errors: kCorrupt if it is not this entry's.
Result<uint64_t> content_begin(const ZipEntry& entry, std::span<const std::byte> local_header);

}  // namespace headrace
