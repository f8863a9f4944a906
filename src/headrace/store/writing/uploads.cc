#include "headrace/store/writing/uploads.h"

#include <utility>

#include "headrace/store/multipart_uploads.h"
#include "headrace/store/writing/append_upload.h"
#include "headrace/store/writing/multipart_upload.h"
#include "headrace/store/writing/part_objects.h"
#include "headrace/store/writing/probed_upload.h"
#include "headrace/store/writing/resumable_upload.h"

namespace headrace {
namespace {

std::shared_ptr<Upload> multipart_upload(const std::shared_ptr<RemoteRoot>& remote,
                                         WriteRequest target) {
  const Protocol& protocol = remote->protocol();
  if (protocol.appends() != nullptr) {
    const Learned::Treatment known =
        remote->learned().multipart.at(std::chrono::steady_clock::now());
    if (known == Learned::Treatment::kRefused) {
      return std::make_shared<AppendUpload>(remote, std::move(target),
                                            Change::next_thread(*remote));
    }
    if (known == Learned::Treatment::kUnknown) {
      return std::make_shared<ProbedUpload>(remote, target);
    }
  }
  if (protocol.multipart()->is_conditional()) {
    return std::make_shared<DirectMultipartUpload>(remote, std::move(target),
                                                   Change::next_thread(*remote));
  }
  return std::make_shared<StagedMultipartUpload>(remote, std::move(target));
}

}  // namespace

Result<std::shared_ptr<Upload>> new_upload(const std::shared_ptr<RemoteRoot>& remote,
                                           UploadMethod method, WriteRequest target) {
  const Protocol& protocol = remote->protocol();
  if (method == UploadMethod::kDefault) method = protocol.default_upload_method();
  switch (method) {
    case UploadMethod::kDefault: break;
    case UploadMethod::kParts:
      if (protocol.composing() == nullptr) break;
      return std::make_shared<PartObjects>(remote, std::move(target));
    case UploadMethod::kMultipart:
      if (protocol.multipart() == nullptr) break;
      return multipart_upload(remote, std::move(target));
    case UploadMethod::kResumable:
      if (protocol.resumable() == nullptr) break;
      return std::make_shared<ResumableUpload>(remote, std::move(target));
  }
  return invalid_argument("this store has no uploads of the method '", to_string(method), "'");
}

}  // namespace headrace
