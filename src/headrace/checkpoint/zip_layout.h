// Lays out a checkpoint file: the zip that torch.save writes, plus a CRC-32C for each record and
// one for the directory. Sans-IO: it produces the bytes between the contents; the contents
// themselves are summed but not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/format/crc32.h"
#include "headrace/format/crc32c.h"

namespace headrace {

// One file of a zip, stored uncompressed.
struct ZipRecord {
  std::string name = {};
  uint64_t header_offset_bytes = 0;  // of its local header, from the start of the file
  uint64_t size_bytes = 0;           // of its content
  Crc32 crc32 = {};
  Crc32c crc32c = {};
};

// The bytes before and after a record's content in a file written by headrace. Before: the local
// header, padded so that the content is aligned. After: the checksums, unless the content is empty.
std::string local_header(const ZipRecord& record);
std::string descriptor(const ZipRecord& record);

// Lays out a file record by record: begin_record(), add() until all of the content has been given,
// end_record(); then finish(). The caller writes what each call returns, in that order.
// Thread: confined.
class ZipLayout {
 public:
  // Errors: kInvalidArgument if the name is empty, too long or taken, or if a record is open.
  Result<std::string> begin_record(std::string_view name, uint64_t size_bytes);
  // The next bytes of the content; they are summed, not kept. kInvalidArgument if no record is
  // open, or if the content exceeds the announced size.
  Result<void> add(std::span<const std::byte> bytes);
  // kInvalidArgument if the content is shorter than announced.
  Result<std::string> end_record();
  // The directory. Nothing may follow.
  Result<std::string> finish();

  // The file offset of whatever is returned next.
  uint64_t offset_bytes() const { return offset_bytes_; }
  // The finished records.
  std::span<const ZipRecord> records() const { return records_; }

 private:
  std::vector<ZipRecord> records_;
  std::unordered_set<std::string> names_;
  ZipRecord open_;
  bool is_open_ = false, finished_ = false;
  uint64_t left_bytes_ = 0;  // of the open record
  uint64_t offset_bytes_ = 0;
};

}  // namespace headrace
