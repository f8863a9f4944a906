#include "headrace/store/reading/batch_get_attempt.h"
#include "headrace/store/batch_gets.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

namespace headrace {

void BatchGetAttempt::build(HttpRequest& request) {
  const BatchGets& gets = *protocol().batch_gets();
  std::vector<BatchGetEntry> entries;
  entries.reserve(get_->slots.size());
  names_.clear();
  for (size_t i = 0; i < get_->slots.size(); ++i) {
    entries.push_back(get_->entry(slot(i)));
    names_.push_back(gets.member_name(entries.back()));
  }
  find_twins();
  tar_.reset();
  had_all_since_.reset();
  gets.build_get(request, entries);
}

void BatchGetAttempt::find_twins() {
  const size_t count = names_.size();
  const auto key_of = [this](size_t at) {
    return std::pair<std::string_view, uint64_t>(names_[at], slot(at).range.size_bytes());
  };
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, key_of);
  twins_.clear();
  twins_of_.clear();
  for (size_t begin = 0, end = 0; begin < count; begin = end) {
    for (end = begin + 1; end < count && key_of(order[end]) == key_of(order[begin]);) ++end;
    if (end - begin == 1) continue;
    twins_of_.resize(count, kNoTwins);
    for (size_t i = begin; i < end; ++i) twins_of_[order[i]] = twins_.size();
    twins_.push_back({.left = end - begin, .unproved = {}});
  }
}

Result<void> BatchGetAttempt::begin_body(const ResponseHead&) {
  get_->record->taken.note(Learned::Treatment::kTaken, std::chrono::steady_clock::now());
  tar_.emplace();
  next_ = member_count_ = 0;
  current_.reset();
  return {};
}

Result<std::span<std::byte>> BatchGetAttempt::body_space(uint64_t) {
  const uint64_t left_bytes = tar_->data_left_bytes();
  direct_ = current_ && left_bytes >= kDirectBytes;
  if (direct_) {
    const std::span<std::byte> space = slot(*current_).space(slot(*current_).first_piece);
    return space.first(static_cast<size_t>(std::min<uint64_t>(space.size(), left_bytes)));
  }
  if (!scratch_) scratch_ = std::make_unique_for_overwrite<std::byte[]>(kScratchBytes);
  return std::span(scratch_.get(), kScratchBytes);
}

Result<void> BatchGetAttempt::took_body(size_t count) {
  if (direct_) {
    slot(*current_).took(slot(*current_).first_piece, count);
    tar_->skip(count);
    if (tar_->data_left_bytes() == 0) end_member();
    return {};
  }
  std::span<const std::byte> bytes(scratch_.get(), count);
  while (!bytes.empty()) {
    const Result<TarReader::Step> step = tar_->next(bytes);
    if (!step) return std::unexpected(step.error());
    bytes = bytes.subspan(step->consumed);
    switch (step->event) {
      case TarReader::Event::kMoreNeeded: break;
      case TarReader::Event::kMember:
        if (Result<void> begun = begin_member(); !begun) return begun;
        break;
      case TarReader::Event::kData: take_data(step->data); break;
      case TarReader::Event::kEnd: return {};
    }
  }
  return {};
}

bool BatchGetAttempt::waits_in_vain(std::chrono::steady_clock::time_point now) {
  if (!tar_ || current_ || next_ < get_->slots.size()) return false;
  if (!had_all_since_) had_all_since_ = now;
  return now - *had_all_since_ >= kEndWithin;
}

// The slot that a member belongs to. Members come in the order of the request; what was left out
// has been passed.
std::optional<size_t> BatchGetAttempt::find(const TarMember& member, bool& is_missing) const {
  for (size_t at = next_; at < names_.size(); ++at) {
    if (member.name == names_[at]) return at;
    if (!member.name.ends_with(names_[at])) continue;
    const ReadSlot& its = get_->batch->slot(get_->slots[at].index);
    is_missing = member.name == protocol().batch_gets()->missing_name(get_->entry(its));
    if (is_missing) return at;
  }
  return {};
}

Result<void> BatchGetAttempt::begin_member() {
  const TarMember& member = tar_->member();
  current_.reset();
  if (++member_count_ > 2 * names_.size()) {
    return corrupt("the answer has more members than the ", names_.size(), " that were asked for");
  }
  bool is_missing = false;
  const std::optional<size_t> at = find(member, is_missing);
  if (!at) return {};
  next_ = *at + 1;
  ReadSlot& its = slot(*at);
  if (is_missing || member.type != TarType::kFile || member.is_sparse) return {};
  if (member.size_bytes != its.range.size_bytes()) {
    if (its.is_range() && member.size_bytes == its.object_bytes) get_->record->ignores_ranges();
    return {};
  }
  current_ = at;
  if (member.size_bytes == 0) end_member();
  return {};
}

void BatchGetAttempt::take_data(std::span<const std::byte> data) {
  if (!current_) return;
  ReadSlot& its = slot(*current_);
  while (!data.empty()) {
    const std::span<std::byte> space = its.space(its.first_piece);
    const size_t count = std::min(space.size(), data.size());
    std::memcpy(space.data(), data.data(), count);
    its.took(its.first_piece, count);
    data = data.subspan(count);
  }
  if (tar_->data_left_bytes() == 0) end_member();
}

void BatchGetAttempt::end_member() {
  const size_t at = *current_;
  current_.reset();
  ReadSlot& its = slot(at);
  Checksum sum = its.join_sums();
  const Checksum& expected = its.expected;
  const bool is_proved = BatchGet::compares_sum(get_->verify, *get_->batch, its);
  if (is_proved) {
    if (sum.kind() != expected.kind()) sum = sum_of(expected.kind(), its.into);
    if (sum != expected) return;
  }
  if (twins_of_.empty() || twins_of_[at] == kNoTwins) {
    believe(at);
    return;
  }
  Twins& twins = twins_[twins_of_[at]];
  if (is_proved) {
    believe(at);
  } else {
    twins.unproved.push_back(at);
  }
  if (--twins.left > 0) return;
  for (const size_t each : twins.unproved) believe(each);
}

void BatchGetAttempt::believe(size_t at) {
  ReadSlot& its = slot(at);
  its.found_generation.assign(get_->batch->generation(its));
  get_->slots[at].came = true;
}

Result<Attempt::Verdict> BatchGetAttempt::finish() {
  if (Result<void> whole = tar_->finish(); !whole) return std::unexpected(whole.error());
  return Verdict::kDone;
}

}  // namespace headrace
