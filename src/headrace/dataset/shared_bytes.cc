#include "headrace/dataset/shared_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace headrace {
namespace {

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

using Parts = std::span<const std::span<const std::byte>>;

bool write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

// Write access ends before it is sealed: a writable mapping would forbid that.
bool fill_and_seal(int descriptor, Parts parts) {
  return std::ranges::all_of(parts, [&](auto part) { return write_all(descriptor, part); }) &&
         ::fcntl(descriptor, F_ADD_SEALS, kSeals) == 0;
}

}  // namespace

SharedBytes::SharedBytes(SharedBytes&& other) noexcept { swap(other); }

SharedBytes& SharedBytes::operator=(SharedBytes&& other) noexcept {
  swap(other);
  return *this;
}

SharedBytes::~SharedBytes() {
  if (mapped_) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  } else {
    delete[] data_;
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SharedBytes::swap(SharedBytes& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(mapped_, other.mapped_);
}

Result<SharedBytes> SharedBytes::copy_of(Parts parts) {
  SharedBytes out;
  size_t size = 0;
  for (const std::span<const std::byte> part : parts) size += part.size();
  if (size >= kSharedFromBytes) {
    out.descriptor_ = ::memfd_create("headrace-index", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (out.descriptor_ >= 0 && fill_and_seal(out.descriptor_, parts) && out.map_descriptor(size)) {
      return out;
    }
    // Where that is not to be had (a sandbox, no descriptor left), the heap serves: what is lost is
    // that a spawned process gets a copy.
    out = SharedBytes();
  }
  auto* data = new std::byte[size];
  out.data_ = data;
  out.size_ = size;
  for (const std::span<const std::byte> part : parts) data = std::ranges::copy(part, data).out;
  return out;
}

Result<SharedBytes> SharedBytes::map(int descriptor) {
  SharedBytes out;
  out.descriptor_ = descriptor;
  struct stat status{};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(descriptor, &status) != 0) {
    return invalid_argument("descriptor ", descriptor, " is no sealed shared memory");
  }
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  if (Result<void> mapped = out.map_descriptor(static_cast<size_t>(status.st_size)); !mapped) {
    return std::unexpected(std::move(mapped.error()));
  }
  return out;
}

// MAP_PRIVATE: kernels before 6.7 refuse a shared mapping of what is sealed against writing.
// Without writes no page is ever copied.
Result<void> SharedBytes::map_descriptor(size_t size) {
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (data == MAP_FAILED) {
    return fail(Code::kExhausted, "the system cannot map ", size,
                " bytes of shared memory: ", std::strerror(errno));
  }
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
  mapped_ = true;
  return {};
}

}  // namespace headrace
