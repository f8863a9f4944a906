// Uploads of one stream through a session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/units.h"
#include "headrace/format/checksum.h"
#include "headrace/format/http_head.h"
#include "headrace/http/message.h"
#include "headrace/store/options.h"

namespace headrace {

// Some bytes of a resumable upload, or a question about it.
struct ResumablePut {
  std::string_view session = {};
  std::optional<ByteRange> range = {};        // of the object; none: a question. May be empty
  std::optional<uint64_t> object_bytes = {};  // once it is known; ends the upload
  std::optional<Crc32c> crc32c = {};          // of the whole object, with its last bytes
  std::span<const std::span<const std::byte>> bytes = {};
};

// Uploads of one stream through a session, which reports how much it has received (status 308).
// Thread: any (immutable).
class ResumableUploads {
 public:
  virtual ~ResumableUploads() = default;
  virtual void build_start(HttpRequest& request, const WriteRequest& write,
                           std::string& scratch) const = 0;
  // The session as a request target; "" if the response names none.
  virtual std::string session(const ResponseHead& head) const = 0;
  virtual void build_put(HttpRequest& request, const ResumablePut& put) const = 0;
  virtual uint64_t received_bytes(const ResponseHead& head) const = 0;
  virtual void build_cancel(HttpRequest& request, std::string_view session) const = 0;
};

}  // namespace headrace
