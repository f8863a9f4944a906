#include "route.h"

namespace faultserver {

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kList: return "list";
    case Kind::kListVersions: return "list_versions";
    case Kind::kGet: return "get";
    case Kind::kMedia: return "media";
    case Kind::kUpload: return "upload";
    case Kind::kResumableStart: return "resumable_start";
    case Kind::kResumablePut: return "resumable_put";
    case Kind::kResumableQuery: return "resumable_query";
    case Kind::kResumableCancel: return "resumable_cancel";
    case Kind::kMultipartStart: return "multipart_start";
    case Kind::kMultipartPart: return "multipart_part";
    case Kind::kMultipartPartCopy: return "multipart_part_copy";
    case Kind::kMultipartComplete: return "multipart_complete";
    case Kind::kMultipartAbort: return "multipart_abort";
    case Kind::kMultipartList: return "multipart_list";
    case Kind::kCompose: return "compose";
    case Kind::kRewrite: return "rewrite";
    case Kind::kCopy: return "copy";
    case Kind::kDelete: return "delete";
    case Kind::kDeleteMany: return "delete_many";
    case Kind::kPatch: return "patch";
    case Kind::kBucketGet: return "bucket_get";
    case Kind::kBucketCreate: return "bucket_create";
    case Kind::kBucketPatch: return "bucket_patch";
    case Kind::kBucketDelete: return "bucket_delete";
    case Kind::kBucketList: return "bucket_list";
    case Kind::kIam: return "iam";
    case Kind::kSmap: return "smap";
    case Kind::kHealth: return "health";
    case Kind::kMoss: return "moss";
    case Kind::kRename: return "rename";
    case Kind::kAppend: return "append";
    case Kind::kConnect: return "connect";
    case Kind::kControl: return "control";
    case Kind::kOther: return "other";
  }
  return "other";
}

}  // namespace faultserver
