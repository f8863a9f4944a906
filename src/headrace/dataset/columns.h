// The columns of an ObjectIndex, and the image that holds them: the same bytes in memory, in shared
// memory and in a saved index. Sans-IO.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

static_assert(std::endian::native == std::endian::little, "an image is read where it lies");

// Integers as differences from the smallest one, in as many whole bytes as the largest difference
// needs: a column of equal values takes none.
// Thread: any (immutable). Borrows the image.
class PackedColumn {
 public:
  PackedColumn() = default;

  uint64_t operator[](size_t i) const {
    uint64_t bits;  // reads up to 8 bytes too many: an image ends with as many
    std::memcpy(&bits, data_ + i * width_bytes_, sizeof(bits));
    return base_ + (bits & mask_);
  }
  size_t count() const { return count_; }
  bool all_equal() const { return width_bytes_ == 0; }

 private:
  friend class ImageReader;
  const std::byte* data_ = nullptr;
  uint64_t base_ = 0, mask_ = 0;
  size_t width_bytes_ = 0, count_ = 0;
};

// Texts in groups of kGroup: the common prefix of a group once, then the rest of each text. Names
// of a listing have long common prefixes, and any name is still found at once.
// Thread: any (immutable). Borrows the image.
class TextColumn {
 public:
  static constexpr size_t kGroup = 16;

  // Appends text `i` to `out`.
  void append_to(size_t i, std::string& out) const {
    const size_t group = i / kGroup;
    const char* begin = text_.data() + group_begin_[group];
    const uint64_t prefix = prefix_size_[group];
    const uint64_t from = i % kGroup == 0 ? 0 : end_[i - 1];
    out.append(begin, prefix).append(begin + prefix + from, end_[i] - from);
  }
  std::string at(size_t i) const {
    std::string out;
    append_to(i, out);
    return out;
  }
  size_t size(size_t i) const {
    const uint64_t from = i % kGroup == 0 ? 0 : end_[i - 1];
    return prefix_size_[i / kGroup] + end_[i] - from;
  }
  size_t count() const { return end_.count(); }
  // Whether text `i` is `text`; makes no copy.
  bool equals(size_t i, std::string_view text) const {
    const size_t group = i / kGroup;
    const uint64_t prefix = prefix_size_[group];
    const uint64_t from = i % kGroup == 0 ? 0 : end_[i - 1];
    const uint64_t rest = end_[i] - from;
    if (text.size() != prefix + rest) return false;
    const char* begin = text_.data() + group_begin_[group];
    // Compared from the end, where names differ.
    return text.substr(prefix) == std::string_view(begin + prefix + from, rest) &&
           text.substr(0, prefix) == std::string_view(begin, prefix);
  }

 private:
  friend class ImageReader;
  PackedColumn group_begin_, prefix_size_;  // by group: its place in text_
  PackedColumn end_;                        // of each rest, after its group's prefix
  std::string_view text_;
};

// Values of one size, one after another.
// Thread: any (immutable). Borrows the image.
class FixedColumn {
 public:
  std::span<const std::byte> operator[](size_t i) const {
    return bytes_.subspan(i * width_bytes_, width_bytes_);
  }
  size_t width_bytes() const { return width_bytes_; }

 private:
  friend class ImageReader;
  std::span<const std::byte> bytes_;
  size_t width_bytes_ = 0;
};

// Assembles an image. Columns are read in the order in which they were written.
// Thread: confined.
class ImageWriter {
 public:
  void number(uint64_t value) { header_.push_back(value); }
  void column(std::span<const uint64_t> values) {
    column_of([values](auto put) {
      for (const uint64_t value : values) put(value);
    });
  }
  // The same of values that need not lie side by side: `for_each` calls its argument with each of
  // them, in order. It is called twice, unless all are equal.
  template <class ForEach>
  void column_of(ForEach for_each);
  // `for_each` calls its argument with each of `count` texts, in order.
  using TextSink = std::function<void(std::string_view)>;
  void text_column(size_t count, const std::function<void(const TextSink&)>& for_each);
  // `for_each` calls its argument with each value, which has at most `width_bytes`.
  using BytesSink = std::function<void(std::span<const std::byte>)>;
  void fixed_column(size_t width_bytes, const std::function<void(const BytesSink&)>& for_each);

  std::vector<std::byte> finish() &&;
  // The image in parts, which lie here until the writer goes. The last call, and the only one.
  std::vector<std::span<const std::byte>> parts();

 private:
  static size_t width_of(uint64_t largest) {
    return (static_cast<size_t>(std::bit_width(largest)) + 7) / 8;
  }
  // Room for `size_bytes` after the bytes written so far, in one piece.
  std::byte* room(size_t size_bytes);
  void put(std::span<const std::byte> bytes);

  std::vector<uint64_t> header_;
  // In chunks, or growing would move all of it, and for a while keep it twice.
  std::vector<std::vector<std::byte>> body_;
  uint64_t body_bytes_ = 0;
  std::vector<std::byte> head_;  // of the image, once it is finished
};

template <class ForEach>
void ImageWriter::column_of(ForEach for_each) {
  uint64_t count = 0, least = UINT64_MAX, most = 0;
  for_each([&](uint64_t value) {
    ++count;
    least = std::min(least, value);
    most = std::max(most, value);
  });
  if (count == 0) least = 0;
  const size_t width_bytes = width_of(most - least);
  for (const uint64_t value : {body_bytes_, uint64_t{width_bytes}, least}) number(value);
  if (width_bytes == 0) return;
  std::byte* out = room(count * width_bytes);
  for_each([&](uint64_t value) {
    const uint64_t difference = value - least;
    std::memcpy(out, &difference, width_bytes);
    out += width_bytes;
  });
}

// Takes an image apart and trusts nothing in it: whatever the bytes are, nothing it returns refers
// outside them.
// Thread: confined. Borrows the image.
// Errors: kCorrupt, sticky: the first error is kept, and everything read after it is empty.
class ImageReader {
 public:
  static constexpr uint32_t kVersion = 2;

  // What is known about an image. If it was opened before and cannot change, its checksum and its
  // texts are not checked again.
  enum class Known : uint8_t { kNothing, kGood };

  explicit ImageReader(std::span<const std::byte> image, Known known = Known::kNothing);

  uint64_t number();
  // Errors: also if it does not have `count` values.
  PackedColumn column(size_t count);
  // Its texts together are at most kGroup times as long as the image.
  TextColumn text_column(size_t count);
  FixedColumn fixed_column(size_t count);
  void require(bool holds, const char* what) {
    if (!holds && !error_) error_ = Error(Code::kCorrupt, what);
  }
  bool good() const { return !error_.has_value(); }
  // Also checks that the header was read to its end.
  Result<void> finish();

 private:
  Result<void> open(std::span<const std::byte> image);

  const Known known_;
  std::span<const std::byte> header_, body_;
  std::optional<Error> error_;
};

}  // namespace headrace
