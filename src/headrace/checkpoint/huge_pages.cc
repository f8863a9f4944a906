#include "headrace/checkpoint/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "headrace/base/units.h"

namespace headrace {

void prefer_huge_pages(std::span<std::byte> bytes) {
  constexpr uintptr_t kPageBytes = 2 * kMiB;
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t skipped = (kPageBytes - address % kPageBytes) % kPageBytes;
  if (bytes.size() < skipped + kPageBytes) return;
  const size_t whole = (bytes.size() - skipped) / kPageBytes * kPageBytes;
  static_cast<void>(::madvise(bytes.data() + skipped, whole, MADV_HUGEPAGE));
}

}  // namespace headrace
