#include "headrace/checkpoint/zip_directory.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/checkpoint/zip_format.h"
#include "headrace/checkpoint/zip_layout.h"

namespace headrace {
namespace {

using zip::number_at;
using Bytes = std::span<const std::byte>;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// The end of a zip, which gives the directory's place in 32-bit or 64-bit numbers.
struct End {
  uint64_t directory_begin = 0;
  uint64_t directory_bytes = 0;
  uint64_t record_count = 0;
  Bytes comment;
};

// The comment must end with the file: one that stops elsewhere is not a zip's comment.
std::optional<size_t> find_end(Bytes tail) {
  if (tail.size() < zip::kEndBytes) return std::nullopt;
  for (size_t at = tail.size() - zip::kEndBytes + 1; at-- > 0;) {
    const size_t comment_bytes = tail.size() - at - zip::kEndBytes;
    if (comment_bytes > zip::kElsewhere16) return std::nullopt;
    if (number_at<uint32_t>(tail, at) == zip::kEnd &&
        number_at<uint16_t>(tail, at + 20) == comment_bytes) {
      return at;
    }
  }
  return std::nullopt;
}

// The 32-bit number either equals the 64-bit one or is the marker that refers to it.
template <class Number>
bool agree(Number narrow, uint64_t wide) {
  return narrow == std::numeric_limits<Number>::max() ? wide >= narrow : wide == narrow;
}

Result<End> parse_end(Bytes tail, uint64_t file_bytes) {
  const std::optional<size_t> at = find_end(tail);
  if (!at) return corrupt("it does not end as a zip does: it was cut, or is something else");
  const Bytes end = tail.subspan(*at);
  const auto count = number_at<uint16_t>(end, 10);
  const auto directory_bytes = number_at<uint32_t>(end, 12);
  const auto directory_begin = number_at<uint32_t>(end, 16);
  const bool one_disk = number_at<uint16_t>(end, 4) == 0 && number_at<uint16_t>(end, 6) == 0 &&
                        number_at<uint16_t>(end, 8) == count;
  uint64_t end_begin = file_bytes - end.size();
  End out = {.directory_begin = directory_begin,
             .directory_bytes = directory_bytes,
             .record_count = count,
             .comment = end.subspan(zip::kEndBytes)};
  bool sound = one_disk;
  constexpr size_t k64Bytes = zip::kEnd64Bytes + zip::kEnd64LocatorBytes;
  if (*at >= k64Bytes &&
      number_at<uint32_t>(tail, *at - zip::kEnd64LocatorBytes) == zip::kEnd64Locator) {
    const Bytes end_64 = tail.subspan(*at - k64Bytes, zip::kEnd64Bytes);
    const Bytes locator = tail.subspan(*at - zip::kEnd64LocatorBytes, zip::kEnd64LocatorBytes);
    end_begin -= k64Bytes;
    out.record_count = number_at<uint64_t>(end_64, 32);
    out.directory_bytes = number_at<uint64_t>(end_64, 40);
    out.directory_begin = number_at<uint64_t>(end_64, 48);
    sound = sound && number_at<uint32_t>(end_64, 0) == zip::kEnd64 &&
            number_at<uint64_t>(end_64, 4) == zip::kEnd64Bytes - 12 &&
            number_at<uint32_t>(end_64, 16) == 0 && number_at<uint32_t>(end_64, 20) == 0 &&
            number_at<uint64_t>(end_64, 24) == out.record_count &&
            number_at<uint32_t>(locator, 4) == 0 && number_at<uint64_t>(locator, 8) == end_begin &&
            agree(count, out.record_count) && agree(directory_bytes, out.directory_bytes) &&
            agree(directory_begin, out.directory_begin);
  }
  // The directory lies directly before the end record, and the records before the directory.
  sound = sound && out.directory_begin <= end_begin &&
          out.directory_bytes == end_begin - out.directory_begin &&
          out.record_count <= out.directory_bytes / zip::kDirectoryHeaderBytes;
  if (!sound) return corrupt("what its end says of the zip's directory cannot be");
  return out;
}

// Reads the 64-bit numbers of `entry` from its extra fields, and our checksum.
Result<void> read_extra(Bytes extra, bool packed_elsewhere, ZipEntry& entry) {
  bool seen_64 = false;
  while (!extra.empty()) {
    if (extra.size() < zip::kExtraHeaderBytes) return corrupt("an extra field is cut");
    const auto id = number_at<uint16_t>(extra, 0);
    const size_t size = number_at<uint16_t>(extra, 2);
    if (size > extra.size() - zip::kExtraHeaderBytes) return corrupt("an extra field is cut");
    Bytes field = extra.subspan(zip::kExtraHeaderBytes, size);
    extra = extra.subspan(zip::kExtraHeaderBytes + size);
    if (id == zip::kExtraCrc32c) {
      if (entry.crc32c || field.size() != sizeof(uint32_t)) {
        return corrupt("the CRC-32C of a record is malformed");
      }
      entry.crc32c = Crc32c(number_at<uint32_t>(field, 0));
    }
    if (id != zip::kExtra64 || seen_64) continue;
    seen_64 = true;
    uint64_t packed_bytes = 0;
    const auto take = [&field](bool elsewhere, uint64_t& number) {
      if (!elsewhere) return true;
      if (field.size() < sizeof(uint64_t)) return false;
      number = number_at<uint64_t>(field, 0);
      field = field.subspan(sizeof(uint64_t));
      return true;
    };
    const bool size_elsewhere = entry.size_bytes == zip::kElsewhere32;
    const bool offset_elsewhere = entry.header_offset_bytes == zip::kElsewhere32;
    if (!take(size_elsewhere, entry.size_bytes) || !take(packed_elsewhere, packed_bytes) ||
        !take(offset_elsewhere, entry.header_offset_bytes)) {
      return corrupt("a 64-bit size is missing");
    }
    if (packed_elsewhere && packed_bytes != entry.size_bytes) {
      return corrupt("a stored record has two sizes");
    }
  }
  return {};
}

// Parses one entry at the front of `rest` and consumes it.
Result<std::pair<ZipEntry, uint16_t>> take_entry(Bytes& rest) {
  if (rest.size() < zip::kDirectoryHeaderBytes ||
      number_at<uint32_t>(rest, 0) != zip::kDirectoryHeader) {
    return corrupt("the zip's directory is damaged");
  }
  const auto flags = number_at<uint16_t>(rest, 8);
  const auto method = number_at<uint16_t>(rest, 10);
  const auto packed_bytes = number_at<uint32_t>(rest, 20);
  const auto size_bytes = number_at<uint32_t>(rest, 24);
  const size_t name_bytes = number_at<uint16_t>(rest, 28);
  const size_t extra_bytes = number_at<uint16_t>(rest, 30);
  const size_t comment_bytes = number_at<uint16_t>(rest, 32);
  const size_t entry_bytes = zip::kDirectoryHeaderBytes + name_bytes + extra_bytes + comment_bytes;
  if (name_bytes == 0 || rest.size() < entry_bytes || number_at<uint16_t>(rest, 34) != 0) {
    return corrupt("the zip's directory is damaged");
  }
  ZipEntry entry;
  entry.name = text_of(rest.subspan(zip::kDirectoryHeaderBytes, name_bytes));
  if (method != zip::kStored || (flags & zip::kEncrypted) != 0) {
    return invalid_argument("the zip's record ", entry.name, " is ",
                            method == zip::kStored ? "encrypted" : "compressed",
                            ", so torch.save has not written it; if it is a TorchScript archive, "
                            "read it with torch.jit.load");
  }
  if (packed_bytes != size_bytes) return corrupt("a stored record has two sizes");
  entry.crc32 = Crc32(number_at<uint32_t>(rest, 16));
  entry.size_bytes = size_bytes;
  entry.header_offset_bytes = number_at<uint32_t>(rest, 42);
  const Result<void> read =
      read_extra(rest.subspan(zip::kDirectoryHeaderBytes + name_bytes, extra_bytes),
                 packed_bytes == zip::kElsewhere32, entry);
  if (!read) return std::unexpected(read.error());
  rest = rest.subspan(entry_bytes);
  return std::pair(std::move(entry), flags);
}

ZipRecord record_of(const ZipEntry& entry) {
  return {.name = entry.name,
          .header_offset_bytes = entry.header_offset_bytes,
          .size_bytes = entry.size_bytes,
          .crc32 = entry.crc32,
          .crc32c = entry.crc32c.value_or(Crc32c())};
}

// For torch's own files: the content is aligned, and only a descriptor follows it. If computing the
// place forwards and backwards gives the same result, the local header need not be read.
std::optional<uint64_t> reckon_begin(const ZipEntry& entry, uint16_t flags, uint64_t next_begin) {
  const uint64_t aligned = entry.header_offset_bytes + local_header(record_of(entry)).size();
  uint64_t after_bytes = 0;
  if ((flags & zip::kHasDescriptor) != 0) {
    after_bytes =
        zip::needs_64_bits(entry.size_bytes) || zip::needs_64_bits(entry.header_offset_bytes)
            ? zip::kDescriptor64Bytes
            : zip::kDescriptorBytes;
  }
  if (aligned + entry.size_bytes + after_bytes != next_begin) return std::nullopt;
  return aligned;
}

// The checksum in the comment, if headrace wrote the comment.
std::optional<Crc32c> sum_in(std::string_view comment) {
  if (comment.size() != zip::kComment.size() + zip::kCommentDigits ||
      !comment.starts_with(zip::kComment)) {
    return std::nullopt;
  }
  const std::string_view digits = comment.substr(zip::kComment.size());
  // Only one spelling is accepted, so that no changed bit goes unnoticed.
  if (digits.find_first_not_of(kHexDigits) != digits.npos) return std::nullopt;
  return Crc32c(*parse_number<uint32_t>(digits, 16));
}

Result<bool> check_seal(Bytes directory, const End& end, const ZipDirectory& parsed) {
  const std::optional<Crc32c> sum = sum_in(text_of(end.comment));
  const auto has_sum = [](const ZipEntry& entry) { return entry.crc32c.has_value(); };
  if (!sum) {
    if (std::ranges::any_of(parsed.entries, has_sum)) {
      return corrupt("the CRC-32C of the zip's directory is missing");
    }
    return false;
  }
  if (Crc32c().extended(directory.first(directory.size() - zip::kCommentDigits)) != *sum) {
    return corrupt("the CRC-32C of the zip's directory is wrong");
  }
  uint64_t at = 0;
  for (const ZipEntry& entry : parsed.entries) {
    if (!entry.crc32c || !entry.begin || entry.header_offset_bytes != at) {
      return corrupt("the zip is not laid out as we do");
    }
    at = *entry.begin + entry.size_bytes + descriptor(record_of(entry)).size();
  }
  if (at != parsed.begin) return corrupt("the zip is not laid out as we do");
  return true;
}

}  // namespace

Result<uint64_t> find_directory(Bytes tail, uint64_t file_bytes) {
  const Result<End> end = parse_end(tail, file_bytes);
  if (!end) return std::unexpected(end.error());
  return end->directory_begin;
}

Result<ZipDirectory> parse_directory(Bytes directory, uint64_t begin) {
  if (begin > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return corrupt("the zip's directory begins elsewhere");
  }
  const Result<End> end = parse_end(directory, begin + directory.size());
  if (!end) return std::unexpected(end.error());
  if (end->directory_begin != begin) return corrupt("the zip's directory begins elsewhere");
  ZipDirectory out;
  out.begin = begin;
  std::vector<uint16_t> flags;
  Bytes rest = directory.first(end->directory_bytes);
  std::vector<std::pair<ZipEntry, uint16_t>> found;
  found.reserve(end->record_count);
  while (!rest.empty()) {
    Result<std::pair<ZipEntry, uint16_t>> taken = take_entry(rest);
    if (!taken) return std::unexpected(taken.error());
    found.push_back(*std::move(taken));
  }
  if (found.size() != end->record_count) {
    return corrupt("the zip's directory has ", found.size(), " records and not ",
                   end->record_count);
  }
  std::ranges::sort(found, {}, [](const auto& each) { return each.first.header_offset_bytes; });
  std::unordered_set<std::string_view> names;
  out.entries.reserve(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    auto& [entry, entry_flags] = found[i];
    const uint64_t next = i + 1 < found.size() ? found[i + 1].first.header_offset_bytes : begin;
    const uint64_t least_bytes = zip::kLocalHeaderBytes + entry.name.size();
    // By subtraction, because an addition could wrap around.
    if (entry.header_offset_bytes > next || next - entry.header_offset_bytes < least_bytes ||
        next - entry.header_offset_bytes - least_bytes < entry.size_bytes) {
      return corrupt("the record ", entry.name, " lies over another, or outside of the zip");
    }
    entry.next = next;
    entry.begin = reckon_begin(entry, entry_flags, next);
    out.entries.push_back(std::move(entry));
    if (!names.insert(out.entries.back().name).second) {
      return corrupt("the zip has two records ", out.entries.back().name);
    }
  }
  const Result<bool> sealed = check_seal(directory, *end, out);
  if (!sealed) return std::unexpected(sealed.error());
  out.sealed = *sealed;
  return out;
}

Result<uint64_t> content_begin(const ZipEntry& entry, Bytes header) {
  if (header.size() < zip::kLocalHeaderBytes ||
      number_at<uint32_t>(header, 0) != zip::kLocalHeader ||
      number_at<uint16_t>(header, 26) != entry.name.size()) {
    return corrupt("the record ", entry.name, " does not begin where the zip's directory says");
  }
  const uint64_t begin = entry.header_offset_bytes + zip::kLocalHeaderBytes + entry.name.size() +
                         number_at<uint16_t>(header, 28);
  if (begin > entry.next || entry.next - begin < entry.size_bytes) {
    return corrupt("the header of the record ", entry.name,
                   " is damaged: by it the record reaches beyond its end");
  }
  return begin;
}

std::vector<ZipFrame> ZipDirectory::frames() const {
  std::vector<ZipFrame> out;
  ZipFrame frame;
  for (const ZipEntry& entry : entries) {
    const ZipRecord record = record_of(entry);
    frame.bytes += local_header(record);
    out.push_back(std::move(frame));
    frame = {.begin = *entry.begin + entry.size_bytes, .bytes = descriptor(record)};
  }
  if (!frame.bytes.empty()) out.push_back(std::move(frame));
  return out;
}

Crc32c ZipDirectory::crc32c(Bytes directory) const {
  Crc32c sum;
  for (const ZipEntry& entry : entries) {
    const ZipRecord record = record_of(entry);
    sum = sum.extended(as_bytes(local_header(record)));
    sum = sum.joined(*entry.crc32c, entry.size_bytes);
    sum = sum.extended(as_bytes(descriptor(record)));
  }
  return sum.extended(directory);
}

}  // namespace headrace
