// One object, written as a stream of bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/log.h"
#include "headrace/base/may_block.h"
#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/format/object_info.h"
#include "headrace/store/options.h"
#include "headrace/store/part_sizes.h"
#include "headrace/store/upload.h"

namespace headrace {

// An object in the making. It must end before the engine, or temporary objects would be left.
// Thread: any.
class UnfinishedWrite {
 public:
  virtual ~UnfinishedWrite() = default;
  // Asks it to end without making anything visible, and returns at once.
  virtual void abort() = 0;
  // True once nothing is left of it, or what is left could not be removed.
  virtual bool wait_cleaned(std::chrono::steady_clock::time_point until, MayBlock may_block) = 0;
};

// Those of one engine, which end when it does.
// Thread: any.
class WriterRegistry {
 public:
  // False if the engine is stopping.
  bool add(const std::shared_ptr<UnfinishedWrite>& write);
  void forget(const UnfinishedWrite* write);
  // Aborts all, refuses new ones, and waits until they have removed their temporary objects.
  void stop(std::chrono::steady_clock::time_point until, MayBlock may_block);

 private:
  Mutex mutex_;
  bool stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<const UnfinishedWrite*, std::weak_ptr<UnfinishedWrite>>> writes_
      HEADRACE_GUARDED_BY(mutex_);
};

// Takes bytes in order and sends them in parts, several at a time, while more bytes arrive. close()
// makes the object visible, whole and with its checksum verified, or not at all. Appended bytes are
// copied once; lent bytes are sent from where they are. Memory holds up to `max_parts_in_flight`
// parts in flight and one that is being filled. Their blocks count towards the memory budget, which
// can make the writer wait, but never while it has no part in flight. Every call after the first
// error returns that error. Destroying an unfinished writer aborts it; lent memory may be in use
// until it has settled. Thread: confined, except abort() and the waits: any. Errors: what the
// store says; kPreconditionFailed from close(); kCancelled after abort().
class ObjectWriter final : public UnfinishedWrite,
                           public std::enable_shared_from_this<ObjectWriter> {
 public:
  // Smaller pieces of lent bytes are copied, since sending them one by one would cost more.
  static constexpr uint64_t kMinLentBytes = 64 * kKiB;

  struct Environment {
    std::shared_ptr<BlockPool> pool;
    std::shared_ptr<WriterRegistry> registry;
    std::string url;                     // of the object, for errors
    std::shared_ptr<Log> log = nullptr;  // may be null
  };
  // Sizes and the number of parts in flight are those of the options. Errors: kInvalidArgument for
  // sizes that cannot work; kCancelled if the engine was stopped.
  static Result<std::shared_ptr<ObjectWriter>> open(Environment environment,
                                                    std::shared_ptr<Upload> upload,
                                                    const WriterOptions& options);
  ~ObjectWriter() override;
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  // Takes all of `bytes`, waiting while as many parts are in flight as allowed. If `lent` is null
  // they are copied. Otherwise they must stay unchanged until `lent` is destroyed, here or on an
  // I/O thread.
  Result<void> append(std::span<const std::byte> bytes, std::shared_ptr<const void> lent,
                      MayBlock may_block);
  // Does not wait. Returns how many bytes it took: fewer than given if no more parts may be in
  // flight.
  Result<size_t> append_some(std::span<const std::byte> bytes,
                             const std::shared_ptr<const void>& lent);
  // The same for up to `most_bytes` from `begin_bytes` on in a source. What of them makes a part
  // that memory cannot hold as often as parts are in flight is read now for its sum, and read again
  // when it is sent; the rest is copied. May block on the source.
  struct Taken {
    uint64_t size_bytes = 0;
    bool at_end = false;  // of the source
  };
  Result<Taken> append_some(const std::shared_ptr<const PartSource>& source, uint64_t begin_bytes,
                            uint64_t most_bytes);
  // True once append_some() is worth another try.
  bool wait_for_room(std::chrono::steady_clock::time_point until, MayBlock may_block);

  // Sends the rest and makes the object visible. Returns once that has succeeded or failed and
  // temporary objects have been removed; it waits at most a few seconds for the removal.
  Result<ObjectInfo> close(MayBlock may_block);
  // The same in steps. Once it has settled, lent memory is no longer in use.
  void begin_close();
  bool wait_until_settled(std::chrono::steady_clock::time_point until, MayBlock may_block);
  Result<ObjectInfo> outcome();
  // An error if temporary objects could not be removed. close() does not report it, since the
  // object itself exists.
  std::optional<Error> cleaning_error();

  // Asks the writer to end without making anything visible, and returns at once. Has no effect once
  // the object is visible. If the store is just making it visible, the outcome is whatever the
  // store says.
  void abort() override;
  // Finished for good: temporary objects have been removed, or could not be.
  bool wait_cleaned(std::chrono::steady_clock::time_point until, MayBlock may_block) override;

  // Of the bytes taken so far.
  uint64_t size_bytes() const { return taken_.size_bytes; }
  Crc32c crc32c() const;
  const std::string& url() const { return environment_.url; }

  // How long close() and the end of the engine wait for temporary objects to be removed.
  static constexpr std::chrono::seconds kCleaningTimeout{5};

 private:
  enum class State : uint8_t {
    kOpen,
    kClosing,     // parts are in flight
    kPublishing,  // all parts have arrived
    kPublished,
    kFailed,
  };

  ObjectWriter(Environment environment, std::shared_ptr<Upload> upload, const PartSizes& sizes,
               uint32_t max_parts_in_flight);
  // What append_some() begins with. Errors: why it takes nothing.
  Result<void> check_open();
  Result<void> check_size(uint64_t more_bytes);
  // Makes room in the part that is being filled, or begins the next one. False if there is none
  // now.
  bool part_to_fill();
  bool is_reread(const UploadPart& part, const PartSource* source, uint64_t offset_bytes) const;
  // Bytes that were copied to the front of `spare_` become the part's.
  std::span<const std::byte> take_copied(size_t size_bytes);
  void count(std::span<const std::byte> piece);
  Result<std::span<std::byte>> room_to_sum();
  Result<size_t> read_from(const PartSource& source, uint64_t offset_bytes,
                           std::span<std::byte> into);
  // The writer has failed for want of memory.
  std::unexpected<Error> no_memory(uint64_t size_bytes);
  // Memory for more bytes of the part that is being filled. Empty if there is none now.
  Result<std::span<std::byte>> room_to_copy(uint64_t wanted_bytes);
  bool try_send_filled();
  void send_filled();
  void part_done(Result<void> result);
  void published(Result<ObjectInfo> result);
  // Takes the next step if it may: publishing or cleaning. Called without the lock.
  void advance();
  // Bytes have been lost, so nothing will be published.
  void give_up(const Error& error);

  const Environment environment_;
  const std::shared_ptr<Upload> upload_;
  const PartSizes sizes_;
  const uint32_t max_parts_in_flight_;
  const uint64_t most_held_bytes_;  // of a part that could be read again

  // The caller's.
  std::shared_ptr<UploadPart> filling_;
  std::span<std::byte> spare_;  // of the last block of `filling_`
  Block piece_;                 // of a source, while it is summed
  Upload::Whole taken_;         // its CRC32C without the part that is being filled
  uint64_t blocked_at_ = 0;     // parts_done_ when there was no room

  Mutex mutex_;
  CondVar changed_;
  State state_ HEADRACE_GUARDED_BY(mutex_) = State::kOpen;
  uint32_t in_flight_ HEADRACE_GUARDED_BY(mutex_) = 0;  // parts, or the one publication
  uint64_t parts_done_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);
  ObjectInfo info_ HEADRACE_GUARDED_BY(mutex_);
  bool sent_any_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool cleaning_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool cleaned_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::optional<Error> cleaning_error_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
