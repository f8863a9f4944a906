#include "headrace/checkpoint/zip_layout.h"

#include <algorithm>
#include <limits>

#include "headrace/base/ascii.h"
#include "headrace/checkpoint/zip_format.h"

namespace headrace {
namespace {

using zip::append;
using zip::needs_64_bits;

uint32_t in_32_bits(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, zip::kElsewhere32));
}

bool needs_64_bits_anywhere(const ZipRecord& record) {
  return needs_64_bits(record.size_bytes) || needs_64_bits(record.header_offset_bytes);
}

// The header of an empty record holds its checksums already.
uint16_t flags_of(const ZipRecord& record) {
  return record.size_bytes == 0 ? zip::kUtf8Name
                                : static_cast<uint16_t>(zip::kUtf8Name | zip::kHasDescriptor);
}

uint16_t version_for(const ZipRecord& record) {
  return needs_64_bits_anywhere(record) ? zip::kVersion64 : 0;
}

// Only the numbers that do not fit into 32 bits, in this order.
std::string extra_64(const ZipRecord& record) {
  std::string numbers;
  if (needs_64_bits(record.size_bytes)) {
    append(numbers, record.size_bytes);
    append(numbers, record.size_bytes);
  }
  if (needs_64_bits(record.header_offset_bytes)) append(numbers, record.header_offset_bytes);
  std::string out;
  if (numbers.empty()) return out;
  append(out, zip::kExtra64);
  append(out, static_cast<uint16_t>(numbers.size()));
  return out + numbers;
}

std::string directory_header(const ZipRecord& record) {
  std::string extra = extra_64(record);
  append(extra, zip::kExtraCrc32c);
  append(extra, uint16_t{sizeof(uint32_t)});
  append(extra, record.crc32c.value());
  std::string out;
  append(out, zip::kDirectoryHeader);
  append(out, version_for(record));  // made by
  append(out, version_for(record));  // needed to read
  append(out, flags_of(record));
  append(out, zip::kStored);
  append(out, uint32_t{0});  // no time: equal states make equal files
  append(out, record.crc32.value());
  append(out, in_32_bits(record.size_bytes));
  append(out, in_32_bits(record.size_bytes));
  append(out, static_cast<uint16_t>(record.name.size()));
  append(out, static_cast<uint16_t>(extra.size()));
  append(out, uint16_t{0});  // comment
  append(out, uint16_t{0});  // disk
  append(out, uint16_t{0});  // internal attributes
  append(out, uint32_t{0});  // external attributes
  append(out, in_32_bits(record.header_offset_bytes));
  return out + record.name + extra;
}

// torch always writes the 64-bit form, and so does headrace.
std::string ends(uint64_t record_count, uint64_t directory_begin, uint64_t directory_bytes) {
  std::string out;
  append(out, zip::kEnd64);
  append(out, uint64_t{zip::kEnd64Bytes - 12});  // of what follows this number
  append(out, zip::kVersion64);
  append(out, zip::kVersion64);
  append(out, uint32_t{0});  // this disk
  append(out, uint32_t{0});  // the directory's
  append(out, record_count);
  append(out, record_count);
  append(out, directory_bytes);
  append(out, directory_begin);
  append(out, zip::kEnd64Locator);
  append(out, uint32_t{0});
  append(out, directory_begin + directory_bytes);
  append(out, uint32_t{1});  // disks
  const auto count_16 = static_cast<uint16_t>(std::min<uint64_t>(record_count, zip::kElsewhere16));
  append(out, zip::kEnd);
  append(out, uint16_t{0});
  append(out, uint16_t{0});
  append(out, count_16);
  append(out, count_16);
  append(out, in_32_bits(directory_bytes));
  append(out, in_32_bits(directory_begin));
  append(out, static_cast<uint16_t>(zip::kComment.size() + zip::kCommentDigits));
  return out.append(zip::kComment);
}

std::string in_hexadecimal(uint32_t value) {
  std::string out(zip::kCommentDigits, '0');
  for (size_t i = out.size(); i-- > 0; value >>= 4) out[i] = kHexDigits[value & 15];
  return out;
}

}  // namespace

std::string local_header(const ZipRecord& record) {
  const std::string extra = extra_64(record);
  const uint64_t unpadded_end = record.header_offset_bytes + zip::kLocalHeaderBytes +
                                record.name.size() + extra.size() + zip::kExtraHeaderBytes;
  const size_t padding_bytes =
      (zip::kAlignmentBytes - unpadded_end % zip::kAlignmentBytes) % zip::kAlignmentBytes;
  std::string out;
  append(out, zip::kLocalHeader);
  append(out, version_for(record));
  append(out, flags_of(record));
  append(out, zip::kStored);
  append(out, uint32_t{0});  // time
  append(out, uint32_t{0});  // checksum and sizes follow the content
  append(out, uint32_t{0});
  append(out, uint32_t{0});
  append(out, static_cast<uint16_t>(record.name.size()));
  append(out, static_cast<uint16_t>(extra.size() + zip::kExtraHeaderBytes + padding_bytes));
  out += record.name;
  out += extra;
  append(out, zip::kExtraPadding);
  append(out, static_cast<uint16_t>(padding_bytes));
  return out.append(padding_bytes, 'Z');
}

std::string descriptor(const ZipRecord& record) {
  std::string out;
  if (record.size_bytes == 0) return out;
  append(out, zip::kDescriptor);
  append(out, record.crc32.value());
  for (int each = 0; each < 2; ++each) {  // stored: the packed size is the same
    if (needs_64_bits_anywhere(record)) {
      append(out, record.size_bytes);
    } else {
      append(out, static_cast<uint32_t>(record.size_bytes));
    }
  }
  return out;
}

Result<std::string> ZipLayout::begin_record(std::string_view name, uint64_t size_bytes) {
  if (is_open_) return invalid_argument("the record ", open_.name, " is still open");
  if (finished_) return invalid_argument("the file is complete");
  if (name.empty() || name.size() > std::numeric_limits<uint16_t>::max()) {
    return invalid_argument("a record's name has 1 to 65535 bytes, not ", name.size());
  }
  if (!names_.emplace(name).second) {
    return invalid_argument("there is a record ", name, " already");
  }
  if (size_bytes > std::numeric_limits<int64_t>::max() - offset_bytes_) {
    return invalid_argument("a record of ", size_bytes, " bytes is too large");
  }
  open_ = {
      .name = std::string(name), .header_offset_bytes = offset_bytes_, .size_bytes = size_bytes};
  is_open_ = true;
  left_bytes_ = size_bytes;
  std::string out = local_header(open_);
  offset_bytes_ += out.size();
  return out;
}

Result<void> ZipLayout::add(std::span<const std::byte> bytes) {
  if (!is_open_) return invalid_argument("no record is open");
  if (bytes.size() > left_bytes_) {
    return invalid_argument("the record ", open_.name, " has more than its ", open_.size_bytes,
                            " bytes");
  }
  // Both checksums read the piece while it is in cache.
  constexpr size_t kPieceBytes = size_t{128} << 10;
  left_bytes_ -= bytes.size();
  offset_bytes_ += bytes.size();
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    open_.crc32 = open_.crc32.extended(piece);
    open_.crc32c = open_.crc32c.extended(piece);
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

Result<std::string> ZipLayout::end_record() {
  if (!is_open_) return invalid_argument("no record is open");
  if (left_bytes_ != 0) {
    return invalid_argument("the record ", open_.name, " lacks ", left_bytes_, " of its ",
                            open_.size_bytes, " bytes");
  }
  std::string out = descriptor(open_);
  offset_bytes_ += out.size();
  records_.push_back(std::move(open_));
  is_open_ = false;
  return out;
}

Result<std::string> ZipLayout::finish() {
  if (is_open_) return invalid_argument("the record ", open_.name, " is still open");
  if (finished_) return invalid_argument("the file is complete");
  finished_ = true;
  std::string out;
  for (const ZipRecord& record : records_) out += directory_header(record);
  out += ends(records_.size(), offset_bytes_, out.size());
  out += in_hexadecimal(Crc32c().extended(std::as_bytes(std::span(out))).value());
  offset_bytes_ += out.size();
  return out;
}

}  // namespace headrace
