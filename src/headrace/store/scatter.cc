#include "headrace/store/scatter.h"

#include <algorithm>
#include <cstring>

namespace headrace {

Result<ByteRange> range_of(std::span<const Place> places) {
  if (places.empty()) return invalid_argument("a range without a place for any of its bytes");
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
                              " on comes after one for those up to ", position);
    }
    position = place.end();
  }
  return ByteRange{places.front().begin, position};
}

PlaceFiller::PlaceFiller(std::span<const Place> places, uint64_t begin, ChecksumKind kind)
    : places_(places),
      first_(static_cast<size_t>(std::ranges::upper_bound(places, begin, {}, &Place::end) -
                                 places.begin())),
      next_(first_),
      position_(begin),
      kind_(kind) {}

std::span<std::byte> PlaceFiller::space(uint64_t left_bytes) {
  left_bytes_ = left_bytes;
  direct_ = false;
  uint64_t end = position_ + std::min<uint64_t>(kScratchBytes, left_bytes);
  for (size_t i = next_; i < places_.size() && places_[i].begin < end; ++i) {
    const Place& place = places_[i];
    const uint64_t from = std::max(place.begin, position_);
    const uint64_t room_bytes = place.end() - from;
    if (room_bytes < kDirectBytes) continue;
    if (from == position_) {
      direct_ = true;
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
  std::span<const std::byte> bytes = space_.first(count);
  while (!bytes.empty()) {
    if (next_ == places_.size()) {
      position_ += bytes.size();
      break;
    }
    const Place& place = places_[next_];
    if (position_ < place.begin) {
      const auto dropped =
          static_cast<size_t>(std::min<uint64_t>(place.begin - position_, bytes.size()));
      bytes = bytes.subspan(dropped);
      position_ += dropped;
      continue;
    }
    const auto size_bytes =
        static_cast<size_t>(std::min<uint64_t>(place.end() - position_, bytes.size()));
    if (filled_.size() == next_ - first_) filled_.push_back({.sum = RunningSum(kind_)});
    Filled& filled = filled_.back();
    if (!direct_) {
      std::memcpy(place.into.data() + (position_ - place.begin), bytes.data(), size_bytes);
    }
    filled.sum.extend(bytes.first(size_bytes));  // while it is in cache
    filled.size_bytes += size_bytes;
    bytes = bytes.subspan(size_bytes);
    position_ += size_bytes;
    if (position_ == place.end()) ++next_;
  }
  if (count == left_bytes_) scratch_.reset();
}

void Scatter::join(const PlaceFiller& next) {
  size_t place = next.first_place();
  for (const PlaceFiller::Filled& filled : next.filled()) {
    if (place == sums.size()) {
      sums.push_back(filled.sum.value());
    } else {
      sums[place] = joined(sums[place], filled.sum.value(), filled.size_bytes);
    }
    ++place;
  }
}

}  // namespace headrace
