// Which way of uploading a large object is taken.
#pragma once

#include <memory>

#include "headrace/store/transfer/remote_root.h"
#include "headrace/store/upload.h"

namespace headrace {

// By this method, or by the provider's usual one.
// Errors: kInvalidArgument if the provider has no such uploads.
Result<std::shared_ptr<Upload>> new_upload(const std::shared_ptr<RemoteRoot>& remote,
                                           UploadMethod method, WriteRequest target);

}  // namespace headrace
