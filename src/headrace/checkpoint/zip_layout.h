// How a checkpoint's records lie in their file: the zip that torch.save writes, with a CRC-32C more
// for each record and one for the directory. Sans-IO: what comes between the contents is made here,
// the contents themselves pass by only to be summed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/checkpoint/crc32.h"
#include "headrace/format/crc32c.h"

namespace headrace {

// One file of a zip, stored as it is.
struct ZipRecord {
  std::string name = {};
  uint64_t header_offset_bytes = 0;  // of its local header, from the start of the file
  uint64_t size_bytes = 0;           // of its content
  Crc32 crc32 = {};
  Crc32c crc32c = {};
};

// What stands before and after a record's content in a file of ours. Before: the local header, with
// padding that aligns the content; after: the sums, unless the content is empty.
std::string local_header(const ZipRecord& record);
std::string descriptor(const ZipRecord& record);

// Lays a file out, record by record: begin_record(), add() until all of the content has passed by,
// end_record(); at the end finish(). What these return is written where it is returned.
// Thread: confined.
class ZipLayout {
 public:
  // Errors: kInvalidArgument for a name that is empty, too long, or there already; for a record
  // that is open.
  Result<std::string> begin_record(std::string_view name, uint64_t size_bytes);
  // The next bytes of the content; they are summed and not kept. kInvalidArgument if no record is
  // open, or if they are more than was said.
  Result<void> add(std::span<const std::byte> bytes);
  // kInvalidArgument if the content is shorter than was said.
  Result<std::string> end_record();
  // The directory. Nothing may follow.
  Result<std::string> finish();

  // Where what is returned next will stand.
  uint64_t offset_bytes() const { return offset_bytes_; }
  // The records that are closed.
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
