// Where the parts of one object that is being written go, on the way to their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/crc32c.h"
#include "headrace/format/object_info.h"

namespace headrace {

// A numbered piece of the object. Its bytes lie in blocks of ours, in memory that was lent, or
// both, and stay where they are until the last owner of the part lets go of it. Thread: any
// (immutable once it is sent).
struct UploadPart {
  uint32_t part_number = 1;  // from 1
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  Crc32c crc32c = {};
  std::vector<std::span<const std::byte>> spans = {};  // in order
  std::vector<Block> blocks = {};
  std::vector<std::shared_ptr<const void>> lent = {};
};

// One object on its way to a store, in parts. Called by an ObjectWriter, which sees to the order:
// send() for each part in turn, the next before the one before is done; publish() when all are
// sent, or only publish_single(); clean() at last, when every completion has come, whatever the
// outcome.
// Every `done` runs exactly once, perhaps before the call returns, on any thread; it must not
// block. Thread: any. Errors: what the store says; kCancelled after cancel().
class Upload {
 public:
  using Done = std::move_only_function<void(Result<void>)>;
  using Published = std::move_only_function<void(Result<ObjectInfo>)>;
  // The object as a whole.
  struct Whole {
    uint32_t part_count = 0;
    uint64_t size_bytes = 0;
    Crc32c crc32c = {};
  };

  // What can be sent in this way.
  struct Limits {
    uint64_t min_part_bytes = 64 * kKiB;
    uint64_t max_part_bytes = 4 * kGiB;
    uint64_t part_unit_bytes = 1;  // parts are multiples of this, but for the last
    uint32_t max_parts = std::numeric_limits<uint32_t>::max();
    uint64_t max_object_bytes = std::numeric_limits<uint64_t>::max();
  };

  virtual ~Upload() = default;
  virtual Limits limits() const = 0;
  virtual void send(std::shared_ptr<const UploadPart> part, Done done) = 0;
  // Makes the object visible, whole, on its condition; checks its size and CRC32C.
  virtual void publish(const Whole& whole, Published done) = 0;
  // The object is this one part, or is empty.
  virtual void publish_single(std::shared_ptr<const UploadPart> part, Published done) = 0;
  // Asks for an early end of what is in progress.
  virtual void cancel() = 0;
  // Removes whatever was put somewhere on the way.
  virtual void clean(Done done) = 0;
};

}  // namespace headrace
