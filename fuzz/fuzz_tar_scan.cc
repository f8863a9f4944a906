// A scan finds the files that reading the whole archive finds, asks for nothing outside of it and
// for no byte twice, and ends.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/tar_headers.h"
#include "headrace/format/tar_scan.h"
#include "headrace/format/tar_test_support.h"

using namespace headrace;
using fuzz::check;

namespace {

constexpr TarLimits kLimits{.max_name_bytes = 2000, .max_pax_bytes = 3000, .max_parts = 50};

struct File {
  std::string name;
  ByteRange range;
  bool operator==(const File&) const = default;
};

// None: the archive is bad, or has what a scan refuses.
std::optional<std::vector<File>> read(std::span<const std::byte> in) {
  std::vector<File> files;
  std::set<std::string> passed;  // links and devices
  TarReader reader(kLimits);
  const uint64_t size_bytes = in.size();
  while (true) {
    const auto step = reader.next(in);
    if (!step) return {};
    in = in.subspan(step->consumed);
    if (step->event == TarReader::Event::kEnd) return files;
    if (step->event == TarReader::Event::kMoreNeeded) break;
    if (step->event != TarReader::Event::kMember) continue;
    const TarMember& member = reader.member();
    if (member.stored_bytes > size_bytes - member.data_offset || member.is_sparse) return {};
    const ByteRange range{member.data_offset, member.data_offset + member.stored_bytes};
    if (member.type == TarType::kFile) {
      files.push_back({member.name, range});
      passed.erase(member.name);
    } else if (member.type == TarType::kHardLink && passed.contains(member.link_name)) {
      passed.insert(member.name);
    } else if (member.type == TarType::kHardLink) {
      const auto target = std::find_if(files.rbegin(), files.rend(), [&](const File& file) {
        return file.name == member.link_name;
      });
      if (target == files.rend()) return {};
      if (member.name == member.link_name) continue;
      files.push_back({member.name, target->range});
      passed.erase(member.name);
    } else if (member.type != TarType::kDirectory && member.type != TarType::kOther) {
      passed.insert(member.name);
    }
  }
  // The rest of the last block may be missing.
  if (reader.data_left_bytes() == 0 && reader.next_header_offset() > reader.offset()) return files;
  if (!reader.finish()) return {};
  return files;
}

// Returns whether the scan failed.
bool check_scan(const std::string& in) {
  TarScan scan(in.size(), kLimits);
  uint64_t end = 0;
  bool failed = false;
  while (const std::optional<ByteRange> wanted = scan.wanted()) {
    check(wanted->begin >= end && wanted->end <= in.size());
    check(wanted->begin < wanted->end || in.empty());
    end = wanted->end;
    failed = !scan.take(fuzz::as_bytes(in).subspan(wanted->begin, wanted->size_bytes()));
    check(!failed || !scan.wanted());
    if (in.empty()) break;
  }
  if (in.empty()) return true;
  const auto files = read(fuzz::as_bytes(in));
  check(failed == !files.has_value());
  if (failed) return true;
  check(scan.files().size() == files->size());
  for (size_t i = 0; i < files->size(); ++i) {
    check(File{std::string(scan.files().name(i)), scan.files().range(i)} == (*files)[i]);
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string in(fuzz::as_text(data, size));
  fuzz::Choices choices(in);
  fuzz::correct_sums(in, choices);
  check_scan(in);
  if (choices() % 8 != 0) return 0;
  // Files of all sizes, which are more than an input has room for.
  std::string archive;
  for (uint64_t i = choices() % 20; i > 0; --i) {
    const uint64_t most = choices() % 3 == 0 ? 200'000 : choices() % 3 == 0 ? 70'000 : 2000;
    const std::string name(choices() % 4 == 0 ? choices() % 300 : 5, 'n');
    if (choices() % 4 == 0) archive += pax_header(pax_record("mtime", "1.5"));
    archive += tar_file(name, std::string(choices() % most, 'x'));
  }
  archive += tar_end();
  check(!check_scan(archive));
  check_scan(archive.substr(0, choices() % archive.size()));
  return 0;
}
