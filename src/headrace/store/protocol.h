// What one provider sends and receives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/column_page.h"
#include "headrace/format/http_head.h"
#include "headrace/format/object_info.h"
#include "headrace/http/message.h"
#include "headrace/store/options.h"
#include "headrace/store/root.h"

namespace headrace {

// What a response to a read says besides its bytes. Views into the head.
struct ReadFacts {
  std::string_view generation;
  std::optional<Crc32c> crc32c;          // of the whole stored object
  std::optional<uint64_t> stored_bytes;  // of the whole stored object
  bool stored_gzip = false;              // stored with Content-Encoding: gzip
  bool decompressed_by_server = false;   // what comes is not what is stored
};

// A refusal in its parts.
struct ErrorResponse {
  int http_status = 0;
  std::string_view body;
  std::string_view retry_after;  // the header's value
  std::string_view request_id;
  bool of_removal = false;
};

// Some bytes of a resumable upload, or a question about it.
struct ResumablePut {
  std::string_view session = {};
  std::optional<ByteRange> range = {};        // of the object; none: a question. May be empty
  std::optional<uint64_t> object_bytes = {};  // once it is known; ends the upload
  std::optional<Crc32c> crc32c = {};          // of the whole object, with its last bytes
  std::span<const std::span<const std::byte>> bytes = {};
};

struct CopyStep {
  bool done = false;
  std::string token;
  ObjectInfo object;
};

// Builds requests, reads responses and maps errors. No I/O, and no state except the bucket and the
// root. Each provider is a protocol; everything else (retry, ranges, checksums) is written once, in
// HttpStore.
// Names passed in are relative to the root, which the protocol prepends. Names it parses are the
// full names that the service reported; the attempts take the root off (Root::strip).
// Thread: any (immutable).
class Protocol {
 public:
  explicit Protocol(Root root) : root_(std::move(root)) {}
  virtual ~Protocol() = default;
  Protocol(const Protocol&) = delete;
  Protocol& operator=(const Protocol&) = delete;

  const Root& root() const { return root_; }
  // What parse_object() returns, with the name relative to the root.
  Result<ObjectInfo> object_of(std::string_view body) const {
    Result<ObjectInfo> info = parse_object(body);
    if (!info) return info;
    if (Result<void> below = root_.strip(*info); !below) return std::unexpected(below.error());
    return info;
  }

  // `range` none: the whole object. `generation` "": whichever is live.
  virtual void build_read(HttpRequest& request, std::string_view name, std::string_view generation,
                          std::optional<ByteRange> range) const = 0;
  virtual ReadFacts read_facts(const ResponseHead& head) const = 0;

  virtual void build_list(HttpRequest& request, const ListRequest& list) const = 0;
  virtual Result<ObjectPage> parse_objects(std::string_view body) const = 0;
  virtual Result<ColumnPage> parse_columns(std::string_view body) const = 0;

  virtual void build_stat(HttpRequest& request, std::string_view name) const = 0;
  virtual Result<ObjectInfo> parse_object(std::string_view body) const = 0;

  // `scratch` owns what the request's body spans refer to in addition to `bytes`, which follow each
  // other. `crc32c` is that of all `bytes`: the service refuses the object if it does not match.
  virtual void build_write(HttpRequest& request, const WriteRequest& write,
                           std::span<const std::span<const std::byte>> bytes, Crc32c crc32c,
                           std::string& scratch) const = 0;
  // Whether the service accepts this name. By itself it would refuse a large object only at the
  // end, when the temporary objects are joined under that name. Errors: kInvalidArgument.
  virtual Result<void> check_new_name(std::string_view name) const = 0;
  virtual void build_remove(HttpRequest& request, std::string_view name,
                            const Precondition& precondition) const = 0;
  virtual void build_copy(HttpRequest& request, const CopyRequest& copy,
                          std::string_view token) const = 0;
  virtual Result<CopyStep> parse_copy(std::string_view body) const = 0;
  // 0: the provider cannot compose. The answer is an object.
  virtual uint32_t max_compose_sources() const = 0;
  virtual void build_compose(HttpRequest& request, const ComposeRequest& compose,
                             std::string& scratch) const = 0;

  // Multipart uploads (format/multipart_xml). The answer to a part has its ETag and, if the
  // provider reports it, its CRC32C in read_facts().
  virtual void build_multipart_start(HttpRequest& request, const WriteRequest& write) const = 0;
  virtual void build_multipart_part(HttpRequest& request, std::string_view name,
                                    std::string_view upload_id, uint32_t part_number,
                                    std::span<const std::span<const std::byte>> bytes,
                                    Crc32c crc32c) const = 0;
  // `completion` is sent from where it is, so it must outlive the request.
  virtual void build_multipart_complete(HttpRequest& request, std::string_view name,
                                        std::string_view upload_id,
                                        std::string_view completion) const = 0;
  virtual void build_multipart_abort(HttpRequest& request, std::string_view name,
                                     std::string_view upload_id) const = 0;
  virtual void build_multipart_list(HttpRequest& request, std::string_view prefix,
                                    std::string_view after_name,
                                    std::string_view after_upload_id) const = 0;

  // Resumable uploads: a session takes one stream and reports how much it has received (status
  // 308). The session as a request target; "" if the answer names none.
  virtual void build_resumable_start(HttpRequest& request, const WriteRequest& write,
                                     std::string& scratch) const = 0;
  virtual std::string resumable_session(const ResponseHead& head) const = 0;
  virtual void build_resumable_put(HttpRequest& request, const ResumablePut& put) const = 0;
  virtual uint64_t resumable_bytes(const ResponseHead& head) const = 0;
  virtual void build_resumable_cancel(HttpRequest& request, std::string_view session) const = 0;

  // An Error without URL and attempts.
  virtual Error to_error(const ErrorResponse& refusal) const = 0;
  virtual std::string url_of(std::string_view name) const = 0;

 private:
  const Root root_;
};

}  // namespace headrace
