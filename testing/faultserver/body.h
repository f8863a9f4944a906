// The bytes of an object or of an answer, made or kept, and read in pieces without copying.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace faultserver {

// Thread: any (immutable). Owns a share of the bytes.
class Body {
 public:
  Body() = default;
  explicit Body(std::string bytes)
      : bytes_(std::make_shared<const std::string>(std::move(bytes))), end_(bytes_->size()) {}

  // `size_bytes` bytes: `head`, then `pool` again and again, beginning at `start` in it.
  static Body made(std::string head, std::shared_ptr<const std::string> pool, uint64_t start,
                   uint64_t size_bytes);

  // One after the other; their bytes are shared, as a service's composite shares those of its
  // parts.
  static Body joined(std::vector<Body> parts);

  uint64_t size_bytes() const { return end_ - begin_; }
  // Bytes from `offset` on, as many as lie together; not empty for offset < size.
  std::string_view view(uint64_t offset) const;

  Body slice(uint64_t begin, uint64_t end) const;
  // With the byte at `offset` changed (all bits turned over).
  Body flipped(uint64_t offset) const;
  std::string copy() const;

 private:
  struct Joined {
    std::vector<Body> parts;       // None is empty.
    std::vector<uint64_t> begins;  // Where each begins in the whole.
  };
  static constexpr uint64_t kNoFlip = UINT64_MAX;
  std::string_view view_whole(uint64_t at) const;

  std::shared_ptr<const std::string> bytes_;  // The kept bytes, or the pool.
  std::shared_ptr<const Joined> joined_;
  std::string head_;
  bool made_ = false;
  uint64_t start_ = 0;
  uint64_t begin_ = 0, end_ = 0;
  uint64_t flip_at_ = kNoFlip;
  char flipped_ = 0;
};

}  // namespace faultserver
