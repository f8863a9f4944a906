#include "headrace/store/read_batch.h"

#include <algorithm>
#include <utility>

namespace headrace {

PieceList PieceList::linked(ReadPiece* first) {
  PieceList list{.first = first, .last = first};
  while (first != nullptr && list.last->next != nullptr) list.last = list.last->next;
  return list;
}

size_t PieceList::count() const {
  size_t count = 0;
  for (const ReadPiece* piece = first; piece != nullptr; piece = piece->next) ++count;
  return count;
}

void PieceList::append(const PieceList& others) {
  if (others.empty()) return;
  (empty() ? first : last->next) = others.first;
  last = others.last;
}

void PieceList::append(ReadPiece& piece) {
  piece.next = nullptr;
  append({.first = &piece, .last = &piece});
}

void PieceList::prepend(const PieceList& others) {
  if (others.empty()) return;
  others.last->next = first;
  first = others.first;
  if (last == nullptr) last = others.last;
}

ReadPiece& PieceList::take_first() {
  ReadPiece& piece = *first;
  first = std::exchange(piece.next, nullptr);
  if (first == nullptr) last = nullptr;
  return piece;
}

PieceList PieceList::take_if(const std::function<bool(const ReadPiece&)>& which) {
  PieceList taken, kept;
  while (!empty()) {
    ReadPiece& piece = take_first();
    (which(piece) ? taken : kept).append(piece);
  }
  *this = kept;
  return taken;
}

void ReadSlot::choose_running_kind(ChecksumKind if_unknown) {
  if (into.scatter()) return;  // each place has a sum of its own
  const ChecksumKind kind = !is_range() && expected.empty() ? if_unknown : expected.kind();
  running_kind = can_join(wanted_sum) ? wanted_sum : can_join(kind) ? kind : ChecksumKind::kNone;
  first_piece.sum = RunningSum(running_kind);
}

PieceList ReadSlot::split(uint64_t first_bytes, uint64_t piece_bytes) {
  first_piece.range.end = std::min(range.end, range.begin + first_bytes);
  const uint64_t rest_bytes = range.end - first_piece.range.end;
  if (rest_bytes == 0) return {};
  const auto more_count = static_cast<uint32_t>((rest_bytes + piece_bytes - 1) / piece_bytes);
  more_pieces = std::make_unique<ReadPiece[]>(more_count);
  piece_count = 1 + more_count;
  pieces_left.store(piece_count, std::memory_order_relaxed);
  PieceList pieces;
  uint64_t begin = first_piece.range.end;
  for (uint32_t i = 0; i < more_count; ++i) {
    ReadPiece& piece = more_pieces[i];
    piece.batch = first_piece.batch;
    piece.reader = first_piece.reader;
    piece.slot_index = first_piece.slot_index;
    piece.range = {begin, std::min(range.end, begin + piece_bytes)};
    piece.sum = RunningSum(running_kind);
    begin = piece.range.end;
    pieces.append(piece);
  }
  return pieces;
}

void ReadSlot::unsplit() {
  more_pieces.reset();
  piece_count = 1;
  pieces_left.store(1, std::memory_order_relaxed);
  first_piece.range = range;
  first_piece.reset(running_kind);
  first_piece.next = nullptr;
}

std::span<std::byte> ReadSlot::space(ReadPiece& piece) const {
  const uint64_t left_bytes = piece.range.size_bytes() - piece.received_bytes;
  if (const Scatter* const scatter = into.scatter()) {
    if (!piece.filler) {
      piece.filler = std::make_unique<PlaceFiller>(scatter->places, piece.range.begin, wanted_sum);
    }
    return piece.filler->space(left_bytes);
  }
  const uint64_t offset = piece.range.begin - range.begin + piece.received_bytes;
  return into.bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(left_bytes));
}

void ReadSlot::took(ReadPiece& piece, size_t count) const {
  if (piece.filler) {
    piece.filler->took(count);
  } else {
    piece.sum.extend(space(piece).first(count));  // while the bytes are (mostly) in cache
  }
  piece.received_bytes += count;
}

Checksum ReadSlot::join_sums() {
  Checksum whole_sum = first_piece.sum.value();
  Scatter* const scatter = into.scatter();
  if (scatter) {
    scatter->sums.clear();
    scatter->join(*first_piece.filler);
  }
  for (uint32_t i = 0; i + 1 < piece_count; ++i) {
    const ReadPiece& piece = more_pieces[i];
    whole_sum = joined(whole_sum, piece.sum.value(), piece.range.size_bytes());
    if (scatter) scatter->join(*piece.filler);
  }
  if (rare && whole_sum.kind() == wanted_sum) rare->sum = whole_sum;
  return whole_sum;
}

Result<void> ReadSlot::limit_to(uint64_t size_bytes) {
  const auto [begin, end] = asked_range();
  if (begin > end) {
    return invalid_argument("the range [", begin, ", ", end, ") ends before it begins");
  }
  if (size_bytes != kUnknownSize && begin > size_bytes) {
    return invalid_argument("the range begins at ", begin, ", beyond the object's ", size_bytes,
                            " bytes");
  }
  range = {begin, std::min(end, size_bytes)};
  return {};
}

Result<void> ReadSlot::check_destination() const {
  const bool is_scattered = into.scatter() != nullptr;
  const uint64_t held_bytes = is_scattered ? asked_range().size_bytes() : into.size();
  if ((!into.is_callers() && !is_scattered) || held_bytes == range.size_bytes()) return {};
  return invalid_argument("the destination holds ", held_bytes, " bytes, the read gives ",
                          range.size_bytes(), " bytes");
}

ReadBatch::ReadBatch(size_t slot_count)
    : slots_(std::make_unique<ReadSlot[]>(slot_count)), capacity_(slot_count) {}

ReadBatch::~ReadBatch() = default;

std::shared_ptr<ReadBatch> ReadBatch::create(size_t slot_count, size_t text_bytes_hint) {
  std::shared_ptr<ReadBatch> batch(new ReadBatch(slot_count));
  batch->text_.reserve(text_bytes_hint);
  return batch;
}

ReadSlot::Text ReadBatch::keep(std::string_view text) {
  const ReadSlot::Text at{.begin = static_cast<uint32_t>(text_.size()),
                          .size = static_cast<uint32_t>(text.size())};
  text_ += text;
  return at;
}

void ReadBatch::add(const ReadTarget& target) {
  if (size_ == capacity_) return;
  ReadSlot& slot = slots_[size_];
  slot.name = keep(target.name);
  slot.generation = keep(target.generation);
  if (!target.member.empty()) slot.make_rare().member = keep(target.member);
  slot.object_bytes = slot.listed_bytes = target.size_bytes;
  slot.asked = target.range;
  slot.expected = slot.listed_sum = slot.is_range() ? target.range_checksum : target.checksum;
  slot.range = slot.asked_range(target.size_bytes);
  if (!target.parts.empty()) {
    slot.into = ReadMemory(Scatter::joined(target.parts));
  } else if (!target.places.empty()) {
    slot.into = ReadMemory(
        std::make_unique<Scatter>(std::vector(target.places.begin(), target.places.end())));
  } else if (target.has_into) {
    slot.into = ReadMemory(target.into);
  }
  slot.wanted_sum = target.wanted_sum;
  if (slot.wanted_sum != ChecksumKind::kNone) slot.make_rare();
  slot.first_piece.batch = this;
  slot.first_piece.slot_index = static_cast<uint32_t>(size_);
  slot.first_piece.range = slot.range;
  slot.choose_running_kind();
  ++size_;
}

uint64_t ReadBatch::expected_bytes(uint64_t unknown_bytes) const {
  uint64_t total = 0;
  for (size_t i = 0; i < size_; ++i) {
    const ReadSlot& slot = slots_[i];
    if (slot.into.is_callers()) continue;  // not ours to count
    total += slot.range.end == kUnknownSize ? unknown_bytes : slot.range.size_bytes();
  }
  return total;
}

ReadTarget ReadBatch::target(size_t i) const {
  const ReadSlot& slot = slots_[i];
  const Scatter* const scatter = slot.into.scatter();
  return {.name = name(slot),
          .generation = generation(slot),
          .size_bytes = slot.listed_bytes,
          .checksum = slot.is_range() ? Checksum() : slot.listed_sum,
          .range = slot.asked,
          .range_checksum = slot.is_range() ? slot.listed_sum : Checksum(),
          .into = slot.into.bytes(),
          .has_into = slot.into.is_callers(),
          .places = scatter ? std::span<const Place>(scatter->places) : std::span<const Place>(),
          .wanted_sum = slot.wanted_sum};
}

void ReadBatch::take_outcome(size_t i, ReadSlot& from) {
  ReadSlot& slot = slots_[i];
  if (from.error) {
    set_error(slot, std::move(*from.error));
  } else {
    if (Scatter* const scatter = slot.into.scatter()) {
      scatter->sums = std::move(from.into.scatter()->sums);
    } else if (!slot.into.is_callers()) {
      slot.into = std::move(from.into);
    }
    slot.found_generation = from.found_generation;
    slot.object_bytes = from.object_bytes;
    slot.range = from.range;
    slot.gzip = from.gzip;
    slot.restarts = from.restarts;
    if (slot.rare) slot.rare->sum = from.sum();
  }
  slot_done();
}

void ReadBatch::take_part(size_t i, ReadSlot& from, size_t part) {
  ReadSlot& slot = slots_[i];
  const Scatter& parts = *from.into.scatter();
  if (!slot.into.is_callers()) {
    slot.into = ReadMemory(std::move(from.into.scatter()->blocks[part]));
  }
  slot.found_generation = from.found_generation;
  slot.object_bytes = from.object_bytes;
  slot.range = slot.asked_range();
  slot.gzip = from.gzip;
  slot.restarts = from.restarts;
  if (slot.wanted_sum != ChecksumKind::kNone) slot.rare->sum = parts.sums[part];
  slot_done();
}

void ReadBatch::then(std::function<void(ReadBatch&)> then) {
  const Lock lock(mutex_);
  if (!then_) {
    then_ = std::move(then);
    return;
  }
  then_ = [first = std::move(then_), next = std::move(then)](ReadBatch& batch) {
    first(batch);
    next(batch);
  };
}

void ReadBatch::hand_over(std::shared_ptr<BlockPool> pool, std::function<void()> on_attention) {
  if (pool != nullptr) {
    const uint64_t size_bytes = capacity_ * sizeof(ReadSlot) + text_.capacity();
    charge_.emplace(std::move(pool), size_bytes, Charge::For::kBatches);
  }
  static std::atomic<uint64_t> next_order = 0;
  order = next_order.fetch_add(1, std::memory_order_relaxed);
  handed_over = std::chrono::steady_clock::now();
  slots_left_.store(size_, std::memory_order_release);
  std::function<void(ReadBatch&)> then;
  {
    const Lock lock(mutex_);
    if (size_ > 0) {
      self_ = shared_from_this();
      on_attention_ = std::move(on_attention);
      return;
    }
    complete_ = true;
    then.swap(then_);
  }
  if (then) then(*this);
}

void ReadBatch::set_error(ReadSlot& slot, Error error) {
  const Lock lock(mutex_);
  if (!slot.error) slot.error = std::move(error);
  slot.failed.store(true, std::memory_order_release);
}

void ReadBatch::forget_listing(ReadSlot& slot) {
  slot.generation = {};
  slot.object_bytes = slot.listed_bytes = kUnknownSize;
  if (!slot.is_range()) slot.expected = slot.listed_sum = {};
  slot.range = slot.first_piece.range = slot.asked_range();
  slot.choose_running_kind();
}

void ReadBatch::restart(ReadSlot& slot, bool and_listing) {
  ++slot.restarts;
  slot.error.reset();
  slot.failed.store(false, std::memory_order_relaxed);
  if (and_listing) {
    slot.generation = {};
    slot.listed_bytes = kUnknownSize;
    slot.listed_sum = {};
    if (Scatter* const scatter = slot.into.scatter()) scatter->expected.clear();
  }
  slot.object_bytes = slot.listed_bytes;
  slot.expected = slot.listed_sum;
  slot.found_generation.assign("");
  slot.range = slot.asked_range(slot.object_bytes);
  slot.choose_running_kind();
  slot.unsplit();
}

void ReadBatch::slots_done(size_t count) {
  if (slots_left_.fetch_sub(count, std::memory_order_acq_rel) != count) return;
  // Destroyed after the lock is released, since the batch may go with `self`.
  std::shared_ptr<ReadBatch> self;
  std::function<void()> on_attention;
  std::function<void(ReadBatch&)> then;
  std::vector<std::shared_ptr<ReadBatch>> inner;
  {
    const Lock lock(mutex_);
    complete_ = true;
    self.swap(self_);
    on_attention.swap(on_attention_);
    then.swap(then_);
    inner.swap(inner_);
    changed_.notify_all();
  }
  if (then) then(*this);
}

void ReadBatch::deal(const std::function<uint32_t(size_t)>& lane_of) {
  size_t dealt_count = 0;
  for (size_t i = 0; i < size_; ++i) {
    slots_[i].lane = lane_of(i);
    if (slots_[i].lane == ReadSlot::kNoLane) continue;
    ++shares_[slots_[i].lane].left;
    ++shares_[slots_[i].lane].queued;
    ++dealt_count;
  }
  const auto lanes = static_cast<size_t>(
      std::ranges::count_if(shares_, [](const LaneShare& share) { return share.left > 0; }));
  queued_lanes_.store(lanes, std::memory_order_seq_cst);
  slots_left_.fetch_sub(dealt_count - lanes, std::memory_order_acq_rel);
}

void ReadBatch::take_from_lane(ReadSlot& slot) {
  if (slot.lane == ReadSlot::kNoLane) return;
  LaneShare& share = shares_[std::exchange(slot.lane, ReadSlot::kNoLane)];
  // If it is the lane's last, what counted for the lane counts for the slot.
  if (--share.left > 0) slots_left_.fetch_add(1, std::memory_order_acq_rel);
}

bool ReadBatch::ends_lane(const ReadSlot& slot) {
  return slot.lane == ReadSlot::kNoLane || --shares_[slot.lane].left == 0;
}

bool ReadBatch::add_queued(uint32_t lane) {
  return shares_[lane].queued++ == 0 && queued_lanes_.fetch_add(1, std::memory_order_seq_cst) == 0;
}

bool ReadBatch::remove_queued(uint32_t lane) {
  return --shares_[lane].queued == 0 && queued_lanes_.fetch_sub(1, std::memory_order_seq_cst) == 1;
}

void ReadBatch::want() {
  std::function<void()> on_attention;
  std::vector<std::shared_ptr<ReadBatch>> inner;
  {
    const Lock lock(mutex_);
    if (complete_ || waited_for_.exchange(true, std::memory_order_seq_cst)) return;
    on_attention = on_attention_;
    inner = inner_;
  }
  for (const std::shared_ptr<ReadBatch>& each : inner) each->want();
  if (on_attention) on_attention();
}

bool ReadBatch::wait_until(std::chrono::steady_clock::time_point until, MayBlock) {
  want();
  const Lock lock(mutex_);
  while (!complete_) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
  }
  return complete_;
}

void ReadBatch::cancel() {
  std::function<void()> on_attention;
  std::vector<std::shared_ptr<ReadBatch>> inner;
  {
    const Lock lock(mutex_);
    if (complete_) return;
    cancelled_.store(true, std::memory_order_release);
    on_attention = on_attention_;
    inner = inner_;
  }
  for (const std::shared_ptr<ReadBatch>& each : inner) each->cancel();
  if (on_attention) on_attention();
}

void ReadBatch::pass_on_to(const std::shared_ptr<ReadBatch>& inner) {
  {
    const Lock lock(mutex_);
    if (complete_) return;
    inner_.push_back(inner);
  }
  // What came before it was where want() and cancel() find it.
  if (cancelled()) {
    inner->cancel();
  } else if (waited_for()) {
    inner->want();
  }
}

}  // namespace headrace
