// What one provider sends and receives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/body_shape.h"
#include "headrace/format/checksum.h"
#include "headrace/format/column_page.h"
#include "headrace/format/http_head.h"
#include "headrace/format/object_info.h"
#include "headrace/format/url.h"
#include "headrace/http/message.h"
#include "headrace/store/credential.h"
#include "headrace/store/generation_text.h"
#include "headrace/store/optional_headers.h"
#include "headrace/store/options.h"
#include "headrace/store/response.h"
#include "headrace/store/root.h"
#include "headrace/store/upload_sums.h"

namespace headrace {

// What a provider may be able to do besides, each in a file of its own.
class Appends;
class BatchGets;
class Composing;
class ConditionProof;
class Copies;
class Describing;
class MultipartUploads;
class Placement;
class ResumableUploads;
class UrlSigning;

// What a response to a read says besides its bytes.
struct ReadFacts {
  GenerationText generation;
  Checksum checksum = {};                // of the whole stored object
  std::optional<uint64_t> stored_bytes;  // of the whole stored object
  bool stored_gzip = false;              // stored with Content-Encoding: gzip
  bool decompressed_by_server = false;   // what comes is not what is stored
  bool sums_differ = false;              // two of one kind: the answer contradicts itself
  // Why this is no answer of the service's, whatever the status; a literal, and not looked at for
  // members of shards.
  std::string_view foreign = {};
};

// A page of a listing for which one request may not be enough. Of each request, the accepted answer
// is taken once.
// Thread: confined.
class LongPage {
 public:
  virtual ~LongPage() = default;
  // Asks for no more than fits into `most_bytes`, as far as that can be told. May be called again
  // before the answer comes.
  virtual void build_next(HttpRequest& request, uint64_t most_bytes) const = 0;
  // The answer is larger than `most_bytes`, and was not taken. False: a smaller one cannot be asked
  // for.
  virtual bool ask_for_less(uint64_t most_bytes) = 0;
  // As Protocol::parse_list(); none: another request follows.
  virtual Result<std::optional<ColumnPage>> take(const Response& response) = 0;
};

// How far a page of a listing keeps to the names that it was asked for.
enum class ListBounds : uint8_t {
  kExact,
  // It may begin a little earlier, and go on beyond the end: what lies outside is dropped.
  kLoose,
};

// Builds requests, reads responses and maps errors. No I/O, and no state except the bucket and the
// root. Each provider is a protocol; everything else (retry, ranges, checksums) is written once,
// for all of them. Names passed in are relative to the root, which the protocol prepends. Names it
// parses are the full names that the service reported; the attempts take the root off
// (Root::strip). Thread: any (immutable).
class Protocol {
 public:
  explicit Protocol(Root root) : root_(std::move(root)) {}
  virtual ~Protocol() = default;
  Protocol(const Protocol&) = delete;
  Protocol& operator=(const Protocol&) = delete;

  const Root& root() const { return root_; }

  // `range` none: the whole object. `generation` "": whichever is live.
  virtual void build_read(HttpRequest& request, std::string_view name, std::string_view generation,
                          std::optional<ByteRange> range) const = 0;
  virtual ReadFacts read_facts(const ResponseHead& head) const = 0;
  // A whole member of a shard, which the server gets out. By default there are no such requests.
  virtual void build_member_read(HttpRequest& request, std::string_view name,
                                 std::string_view member) const {
    request.refused =
        Error(Code::kInvalidArgument,
              cat("this service does not read members of shards, such as ", member, " of ", name));
  }
  // Whether what is read is made from the object on the way: what listings tell of its size and
  // generation is not said of what comes.
  virtual bool transforms() const { return false; }
  // The kind of sum of the whole object that also a response with a part of it tells. kNone: none
  // does, so before a large object is read in parts, the sum is asked for.
  virtual ChecksumKind sum_told_with_parts() const { return ChecksumKind::kNone; }

  virtual ListBounds list_bounds() const = 0;
  virtual void build_list(HttpRequest& request, const ListRequest& list) const = 0;
  // Of the answer to this request.
  virtual Result<ColumnPage> parse_list(const Response& response,
                                        const ListRequest& list) const = 0;
  // Null: each page is the answer to one request.
  virtual std::unique_ptr<LongPage> long_page(const ListRequest&) const { return nullptr; }
  // How many pages of one listing are worth asking for at a time; 1: each with the token of the one
  // before. More than 64 gain nothing (docs/decisions/2026-11-21-parallel-listing.md).
  virtual uint32_t max_pages_in_flight() const { return 64; }

  virtual void build_stat(HttpRequest& request, std::string_view name) const = 0;
  virtual Result<ObjectInfo> parse_stat(const Response& response, std::string_view name) const = 0;

  // `scratch` owns what the request's body spans refer to in addition to `bytes`, which follow each
  // other. `sums` are those of all `bytes`: the service refuses the object if one does not match.
  virtual void build_write(HttpRequest& request, const WriteRequest& write,
                           std::span<const std::span<const std::byte>> bytes, const SentSums& sums,
                           std::string& scratch) const = 0;
  // What the service made of a write of `size_bytes` bytes.
  virtual Result<ObjectInfo> parse_written(const Response& response, const WriteRequest& write,
                                           uint64_t size_bytes) const = 0;
  // The sums that a write begins with, as long as nothing is known of the service.
  virtual UploadSums first_sums() const {
    return {.known = true, .fixed = true, .sends_whole = true, .always_told = true};
  }
  // The sum of this kind of what was sent, by one request or as a part, that the answer's head
  // tells; of no kind if it tells none, or only what is no such sum.
  virtual Checksum told_sum(const ResponseHead&, ChecksumKind) const { return {}; }
  // The MD5 of what was sent that the answer tells; of no kind: none, as far as is known.
  virtual Checksum told_md5(const ResponseHead&) const { return {}; }
  // False: the answer to a write does not tell what was made of it, so the object is looked at.
  virtual bool tells_written(const ResponseHead&) const { return true; }
  // Whether the service accepts this name. By itself it would refuse a large object only at the
  // end, when it is composed of its parts. Errors: kInvalidArgument.
  virtual Result<void> check_new_name(std::string_view name) const = 0;
  // Whether removing what is not there is refused with kNotFound. If not, it is looked for first.
  virtual bool tells_missing_on_removal() const { return true; }
  virtual void build_remove(HttpRequest& request, std::string_view name,
                            const Precondition& precondition) const = 0;
  // Null: every service that speaks this keeps to the conditions of writes, or writes have none.
  virtual const ConditionProof* condition_proof() const { return nullptr; }
  // Writes have none: the target is looked at first.
  virtual bool looks_before_writes() const { return false; }

  // What else the provider can do; null: it cannot.
  virtual const Composing* composing() const { return nullptr; }
  // Null: what is copied passes through here.
  virtual const Copies* copies() const { return nullptr; }
  virtual const BatchGets* batch_gets() const { return nullptr; }
  virtual const MultipartUploads* multipart() const { return nullptr; }
  virtual const ResumableUploads* resumable() const { return nullptr; }
  // For servers that turn out to have no multipart uploads.
  virtual const Appends* appends() const { return nullptr; }
  // Null: whatever starts an upload tells the type and the encoding of the object, too.
  virtual const Describing* describing() const { return nullptr; }
  // How large objects are written unless the caller says otherwise.
  virtual UploadMethod default_upload_method() const = 0;

  // Headers that its requests would do without, for services that refuse them: at most
  // kMostHeaderGroups. Where a refusal names none, they are left out in this order.
  virtual std::span<const OptionalHeaders> optional_headers() const { return {}; }
  // Those of them without which answers to reads and stats tell no sum.
  virtual HeaderGroups headers_for_sums() const { return 0; }
  virtual const UrlSigning* url_signing() const { return nullptr; }
  // Signs the requests of one I/O thread. Null: this provider takes no credentials.
  virtual std::unique_ptr<Signer> make_signer() const = 0;
  // Null: all requests go to the endpoint.
  virtual const Placement* placement() const { return nullptr; }
  // Where requests go instead of the endpoint that the store was opened at, if the service said so.
  virtual std::shared_ptr<const Endpoint> moved_to() const { return nullptr; }
  virtual Refusal refusal(const ErrorResponse& response) const = 0;
  // The refusal that came with a good status, which some services send before they know how a
  // request ends; none: it is no refusal. Its error has the status of those that are noticed in
  // time.
  virtual std::optional<Refusal> late_refusal(const ErrorResponse&) const { return std::nullopt; }
  // Whether the service sends such a body with an answer in which nothing has to be told.
  // A few words, such as "OK" or "null", are no page: servers send all kinds of them.
  virtual bool may_send(BodyShape shape) const {
    return shape == BodyShape::kEmpty || shape == BodyShape::kOther;
  }
  virtual std::string url_of(std::string_view name) const = 0;

 private:
  const Root root_;
};

// What a provider's folder gives to the engine for one bucket: where it is, and what is spoken
// there. Made by the folder's one factory, such as gcs_provider().
struct Provider {
  Endpoint endpoint;
  std::function<std::unique_ptr<const Protocol>(Root root)> protocol_at;
};

}  // namespace headrace
