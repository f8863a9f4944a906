// What a request asks for, in words that all dialects share.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace faultserver {

// The kinds, and the names that they have in the fault rules and the log; README.md says which
// requests of each dialect they stand for. `kOther` is the last.
#define FAULTSERVER_KINDS(X)                   \
  X(kList, "list")                             \
  X(kListVersions, "list_versions")            \
  X(kGet, "get")                               \
  X(kMedia, "media")                           \
  X(kUpload, "upload")                         \
  X(kResumableStart, "resumable_start")        \
  X(kResumablePut, "resumable_put")            \
  X(kResumableQuery, "resumable_query")        \
  X(kResumableCancel, "resumable_cancel")      \
  X(kMultipartStart, "multipart_start")        \
  X(kMultipartPart, "multipart_part")          \
  X(kMultipartPartCopy, "multipart_part_copy") \
  X(kMultipartComplete, "multipart_complete")  \
  X(kMultipartAbort, "multipart_abort")        \
  X(kMultipartList, "multipart_list")          \
  X(kCompose, "compose")                       \
  X(kRewrite, "rewrite")                       \
  X(kCopy, "copy")                             \
  X(kDelete, "delete")                         \
  X(kDeleteMany, "delete_many")                \
  X(kPatch, "patch")                           \
  X(kBucketGet, "bucket_get")                  \
  X(kBucketCreate, "bucket_create")            \
  X(kBucketPatch, "bucket_patch")              \
  X(kBucketDelete, "bucket_delete")            \
  X(kBucketList, "bucket_list")                \
  X(kIam, "iam")                               \
  X(kSmap, "smap")                             \
  X(kHealth, "health")                         \
  X(kMoss, "moss")                             \
  X(kRename, "rename")                         \
  X(kAppend, "append")                         \
  X(kConnect, "connect")                       \
  X(kControl, "control")                       \
  X(kOther, "other")

enum class Kind {
#define FAULTSERVER_KIND(kind, name) kind,
  FAULTSERVER_KINDS(FAULTSERVER_KIND)
#undef FAULTSERVER_KIND
};
constexpr size_t kKindCount = static_cast<size_t>(Kind::kOther) + 1;
std::string_view kind_name(Kind kind);

struct Route {
  Kind kind = Kind::kOther;
  bool xml = false;                                        // GCS: the XML API.
  bool virtual_host = false;                               // S3: the bucket stands in the host.
  std::string bucket{}, object{};                          // Decoded.
  std::string prefix{};                                    // Of a listing, decoded.
  std::string destination_bucket{}, destination_object{};  // GCS: of rewrite and copy.
};

}  // namespace faultserver
