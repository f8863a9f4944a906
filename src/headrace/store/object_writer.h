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
#include "headrace/base/may_block.h"
#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/format/object_info.h"
#include "headrace/store/options.h"
#include "headrace/store/upload.h"

namespace headrace {

class ObjectWriter;

// The writers of one engine that are not done, so that its end can be theirs.
// Thread: any.
class WriterRegistry {
 public:
  // False when the engine is stopping.
  bool add(const std::shared_ptr<ObjectWriter>& writer);
  void forget(const ObjectWriter* writer);
  // Aborts all, refuses new ones, and waits until they have removed what they put somewhere.
  void stop(std::chrono::steady_clock::time_point until, MayBlock may_block);

 private:
  Mutex mutex_;
  bool stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<const ObjectWriter*, std::weak_ptr<ObjectWriter>>> writers_
      HEADRACE_GUARDED_BY(mutex_);
};

// Takes bytes in order and sends them in parts, several at a time, while more come. The object
// becomes visible by close(), whole and with its checksum verified, or not at all. Appended bytes
// are copied once, lent ones are sent from where they are. In memory are `max_parts_in_flight`
// parts that are under way and one that is being filled; their blocks count towards the memory
// budget, which holds the writer up, too, but never while nothing of its own is under way. The
// first error is the one that every later call returns. Destroying an unfinished writer aborts it;
// memory that was lent may be in use until it is settled. Thread: confined, but for abort() and the
// waits: any. Errors: what the store says; kPreconditionFailed from close(); kCancelled after
// abort().
class ObjectWriter : public std::enable_shared_from_this<ObjectWriter> {
 public:
  // Lent bytes in smaller pieces are copied: to send them one by one would cost more.
  static constexpr uint64_t kMinLentBytes = 64 * kKiB;

  struct Environment {
    std::shared_ptr<BlockPool> pool;
    std::shared_ptr<WriterRegistry> registry;
    std::string url;  // of the object, for errors
  };
  // Errors: kInvalidArgument for sizes that cannot work; kCancelled if the engine was stopped.
  static Result<std::shared_ptr<ObjectWriter>> open(Environment environment,
                                                    std::shared_ptr<Upload> upload,
                                                    uint64_t part_bytes,
                                                    uint32_t max_parts_in_flight);
  ~ObjectWriter();
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  // Takes all of `bytes`; waits while as much is under way as may be. `lent` null: they are copied.
  // Else they stay as they are until `lent` is destroyed, here or on an I/O thread.
  Result<void> append(std::span<const std::byte> bytes, std::shared_ptr<const void> lent,
                      MayBlock may_block);
  // Does not wait: how many bytes it took, fewer than there are if no more may be under way.
  Result<size_t> append_some(std::span<const std::byte> bytes,
                             const std::shared_ptr<const void>& lent);
  // True when append_some() is worth another try.
  bool wait_for_room(std::chrono::steady_clock::time_point until, MayBlock may_block);

  // Sends the rest and makes the object visible. Returns when that is done, or has failed, and what
  // was put somewhere on the way is removed; for the removal it waits a few seconds at most.
  Result<ObjectInfo> close(MayBlock may_block);
  // The same in steps. Once it is settled, no memory that was lent is in use any more.
  void begin_close();
  bool wait_until_settled(std::chrono::steady_clock::time_point until, MayBlock may_block);
  Result<ObjectInfo> outcome();
  // What could not be removed, if anything: an error that close() does not report, for the object
  // is there.
  std::optional<Error> cleaning_error();

  // Ends it: nothing will be visible. Asks only, and returns at once. Without effect once the
  // object is visible; should it come while the store makes it so, the outcome is what the store
  // says.
  void abort();
  // Done for good: nothing is left where it was put on the way, or it could not be removed.
  bool wait_cleaned(std::chrono::steady_clock::time_point until, MayBlock may_block);

  // Of what was taken so far.
  uint64_t size_bytes() const { return taken_.size_bytes; }
  Crc32c crc32c() const;
  const std::string& url() const { return environment_.url; }

  // How long close() and the engine's end wait for temporaries to be removed.
  static constexpr std::chrono::seconds kCleaningPatience{5};

 private:
  enum class State : uint8_t {
    kOpen,
    kClosing,     // the parts are under way
    kPublishing,  // the parts are there
    kPublished,
    kFailed,
  };

  ObjectWriter(Environment environment, std::shared_ptr<Upload> upload, uint64_t part_bytes,
               uint32_t max_parts_in_flight);
  // Whether the object may have so many bytes.
  Result<void> check_size(uint64_t size_bytes) const;
  // Memory for more bytes of the part that is being filled; empty: not now.
  Result<std::span<std::byte>> room_to_copy(uint64_t wanted_bytes);
  bool try_send_filled();
  void send_filled();
  void part_done(Result<void> result);
  void published(Result<ObjectInfo> result);
  // Whatever comes next, if it may: publishing, or cleaning. Called without the lock.
  void advance();
  // Bytes are missing from now on: nothing will be published.
  void give_up(const Error& error);

  const Environment environment_;
  const std::shared_ptr<Upload> upload_;
  const uint64_t part_bytes_;
  const uint32_t max_parts_in_flight_;
  const Upload::Limits limits_;

  // The caller's.
  std::shared_ptr<UploadPart> filling_;
  std::span<std::byte> spare_;  // of the last block of `filling_`
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
