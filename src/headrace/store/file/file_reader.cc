#include "headrace/store/file/file_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "headrace/base/mutex.h"

namespace headrace {
namespace {

constexpr uint64_t kReadBytes = kMiB;  // of one pread: what is summed is still in cache
constexpr uint32_t kMaxReads = 3;      // of one file that changes while it is read
constexpr uint64_t kFirstGuessBytes = 128 * kKiB;
constexpr size_t kEndedTogether = 16;

}  // namespace

// A batch in progress, from which several threads take slots. The batch lives until its last slot
// is done, so a thread that holds a slot may use `batch`.
struct FileReader::BatchRead {
  ReadBatch* batch;
  size_t slot_count;
  std::atomic<size_t> next_slot = 0;
};

// A slot in progress: its file, as it was when it was opened.
struct FileReader::SlotRead {
  size_t slot_index = 0;
  uint64_t listed_bytes = kUnknownSize;  // the slot's own word; the slot learns the found size
  uint32_t read_count = 0;
  OpenFile file;
  // None: it is read as it was listed, and only what it is afterwards is compared with that.
  std::optional<struct stat> status = std::nullopt;
};

// A large file that is read in pieces. The thread that finishes the last piece finishes the slot.
struct FileReader::LargeRead {
  std::shared_ptr<BatchRead> read;
  SlotRead current;
  uint32_t piece_count;
  std::atomic<uint32_t> next_piece = 0;
  std::atomic<bool> failed = false;
  Mutex mutex;
  std::optional<Error> error HEADRACE_GUARDED_BY(mutex);
  bool changed HEADRACE_GUARDED_BY(mutex) = false;
};

// Slots of a batch that one thread has ended, told to what all threads share some at a time: the
// counters first, so that they are right when the batch is done.
// Thread: confined. Borrows the reader; the batch only while it holds slots of it.
class FileReader::Ended {
 public:
  Ended(FileReader& reader, ReadBatch& batch) : reader_(reader), batch_(batch) {}
  ~Ended() { tell(); }
  Ended(const Ended&) = delete;
  Ended& operator=(const Ended&) = delete;

  void began(bool again) {
    ++requests_;
    if (again) ++retries_;
  }
  void got(uint64_t size_bytes) { bytes_ += size_bytes; }
  void failed() { ended(); }
  void read(uint64_t read_count, uint64_t size_bytes) {
    objects_ += read_count;
    object_bytes_ += size_bytes;
    ended();
  }
  // The batch may be gone afterwards, unless this thread holds another slot of it.
  void tell() {
    Metrics& metrics = *reader_.metrics_;
    if (requests_ > 0) count(metrics.requests_total, std::exchange(requests_, 0));
    if (retries_ > 0) count(metrics.retries_total, std::exchange(retries_, 0));
    if (bytes_ > 0) count(metrics.bytes_read_total, std::exchange(bytes_, 0));
    if (objects_ > 0) {
      reader_.read_bytes_.fetch_add(std::exchange(object_bytes_, 0), std::memory_order_relaxed);
      reader_.read_count_.fetch_add(objects_, std::memory_order_relaxed);
      count(metrics.objects_read_total, std::exchange(objects_, 0));
    }
    if (slots_ > 0) batch_.slots_done(std::exchange(slots_, 0));
  }

 private:
  void ended() {
    if (++slots_ == kEndedTogether) tell();
  }

  FileReader& reader_;
  ReadBatch& batch_;
  uint64_t requests_ = 0, retries_ = 0, bytes_ = 0, objects_ = 0, object_bytes_ = 0;
  size_t slots_ = 0;
};

Error stopped_error_of(const ThreadPool& threads) {
  if (threads.stopping()) return Error(Code::kCancelled, "the engine has stopped");
  return Error(Code::kExhausted, "the system gives no thread to read files with");
}

FileReader::FileReader(FileRoot root, const StoreOptions& options, std::shared_ptr<BlockPool> pool,
                       std::shared_ptr<ThreadPool> threads, std::shared_ptr<Metrics> metrics)
    : root_(std::move(root)),
      range_threshold_bytes_(std::max(options.range_threshold_bytes, kReadBytes)),
      range_bytes_(std::max(options.range_bytes, kReadBytes)),
      on_change_(options.on_change),
      verify_(options.verify),
      pool_(std::move(pool)),
      threads_(std::move(threads)),
      metrics_(std::move(metrics)) {}

uint64_t FileReader::expected_object_bytes() const {
  const uint64_t read_count = read_count_.load(std::memory_order_relaxed);
  if (read_count == 0) return kFirstGuessBytes;
  return std::max<uint64_t>(read_bytes_.load(std::memory_order_relaxed) / read_count, 1);
}

void FileReader::read(std::shared_ptr<ReadBatch> batch) {
  const auto read = std::make_shared<BatchRead>(batch.get(), batch->size());
  // Captures the pool, not this reader: a waiting batch must not keep it alive.
  batch->hand_over(pool_, [threads = threads_] { threads->wake(); });
  const uint64_t runner_count = std::min<uint64_t>(read->slot_count, threads_->thread_count());
  for (uint64_t i = 0; i < runner_count; ++i) {
    if (threads_->post([self = shared_from_this(), read] { self->run(read, std::nullopt); })) {
      continue;
    }
    Ended ended(*this, *read->batch);
    for (;;) {  // whatever no thread has taken
      const size_t index = read->next_slot.fetch_add(1);
      if (index >= read->slot_count) return;
      finish(*read->batch, read->batch->slot(index), stopped_error_of(*threads_), ended);
    }
  }
}

void FileReader::run(const std::shared_ptr<BatchRead>& read, std::optional<SlotRead> current) {
  Ended ended(*this, *read->batch);
  while (advance(read, current, ended)) {
  }
}

bool FileReader::advance(const std::shared_ptr<BatchRead>& read, std::optional<SlotRead>& current,
                         Ended& ended) {
  if (!current) {
    const size_t index = read->next_slot.fetch_add(1);
    if (index >= read->slot_count) return false;
    current.emplace();
    current->slot_index = index;
    current->listed_bytes = read->batch->slot(index).object_bytes;
  }
  ReadBatch& batch = *read->batch;
  ReadSlot& slot = batch.slot(current->slot_index);
  // Read before the memory is checked, so that memory freed in between is not missed.
  const uint64_t seen = threads_->wake_count();
  std::optional<Error> error;
  if (threads_->stopping() || batch.cancelled()) {
    error = cancelled_error();
  } else if (!current->file.is_open()) {
    ended.began(/*again=*/current->read_count > 0);
    if (Result<void> opened = open(batch, *current); !opened) error = opened.error();
  }
  if (!error) {
    const Result<Room> room = admit(batch, slot);
    if (!room) {
      error = room.error();
    } else if (*room == Room::kNotNow) {
      ended.tell();
      const auto shared = std::make_shared<SlotRead>(std::move(*current));
      if (threads_->park(
              [self = shared_from_this(), read, shared] { self->run(read, std::move(*shared)); },
              seen)) {
        return false;
      }
      current = std::move(*shared);
      error = stopped_error_of(*threads_);
    }
  }
  if (error) {
    finish(batch, slot, std::move(error), ended);
    current.reset();
    return true;
  }
  begin_pieces(slot);
  if (slot.range.size_bytes() > range_threshold_bytes_ && threads_->thread_count() > 1) {
    ended.tell();  // before a job that may take a while
    begin_large(read, std::move(*current));
    current.reset();
    return true;
  }
  if (!conclude(batch, *current, transfer(batch, *current, ended), ended)) current.reset();
  return true;
}

Result<void> FileReader::open(ReadBatch& batch, SlotRead& current) {
  const ReadSlot& slot = batch.slot(current.slot_index);
  const std::string_view name = batch.name(slot);
  if (Result<void> good = check_name(name); !good) return good;
  if (slot.has_member()) {
    return invalid_argument("files are not read by members, such as ", batch.member(slot));
  }
  ++current.read_count;
  // Not blocking: opening a named pipe would wait for its writer.
  current.file = OpenFile::open(root_.path_of(name), O_RDONLY | O_NONBLOCK);
  if (!current.file.is_open()) {
    return std::unexpected(root_.no_directory_or(file_error(errno, Access::kRead)));
  }
  if (is_read_as_listed(batch, current)) return take_size(batch, current);
  struct stat& status = current.status.emplace();
  if (::fstat(current.file.get(), &status) != 0) {
    return std::unexpected(file_error(errno, Access::kRead));
  }
  if (S_ISDIR(status.st_mode)) return std::unexpected(file_error(EISDIR, Access::kRead));
  if (!S_ISREG(status.st_mode)) return invalid_argument("is not a regular file");
  return take_size(batch, current);
}

bool FileReader::is_read_as_listed(const ReadBatch& batch, const SlotRead& current) const {
  const ReadSlot& slot = batch.slot(current.slot_index);
  return current.read_count == 1 && !slot.generation.empty() &&
         current.listed_bytes <= range_threshold_bytes_ &&
         slot.asked_range().begin <= slot.range.end && slot.check_destination();
}

// Compares the opened file with what was listed, and fixes the slot's range.
Result<void> FileReader::take_size(ReadBatch& batch, const SlotRead& current) {
  ReadSlot& slot = batch.slot(current.slot_index);
  const std::string_view generation = batch.generation(slot);
  const uint64_t size_bytes =
      current.status ? static_cast<uint64_t>(current.status->st_size) : current.listed_bytes;
  const bool changed = (current.status && !generation.empty() &&
                        GenerationOf(*current.status).view() != generation) ||
                       (current.listed_bytes != kUnknownSize && current.listed_bytes != size_bytes);
  if (changed) {
    if (on_change_ == OnChange::kError) {
      return fail(Code::kPreconditionFailed, "has changed since it was listed");
    }
    slot.expected = {};  // the sums are the listed generation's
    if (slot.into.scatter()) slot.into.scatter()->expected.clear();
  }
  if (Result<void> limited = slot.limit_to(size_bytes); !limited) return limited;
  slot.object_bytes = size_bytes;
  Result<void> fits = slot.check_destination();
  // Each range is tried alone.
  if (!fits && slot.into.scatter() && slot.into.scatter()->is_joined) return fits;
  if (!fits && (changed || current.read_count > 1)) {  // it did once
    return fail(Code::kPreconditionFailed, "has changed: ", fits.error().message());
  }
  return fits;
}

Result<Room> FileReader::admit(ReadBatch& batch, ReadSlot& slot) {
  Result<Room> room = Room::kNotNow;
  const uint64_t size_bytes = slot.range.size_bytes();
  const bool waits = !try_or_ask_for_room(*pool_, [&] {
    const bool waited_for = batch.waited_for();
    if (needs_room(*pool_, slot) &&
        !pool_->may_begin_flight(charge_of(slot, size_bytes), batch.order, waited_for)) {
      return false;
    }
    room = make_room(*pool_, slot, size_bytes, waited_for);
    return !room || *room == Room::kMade;
  });
  if (!waits) pool_->drop_claim(batch.order);
  return room;
}

void FileReader::begin_pieces(ReadSlot& slot) const {
  // What would not be compared is not summed.
  if (!compares(verify_, slot.running_kind)) slot.running_kind = ChecksumKind::kNone;
  slot.unsplit();
}

Result<bool> FileReader::read_piece(const ReadBatch& batch, const ReadSlot& slot, int descriptor,
                                    ReadPiece& piece) {
  count(metrics_->in_flight);
  Result<bool> whole = true;
  while (piece.received_bytes < piece.range.size_bytes()) {
    if (batch.cancelled() || threads_->stopping()) {
      whole = std::unexpected(cancelled_error());
      break;
    }
    const uint64_t offset_bytes = piece.range.begin + piece.received_bytes;
    const std::span<std::byte> into = slot.space(piece);
    const ssize_t got = ::pread(descriptor, into.data(), std::min(into.size(), kReadBytes),
                                static_cast<off_t>(offset_bytes));
    if (got < 0) {
      if (errno == EINTR) continue;
      whole = std::unexpected(file_error(errno, Access::kRead));
      break;
    }
    if (got == 0) {
      whole = false;
      break;
    }
    slot.took(piece, static_cast<size_t>(got));
  }
  metrics_->in_flight.fetch_sub(1, std::memory_order_relaxed);
  return whole;
}

Result<FileReader::Outcome> FileReader::transfer(ReadBatch& batch, SlotRead& current,
                                                 Ended& ended) {
  ReadSlot& slot = batch.slot(current.slot_index);
  const Result<bool> whole = read_piece(batch, slot, current.file.get(), slot.first_piece);
  ended.got(slot.first_piece.received_bytes);
  if (!whole && (current.status || whole.error().code() == Code::kCancelled)) {
    return std::unexpected(whole.error());
  }
  if (!whole || !*whole) return Outcome::kChanged;
  return check_unchanged(batch, slot, current);
}

void FileReader::begin_large(const std::shared_ptr<BatchRead>& read, SlotRead current) {
  ReadSlot& slot = read->batch->slot(current.slot_index);
  slot.split(range_bytes_, range_bytes_);
  const auto large = std::make_shared<LargeRead>(read, std::move(current), slot.piece_count);
  const uint32_t helper_count = std::min(large->piece_count, threads_->thread_count()) - 1;
  for (uint32_t i = 0; i < helper_count; ++i) {
    // If no other thread helps, this one reads them all.
    if (!threads_->post_first([self = shared_from_this(), large] { self->run_large(large); })) {
      break;
    }
  }
  run_large(large);
}

void FileReader::run_large(const std::shared_ptr<LargeRead>& large) {
  for (;;) {
    const uint32_t index = large->next_piece.fetch_add(1);
    if (index >= large->piece_count) return;
    ReadBatch& batch = *large->read->batch;
    ReadSlot& slot = batch.slot(large->current.slot_index);
    ReadPiece& piece = index == 0 ? slot.first_piece : slot.more_pieces[index - 1];
    if (!large->failed.load(std::memory_order_relaxed)) {
      const Result<bool> whole = read_piece(batch, slot, large->current.file.get(), piece);
      count(metrics_->bytes_read_total, piece.received_bytes);
      if (!whole || !*whole) {
        large->failed.store(true, std::memory_order_relaxed);
        const Lock lock(large->mutex);
        if (!whole && !large->error) large->error = whole.error();
        large->changed = true;
      }
    }
    if (slot.pieces_left.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    // This was the last: nobody else touches the slot any more.
    Result<Outcome> outcome = Outcome::kChanged;
    {
      const Lock lock(large->mutex);
      if (large->error) {
        outcome = std::unexpected(*large->error);
      } else if (!large->changed) {
        outcome = check_unchanged(batch, slot, large->current);
      }
    }
    bool again = false;
    {
      Ended ended(*this, batch);
      again = conclude(batch, large->current, std::move(outcome), ended);
    }
    if (again) run(large->read, std::move(large->current));
    return;
  }
}

Result<FileReader::Outcome> FileReader::check_unchanged(const ReadBatch& batch, ReadSlot& slot,
                                                        const SlotRead& current) {
  struct stat after{};
  if (::fstat(current.file.get(), &after) != 0) {
    return std::unexpected(file_error(errno, Access::kRead));
  }
  const GenerationOf generation(current.status ? *current.status : after);
  const bool changed = current.status ? changed_between(*current.status, after)
                                      : generation.view() != batch.generation(slot);
  if (changed) return Outcome::kChanged;
  Checksum sum = slot.join_sums();
  if (slot.into.scatter())
    count(metrics_->checksums_verified_total, slot.into.scatter()->compare());
  if (const Checksum& expected = slot.expected; compares(verify_, expected.kind())) {
    if (sum.kind() != expected.kind()) sum = sum_of(expected.kind(), slot.into);
    if (sum != expected) {
      return corrupt(slot.is_range() ? "the range's " : "its ", label(sum.kind()), " is ",
                     to_base64(sum), ", not ", to_base64(expected));
    }
    count(metrics_->checksums_verified_total);
  }
  slot.found_generation.assign(generation.view());
  return Outcome::kComplete;
}

bool FileReader::conclude(ReadBatch& batch, SlotRead& current, Result<Outcome> outcome,
                          Ended& ended) {
  ReadSlot& slot = batch.slot(current.slot_index);
  if (!outcome) {
    finish(batch, slot, std::move(outcome.error()), ended);
    return false;
  }
  if (*outcome == Outcome::kComplete) {
    finish(batch, slot, std::nullopt, ended);
    return false;
  }
  if (current.read_count >= kMaxReads) {
    finish(batch, slot, Error(Code::kPreconditionFailed, "keeps changing while it is read"), ended);
    return false;
  }
  // A slot that names a generation or a size fails when it is opened again; otherwise what is there
  // now is as good.
  give_memory_back(*pool_, slot);
  current.file = OpenFile();
  current.status.reset();
  return true;
}

void FileReader::finish(ReadBatch& batch, ReadSlot& slot, std::optional<Error> error,
                        Ended& ended) {
  if (error) {
    batch.set_error(slot, root_.with_url(std::move(*error), batch.name(slot)));
    pool_->drop_claim(batch.order);  // it may have been cancelled there
    give_memory_back(*pool_, slot);
    ended.failed();
  } else {
    end_flight(*pool_, slot);
    ended.read(slot.read_count(), slot.range.size_bytes());
  }
}

}  // namespace headrace
