#include "body.h"

#include <algorithm>

namespace faultserver {

Body Body::made(std::string head, std::shared_ptr<const std::string> pool, uint64_t start,
                uint64_t size_bytes) {
  Body body;
  body.bytes_ = std::move(pool);
  body.head_ = std::move(head);
  body.made_ = true;
  body.start_ = start;
  body.end_ = size_bytes;
  return body;
}

Body Body::joined(std::vector<Body> parts) {
  std::erase_if(parts, [](const Body& part) { return part.size_bytes() == 0; });
  auto joined = std::make_shared<Joined>();
  Body body;
  for (const Body& part : parts) {
    joined->begins.push_back(body.end_);
    body.end_ += part.size_bytes();
  }
  joined->parts = std::move(parts);
  body.joined_ = std::move(joined);
  return body;
}

std::string_view Body::view_whole(uint64_t at) const {
  if (joined_) {
    const auto after = std::ranges::upper_bound(joined_->begins, at);
    const auto index = static_cast<size_t>(after - joined_->begins.begin()) - 1;
    return joined_->parts[index].view(at - joined_->begins[index]);
  }
  if (!made_) return std::string_view(*bytes_).substr(at);
  if (at < head_.size()) return std::string_view(head_).substr(at);
  return std::string_view(*bytes_).substr((start_ + at - head_.size()) % bytes_->size());
}

std::string_view Body::view(uint64_t offset) const {
  const uint64_t at = begin_ + offset;
  if (at >= end_) return {};
  if (at == flip_at_) return {&flipped_, 1};
  const uint64_t limit = flip_at_ > at ? std::min(end_, flip_at_) : end_;
  return view_whole(at).substr(0, limit - at);
}

Body Body::slice(uint64_t begin, uint64_t end) const {
  Body part = *this;
  part.end_ = begin_ + std::min(end, size_bytes());
  part.begin_ = std::min(begin_ + begin, part.end_);
  return part;
}

Body Body::flipped(uint64_t offset) const {
  Body changed = *this;
  if (offset >= size_bytes()) return changed;
  changed.flip_at_ = begin_ + offset;
  changed.flipped_ = static_cast<char>(~view(offset).front());
  return changed;
}

std::string Body::copy() const {
  std::string out;
  out.reserve(size_bytes());
  while (out.size() < size_bytes()) out += view(out.size());
  return out;
}

}  // namespace faultserver
