#include "headrace/dataset/columns.h"

#include <array>
#include <cassert>

#include "headrace/format/crc32c.h"

namespace headrace {
namespace {

// magic, version, CRC32C of all that follows; the whole size, the header's size in numbers
constexpr std::string_view kMagic = "HEADRIDX";
constexpr size_t kVersionAt = 8, kSumAt = 12, kSizeAt = 16, kCountAt = 24, kHeaderAt = 32;
constexpr size_t kPaddingBytes = 8;  // PackedColumn reads beyond its last value

// Chunks are as large as what was written before them, within these.
constexpr size_t kLeastChunk = size_t{1} << 10, kMostChunk = size_t{4} << 20;

template <class T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

template <class T>
void append(std::vector<std::byte>& out, T value) {
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), begin, begin + sizeof(value));
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

// ── Writing ──────────────────────────────────────────────────────────────────────────────────

std::byte* ImageWriter::room(size_t size_bytes) {
  if (body_.empty() || body_.back().capacity() - body_.back().size() < size_bytes) {
    body_.emplace_back().reserve(
        std::max<size_t>(size_bytes, std::clamp<size_t>(body_bytes_, kLeastChunk, kMostChunk)));
  }
  std::vector<std::byte>& chunk = body_.back();
  chunk.resize(chunk.size() + size_bytes);
  body_bytes_ += size_bytes;
  return chunk.data() + chunk.size() - size_bytes;
}

void ImageWriter::put(std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::ranges::copy(bytes, room(bytes.size()));
}

void ImageWriter::text_column(size_t count, const std::function<void(const TextSink&)>& for_each) {
  std::vector<uint64_t> group_begins, prefix_sizes, ends;
  group_begins.reserve(count / TextColumn::kGroup + 1);
  prefix_sizes.reserve(count / TextColumn::kGroup + 1);
  ends.reserve(count);
  const uint64_t text_begin = body_bytes_;
  std::string group;  // its texts, one behind the other
  std::array<size_t, TextColumn::kGroup + 1> bounds{};
  size_t in_group = 0;

  const auto put_text = [this](std::string_view text) { put(std::as_bytes(std::span(text))); };
  const auto flush = [&] {
    if (in_group == 0) return;
    const auto text = [&](size_t i) {
      return std::string_view(group).substr(bounds[i], bounds[i + 1] - bounds[i]);
    };
    size_t prefix = text(0).size();
    for (size_t i = 1; i < in_group; ++i) {
      // Compared as a whole first: within few groups, it gets shorter more than once or twice.
      const std::string_view common = text(0).substr(0, prefix);
      if (!text(i).starts_with(common)) prefix = common_prefix(common, text(i));
    }
    group_begins.push_back(body_bytes_ - text_begin);
    prefix_sizes.push_back(prefix);
    put_text(text(0).substr(0, prefix));
    uint64_t end = 0;
    for (size_t i = 0; i < in_group; ++i) {
      put_text(text(i).substr(prefix));
      ends.push_back(end += text(i).size() - prefix);
    }
    group.clear();
    in_group = 0;
  };
  for_each([&](std::string_view text) {
    group += text;
    bounds[++in_group] = group.size();
    if (in_group == TextColumn::kGroup) flush();
  });
  flush();

  number(text_begin);
  number(body_bytes_ - text_begin);
  column(group_begins);
  column(prefix_sizes);
  column(ends);
}

void ImageWriter::fixed_column(size_t width_bytes,
                               const std::function<void(const BytesSink&)>& for_each) {
  number(body_bytes_);
  number(width_bytes);
  if (width_bytes == 0) return;
  for_each([&](std::span<const std::byte> value) {
    assert(value.size() <= width_bytes);
    std::byte* const end = std::ranges::copy(value, room(width_bytes)).out;
    std::fill_n(end, width_bytes - value.size(), std::byte{0});
  });
}

std::vector<std::span<const std::byte>> ImageWriter::parts() {
  assert(head_.empty());
  std::ranges::fill_n(room(kPaddingBytes), kPaddingBytes, std::byte{0});
  for (const char c : kMagic) append(head_, c);
  append(head_, ImageReader::kVersion);
  append(head_, uint32_t{0});
  append(head_, kHeaderAt + header_.size() * sizeof(uint64_t) + body_bytes_);
  append(head_, uint64_t{header_.size()});
  for (const uint64_t value : header_) append(head_, value);
  Crc32c sum = Crc32c().extended(std::span(head_).subspan(kSizeAt));
  for (const std::vector<std::byte>& chunk : body_) sum = sum.extended(chunk);
  const uint32_t value = sum.value();
  std::memcpy(head_.data() + kSumAt, &value, sizeof(value));
  std::vector<std::span<const std::byte>> out = {head_};
  out.insert(out.end(), body_.begin(), body_.end());
  return out;
}

std::vector<std::byte> ImageWriter::finish() && {
  const std::vector<std::span<const std::byte>> all = parts();
  std::vector<std::byte> image;
  image.reserve(head_.size() + body_bytes_);
  for (const std::span<const std::byte> part : all) {
    image.insert(image.end(), part.begin(), part.end());
  }
  return image;
}

// ── Reading ──────────────────────────────────────────────────────────────────────────────────

ImageReader::ImageReader(std::span<const std::byte> image, Known known) : known_(known) {
  if (Result<void> good = open(image); !good) error_ = std::move(good.error());
}

Result<void> ImageReader::open(std::span<const std::byte> image) {
  if (image.size() < kHeaderAt || std::memcmp(image.data(), kMagic.data(), kMagic.size()) != 0) {
    return corrupt("this is no object index");
  }
  if (const auto version = load<uint32_t>(image, kVersionAt); version != kVersion) {
    return corrupt("the object index has version ", version, "; this headrace reads version ",
                   kVersion,
                   version > kVersion ? ": a newer one wrote it"
                                      : ": an older one wrote it; list the objects anew, and save");
  }
  if (const auto size = load<uint64_t>(image, kSizeAt); size != image.size()) {
    return corrupt("the object index has ", image.size(), " bytes and says that it has ", size);
  }
  if (known_ == Known::kNothing) {
    const Crc32c found = Crc32c().extended(image.subspan(kSizeAt));
    if (const auto sum = load<uint32_t>(image, kSumAt); sum != found.value()) {
      return corrupt("the object index has CRC32C ", found.to_base64(), " and says that it is ",
                     Crc32c(sum).to_base64());
    }
  }
  const auto count = load<uint64_t>(image, kCountAt);
  if (count > (image.size() - kHeaderAt) / sizeof(uint64_t) ||
      image.size() - kHeaderAt - count * sizeof(uint64_t) < kPaddingBytes) {
    return corrupt("the object index is shorter than its header");
  }
  header_ = image.subspan(kHeaderAt, count * sizeof(uint64_t));
  body_ = image.subspan(kHeaderAt + header_.size());
  return {};
}

uint64_t ImageReader::number() {
  require(header_.size() >= sizeof(uint64_t), "the object index lacks a column");
  if (error_) return 0;
  const auto value = load<uint64_t>(header_, 0);
  header_ = header_.subspan(sizeof(uint64_t));
  return value;
}

PackedColumn ImageReader::column(size_t count) {
  const uint64_t begin = number(), width_bytes = number(), base = number();
  // Divided, not multiplied: nothing here can wrap around.
  const uint64_t room = body_.size() - std::min(body_.size(), kPaddingBytes);
  require(width_bytes <= 8 && begin <= room &&
              (width_bytes == 0 || count <= (room - begin) / width_bytes),
          "a column of the object index lies outside it");
  if (error_) return {};
  PackedColumn out;
  out.data_ = body_.data() + begin;
  out.base_ = base;
  out.width_bytes_ = width_bytes;
  out.mask_ = width_bytes == 8 ? UINT64_MAX : (uint64_t{1} << 8 * width_bytes) - 1;
  out.count_ = count;
  return out;
}

TextColumn ImageReader::text_column(size_t count) {
  const uint64_t begin = number(), size = number();
  const size_t group_count = count / TextColumn::kGroup + (count % TextColumn::kGroup != 0);
  TextColumn out;
  out.group_begin_ = column(group_count);
  out.prefix_size_ = column(group_count);
  out.end_ = column(count);
  require(begin <= body_.size() && size <= body_.size() - begin,
          "a text of the object index lies outside it");
  const size_t checked_groups = known_ == Known::kGood ? 0 : group_count;
  uint64_t group_end = 0;
  for (size_t group = 0; group < checked_groups && !error_; ++group) {
    uint64_t end = 0;
    bool sorted = true;
    const size_t last = std::min(count, (group + 1) * TextColumn::kGroup);
    for (size_t i = group * TextColumn::kGroup; i < last; ++i) {
      sorted = sorted && out.end_[i] >= end;
      end = out.end_[i];
    }
    const uint64_t at = out.group_begin_[group], prefix = out.prefix_size_[group];
    require(sorted && at <= size && prefix <= size - at && end <= size - at - prefix,
            "a text of the object index lies outside it");
    // Else a few bytes could stand for any number of long texts, which are copied one by one.
    require(at == group_end, "two texts of the object index lie in the same place");
    group_end = at + prefix + end;
  }
  if (error_) return {};
  out.text_ = {reinterpret_cast<const char*>(body_.data()) + begin, size};
  return out;
}

FixedColumn ImageReader::fixed_column(size_t count) {
  const uint64_t begin = number(), width_bytes = number();
  const uint64_t room = body_.size() - std::min(body_.size(), begin);
  require(begin <= body_.size() && (width_bytes == 0 || count <= room / width_bytes),
          "a column of the object index lies outside it");
  if (error_) return {};
  FixedColumn out;
  out.bytes_ = body_.subspan(begin, width_bytes == 0 ? 0 : count * width_bytes);
  out.width_bytes_ = count == 0 ? 0 : width_bytes;  // else it would pass for one with values
  return out;
}

Result<void> ImageReader::finish() {
  require(header_.empty(), "the object index has a column too many");
  if (error_) return std::unexpected(std::move(*error_));
  return {};
}

}  // namespace headrace
