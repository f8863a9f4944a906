#include "headrace/checkpoint/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "headrace/base/units.h"

namespace headrace {
namespace {

constexpr uint64_t kPageBytes = 2 * kMiB;

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The whole huge pages of [begin, begin + size_bytes).
void advise(std::byte* begin, size_t size_bytes) {
  const size_t skipped =
      (kPageBytes - reinterpret_cast<uintptr_t>(begin) % kPageBytes) % kPageBytes;
  if (size_bytes < skipped + kPageBytes) return;
  const size_t whole_bytes = (size_bytes - skipped) / kPageBytes * kPageBytes;
  static_cast<void>(::madvise(begin + skipped, whole_bytes, MADV_HUGEPAGE));
}

}  // namespace

uint64_t free_huge_page_bytes(std::string_view buddyinfo) {
  uint64_t free_bytes = 0;
  std::istringstream lines{std::string(buddyinfo)};
  for (std::string line; std::getline(lines, line);) {
    // Node 0, zone   Normal  59681  62600 ...
    std::istringstream words(line);
    std::string node, number, zone_word, zone;
    words >> node >> number >> zone_word >> zone;
    if (zone.empty() || zone.starts_with("DMA")) continue;
    uint64_t block_bytes = 4 * kKiB;
    for (uint64_t count = 0; words >> count; block_bytes *= 2) {
      if (block_bytes >= kPageBytes) free_bytes += count * block_bytes;
    }
  }
  return free_bytes;
}

void prefer_huge_pages(std::vector<std::span<std::byte>> memory) {
  uint64_t wanted_bytes = 0;
  for (const auto& piece : memory) wanted_bytes += piece.size();
  if (wanted_bytes < kPageBytes) return;
  if (free_huge_page_bytes(text_of("/proc/buddyinfo")) / 4 < wanted_bytes) return;
  // What malloc maps for one piece after the other lies side by side, a header apart. The advice
  // for the few bytes between is harmless, whoever has them.
  constexpr size_t kMaxGapBytes = 64 * kKiB;
  std::ranges::sort(memory, {}, [](const auto& piece) { return piece.data(); });
  std::byte* begin = nullptr;
  size_t size_bytes = 0;
  for (const std::span<std::byte> piece : memory) {
    if (piece.empty()) continue;
    if (begin != nullptr && piece.data() <= begin + size_bytes + kMaxGapBytes) {
      const auto offset = static_cast<size_t>(piece.data() - begin);
      size_bytes = std::max(size_bytes, offset + piece.size());
      continue;
    }
    advise(begin, size_bytes);
    begin = piece.data();
    size_bytes = piece.size();
  }
  advise(begin, size_bytes);
}

}  // namespace headrace
