// Any bytes are refused, or give records that lie within the file and apart from each other; what
// is laid out is read back, and no changed bit of its directory passes.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "headrace/checkpoint/zip_directory.h"
#include "headrace/checkpoint/zip_layout.h"

using namespace headrace;
using fuzz::check;

namespace {

bool is_refusal(const Error& error) {
  return error.code() == Code::kCorrupt || error.code() == Code::kInvalidArgument;
}

void check_sound(const ZipDirectory& parsed) {
  uint64_t at = 0;
  std::vector<std::string> names;
  for (const ZipEntry& entry : parsed.entries) {
    check(entry.header_offset_bytes >= at);
    check(entry.size_bytes <= parsed.begin);
    const uint64_t begin = entry.begin.value_or(entry.header_offset_bytes);
    check(begin >= entry.header_offset_bytes && begin <= parsed.begin - entry.size_bytes);
    at = begin + entry.size_bytes;
    names.push_back(entry.name);
  }
  check(at <= parsed.begin);
  std::ranges::sort(names);
  check(std::ranges::adjacent_find(names) == names.end());
}

// As a whole file, small enough to lie in memory.
void check_file(std::span<const std::byte> file) {
  const Result<uint64_t> begin = find_directory(file, file.size());
  if (!begin) {
    check(is_refusal(begin.error()));
    return;
  }
  check(*begin <= file.size());
  const Result<ZipDirectory> parsed = parse_directory(file.subspan(*begin), *begin);
  if (!parsed) {
    check(is_refusal(parsed.error()));
    return;
  }
  check_sound(*parsed);
  if (!parsed->sealed) return;
  for (const ZipFrame& frame : parsed->frames()) {
    check(frame.begin <= *begin && frame.bytes.size() <= *begin - frame.begin);
  }
}

// As the end of a file of any size.
void check_tail(std::span<const std::byte> tail, uint64_t before_bytes) {
  const uint64_t file_bytes = before_bytes + tail.size();
  const Result<uint64_t> begin = find_directory(tail, file_bytes);
  if (!begin || *begin < before_bytes) return;
  const Result<ZipDirectory> parsed = parse_directory(tail.subspan(*begin - before_bytes), *begin);
  if (parsed) check_sound(*parsed);
}

void check_layout(std::string_view text, fuzz::Choices& choices) {
  ZipLayout layout;
  std::string file;
  std::vector<std::string_view> contents;
  while (!text.empty() && contents.size() < 50) {
    const std::string_view content = text.substr(0, choices() % 100);
    text.remove_prefix(std::max<size_t>(content.size(), 1));
    const std::string name = cat("archive/data/", contents.size());
    file += layout.begin_record(name, content.size()).value();
    check(layout.add(fuzz::as_bytes(content)).has_value());
    file += content;
    file += layout.end_record().value();
    contents.push_back(content);
  }
  file += layout.finish().value();
  check(layout.offset_bytes() == file.size());

  const auto bytes = fuzz::as_bytes(file);
  const uint64_t begin = find_directory(bytes, bytes.size()).value();
  const ZipDirectory parsed = parse_directory(bytes.subspan(begin), begin).value();
  check(parsed.sealed && parsed.entries.size() == contents.size());
  check(parsed.crc32c(bytes.subspan(begin)) == Crc32c().extended(bytes));
  for (size_t i = 0; i < contents.size(); ++i) {
    const ZipEntry& entry = parsed.entries[i];
    check(std::string_view(file).substr(*entry.begin, entry.size_bytes) == contents[i]);
    check(*entry.begin % 64 == 0);
    check(content_begin(entry, bytes.subspan(entry.header_offset_bytes)).value() == *entry.begin);
  }
  for (const ZipFrame& frame : parsed.frames()) {
    check(std::string_view(file).substr(frame.begin, frame.bytes.size()) == frame.bytes);
  }

  // One bit of the directory.
  std::string changed = file;
  changed[begin + choices() % (file.size() - begin)] ^= static_cast<char>(1 << choices() % 8);
  const auto changed_bytes = fuzz::as_bytes(changed);
  const Result<uint64_t> changed_begin = find_directory(changed_bytes, changed.size());
  if (changed_begin) {
    check(!parse_directory(changed_bytes.subspan(*changed_begin), *changed_begin).has_value());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  check_file(fuzz::as_bytes(text));
  check_tail(fuzz::as_bytes(text), uint64_t{choices()} << choices() % 30);
  check_layout(text, choices);
  return 0;
}
