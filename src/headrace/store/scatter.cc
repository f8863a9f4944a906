#include "headrace/store/scatter.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace headrace {

Result<ByteRange> range_of(std::span<const Place> places) {
  if (places.empty()) return invalid_argument("a range without a place for any of its bytes");
  ByteRange range{places.front().begin, 0};
  uint64_t position = 0;
  for (const Place& place : places) {
    if (place.into.empty()) {
      return invalid_argument("the place for the bytes from ", place.begin, " on is empty");
    }
    if (place.begin >= kUnknownSize || place.into.size() >= kUnknownSize - place.begin) {
      return invalid_argument("the place for the bytes from ", place.begin, " on holds ",
                              place.into.size(), " bytes, beyond the end of any object");
    }
    if (place.begin < position) {
      return invalid_argument("the place for the bytes from ", place.begin,
                              " on comes after one for those from ", position, " on");
    }
    position = place.begin;
    range.end = std::max(range.end, place.end());
  }
  return range;
}

PlaceFiller::PlaceFiller(std::span<const Place> places, uint64_t begin, ChecksumKind kind)
    : places_(places),
      first_(static_cast<size_t>(
          std::ranges::find_if(places, [begin](const Place& each) { return each.end() > begin; }) -
          places.begin())),
      next_(first_),
      position_(begin),
      kind_(kind) {}

std::span<std::byte> PlaceFiller::space(uint64_t left_bytes) {
  left_bytes_ = left_bytes;
  direct_ = nullptr;
  uint64_t end = position_ + std::min<uint64_t>(kScratchBytes, left_bytes);
  for (size_t i = next_; i < places_.size() && places_[i].begin < end; ++i) {
    const Place& place = places_[i];
    const uint64_t from = std::max(place.begin, position_);
    const uint64_t room_bytes = place.end() - std::min(from, place.end());
    if (room_bytes < kDirectBytes) continue;
    if (from == position_) {
      direct_ = &place;
      space_ = place.into.last(static_cast<size_t>(room_bytes))
                   .first(static_cast<size_t>(std::min(room_bytes, left_bytes)));
      return space_;
    }
    end = from;
  }
  if (!scratch_) scratch_ = std::make_unique_for_overwrite<std::byte[]>(kScratchBytes);
  space_ = {scratch_.get(), static_cast<size_t>(end - position_)};
  return space_;
}

void PlaceFiller::took(size_t count) {
  const std::span<const std::byte> bytes = space_.first(count);
  const uint64_t end = position_ + count;
  for (size_t i = next_; i < places_.size() && places_[i].begin < end; ++i) {
    const Place& place = places_[i];
    const uint64_t from = std::max(place.begin, position_);
    const uint64_t to = std::min(place.end(), end);
    if (from >= to) continue;  // it is inside another one, and full
    const std::span<const std::byte> part =
        bytes.subspan(static_cast<size_t>(from - position_), static_cast<size_t>(to - from));
    if (&place != direct_) {
      std::memcpy(place.into.data() + (from - place.begin), part.data(), part.size());
    }
    while (filled_.size() <= i - first_) filled_.push_back({.sum = RunningSum(kind_)});
    Filled& filled = filled_[i - first_];
    filled.sum.extend(part);  // while it is in cache
    filled.size_bytes += part.size();
  }
  position_ = end;
  while (next_ < places_.size() && places_[next_].end() <= position_) ++next_;
  if (count == left_bytes_) scratch_.reset();
}

std::unique_ptr<Scatter> Scatter::joined(std::span<const JoinedPart> parts) {
  auto scatter = std::make_unique<Scatter>();
  scatter->is_joined = true;
  scatter->places.reserve(parts.size());
  for (const JoinedPart& part : parts) {
    scatter->places.push_back({.begin = part.range.begin, .into = part.into});
    if (part.into.empty()) scatter->own_sizes.push_back(part.range.size_bytes());
    if (!part.expected.empty()) scatter->expected.resize(parts.size());
  }
  if (scatter->expected.empty()) return scatter;
  for (size_t i = 0; i < parts.size(); ++i) scatter->expected[i] = parts[i].expected;
  return scatter;
}

uint64_t Scatter::own_bytes() const {
  return std::accumulate(own_sizes.begin(), own_sizes.end(), uint64_t{0});
}

uint64_t Scatter::charged_bytes() const {
  uint64_t sum = 0;
  for (const uint64_t size_bytes : own_sizes) sum += BlockPool::charged_bytes(size_bytes);
  return sum;
}

void Scatter::take_blocks(std::vector<Block> taken) {
  blocks = std::move(taken);
  for (size_t i = 0; i < blocks.size(); ++i) places[i].into = blocks[i].bytes();
}

void Scatter::release_blocks() {
  blocks.clear();
  if (own_sizes.empty()) return;
  for (Place& place : places) place.into = {};
}

void Scatter::join(const PlaceFiller& next) {
  size_t place = next.first_place();
  for (const PlaceFiller::Filled& filled : next.filled()) {
    if (filled.size_bytes > 0) {
      if (place == sums.size()) {
        sums.push_back(filled.sum.value());
      } else {
        sums[place] = headrace::joined(sums[place], filled.sum.value(), filled.size_bytes);
      }
    }
    ++place;
  }
}

size_t Scatter::compare() {
  size_t matched = 0;
  mismatched.clear();
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].empty()) continue;
    if (sums[i] == expected[i]) {
      ++matched;
    } else {
      mismatched.push_back(i);
    }
  }
  return matched;
}

}  // namespace headrace
