// What a request asks for, in words that all dialects share.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace faultserver {

// The names (`kind_name`) are those of the fault rules and the log; README.md says which requests
// of each dialect they stand for.
enum class Kind {
  kList,
  kListVersions,
  kGet,  // Metadata.
  kMedia,
  kUpload,  // In one request.
  kResumableStart,
  kResumablePut,
  kResumableQuery,
  kResumableCancel,
  kMultipartStart,
  kMultipartPart,
  kMultipartPartCopy,
  kMultipartComplete,
  kMultipartAbort,
  kMultipartList,
  kCompose,
  kRewrite,
  kCopy,
  kDelete,
  kDeleteMany,
  kPatch,
  kBucketGet,
  kBucketCreate,
  kBucketPatch,
  kBucketDelete,
  kBucketList,
  kIam,
  kSmap,
  kHealth,
  kMoss,
  kRename,
  kAppend,
  kConnect,
  kControl,
  kOther,  // The last.
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
