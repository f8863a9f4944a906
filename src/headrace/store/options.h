// The options of a store. Their defaults are defined only here; Python reads them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/log.h"
#include "headrace/base/units.h"
#include "headrace/format/crc32c.h"
#include "headrace/format/running_sum.h"
#include "headrace/format/url.h"
#include "headrace/http/options.h"

namespace headrace {

class Credentials;

struct RetryOptions {
  uint32_t max_attempts = 10;                      // of one request, the first included
  std::chrono::milliseconds initial_backoff{100};  // upper end of the first wait (full jitter)
  std::chrono::milliseconds max_backoff{20'000};
  double backoff_multiplier = 2.0;
  // The most retries a host can save up: each retry costs one, each success earns a tenth. Protects
  // a struggling service from a multiple of its load. Retries of throttled requests are controlled
  // separately and cost nothing.
  uint32_t budget_tokens = 500;
  bool operator==(const RetryOptions&) const = default;
};

// What to do when an object is no longer the generation that was listed.
enum class OnChange : uint8_t {
  kError,   // kPreconditionFailed, naming the object
  kReread,  // read what is there now
};

// What to do with objects stored with Content-Encoding: gzip.
enum class ContentEncoding : uint8_t {
  kStored,      // the stored bytes, verified against the stored CRC32C; sizes match the listing
  kDecompress,  // the same, then decompressed by the client
};

// Which checksums of whole objects, and of ranges that an index knows, are compared.
enum class Verify : uint8_t {
  kNone,
  kCrcs,  // CRCs and XXH64, which cost next to nothing
  kAll,   // also SHA-1, SHA-256 and MD5, which take longer than reading does
};
inline bool compares(Verify verify, ChecksumKind kind) {
  if (verify == Verify::kNone) return false;
  const bool costs_little = can_join(kind) || kind == ChecksumKind::kXxh64;
  return RunningSum::can_sum(kind) && (costs_little || verify == Verify::kAll);
}

// Small objects of a batch are composed on the server, read as one, and split.
struct ComposeOptions {
  uint64_t max_size_bytes = 16 * kMiB;     // of a composite; it is read in one request up to
                                           // range_threshold_bytes
  uint32_t max_objects = 32;               // of a composite; the service accepts no more
  uint32_t max_in_flight = 32;             // composites that exist at a time
  std::chrono::milliseconds pause{5'000};  // of composing, after the service was too busy for it
  // The next process that composes deletes those left behind by earlier ones once they are
  // this old. Younger ones may be in use.
  std::chrono::milliseconds sweep_age{3'600'000};
};

// Whether many objects are read by one request, where the service has one for it.
enum class GetBatchMode : uint8_t {
  kAuto,    // if measurements say that it is faster than one request for each
  kAlways,  // where it can be
  kNever,
};

struct GetBatchOptions {
  GetBatchMode mode = GetBatchMode::kAuto;
  uint64_t max_size_bytes = 16 * kMiB;  // of what one request gets
  uint32_t max_objects = 256;           // that one request gets
  uint32_t max_in_flight = 16;          // such requests
  // After a failure of the service, which doubles with each in a row, up to 64 times.
  std::chrono::milliseconds pause{5'000};
};

// The service's limits for large writes (https://cloud.google.com/storage/quotas), so that what
// cannot work is refused before anything is sent. Other servers have other limits.
struct WriteLimits {
  uint64_t max_object_bytes = 5 * kTiB;
  uint64_t min_multipart_part_bytes = 5 * kMiB;  // except for the last part
  uint64_t max_multipart_part_bytes = 5 * kGiB;
  uint32_t max_multipart_parts = 10'000;
  // Larger objects are copied in parts, where the provider has a limit: parts of ...
  uint64_t max_copy_bytes = 5 * kGiB;
  uint64_t copied_part_bytes = 128 * kMiB;  // ... or larger ones, if there were too many
};

// What only Google Cloud Storage has.
struct GcsOptions {
  std::string user_project = {};  // billed for requester-pays buckets
};

// How a request names its bucket.
enum class S3Addressing : uint8_t {
  kAuto,     // in the host's name at AWS, if it fits there; otherwise in the path
  kPath,     // https://endpoint/bucket/name
  kVirtual,  // https://bucket.endpoint/name
};

// Who checks the conditions of writes.
enum class ConditionalWrites : uint8_t {
  kService,
  kLook,  // writes carry none: what is at the target is looked at before
};

// What proves the bytes of what is written: the strongest first.
enum class SumLevel : uint8_t {
  kCrc32c,     // of the whole object, kept with it
  kCrc64Nvme,  // the same
  kComposite,  // a CRC-32C of each part; the service keeps one sum of these
  kMd5,        // Content-MD5 of each request, which the service compares and does not keep
  kSize,       // nothing but the size
};

// What only S3 and its kind have.
struct S3Options {
  std::string region = {};  // "": found out from the first response
  S3Addressing addressing = S3Addressing::kAuto;
  bool dual_stack = false, fips = false;  // endpoints of AWS
  bool requester_pays = false;
  std::string expected_bucket_owner = {};  // an account: requests to another's bucket are refused
  std::string encryption = {};             // of new objects: "AES256", "aws:kms", "aws:kms:dsse"
  std::string kms_key_id = {};
  std::vector<std::byte> customer_key = {};  // SSE-C: 32, for reading and writing. Secret
  ConditionalWrites conditional_writes = ConditionalWrites::kService;
  // Whether all parts of an upload but the last must have one size. None: at hosts that are known
  // for it, and where a service has said so.
  std::optional<bool> equal_parts = {};
  // None: the strongest that the service takes, which its answers show.
  std::optional<SumLevel> checksum = {};
  bool operator==(const S3Options&) const = default;
};

// What only AIStore has.
struct AisOptions {
  bool direct = true;  // requests go straight to the target that has the object
  // Objects that are read are transformed by this ETL, with these arguments; "": by none.
  std::string etl_name = {}, etl_args = {};
  bool operator==(const AisOptions&) const = default;
};

// Every piece of a large read takes some memory beside the budget, and a request: with smaller ones
// there would be more of these than of bytes.
inline constexpr uint64_t kMinRangeBytes = 64 * kKiB;

struct StoreOptions {
  std::string endpoint = {};  // "": the service's own; or http://host:port of an emulator
  std::shared_ptr<Credentials> credentials = {};  // null: anonymous
  GcsOptions gcs = {};
  S3Options s3 = {};
  AisOptions ais = {};
  RetryOptions retry = {};
  TimeoutOptions timeout = {};
  TlsOptions tls = {};
  ProxyOptions proxy = {};
  // Per host and process; each I/O thread may have at least one request.
  uint32_t max_in_flight = 512;  // the adaptive limit stays below it
  uint32_t initial_in_flight = 64;
  uint64_t range_threshold_bytes = 16 * kMiB;  // larger objects are read by parallel ranges of ...
  uint64_t range_bytes = 8 * kMiB;             // at least kMinRangeBytes
  // Ranges of one object in one batch are read by one request if what lies between them, which is
  // read and dropped, is at most ... None: each is a request of its own.
  std::optional<uint64_t> max_gap_bytes = 4 * kKiB;
  // A read, a stat or a page of a listing that is later than almost all others is requested a
  // second time, over another connection, and at most a third time; see HedgeRules for what that
  // may cost.
  bool hedge = true;
  OnChange on_change = OnChange::kError;
  ContentEncoding content_encoding = ContentEncoding::kStored;
  Verify verify = Verify::kCrcs;
  bool compose_small_objects = false;  // where the store can compose; it writes to the bucket
  ComposeOptions compose = {};
  GetBatchOptions get_batch = {};
  WriteLimits write_limits = {};
  std::string user_agent_suffix = {};  // appended to "headrace/<version>"
  // Where in the bucket temporary objects are written. "": at its root.
  std::string temporary_prefix = {};
};

struct EngineOptions {
  uint32_t io_threads = 0;    // 0: min(4, cores)
  uint32_t file_threads = 4;  // for file://, started when first needed
  uint64_t memory_budget_bytes = 1 * kGiB;
  LogLevel log_level = LogLevel::kWarning;
  Log::Sink on_log = {};  // called on engine threads; must not block
};

// What a listing reports about each object.
enum class ListFields : uint8_t {
  kAll,
  kReading,  // what reading needs: name, size, generation, CRC32C; a third of the bytes
};

struct ListRequest {
  std::string prefix = {};
  std::string delimiter = {};  // "" : all names; "/" : one level
  std::string page_token = {};
  std::string start_offset = {};  // names >= this
  std::string end_offset = {};    // names < this; "" : to the end
  uint32_t max_results = 0;       // 0: as many as the store puts on a page
  ListFields fields = ListFields::kAll;
};

// A condition on the object that a write, delete, copy or compose replaces.
struct Precondition {
  // nullopt: none. "": nothing may be there (create only). Else: exactly this generation.
  std::optional<std::string> generation = {};
  // What is done where the service refuses conditions. One that the caller set never falls away.
  enum class IfRefused : uint8_t {
    kFail,
    kLookFirst,  // a look at the object takes its place
    kLeaveOut,
  };
  IfRefused if_refused = IfRefused::kFail;
};

// The type of an object for which the caller names none ("").
inline std::string content_type_or_default(const std::string& content_type) {
  return content_type.empty() ? "application/octet-stream" : content_type;
}

struct WriteRequest {
  std::string name = {};
  std::string content_type = {};  // see content_type_or_default()
  std::string content_encoding = {};
  Precondition precondition = {};
  // If it is cancelled after the request has been sent whole, how long to wait for its answer: the
  // object will exist, and the answer says what must be removed.
  std::chrono::milliseconds linger{0};
};

// How the parts of a large object get to the store. Files have only one way.
enum class UploadMethod : uint8_t {
  kDefault,    // the provider's
  kParts,      // as objects of their own, which the store composes
  kMultipart,  // as one multipart upload, to a temporary object where completing takes no
               // conditions
  kResumable,  // one after the other through one session, without temporary objects
};

constexpr std::string_view to_string(UploadMethod method) {
  switch (method) {
    case UploadMethod::kDefault: return "default";
    case UploadMethod::kParts: return "parts";
    case UploadMethod::kMultipart: return "multipart";
    case UploadMethod::kResumable: return "resumable";
  }
  return "";
}

// Options of an object that is written as a stream.
struct WriterOptions {
  WriteRequest object = {};
  UploadMethod method = UploadMethod::kDefault;
  // Of one part, which is sent by one request. 0: chosen by PartSizes, so that the object fits.
  uint64_t part_bytes = 0;
  // How large the object will be, if that is known. It may turn out to be smaller, or larger.
  std::optional<uint64_t> expected_size_bytes = {};
  uint32_t max_parts_in_flight = 8;
};

struct CopyRequest {
  std::string source_name = {};
  std::string source_generation = {};  // "": the live one
  std::string name = {};
  Precondition precondition = {};
};

// One request that a URL is to allow.
struct UrlRequest {
  std::string name = {};
  std::string method = "GET";
  std::chrono::seconds valid_for{3600};
};

// One source of a compose, in the generation that was listed or written.
struct ComposeSource {
  std::string name = {};
  std::string generation = {};
  uint64_t size_bytes = 0;
  Crc32c crc32c = {};
};

struct ComposeRequest {
  std::vector<ComposeSource> sources = {};  // in order
  std::string name = {};
  std::string content_type = {};  // see content_type_or_default()
  std::string content_encoding = {};
  Precondition precondition = {};
  // For callers who have an alternative: an answer that says "later" (429, 5xx) is the result,
  // without retries. Requests that get no answer are retried as usual.
  bool give_up_when_busy = false;
  std::chrono::milliseconds linger{0};  // as for a write
};

}  // namespace headrace
