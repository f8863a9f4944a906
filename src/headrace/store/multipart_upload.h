// A large object, sent as a multipart upload to a temporary name and composed from there.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/format/multipart_xml.h"
#include "headrace/store/http_upload.h"

namespace headrace {

// Google Cloud Storage has no conditions for multipart uploads
// (https://cloud.google.com/storage/docs/multipart-uploads), so the upload makes a temporary
// object, which publish() composes into the target with a conditional request.
//
// Thread: any.
class MultipartUpload final : public HttpUpload {
 public:
  MultipartUpload(std::shared_ptr<HttpStore> store, WriteRequest target);

  Limits limits() const override;
  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  void publish(const Whole& whole, Published done) override;

 private:
  struct Waiting {
    std::shared_ptr<const UploadPart> part;
    Done done;
  };
  void started(Result<std::string> id);
  void send_now(const std::string& id, Waiting waiting);
  void begin_cleaning() override;
  void step_cleaned(Result<bool> result);

  const std::string name_;  // of the temporary object

  bool starting_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::string id_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Error> start_error_ HEADRACE_GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ HEADRACE_GUARDED_BY(mutex_);  // for the id
  std::vector<SentPart> sent_ HEADRACE_GUARDED_BY(mutex_);   // by part number
  bool completing_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::string generation_ HEADRACE_GUARDED_BY(mutex_);  // of the temporary object, once it is there
  size_t cleaning_steps_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> clean_error_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
