// Parts whose bytes are read again instead of held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "headrace/base/block_pool.h"
#include "headrace/base/result.h"
#include "headrace/base/thread_pool.h"
#include "headrace/http/message.h"
#include "headrace/store/upload.h"

namespace headrace {

// A source is read in pieces of this size, which stay in cache from their sum to the socket.
inline constexpr uint64_t kSourcePieceBytes = 256 * kKiB;

// An open local file.
// Thread: any. Owns the descriptor.
// Errors: kUnavailable if the system cannot read it.
class FileSource final : public PartSource {
 public:
  // Takes over `descriptor`, of a file in which one can seek.
  explicit FileSource(int descriptor) : descriptor_(descriptor) {}
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  Result<size_t> read(uint64_t offset_bytes, std::span<std::byte> into) const override;

 private:
  const int descriptor_;
};

// That the sum of a part is no longer that of its bytes.
Error bytes_changed(const UploadPart& part);

// All bytes of a part, in order, in pieces that stay in cache. Reads the source, if
// the part has one, and may block. Errors: those of the source.
Result<void> for_each_piece(const UploadPart& part,
                            const std::function<void(std::span<const std::byte>)>& take);

// The bytes of a part that have a source, as they are sent once, or all of its bytes: then those in
// memory are copied piece by piece. The last of them are given only if all are those that the part
// was made of: a service never gets a whole part of other bytes, whether or not it compares them.
// Thread: any. Owns one piece of memory, which counts.
// Errors: kCorrupt if the source or the memory has changed; those of the source; kCancelled once
// the engine stops.
class PartBody final : public BodySource, public std::enable_shared_from_this<PartBody> {
 public:
  enum class Holds : uint8_t { kSource, kAll };
  // `readers` may be null if the part has no source.
  PartBody(std::shared_ptr<const UploadPart> part, Holds holds, std::shared_ptr<ThreadPool> readers,
           std::shared_ptr<BlockPool> pool)
      : part_(std::move(part)),
        holds_(holds),
        readers_(std::move(readers)),
        pool_(std::move(pool)) {}
  uint64_t size_bytes() const override {
    return holds_ == Holds::kAll ? part_->size_bytes : part_->source_size_bytes;
  }
  void read(uint64_t offset_bytes, Done done) override;

 private:
  Result<std::span<const std::byte>> read_now(uint64_t offset_bytes);
  void copy_next(std::span<std::byte> into);

  const std::shared_ptr<const UploadPart> part_;
  const Holds holds_;
  const std::shared_ptr<ThreadPool> readers_;
  const std::shared_ptr<BlockPool> pool_;
  Block piece_;
  Crc32c crc32c_;  // of what was read
  // Of the part's memory: what is copied next.
  size_t next_span_ = 0, next_byte_ = 0;
};

}  // namespace headrace
