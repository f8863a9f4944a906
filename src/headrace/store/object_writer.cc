#include "headrace/store/object_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "headrace/store/part_body.h"

namespace headrace {
namespace {

using std::chrono::steady_clock;

// Copied bytes are summed while they are in cache.
constexpr uint64_t kCopyBytes = 256 * kKiB;
constexpr uint64_t kMinBlockBytes = 64 * kKiB;

}  // namespace

// ── Registry ─────────────────────────────────────────────────────────────────────────────────

bool WriterRegistry::add(const std::shared_ptr<UnfinishedWrite>& write) {
  const Lock lock(mutex_);
  if (stopped_) return false;
  writes_.emplace_back(write.get(), write);
  return true;
}

void WriterRegistry::forget(const UnfinishedWrite* write) {
  const Lock lock(mutex_);
  std::erase_if(writes_, [write](const auto& each) { return each.first == write; });
}

void WriterRegistry::stop(steady_clock::time_point until, MayBlock may_block) {
  std::vector<std::shared_ptr<UnfinishedWrite>> writes;
  {
    const Lock lock(mutex_);
    stopped_ = true;
    for (const auto& [raw, weak] : writes_) {
      if (std::shared_ptr<UnfinishedWrite> alive = weak.lock()) writes.push_back(std::move(alive));
    }
  }
  for (const std::shared_ptr<UnfinishedWrite>& write : writes) write->abort();
  for (const std::shared_ptr<UnfinishedWrite>& write : writes) {
    static_cast<void>(write->wait_cleaned(until, may_block));
  }
}

// ── Taking bytes ─────────────────────────────────────────────────────────────────────────────

Result<std::shared_ptr<ObjectWriter>> ObjectWriter::open(Environment environment,
                                                         std::shared_ptr<Upload> upload,
                                                         const WriterOptions& options) {
  Result<PartSizes> sizes =
      PartSizes::choose(upload->limits(), {.part_bytes = options.part_bytes,
                                           .expected_size_bytes = options.expected_size_bytes,
                                           .max_parts_in_flight = options.max_parts_in_flight,
                                           .budget_bytes = environment.pool->budget_bytes()});
  if (!sizes) return std::unexpected(std::move(sizes.error()).with_url(environment.url));
  if (environment.log != nullptr && environment.log->wants(LogLevel::kDebug)) {
    environment.log->add(LogLevel::kDebug, cat(environment.url, ": ", sizes->to_string()));
  }
  std::shared_ptr<ObjectWriter> writer(new ObjectWriter(std::move(environment), std::move(upload),
                                                        *sizes, options.max_parts_in_flight));
  if (!writer->environment_.registry->add(writer)) {
    return std::unexpected(
        Error(Code::kCancelled, "the engine was stopped").with_url(writer->url()));
  }
  return writer;
}

ObjectWriter::ObjectWriter(Environment environment, std::shared_ptr<Upload> upload,
                           const PartSizes& sizes, uint32_t max_parts_in_flight)
    : environment_(std::move(environment)),
      upload_(std::move(upload)),
      sizes_(sizes),
      max_parts_in_flight_(max_parts_in_flight),
      most_held_bytes_(upload_->limits().rereads
                           ? environment_.pool->budget_bytes() / max_parts_in_flight
                           : std::numeric_limits<uint64_t>::max()) {}

// Nothing is in progress: completions keep the writer alive.
ObjectWriter::~ObjectWriter() {
  environment_.registry->forget(this);
  const Lock lock(mutex_);
  if (!cleaning_) upload_->clean([keep = upload_](const Result<void>&) {});
}

Crc32c ObjectWriter::crc32c() const {
  return filling_ ? taken_.crc32c.joined(filling_->crc32c, filling_->size_bytes) : taken_.crc32c;
}

Result<void> ObjectWriter::append(std::span<const std::byte> bytes,
                                  std::shared_ptr<const void> lent, MayBlock may_block) {
  while (!bytes.empty()) {
    const Result<size_t> taken = append_some(bytes, lent);
    if (!taken) return std::unexpected(taken.error());
    bytes = bytes.subspan(*taken);
    if (bytes.empty()) break;
    while (!wait_for_room(steady_clock::now() + std::chrono::hours(1), may_block)) {
    }
  }
  return {};
}

Result<void> ObjectWriter::check_open() {
  const Lock lock(mutex_);
  if (error_) return std::unexpected(*error_);
  if (state_ != State::kOpen) {
    return std::unexpected(Error(Code::kInvalidArgument, "it was closed, and takes no more bytes")
                               .with_url(environment_.url));
  }
  blocked_at_ = parts_done_;
  return {};
}

Result<void> ObjectWriter::check_size(uint64_t more_bytes) {
  Result<void> fits = sizes_.check(taken_.size_bytes + more_bytes);
  if (!fits) {
    fits = std::unexpected(std::move(fits.error()).with_url(environment_.url));
    give_up(fits.error());
  }
  return fits;
}

bool ObjectWriter::part_to_fill() {
  // A full part is sent only once more bytes follow, since an object of one part is written more
  // simply.
  if (filling_ && filling_->size_bytes == sizes_.of(filling_->part_number) && !try_send_filled()) {
    return false;
  }
  if (!filling_) {
    filling_ = std::make_shared<UploadPart>();
    filling_->part_number = ++taken_.part_count;
    filling_->offset_bytes = taken_.size_bytes;
  }
  return true;
}

std::span<const std::byte> ObjectWriter::take_copied(size_t size_bytes) {
  std::vector<std::span<const std::byte>>& spans = filling_->spans;
  const std::span<const std::byte> piece = spare_.first(size_bytes);
  spare_ = spare_.subspan(size_bytes);
  if (!spans.empty() && spans.back().data() + spans.back().size() == piece.data()) {
    spans.back() = {spans.back().data(), spans.back().size() + size_bytes};
  } else {
    spans.push_back(piece);
  }
  return piece;
}

void ObjectWriter::count(std::span<const std::byte> piece) {
  filling_->crc32c = filling_->crc32c.extended(piece);
  filling_->size_bytes += piece.size();
  taken_.size_bytes += piece.size();
}

Result<size_t> ObjectWriter::append_some(std::span<const std::byte> bytes,
                                         const std::shared_ptr<const void>& lent) {
  const bool lend = lent != nullptr && bytes.size() >= kMinLentBytes;
  if (Result<void> open = check_open(); !open) return std::unexpected(open.error());
  if (Result<void> fits = check_size(bytes.size()); !fits) return std::unexpected(fits.error());
  size_t taken_bytes = 0;
  while (taken_bytes < bytes.size()) {
    if (!part_to_fill()) break;
    UploadPart& part = *filling_;
    const uint64_t room_bytes = sizes_.of(part.part_number) - part.size_bytes;
    std::span<const std::byte> piece =
        bytes.subspan(taken_bytes, std::min<uint64_t>(bytes.size() - taken_bytes, room_bytes));
    if (lend) {
      if (part.lent.empty() || part.lent.back() != lent) part.lent.push_back(lent);
      part.spans.push_back(piece);
    } else {
      const Result<std::span<std::byte>> into = room_to_copy(piece.size());
      if (!into) return std::unexpected(into.error());
      if (into->empty()) break;
      const size_t size_bytes = std::min<size_t>({piece.size(), into->size(), kCopyBytes});
      std::memcpy(into->data(), piece.data(), size_bytes);
      piece = take_copied(size_bytes);
    }
    count(piece);
    taken_bytes += piece.size();
  }
  return taken_bytes;
}

bool ObjectWriter::is_reread(const UploadPart& part, const PartSource* source,
                             uint64_t offset_bytes) const {
  if (part.size_bytes == 0) return sizes_.of(part.part_number) > most_held_bytes_;
  return part.source.get() == source && part.spans.empty() &&
         part.source_begin_bytes + part.source_size_bytes == offset_bytes;
}

Result<size_t> ObjectWriter::read_from(const PartSource& source, uint64_t offset_bytes,
                                       std::span<std::byte> into) {
  Result<size_t> read = source.read(offset_bytes, into);
  if (!read) {
    read = std::unexpected(std::move(read.error()).with_url(environment_.url));
    give_up(read.error());
  }
  return read;
}

Result<ObjectWriter::Taken> ObjectWriter::append_some(
    const std::shared_ptr<const PartSource>& source, uint64_t begin_bytes, uint64_t most_bytes) {
  if (Result<void> open = check_open(); !open) return std::unexpected(open.error());
  Taken taken;
  while (taken.size_bytes < most_bytes && !taken.at_end) {
    const uint64_t offset_bytes = begin_bytes + taken.size_bytes;
    if (!filling_ || filling_->size_bytes == sizes_.of(filling_->part_number)) {
      // At the end of the source, no part may be begun.
      std::byte next{};
      const Result<size_t> more = read_from(*source, offset_bytes, {&next, 1});
      if (!more) return std::unexpected(more.error());
      taken.at_end = *more == 0;
      if (taken.at_end || !part_to_fill()) break;
    }
    UploadPart& part = *filling_;
    const uint64_t wanted_bytes =
        std::min(most_bytes - taken.size_bytes, sizes_.of(part.part_number) - part.size_bytes);
    const bool rereads = is_reread(part, source.get(), offset_bytes);
    Result<std::span<std::byte>> into = rereads ? room_to_sum() : room_to_copy(wanted_bytes);
    if (!into) return std::unexpected(std::move(into.error()));
    if (into->empty()) break;
    const Result<size_t> read =
        read_from(*source, offset_bytes,
                  into->first(std::min({wanted_bytes, into->size(), kSourcePieceBytes})));
    if (!read) return std::unexpected(read.error());
    taken.at_end = *read == 0;
    if (taken.at_end) break;
    if (Result<void> fits = check_size(*read); !fits) return std::unexpected(fits.error());
    if (rereads) {
      if (part.source == nullptr) part.source_begin_bytes = offset_bytes;
      part.source = source;
      part.source_size_bytes += *read;
      count(into->first(*read));
      part.source_crc32c = part.crc32c;
    } else {
      count(take_copied(*read));
    }
    taken.size_bytes += *read;
  }
  return taken;
}

Result<std::span<std::byte>> ObjectWriter::room_to_sum() {
  if (piece_.data() == nullptr) piece_ = environment_.pool->allocate(kSourcePieceBytes);
  if (piece_.data() == nullptr) return no_memory(kSourcePieceBytes);
  return piece_.bytes();
}

std::unexpected<Error> ObjectWriter::no_memory(uint64_t size_bytes) {
  Error error = Error(Code::kExhausted, cat("the system has no memory for ", size_bytes, " bytes"))
                    .with_url(environment_.url);
  give_up(error);
  return std::unexpected(std::move(error));
}

Result<std::span<std::byte>> ObjectWriter::room_to_copy(uint64_t wanted_bytes) {
  if (!spare_.empty()) return spare_;
  UploadPart& part = *filling_;
  // Bytes that arrive in small pieces get larger and larger blocks.
  const uint64_t last_bytes = part.blocks.empty() ? 0 : part.blocks.back().size_bytes();
  const uint64_t size_bytes = std::min(sizes_.of(part.part_number) - part.size_bytes,
                                       std::max({wanted_bytes, 2 * last_bytes, kMinBlockBytes}));
  std::optional<Block> block = environment_.pool->allocate_within_budget(size_bytes);
  if (!block) {
    {
      const Lock lock(mutex_);
      if (in_flight_ > 0) return std::span<std::byte>();
    }
    // This writer has no memory of its own that could be freed, so it continues beyond the budget,
    // like a read that is waited for.
    block = environment_.pool->allocate(size_bytes);
  }
  if (block->data() == nullptr) return no_memory(size_bytes);
  spare_ = block->bytes();
  part.blocks.push_back(std::move(*block));
  return spare_;
}

bool ObjectWriter::try_send_filled() {
  {
    const Lock lock(mutex_);
    // After an error nothing more may be sent: temporary objects are being removed.
    if (error_ || in_flight_ >= max_parts_in_flight_) return false;
    ++in_flight_;
    sent_any_ = true;
  }
  send_filled();
  return true;
}

void ObjectWriter::send_filled() {
  taken_.crc32c = crc32c();
  spare_ = {};
  upload_->send(std::exchange(filling_, nullptr), [self = shared_from_this()](Result<void> result) {
    self->part_done(std::move(result));
  });
}

bool ObjectWriter::wait_for_room(steady_clock::time_point until, MayBlock) {
  const Lock lock(mutex_);
  while (!error_ && parts_done_ == blocked_at_ && in_flight_ > 0) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
  }
  return error_ || parts_done_ != blocked_at_ || in_flight_ == 0;
}

// ── Closing ──────────────────────────────────────────────────────────────────────────────────

void ObjectWriter::part_done(Result<void> result) {
  bool first_error = false;
  {
    const Lock lock(mutex_);
    --in_flight_;
    ++parts_done_;
    if (!result && !error_) {
      first_error = true;
      error_ = std::move(result.error());
      state_ = State::kFailed;
    }
    changed_.notify_all();
  }
  if (first_error) upload_->cancel();
  advance();
}

void ObjectWriter::begin_close() {
  bool single = false;
  {
    const Lock lock(mutex_);
    if (state_ == State::kOpen) {
      single = !sent_any_ && (!filling_ || filling_->source == nullptr);
      // A part that waits only for its turn may exceed the limit.
      if (single || filling_) ++in_flight_;
      state_ = single ? State::kPublishing : State::kClosing;
    } else if (state_ == State::kFailed) {
      filling_.reset();
      spare_ = {};
      return;
    } else {
      return;
    }
  }
  if (single) {
    taken_.crc32c = crc32c();
    spare_ = {};
    std::shared_ptr<UploadPart> part = std::exchange(filling_, nullptr);
    if (!part) part = std::make_shared<UploadPart>();
    upload_->publish_single(std::move(part), [self = shared_from_this()](Result<ObjectInfo> info) {
      self->published(std::move(info));
    });
  } else if (filling_) {
    send_filled();
  } else {
    advance();
  }
}

void ObjectWriter::advance() {
  enum class Next : uint8_t { kNothing, kPublish, kClean } next = Next::kNothing;
  Upload::Whole whole;
  {
    const Lock lock(mutex_);
    if (in_flight_ > 0) return;
    if (state_ == State::kClosing) {
      state_ = State::kPublishing;
      in_flight_ = 1;
      whole = taken_;
      next = Next::kPublish;
    } else if ((state_ == State::kFailed || state_ == State::kPublished) &&
               !std::exchange(cleaning_, true)) {
      next = Next::kClean;
    }
  }
  switch (next) {
    case Next::kNothing: return;
    case Next::kPublish:
      upload_->publish(whole, [self = shared_from_this()](Result<ObjectInfo> info) {
        self->published(std::move(info));
      });
      return;
    case Next::kClean:
      upload_->clean([self = shared_from_this()](Result<void> result) {
        {
          const Lock lock(self->mutex_);
          self->cleaned_ = true;
          if (!result) self->cleaning_error_ = std::move(result.error());
          self->changed_.notify_all();
        }
        self->environment_.registry->forget(self.get());
      });
      return;
  }
}

void ObjectWriter::published(Result<ObjectInfo> result) {
  {
    const Lock lock(mutex_);
    --in_flight_;
    if (result) {
      // Even if abort() was called meanwhile: the object exists.
      state_ = State::kPublished;
      error_.reset();
      info_ = std::move(*result);
    } else {
      state_ = State::kFailed;
      if (!error_) error_ = std::move(result.error());
    }
    changed_.notify_all();
  }
  advance();
}

void ObjectWriter::give_up(const Error& error) {
  {
    const Lock lock(mutex_);
    if (error_) return;
    error_ = error;
    state_ = State::kFailed;
    changed_.notify_all();
  }
  upload_->cancel();
  advance();
}

void ObjectWriter::abort() {
  {
    const Lock lock(mutex_);
    if (state_ == State::kPublished || error_) return;
    error_ = Error(Code::kCancelled, "it was given up before it was complete").with_url(url());
    // A publication in progress has the last word.
    if (state_ != State::kPublishing) state_ = State::kFailed;
    changed_.notify_all();
  }
  upload_->cancel();
  advance();
}

bool ObjectWriter::wait_until_settled(steady_clock::time_point until, MayBlock) {
  const Lock lock(mutex_);
  const auto settled = [this]() HEADRACE_REQUIRES(mutex_) {
    return in_flight_ == 0 && (state_ == State::kPublished || state_ == State::kFailed);
  };
  while (!settled()) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
  }
  return settled();
}

bool ObjectWriter::wait_cleaned(steady_clock::time_point until, MayBlock) {
  const Lock lock(mutex_);
  while (!cleaned_) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout) break;
  }
  return cleaned_;
}

Result<ObjectInfo> ObjectWriter::outcome() {
  const Lock lock(mutex_);
  if (error_) return std::unexpected(*error_);
  if (state_ != State::kPublished) return fail(Code::kInternal, "it is not closed yet");
  return info_;
}

std::optional<Error> ObjectWriter::cleaning_error() {
  const Lock lock(mutex_);
  return cleaning_error_;
}

Result<ObjectInfo> ObjectWriter::close(MayBlock may_block) {
  begin_close();
  while (!wait_until_settled(steady_clock::now() + std::chrono::hours(1), may_block)) {
  }
  static_cast<void>(wait_cleaned(steady_clock::now() + kCleaningTimeout, may_block));
  return outcome();
}

}  // namespace headrace
