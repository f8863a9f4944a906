#include "headrace/format/tar_writer.h"

#include <algorithm>
#include <string>

#include "headrace/format/tar.h"
#include "headrace/format/tar_blocks.h"

namespace headrace {
namespace {

constexpr size_t kNameBytes = 100, kPrefixBytes = 155;
// What eleven octal digits can say.
constexpr uint64_t kMaxUstarBytes = (uint64_t{1} << 33) - 1;

// A name as the two fields of ustar have it.
struct UstarName {
  std::string_view prefix = {}, name = {};
  bool fits = false;
};

// Other bytes than ASCII mean different things to different readers, unless pax says that they are
// UTF-8.
UstarName ustar_name(std::string_view name) {
  if (std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) {
    return {};
  }
  if (name.size() <= kNameBytes) return {.name = name, .fits = true};
  // The first slash behind which the rest fits.
  const size_t slash = name.find('/', name.size() - kNameBytes - 1);
  if (slash == std::string_view::npos || slash == 0 || slash > kPrefixBytes) return {};
  return {.prefix = name.substr(0, slash), .name = name.substr(slash + 1), .fits = true};
}

size_t digits_of(size_t number) {
  size_t digits = 1;
  for (; number >= 10; number /= 10) ++digits;
  return digits;
}

// "LENGTH KEY=VALUE\n", where LENGTH counts all of this, itself included.
size_t record_bytes(std::string_view key, size_t value_bytes) {
  const size_t rest = key.size() + value_bytes + 3;
  size_t digits = digits_of(rest);
  while (digits_of(rest + digits) != digits) ++digits;
  return rest + digits;
}

size_t records_bytes(std::string_view name, uint64_t size_bytes) {
  size_t bytes = ustar_name(name).fits ? 0 : record_bytes("path", name.size());
  if (size_bytes > kMaxUstarBytes) bytes += record_bytes("size", digits_of(size_bytes));
  return bytes;
}

void put(std::span<std::byte> block, size_t at, std::string_view text) {
  std::ranges::copy(std::as_bytes(std::span(text)), block.subspan(at).begin());
}

// Octal digits that fill a field up to its last byte, which stays 0.
void put_octal(std::span<std::byte> block, size_t at, size_t field_bytes, uint64_t value) {
  for (size_t i = field_bytes - 1; i-- > 0; value /= 8) {
    block[at + i] = static_cast<std::byte>('0' + value % 8);
  }
}

// `block` is all zeros.
void write_header(std::span<std::byte, kTarBlockBytes> block, const UstarName& name,
                  uint64_t size_bytes, char type) {
  put(block, 0, name.name);
  put_octal(block, 100, 8, 0644);
  put_octal(block, 108, 8, 0);
  put_octal(block, 116, 8, 0);
  put_octal(block, 124, 12, size_bytes);
  put_octal(block, 136, 12, 0);
  block[156] = static_cast<std::byte>(type);
  put(block, 257, std::string_view("ustar\00000", 8));
  put_octal(block, 329, 8, 0);
  put_octal(block, 337, 8, 0);
  put(block, 345, name.prefix);
  // The sum is of a header whose own field has spaces.
  put(block, 148, "        ");
  uint64_t sum = 0;
  for (const std::byte each : block) sum += static_cast<uint8_t>(each);
  put_octal(block, 148, 7, sum);
  block[154] = std::byte{0};
}

std::span<std::byte> write_record(std::span<std::byte> into, std::string_view key,
                                  std::string_view value) {
  const std::string text = cat(record_bytes(key, value.size()), " ", key, "=", value, "\n");
  put(into, 0, text);
  return into.subspan(text.size());
}

}  // namespace

Result<size_t> tar_header_bytes(std::string_view name, uint64_t size_bytes) {
  if (name.empty()) return invalid_argument("a file in a tar needs a name");
  if (name.ends_with('/') || name.find('\0') != std::string_view::npos) {
    return invalid_argument("a file in a tar cannot be called '", name,
                            "': its name ends with a slash, or has a byte 0");
  }
  if (name.size() > TarLimits().max_name_bytes) {
    return invalid_argument("a name of ", name.size(),
                            " bytes is too long for a file in a tar: ", TarLimits().max_name_bytes,
                            " is the most");
  }
  const size_t records = records_bytes(name, size_bytes);
  return records == 0 ? kTarBlockBytes : 2 * kTarBlockBytes + tar_padded_bytes(records);
}

void write_tar_headers(std::string_view name, uint64_t size_bytes, std::span<std::byte> into) {
  std::ranges::fill(into, std::byte{0});
  UstarName in_ustar = ustar_name(name);
  std::string readable;
  if (const size_t records = records_bytes(name, size_bytes); records > 0) {
    write_header(into.first<kTarBlockBytes>(), {.name = "././@PaxHeader"}, records, 'x');
    std::span<std::byte> left = into.subspan(kTarBlockBytes);
    if (!in_ustar.fits) left = write_record(left, "path", name);
    if (size_bytes > kMaxUstarBytes) left = write_record(left, "size", cat(size_bytes));
    into = into.last(kTarBlockBytes);
  }
  if (!in_ustar.fits) {  // for readers that do not know pax
    readable = name.substr(0, kNameBytes);
    std::ranges::replace_if(
        readable, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
    in_ustar.name = readable;
  }
  write_header(into.first<kTarBlockBytes>(), in_ustar, size_bytes > kMaxUstarBytes ? 0 : size_bytes,
               '0');
}

}  // namespace headrace
