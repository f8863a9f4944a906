// What one provider sends and receives.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/body_shape.h"
#include "headrace/format/checksum.h"
#include "headrace/format/column_page.h"
#include "headrace/format/http_head.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/object_info.h"
#include "headrace/format/url.h"
#include "headrace/http/message.h"
#include "headrace/store/credential.h"
#include "headrace/store/generation_text.h"
#include "headrace/store/optional_headers.h"
#include "headrace/store/options.h"
#include "headrace/store/root.h"
#include "headrace/store/upload_sums.h"

namespace headrace {

// An accepted response that has come whole. Views, valid for the call.
struct Response {
  const ResponseHead& head;
  std::string_view body;
};

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

// A response that says no.
struct ErrorResponse {
  const ResponseHead& head;
  std::string_view body;  // its beginning
  bool of_removal = false;
  // Of a request that is to replace one known generation.
  bool of_replacement = false;
};

// Where one request is sent instead. Credentials go there, too: the protocol answers for the place.
struct Elsewhere {
  Endpoint endpoint = {};   // without a base path
  std::string target = {};  // path and query, sent as they are; "": the request's own path ...
  std::string query = {};   // ... with this query instead of its own
  bool operator==(const Elsewhere&) const = default;
};

// The hosts of a cluster at some moment, each with objects of its own. A protocol derives what it
// needs from it.
// Thread: any (immutable).
struct HostMap {
  HostMap() = default;
  virtual ~HostMap() = default;
  HostMap(const HostMap&) = delete;
  HostMap& operator=(const HostMap&) = delete;

  uint64_t version = 0;  // of the maps of one cluster, a newer one has a greater one
  std::string cluster = {};
  std::vector<Endpoint> hosts = {};
  // For each of the hosts, where else it is sent to by the store's endpoint.
  std::vector<std::vector<Endpoint>> other_endpoints = {};
  // Of those of the hosts that have objects now.
  std::vector<std::string> members = {};
  // Where requests may begin that cannot reach the store's endpoint, preferred ones first. The
  // endpoint itself may be among them.
  std::vector<Endpoint> entrances = {};
};

// Sends requests about objects straight to the host of a cluster that has them.
// Thread: any (immutable).
class Placement {
 public:
  virtual ~Placement() = default;
  virtual void build_map(HttpRequest& request) const = 0;
  virtual Result<std::shared_ptr<const HostMap>> parse_map(const Response& response) const = 0;
  // Which host has the object of this name: an index into the map's hosts. None: no host has any.
  virtual std::optional<size_t> owner(const HostMap& map, std::string_view name) const = 0;
  // Which host of the map takes this request: an index into its hosts. None: the store's endpoint.
  virtual std::optional<size_t> send_to(const HostMap& map, const HttpRequest& request) const = 0;
};

// What the provider means by it.
struct Refusal {
  Error error;  // without URL and attempts
  // The credentials were refused, and others, or the same ones signed anew, may be accepted.
  bool stale_credentials = false;
  // What time it is there, if ours was refused.
  std::optional<std::chrono::system_clock::time_point> server_time = {};
  // Of the whole object, if a range was refused because it begins beyond its end.
  std::optional<uint64_t> object_bytes = {};
  // The protocol has learned where the bucket is: the same request is to be sent there.
  bool moved = false;
  // It may be about a header that the service does not know, and that the request would do without.
  bool blames_headers = false;
  // Even about one that the service has taken before: it names it, knows something not, or has
  // words that nobody knows.
  bool blames_taken = false;
  // This request alone is to be sent there; what comes after it goes where it always went. A
  // pointer, since refusals are part of the frames of reads, which are recycled up to 1 KiB.
  std::shared_ptr<const Elsewhere> elsewhere = nullptr;
};

// What completes a multipart upload.
struct MultipartCompletion {
  std::string_view name;
  std::string_view upload_id;
  std::span<const SentPart> parts;  // in order
  uint64_t size_bytes = 0;          // of the object
  Checksum sum = {};                // of the object; of no kind: none is sent
  Precondition precondition = {};   // only where completing takes conditions
};

// What describes an object besides its bytes, as headers that a new object is given.
using ObjectMetadata = std::vector<std::pair<std::string, std::string>>;

// An object that is copied.
struct CopySource {
  ObjectInfo info = {};
  ObjectMetadata metadata = {};
};

// A part of a multipart upload that the server copies from another object.
struct CopiedPart {
  std::string_view source_name = {}, source_generation = {};
  ByteRange range = {};
  std::string_view name = {}, upload_id = {};
  uint32_t part_number = 1;
};

struct CopyStep {
  bool done = false;
  std::string token;
  std::optional<ObjectInfo> object;  // the copy, if the response describes it
};

// Joins objects on the server.
// Thread: any (immutable).
class Composing {
 public:
  virtual ~Composing() = default;
  virtual uint32_t max_sources() const = 0;
  // `scratch` owns the request's body.
  virtual void build_compose(HttpRequest& request, const ComposeRequest& compose,
                             std::string& scratch) const = 0;
  virtual Result<ObjectInfo> parse_composed(const Response& response) const = 0;
};

// One of the things that one request gets.
struct BatchGetEntry {
  std::string_view name = {};
  std::string_view member = {};         // of the shard with this name; "": the object itself
  std::optional<ByteRange> range = {};  // within its known size, and not empty
};

// Gets objects, ranges of them and members of shards by one request, which is answered with one tar
// of them all, in the order of the request. Nothing in it tells a generation or a checksum.
// Thread: any (immutable).
class BatchGets {
 public:
  virtual ~BatchGets() = default;
  // Whether a request can name it.
  virtual bool can_name(const BatchGetEntry& entry) const = 0;
  virtual void build_get(HttpRequest& request, std::span<const BatchGetEntry> entries) const = 0;
  // What the tar calls it: if it comes, and if it is missing.
  virtual std::string member_name(const BatchGetEntry& entry) const = 0;
  virtual std::string missing_name(const BatchGetEntry& entry) const = 0;
  // Whether this refusal says that the service has no such request.
  virtual bool is_absent(const Error& refusal) const = 0;
};

// Uploads that are started, get numbered parts in any order, and are completed. Their responses are
// the XML that S3 introduced (format/multipart_xml) wherever there are such uploads.
// Thread: any (immutable).
class MultipartUploads {
 public:
  virtual ~MultipartUploads() = default;
  // Whether completing takes conditions. If not, an upload makes a temporary object, from which the
  // object is then composed on its condition.
  virtual bool is_conditional() const = 0;
  // Whether parts have a least size, except for the last one.
  virtual bool bounds_parts() const { return true; }
  // Whether all parts but the last must have one size; none: the service may still say so.
  virtual std::optional<bool> has_equal_parts() const { return std::nullopt; }
  // Whether it says so by this refusal to complete an upload.
  virtual bool wants_equal_parts(const Error& /*refusal*/) const { return false; }
  virtual void build_start(HttpRequest& request, const WriteRequest& write,
                           SumLevel level) const = 0;
  // What the answer says of the sum on this level.
  virtual AnnouncedSum announced_sum(const ResponseHead&, SumLevel) const {
    return AnnouncedSum::kNone;
  }
  // The id of the upload.
  virtual Result<std::string> parse_started(const Response& response) const {
    return parse_upload_id(response.body);
  }
  virtual void build_part(HttpRequest& request, std::string_view name, std::string_view upload_id,
                          uint32_t part_number, std::span<const std::span<const std::byte>> bytes,
                          const SentSums& sums) const = 0;
  // Whether the response to a part has a name for it, which completing the upload needs.
  virtual bool names_parts() const { return true; }
  // `whole` describes the object. `scratch` owns the request's body.
  virtual void build_complete(HttpRequest& request, const MultipartCompletion& completion,
                              std::string& scratch) const = 0;
  virtual Result<CompletedUpload> parse_completed(const Response& response) const {
    return completed_upload(response.body);
  }
  virtual void build_abort(HttpRequest& request, std::string_view name,
                           std::string_view upload_id) const = 0;
  virtual void build_list(HttpRequest& request, std::string_view prefix,
                          std::string_view after_name, std::string_view after_upload_id) const = 0;
};

// Multipart uploads whose parts are ranges of another object, for objects that are too large to be
// copied by one request. Such an upload is completed and aborted like any other.
// Thread: any (immutable).
class PartCopies {
 public:
  virtual ~PartCopies() = default;
  // Of the object that this response to a stat is about.
  virtual ObjectMetadata metadata(const ResponseHead& head) const = 0;
  virtual void build_start(HttpRequest& request, std::string_view name,
                           const ObjectMetadata& metadata) const = 0;
  virtual void build_part(HttpRequest& request, const CopiedPart& part) const = 0;
  virtual Result<SentPart> parse_part(const Response& response, uint32_t part_number) const = 0;
};

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

// Objects that grow piece by piece, each sent with the handle that the answer to the one before
// gave, and that appear when they are flushed. What is there already would be added to, so they
// have a name of their own, and are renamed: the object at the new name is replaced. Thread: any
// (immutable).
class Appends {
 public:
  virtual ~Appends() = default;
  // Whether this is how a server refuses to start a multipart upload that has none.
  virtual bool lacks_multipart(const Error& refusal) const = 0;
  // Must not be sent twice. `handle` "": of the first piece.
  virtual void build_append(HttpRequest& request, std::string_view name, std::string_view handle,
                            std::span<const std::span<const std::byte>> bytes) const = 0;
  virtual std::string handle(const ResponseHead& head) const = 0;
  virtual void build_flush(HttpRequest& request, std::string_view name,
                           std::string_view handle) const = 0;
  virtual void build_rename(HttpRequest& request, std::string_view from,
                            std::string_view to) const = 0;
  // Whether an object that another host has can be renamed so.
  virtual bool moves_to(std::string_view name) const = 0;
};

// Tells the type and the encoding of an object that is there, where uploads of many requests
// cannot. Thread: any (immutable).
class Describing {
 public:
  virtual ~Describing() = default;
  virtual void build_describe(HttpRequest& request, std::string_view name,
                              const WriteRequest& like) const = 0;
};

// URLs with which whoever has them may send one request, without credentials.
// Thread: any.
class UrlSigning {
 public:
  virtual ~UrlSigning() = default;
  // Whether it is known where the bucket is, which is part of a signature. If not, the answer to
  // any request tells.
  virtual bool knows_place() const = 0;
  // Errors: kInvalidArgument for what no URL can say.
  virtual Result<std::string> signed_url(const UrlRequest& request, const Credential& credential,
                                         std::chrono::system_clock::time_point now) const = 0;
};

// Requests that tell whether a service keeps to the conditions of writes; what they are about are
// objects of our own, with full names. They have no bytes.
// Thread: any (immutable).
class ConditionProof {
 public:
  virtual ~ConditionProof() = default;
  // `with_sum`: with a sum of no bytes, which some buckets demand, and some services refuse.
  virtual void build_write(HttpRequest& request, std::string_view full_name,
                           const Precondition& precondition, bool with_sum) const = 0;
  virtual void build_remove(HttpRequest& request, std::string_view full_name) const = 0;
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
  // end, when its parts are joined under that name. Errors: kInvalidArgument.
  virtual Result<void> check_new_name(std::string_view name) const = 0;
  // Whether removing what is not there is refused with kNotFound. If not, it is looked for first.
  virtual bool tells_missing_on_removal() const { return true; }
  virtual void build_remove(HttpRequest& request, std::string_view name,
                            const Precondition& precondition) const = 0;
  // Whether the service copies objects. If not, their bytes pass through here.
  virtual bool copies() const { return true; }
  // Whether every service that speaks this looks at the conditions of a copy. If not, the target is
  // looked at first, which is less than a condition and more than nothing.
  virtual bool copies_conditionally() const { return true; }
  // Null: every service that speaks this keeps to the conditions of writes, or writes have none.
  virtual const ConditionProof* condition_proof() const { return nullptr; }
  // Writes have none: the target is looked at first.
  virtual bool looks_before_writes() const { return false; }
  virtual void build_copy(HttpRequest& request, const CopyRequest& copy,
                          std::string_view token) const = 0;
  virtual Result<CopyStep> parse_copy(const Response& response) const = 0;

  // What else the provider can do; null: it cannot.
  virtual const Composing* composing() const { return nullptr; }
  virtual const BatchGets* batch_gets() const { return nullptr; }
  virtual const MultipartUploads* multipart() const { return nullptr; }
  // Null: one request copies an object of any size.
  virtual const PartCopies* part_copies() const { return nullptr; }
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
  virtual bool may_send(BodyShape shape) const { return shape == BodyShape::kEmpty; }
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
