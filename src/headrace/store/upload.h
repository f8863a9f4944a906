// How the parts of an object that is being written reach the store.
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

// Bytes that can be read more than once, so that they need not be held while they are sent.
// Thread: any.
class PartSource {
 public:
  virtual ~PartSource() = default;
  // Fills the front of `into` with what there is from `offset_bytes` on, and returns how much that
  // is: 0 at the end. May block. Errors: kUnavailable.
  virtual Result<size_t> read(uint64_t offset_bytes, std::span<std::byte> into) const = 0;
};

// A numbered piece of the object. Its bytes are in a source that is read once for their sum and
// once more for each time that they are sent; behind those, in blocks of the pool, in lent memory,
// or both, where they stay until the last owner releases the part. Thread: any (immutable once
// sent).
struct UploadPart {
  uint32_t part_number = 1;  // from 1
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  Crc32c crc32c = {};
  std::shared_ptr<const PartSource> source = {};  // null: all is held
  uint64_t source_begin_bytes = 0, source_size_bytes = 0;
  Crc32c source_crc32c = {};
  std::vector<std::span<const std::byte>> spans = {};  // in order
  std::vector<Block> blocks = {};
  std::vector<std::shared_ptr<const void>> lent = {};

  // Whether some of its bytes are in memory of others, who may write to it meanwhile.
  bool is_lent() const { return !lent.empty() || (blocks.empty() && !spans.empty()); }
};

// The upload of one object in parts. Its ObjectWriter calls, in this order: send() for each part in
// turn, without waiting for earlier ones; publish() once all have been sent, or only
// publish_single(); and finally clean(), once every completion has come, whatever the outcome.
// Every `done` runs exactly once, on any thread, possibly before the call returns, and must not
// block. Thread: any. Errors: those of the store; kCancelled after cancel().
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

  // What this kind of upload can send.
  struct Limits {
    uint64_t min_part_bytes = 64 * kKiB;
    uint64_t max_part_bytes = 4 * kGiB;
    uint64_t part_unit_bytes = 1;  // parts are multiples of this, except the last
    uint32_t max_parts = std::numeric_limits<uint32_t>::max();
    bool equal_parts = false;  // all but the last must have one size
    bool rereads = false;      // parts may have a source
    uint64_t max_object_bytes = std::numeric_limits<uint64_t>::max();
  };

  virtual ~Upload() = default;
  virtual Limits limits() const = 0;
  virtual void send(std::shared_ptr<const UploadPart> part, Done done) = 0;
  // Makes the whole object visible, on its condition, and checks its size and CRC32C.
  virtual void publish(const Whole& whole, Published done) = 0;
  // The object is this one part, or is empty.
  virtual void publish_single(std::shared_ptr<const UploadPart> part, Published done) = 0;
  // Asks requests in progress to end early.
  virtual void cancel() = 0;
  // Removes temporary objects.
  virtual void clean(Done done) = 0;
};

}  // namespace headrace
