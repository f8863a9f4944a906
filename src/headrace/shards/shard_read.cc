#include "headrace/shards/shard_read.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace headrace {
namespace {

using std::chrono::steady_clock;

constexpr size_t kPlainBytes = 256 * kKiB;  // that are decompressed, or parsed, together
// What a sample takes besides its bytes: empty ones must not be without any limit.
constexpr uint64_t kSampleBytes = 512;
constexpr size_t kUstarOffset = 257;
constexpr uint64_t kOwnWindowBytes = 16 * kMiB;

ShardParser::Options parser_options(const ShardToRead& shard, bool compressed) {
  const bool begins_there = !compressed && shard.offset > 0;
  return {.tar_bytes = compressed ? kUnknownSize : shard.size_bytes,
          .number = begins_there ? shard.first : 0,
          .offset = begins_there ? shard.offset : 0,
          .first_key = begins_there ? shard.first_key : "",
          .first = shard.first,
          .fields = shard.fields,
          .max_sample_bytes = shard.store->pool()->budget_bytes()};
}

// A tar may begin with a name that looks like a compressed file.
Compression compression_of_shard(std::span<const std::byte> head) {
  if (head.size() >= kUstarOffset + 5) {
    const auto* const magic = reinterpret_cast<const char*>(head.data() + kUstarOffset);
    if (std::string_view(magic, 5) == "ustar") return Compression::kNone;
  }
  return compression_of(head);
}

std::unexpected<Error> cancelled() {
  return fail(Code::kCancelled, "the shard is not read any more");
}

std::string hex_of(const Checksum& sum) { return cat(label(sum.kind()), " ", to_hex(sum)); }

}  // namespace

std::shared_ptr<ShardRead> ShardRead::start(ShardToRead shard) {
  std::shared_ptr<ShardRead> read(new ShardRead(std::move(shard)));
  // The destructor joins the thread.
  if (ShardRead* const self = read.get(); !read->thread_.post([self] { self->run(); })) {
    const Lock lock(read->mutex_);
    read->ended_ = true;
    read->error_ = Error(Code::kExhausted, "the system has no thread to read the shard")
                       .with_url(read->shard_.store->url_of(read->shard_.name));
  }
  return read;
}

ShardRead::ShardRead(ShardToRead shard)
    : shard_(std::move(shard)),
      next_begin_(shard_.offset),
      generation_(shard_.generation),
      knows_generation_(!generation_.empty()),
      turn_(shard_.window ? shard_.window : std::make_shared<PieceWindow>(kOwnWindowBytes)) {}

ShardRead::~ShardRead() {
  cancel();
  thread_.stop();
}

bool ShardRead::wait_until(steady_clock::time_point until, MayBlock) {
  const Lock lock(mutex_);
  while (ready_.empty() && !ended_) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
  }
  return !ready_.empty() || ended_;
}

Result<std::vector<ShardSample>> ShardRead::take() {
  const Lock lock(mutex_);
  if (ready_.empty() && error_) return std::unexpected(*error_);
  ready_bytes_ = 0;
  changed_.notify_all();
  return std::exchange(ready_, {});
}

void ShardRead::cancel() {
  std::vector<std::shared_ptr<ReadBatch>> batches;
  std::shared_ptr<Pending<ObjectInfo>> stat;
  {
    const Lock lock(mutex_);
    cancelled_ = true;
    for (const Piece& piece : pieces_) batches.push_back(piece.batch);
    stat = stat_;
    changed_.notify_all();
  }
  turn_.cancel();
  if (stat) stat->cancel();
  for (const std::shared_ptr<ReadBatch>& batch : batches) batch->cancel();
}

void ShardRead::close(MayBlock) {
  cancel();
  const Lock lock(mutex_);
  while (!ended_) changed_.wait(mutex_);
}

std::vector<std::string> ShardRead::warnings() {
  const Lock lock(mutex_);
  return warnings_;
}

void ShardRead::run() {
  Result<void> result = read();
  // Whole samples were found before what is wrong.
  static_cast<void>(publish());
  cancel();  // what is under way and not needed
  turn_.pass();
  while (true) {
    Piece last;
    {
      const Lock lock(mutex_);
      if (pieces_.empty()) break;
      last = pieces_.front();
      pieces_.pop_front();
    }
    while (!last.batch->wait_until(steady_clock::now() + std::chrono::hours(1),
                                   MayBlock::on_this_thread())) {
    }
    turn_.give_back(last.size_bytes);
  }
  const Lock lock(mutex_);
  if (!result) {
    Error error = std::move(result.error());
    if (error.url().empty()) {
      error = std::move(error).with_url(shard_.store->url_of(shard_.name));
    }
    error_ = std::move(error);
  } else if (parser_ && !is_done()) {
    warnings_ = parser_->warnings();
    if (const size_t left_out = parser_->left_out_count(); left_out > 0) {
      warnings_.push_back(
          cat("members that belong to no sample, as their names have no key before "
              "a dot, are left out: '",
              parser_->first_left_out(), "'",
              left_out == 1 ? "" : cat(" and ", left_out - 1, " more")));
    }
  }
  ended_ = true;
  changed_.notify_all();
}

Result<void> ShardRead::read() {
  if (shard_.first >= shard_.end) return {};
  if (Result<void> asked = ask_checksum(); !asked) return asked;
  while (true) {
    if (Result<void> started = start_pieces(); !started) return started;
    Result<std::shared_ptr<ReadBatch>> piece = next_piece();
    if (!piece) return std::unexpected(std::move(piece.error()));
    if (*piece == nullptr) return finish();
    if (Result<void> taken = take_piece((*piece)->slot(0).into); !taken) return taken;
    if (is_done()) return {};
  }
}

// Which sum the whole is compared with.
Result<void> ShardRead::ask_checksum() {
  whole_ = shard_.checksum;
  if (!shard_.verify || shard_.offset > 0 || shard_.end != UINT64_MAX) return {};
  if (whole_.empty() && shard_.asks_checksum) {
    const std::shared_ptr<Pending<ObjectInfo>> stat = shard_.store->stat(shard_.name);
    bool is_cancelled = false;
    {
      const Lock lock(mutex_);
      stat_ = stat;
      is_cancelled = cancelled_;
    }
    if (is_cancelled) stat->cancel();
    Result<ObjectInfo> info = stat->take(MayBlock::on_this_thread());
    if (!info) return std::unexpected(std::move(info.error()));
    // If it is another version, reading says so.
    if (generation_.empty() || info->generation == generation_.view()) whole_ = info->checksum;
  }
  sums_ = can_join(whole_.kind());
  if (whole_.kind() == ChecksumKind::kXxh64) in_order_ = RunningSum(ChecksumKind::kXxh64);
  const bool compares = sums_ || in_order_.kind() != ChecksumKind::kNone;
  if (!compares && shard_.size_bytes > 0) shard_.store->not_compared(shard_.name, whole_.kind());
  return {};
}

// As many as the window has room for; waits for one if none is under way.
Result<void> ShardRead::start_pieces() {
  bool waits = false;
  {
    const Lock lock(mutex_);
    waits = pieces_.empty();
  }
  for (; next_begin_ < shard_.size_bytes; waits = false) {
    const ByteRange range{
        next_begin_, next_begin_ + std::min(shard_.piece_bytes, shard_.size_bytes - next_begin_)};
    if (next_begin_ >= shard_.likely_end_offset) turn_.pass();
    if (waits) {
      if (!turn_.take(range.size_bytes(), MayBlock::on_this_thread())) return cancelled();
    } else if (!turn_.try_take(range.size_bytes())) {
      return {};
    }
    const std::shared_ptr<ReadBatch> batch = ReadBatch::create(1, shard_.name.size() + 40);
    batch->add({.name = shard_.name,
                .generation = generation_.view(),
                .size_bytes = shard_.size_bytes,
                .range = range,
                .wanted_sum = sums_ ? whole_.kind() : ChecksumKind::kNone});
    bool is_cancelled = false;
    {
      const Lock lock(mutex_);
      pieces_.push_back({.batch = batch, .size_bytes = range.size_bytes()});
      is_cancelled = cancelled_;
    }
    next_begin_ = range.end;
    shard_.store->read(batch);
    if (is_cancelled) batch->cancel();
    // Only what it tells of the version makes it safe to read on.
    if (!knows_generation_) return {};
  }
  turn_.pass();
  return {};
}

// Waits for it. Null: all have come.
Result<std::shared_ptr<ReadBatch>> ShardRead::next_piece() {
  Piece piece;
  {
    const Lock lock(mutex_);
    if (pieces_.empty()) return nullptr;
    piece = pieces_.front();
  }
  while (!piece.batch->wait_until(steady_clock::now() + std::chrono::hours(1),
                                  MayBlock::on_this_thread())) {
  }
  {
    const Lock lock(mutex_);
    pieces_.pop_front();
  }
  turn_.give_back(piece.size_bytes);
  ReadSlot& slot = piece.batch->slot(0);
  if (slot.error) return std::unexpected(std::move(*slot.error));
  const std::string_view found = slot.found_generation.view();
  // Later, others read it.
  if (!std::exchange(knows_generation_, true)) generation_.assign(found);
  if (!found.empty() && found != generation_.view()) {
    return fail(Code::kPreconditionFailed, "it changed while it was read");
  }
  if (slot.into.size() != piece.size_bytes) {
    return corrupt("it ends before byte ", slot.range.begin + piece.size_bytes,
                   ", and was listed with ", shard_.size_bytes, " bytes");
  }
  if (sums_) {
    if (slot.sum().empty()) {
      sums_ = false;  // the store sums nothing
    } else {
      sum_ = summed_bytes_ == 0 ? slot.sum() : joined(sum_, slot.sum(), piece.size_bytes);
      summed_bytes_ += piece.size_bytes;
    }
  }
  if (in_order_.kind() != ChecksumKind::kNone) in_order_.extend(slot.into);
  return std::move(piece.batch);
}

void ShardRead::begin(std::span<const std::byte> head) {
  const bool is_beginning = shard_.offset == 0;
  compression_ = is_beginning ? compression_of_shard(head) : Compression::kNone;
  if (compression_ != Compression::kNone) {
    decompressor_ = Decompressor::create(compression_);
    plain_.resize(kPlainBytes);
  }
  parser_.emplace(shard_.store->pool(), parser_options(shard_, compression_ != Compression::kNone));
}

Result<void> ShardRead::take_piece(std::span<const std::byte> bytes) {
  if (!parser_) begin(bytes);
  if (decompressor_) return decompress(bytes);
  if (compression_ != Compression::kNone) {
    return invalid_argument("it is compressed by ", to_string(compression_),
                            ": store it as a plain tar, or compress it by gzip or zstd");
  }
  while (!bytes.empty() && !is_done()) {
    const size_t count = std::min(bytes.size(), kPlainBytes);
    if (Result<void> parsed = parse(bytes.first(count)); !parsed) return parsed;
    bytes = bytes.subspan(count);
  }
  return {};
}

Result<void> ShardRead::decompress(std::span<const std::byte> bytes) {
  while (!is_done()) {
    const Result<Decompressor::Step> step = decompressor_->next(bytes, plain_);
    if (!step) return std::unexpected(step.error());
    bytes = bytes.subspan(step->consumed);
    if (step->produced == 0 && bytes.empty()) return {};
    if (step->produced == 0 && step->consumed == 0) {
      return fail(Code::kInternal, "a decompressor stopped in the middle");
    }
    if (Result<void> parsed = parse(std::span(plain_).first(step->produced)); !parsed) {
      return parsed;
    }
  }
  return {};
}

Result<void> ShardRead::parse(std::span<const std::byte> bytes) {
  if (Result<void> taken = parser_->take(bytes, parsed_); !taken) return taken;
  if (Result<void> counted = check_count(/*ended=*/false); !counted) return counted;
  return publish();
}

Result<void> ShardRead::finish() {
  if (!parser_) begin({});
  if (decompressor_) {
    if (Result<void> finished = decompressor_->finish(); !finished) return finished;
  }
  if (Result<void> finished = parser_->finish(parsed_); !finished) return finished;
  if (Result<void> counted = check_count(/*ended=*/true); !counted) return counted;
  return compare();
}

Result<void> ShardRead::check_count(bool ended) const {
  const uint64_t found = parser_->number();
  if (shard_.count == UINT64_MAX || (ended ? found == shard_.count : found <= shard_.count)) {
    return {};
  }
  return invalid_argument("the index has ", shard_.count, " samples of it, and it has ",
                          ended ? "" : "more than ", ended ? found : shard_.count,
                          ": give an index of all members of the shard");
}

Result<void> ShardRead::compare() {
  if (shard_.size_bytes == 0) return {};
  Checksum found;
  if (sums_ && summed_bytes_ == shard_.size_bytes) found = sum_;
  if (in_order_.kind() != ChecksumKind::kNone) found = in_order_.value();
  if (found.empty() || found == whole_) return {};
  return corrupt("the bytes that came have ", hex_of(found), ", the object has ", hex_of(whole_),
                 ": samples of it that were used may have been damaged");
}

// Hands over what was parsed, and waits while too much is ready.
Result<void> ShardRead::publish() {
  while (!parsed_.empty() && parsed_.back().number >= shard_.end) parsed_.pop_back();
  uint64_t size_bytes = 0;
  for (ShardSample& each : parsed_) {
    if (decompressor_) each.next_offset = 0;  // where it is in the object, nobody knows
    size_bytes += each.size_bytes() + kSampleBytes;
  }
  const Lock lock(mutex_);
  if (!parsed_.empty()) {
    std::ranges::move(parsed_, std::back_inserter(ready_));
    parsed_.clear();
    ready_bytes_ += size_bytes;
    changed_.notify_all();
  }
  while (ready_bytes_ > shard_.max_ready_bytes && !cancelled_) changed_.wait(mutex_);
  if (cancelled_) return cancelled();
  return {};
}

}  // namespace headrace
