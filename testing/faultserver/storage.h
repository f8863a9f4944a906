// Buckets and objects in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "body.h"
#include "http.h"
#include "json.h"
#include "synthetic.h"

namespace faultserver {

// What only S3 keeps of an object.
struct S3Facts {
  std::string etag{};                // Without quotes; empty: made from the generation.
  std::string checksum_algorithm{};  // "CRC32", ...; empty: none.
  std::string checksum{};            // In base64; of a composite with "-N" behind it.
  bool is_composite = false;         // A checksum of the parts' checksums.
  struct Part {
    uint64_t size_bytes = 0;
    std::string checksum{};
  };
  std::vector<Part> parts{};  // Of a multipart upload.
  bool tells_parts = false;   // The upload named its algorithm: the sums of parts are told.
  bool is_delete_marker = false;
  std::string encryption{}, kms_key_id{}, customer_key_md5{};
  std::string expires{};
};

// What only AIStore keeps of an object.
struct AisFacts {
  int64_t version = 0;
  std::string checksum_type{}, checksum{};  // In hexadecimal; empty: none.
  size_t node = 0;                          // The target that has it; 0: the one it belongs to...
  uint64_t placement = 0;                   // ... also after a later rebalance.
  bool is_cold = false;                     // Still at the cloud only.
};

struct Object {
  std::string name{};
  Body body{};
  int64_t generation = 0;
  int64_t metageneration = 1;
  int64_t created_us = 0, updated_us = 0;
  bool is_made = false;         // Of a synthetic bucket.
  uint32_t crc = 0;             // CRC32C, of made objects and those of GCS.
  std::string md5{};            // 16 raw bytes; empty where GCS has none.
  int64_t component_count = 0;  // 0 unless composed.
  std::string content_type{}, content_encoding{}, content_disposition{}, content_language{};
  std::string cache_control{}, custom_time{};
  std::string storage_class = "STANDARD";
  std::vector<std::pair<std::string, std::string>> metadata{};
  S3Facts s3{};
  AisFacts ais{};
};
using ObjectPtr = std::shared_ptr<const Object>;

// Members that describe an object, named as in the JSON API of GCS: contentType, metadata, ...
void read_metadata(const Json& json, Object& draft);

// `ifGenerationMatch` and its relatives, from the query or the XML API's headers.
struct Preconditions {
  std::optional<int64_t> generation_match, generation_not_match;
  std::optional<int64_t> metageneration_match, metageneration_not_match;

  static Preconditions from(const Request& request);
  // 0 when `current` (null: no such object) passes; else 412, or 304 for a read.
  int check(const Object* current, bool is_read) const;
};

struct MultipartUpload {  // Of the XML API, and of S3.
  struct Part {
    Body body{};
    uint32_t crc = 0;   // GCS.
    std::string sum{};  // S3: of the upload's algorithm; raw bytes.
    std::string etag{};
    int64_t updated_us = 0;
  };
  Object draft{};
  std::map<int64_t, Part> parts{};
  int64_t started_us = 0;
};

// What only buckets of S3 have: where they live, who may use them, and what their server lacks.
struct S3Bucket {
  // Refused is by 501, or by 400.
  enum class Support { kYes, kIgnored, kRefused, kRefused400 };
  // Of the checksums, also: one of the whole by CRC-64/NVME alone, or those of the parts alone.
  enum class Sums { kAll, kIgnored, kRefused, kRefused400, kCrc64Only, kCompositeOnly };
  enum class ListFault { kNone, kRepeatsPage, kRepeatsToken, kUnordered };

  std::string region{};       // Empty: any is fine in a signature.
  std::string redirect_to{};  // The one "host:port" at which it is served; empty: everywhere.
  int redirect_status = 301;
  bool is_public = false;               // Anonymous requests are fine.
  std::set<std::string> access_keys{};  // Empty: every key of the server.
  Support conditional_writes = Support::kYes;
  Support conditional_deletes = Support::kYes;
  Sums sums = Sums::kAll;
  bool has_copy_sums = true;  // False: a copy is left without a checksum.
  bool has_encoding_type = true;
  std::string default_checksum = "CRC64NVME";  // Of objects that come without one; empty: none.
  ListFault list_fault = ListFault::kNone;
  bool completes_again = false;                  // An upload that is complete can be completed.
  std::map<std::string, ObjectPtr> completed{};  // By the id of the upload.
  uint64_t version_id_bytes = 32;
  std::map<std::string, int> refused_headers{};  // In lower case; the status of each.
  bool equal_parts = false;  // All parts of an upload but the last have one size.
  bool deletes_many = true;
  std::string parent_conflict{};  // The code of the 409 for a name below an object; empty: fine.
  Response::Ends ends = Response::Ends::kNot;  // Connections, after each answer.
  double idle_close_s = 0;            // Connections without a request for so long; 0: the server's.
  bool has_reasons = true;            // In status lines.
  bool has_stray_ranges = false;      // Content-Range also where no range was asked for.
  std::set<std::string> xml_forms{};  // short_root, no_namespace, prefix, cdata.

  bool has_checksums() const {
    return sums == Sums::kAll || sums == Sums::kCrc64Only || sums == Sums::kCompositeOnly;
  }
};

// What only buckets of AIStore have.
struct AisBucket {
  enum class ListFault { kNone, kDropsPage, kEndsEarly, kRepeatsToken };

  std::string unique_prefix{};  // Of unique names: "ais/@#/bucket/"; empty: not made yet.
  std::string checksum_type = "xxhash";
  ListFault list_fault = ListFault::kNone;
  std::unordered_map<int64_t, std::string> made_sums{};  // Of made objects, by generation.
};

class Bucket {
 public:
  explicit Bucket(std::string name);

  // The live object, or the one of just that generation when `generation` is given.
  ObjectPtr find(std::string_view name, std::optional<int64_t> generation = std::nullopt);
  void put(ObjectPtr object);
  bool erase(std::string_view name);
  bool empty() const;

  // Versions by name and generation, without the live ones.
  using Versions = std::map<std::pair<std::string, int64_t>, ObjectPtr>;
  const Versions& noncurrent() const { return noncurrent_; }
  void put_noncurrent(ObjectPtr object);
  // Removes one version for good; the newest of those left becomes the live one, unless it is a
  // delete marker.
  void erase_version(std::string_view name, int64_t generation);
  ObjectPtr newest_noncurrent(std::string_view name) const;

  // Walks the names in order.
  class Cursor {
   public:
    explicit Cursor(Bucket& bucket) : bucket_(bucket) {}
    void seek(std::string_view name);
    bool valid() const { return valid_; }
    const std::string& name() const { return name_; }
    ObjectPtr object() const;
    void advance();

   private:
    void choose();
    Bucket& bucket_;
    std::map<std::string, ObjectPtr, std::less<>>::const_iterator stored_;
    uint64_t rank_ = 0;
    std::string made_name_;  // Of `rank_`; only meaningful below the count.
    bool valid_ = false, at_made_ = false;
    std::string name_;
  };

  const std::string name;
  const int64_t created_us;
  bool requester_pays = false;
  bool versioning = false;
  int64_t list_delay_ms = 0;
  std::optional<uint64_t> max_page;          // Names on a page of a listing, at most.
  std::set<std::string> tokens;              // Empty: anonymous access is fine.
  std::set<std::string> denied_permissions;  // What testIamPermissions leaves out.
  std::unique_ptr<Synthetic> synthetic;
  std::map<std::string, MultipartUpload> multipart_uploads;
  S3Bucket s3;
  AisBucket ais;

 private:
  bool remove_live(std::string_view name);
  ObjectPtr made(uint64_t rank) const;

  std::map<std::string, ObjectPtr, std::less<>> stored_;
  Versions noncurrent_;
  std::set<uint64_t> hidden_;  // Ranks of made objects that were deleted or replaced.
};

struct ResumableSession {
  std::string bucket{};
  Object draft{};
  Preconditions preconditions{};
  std::string bytes{};
  ObjectPtr result{};  // When finished.
  bool cancelled = false;
  std::optional<uint32_t> expected_crc{};
  std::string expected_md5{};
};

// Thread: confined (the server's lock guards it).
class Storage {
 public:
  Bucket* find(std::string_view name);
  Bucket& create(const std::string& name);
  bool erase(std::string_view name);
  const std::map<std::string, std::unique_ptr<Bucket>, std::less<>>& buckets() const {
    return buckets_;
  }
  int64_t next_generation();
  // Gives `draft` its generation, times and sums, and makes it the live object.
  ObjectPtr commit(Bucket& bucket, Object draft, bool with_md5);
  void clear();

  std::map<std::string, ResumableSession> sessions;
  bool compute_md5 = true;
  uint64_t min_part_bytes = uint64_t{5} << 20;
  uint64_t max_parts = 10'000;    // S3: that an upload may have.
  S3Bucket new_s3{}, first_s3{};  // What new buckets are like; and after a reset.

 private:
  std::map<std::string, std::unique_ptr<Bucket>, std::less<>> buckets_;
  int64_t last_generation_ = 0;
};

}  // namespace faultserver
