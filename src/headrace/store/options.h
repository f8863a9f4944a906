// What a store's user can set. Defaults stand here once; Python reads them from here.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/log.h"
#include "headrace/base/units.h"
#include "headrace/format/crc32c.h"
#include "headrace/format/url.h"
#include "headrace/http/options.h"

namespace headrace {

class Credentials;

struct RetryOptions {
  uint32_t max_attempts = 10;                      // of one request, the first included
  std::chrono::milliseconds initial_backoff{100};  // upper end of the first wait (full jitter)
  std::chrono::milliseconds max_backoff{20'000};
  double backoff_multiplier = 2.0;
  // Retries per host that may be saved up; each costs one, each success earns a tenth. Keeps a
  // broken service from seeing a multiple of its load. Throttling has its own control and is not
  // charged.
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
  kStored,  // the stored bytes, verified against the stored CRC32C; sizes agree with the listing
  kDecompress,  // the same, then decompressed here
};

// Small objects of a batch are joined on the server, read as one, and split.
struct JoinOptions {
  uint64_t max_size_bytes = 16 * kMiB;     // of what is joined; it is read in one request up to
                                           // range_threshold_bytes
  uint32_t max_objects = 32;               // that are joined; the service takes no more
  uint32_t max_in_flight = 32;             // joined objects that exist at a time
  std::chrono::milliseconds pause{5'000};  // without joining, once the service was too busy for it
  // What an earlier process left behind is deleted when it is so old, by the process that joins
  // next. Younger ones may be in use.
  std::chrono::milliseconds sweep_age{3'600'000};
};

// What the service takes of large writes (https://cloud.google.com/storage/quotas): known here, so
// that what cannot work is refused before anything is sent. Other servers have other limits.
struct WriteLimits {
  uint64_t max_object_bytes = 5 * kTiB;
  uint64_t min_multipart_part_bytes = 5 * kMiB;  // but for the last part
  uint32_t max_multipart_parts = 10'000;
};

struct StoreOptions {
  std::string endpoint = {};  // "" : the service's own; also http://host:port of an emulator
  std::shared_ptr<Credentials> credentials = {};  // null: anonymous
  std::string user_project = {};                  // billed for requester-pays buckets
  RetryOptions retry = {};
  TimeoutOptions timeout = {};
  TlsOptions tls = {};
  ProxyOptions proxy = {};
  // Per host and process; each I/O thread has one request at least.
  uint32_t max_in_flight = 512;  // the adaptive limit stays below it
  uint32_t initial_in_flight = 64;
  uint64_t range_threshold_bytes = 16 * kMiB;  // larger objects are read by parallel ranges of ...
  uint64_t range_bytes = 8 * kMiB;
  OnChange on_change = OnChange::kError;
  ContentEncoding content_encoding = ContentEncoding::kStored;
  bool verify = true;               // CRC32C of whole objects, where the store tells one
  bool join_small_objects = false;  // where the store can compose; it writes to the bucket
  JoinOptions join = {};
  WriteLimits write_limits = {};
  std::string user_agent_suffix = {};  // appended to "headrace/<version>"
  // Inside the bucket: where objects are written that are deleted again. "": at its root.
  std::string temporary_prefix = {};
};

struct EngineOptions {
  uint32_t io_threads = 0;    // 0: min(4, cores)
  uint32_t file_threads = 4;  // for file://, started when first needed
  uint64_t memory_budget_bytes = 1 * kGiB;
  LogLevel log_level = LogLevel::kWarning;
  Log::Sink on_log = {};  // called on engine threads, which it must not hold up
};

// What a listing tells of each object.
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
  uint32_t max_results = 0;       // 0: as many as the store gives in one page
  ListFields fields = ListFields::kAll;
};

// A condition on the object that a write, delete, copy or compose replaces.
struct Precondition {
  // nullopt: none. "": nothing may be there (create only). Else: exactly this generation.
  std::optional<std::string> generation = {};
};

struct WriteRequest {
  std::string name = {};
  std::string content_type = {};  // "": application/octet-stream
  std::string content_encoding = {};
  Precondition precondition = {};
  // When it is cancelled: how long the answer is still waited for if all of the request is on its
  // way. The object will be there, and the answer tells what is to be removed.
  std::chrono::milliseconds linger{0};
};

// How the parts of a large object come to the store. Files know one way only.
enum class UploadMethod : uint8_t {
  kParts,      // as objects of their own, which the store joins
  kMultipart,  // as one multipart upload to a temporary object
  kResumable,  // one after the other through one session, without temporary objects
};

// How an object is written as a stream.
struct WriterOptions {
  WriteRequest object = {};
  UploadMethod method = UploadMethod::kParts;
  uint64_t part_bytes = 16 * kMiB;  // of one part, which is sent by one request
  uint32_t max_parts_in_flight = 8;
};

struct CopyRequest {
  std::string source_name = {};
  std::string source_generation = {};  // "": the live one
  std::string name = {};
  Precondition precondition = {};
};

// A part of what is composed, in the version that was listed or written.
struct ComposeSource {
  std::string name = {};
  std::string generation = {};
  uint64_t size_bytes = 0;
  Crc32c crc32c = {};
};

struct ComposeRequest {
  std::vector<ComposeSource> sources = {};  // in order
  std::string name = {};
  std::string content_type = {};  // "": application/octet-stream
  std::string content_encoding = {};
  Precondition precondition = {};
  // An answer that says "later" (429, 5xx) is the result, at once, for a caller who has another
  // way. What got no answer is tried again as ever.
  bool give_up_when_busy = false;
  std::chrono::milliseconds linger{0};  // as for a write
};

}  // namespace headrace
