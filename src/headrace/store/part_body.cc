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

Error bytes_changed(const UploadPart& part) {
  return Error(Code::kCorrupt, part.source != nullptr
                                   ? "the file that is sent has changed since its checksum was "
                                     "computed"
                                   : "its bytes have changed since they were lent to be written: "
                                     "change them only after close() has returned");
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
  for (std::span<const std::byte> span : part.spans) {
    while (!span.empty()) {
      const size_t size = std::min<size_t>(span.size(), kSourcePieceBytes);
      take(span.first(size));
      span = span.subspan(size);
    }
  }
  return {};
}

void PartBody::read(uint64_t offset_bytes, Done done) {
  if (part_->source == nullptr) return done(read_now(offset_bytes));
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
  const uint64_t left_of_source =
      part_->source_size_bytes - std::min(offset_bytes, part_->source_size_bytes);
  const std::span<std::byte> read = piece.first(std::min<uint64_t>(piece.size(), left_of_source));
  if (!read.empty()) {
    Result<void> filled = fill(*part_->source, part_->source_begin_bytes + offset_bytes, read);
    if (!filled) return std::unexpected(std::move(filled.error()));
  }
  if (offset_bytes == 0) {
    crc32c_ = Crc32c();
    next_span_ = next_byte_ = 0;
  }
  copy_next(piece.subspan(read.size()));
  crc32c_ = crc32c_.extended(piece);
  const bool is_last = offset_bytes + piece.size() == size_bytes();
  if (is_last && crc32c_ != (holds_ == Holds::kAll ? part_->crc32c : part_->source_crc32c)) {
    return std::unexpected(bytes_changed(*part_));
  }
  return piece;
}

void PartBody::copy_next(std::span<std::byte> into) {
  while (!into.empty()) {
    const std::span<const std::byte> left = part_->spans[next_span_].subspan(next_byte_);
    const size_t size = std::min(left.size(), into.size());
    std::memcpy(into.data(), left.data(), size);
    into = into.subspan(size);
    next_byte_ += size;
    if (size < left.size()) return;
    ++next_span_;
    next_byte_ = 0;
  }
}

}  // namespace headrace
