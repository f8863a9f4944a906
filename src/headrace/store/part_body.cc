#include "headrace/store/part_body.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace headrace {
namespace {

Result<void> fill(const PartSource& source, uint64_t offset_bytes, std::span<std::byte> into) {
  while (!into.empty()) {
    const Result<size_t> count = source.read(offset_bytes, into);
    if (!count) return std::unexpected(count.error());
    if (*count == 0) return corrupt("the file that is sent has become shorter");
    offset_bytes += *count;
    into = into.subspan(*count);
  }
  return {};
}

}  // namespace

FileSource::~FileSource() { ::close(descriptor_); }

Result<size_t> FileSource::read(uint64_t offset_bytes, std::span<std::byte> into) const {
  while (true) {
    const ssize_t count =
        ::pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset_bytes));
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR) {
      return fail(Code::kUnavailable, "the file that is sent cannot be read: ", strerror(errno));
    }
  }
}

Result<void> for_each_piece(const UploadPart& part,
                            const std::function<void(std::span<const std::byte>)>& take) {
  if (part.source != nullptr) {
    std::vector<std::byte> memory(std::min(kSourcePieceBytes, part.source_size_bytes));
    for (uint64_t at = 0; at < part.source_size_bytes; at += memory.size()) {
      const std::span<std::byte> piece =
          std::span(memory).first(std::min(memory.size(), part.source_size_bytes - at));
      if (Result<void> read = fill(*part.source, part.source_begin_bytes + at, piece); !read) {
        return read;
      }
      take(piece);
    }
  }
  for (const std::span<const std::byte> span : part.spans) take(span);
  return {};
}

void PartBody::read(uint64_t offset_bytes, Done done) {
  auto kept = std::make_shared<Done>(std::move(done));  // a job that is refused keeps nothing
  const bool posted = readers_->post(
      [self = shared_from_this(), offset_bytes, kept] { (*kept)(self->read_now(offset_bytes)); });
  if (!posted) (*kept)(fail(Code::kCancelled, "the engine was stopped"));
}

Result<std::span<const std::byte>> PartBody::read_now(uint64_t offset_bytes) {
  if (piece_.data() == nullptr) {
    piece_ = pool_->allocate(std::min(kSourcePieceBytes, size_bytes()));
    if (piece_.data() == nullptr) {
      return fail(Code::kExhausted, "the system has no memory for ", kSourcePieceBytes, " bytes");
    }
  }
  const std::span<std::byte> piece =
      piece_.bytes().first(std::min(piece_.size_bytes(), size_bytes() - offset_bytes));
  if (Result<void> filled = fill(*part_->source, part_->source_begin_bytes + offset_bytes, piece);
      !filled) {
    return std::unexpected(std::move(filled.error()));
  }
  crc32c_ = offset_bytes == 0 ? Crc32c().extended(piece) : crc32c_.extended(piece);
  const bool is_last = offset_bytes + piece.size() == size_bytes();
  if (is_last && crc32c_ != part_->source_crc32c) {
    return corrupt("the file that is sent has changed since its checksum was computed");
  }
  return piece;
}

}  // namespace headrace
