// A large object, sent as one multipart upload.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/format/multipart_xml.h"
#include "headrace/store/writing/http_upload.h"

namespace headrace {

// The upload is started with its first part. Parts are sent as they come.
// Thread: any.
class MultipartUpload : public HttpUpload {
 public:
  Limits limits() const override;
  void send(std::shared_ptr<const UploadPart> part, Done done) override;

 protected:
  // The upload makes the object `at.name` of the store `uploader`.
  MultipartUpload(std::shared_ptr<HttpStore> store, std::shared_ptr<HttpStore> uploader,
                  WriteRequest target, WriteRequest at);

  // Makes an object of the parts, on condition `precondition`.
  void complete(const Whole& whole, Precondition precondition, Published done);
  void abort(std::string id, std::move_only_function<void(Result<bool>)> done);
  std::string id();

  const std::shared_ptr<HttpStore> uploader_;
  const WriteRequest at_;

 private:
  struct Waiting {
    std::shared_ptr<const UploadPart> part;
    Done done;
  };
  void started(Result<std::string> id);
  void send_now(const std::string& id, Waiting waiting);

  bool starting_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::string id_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Error> start_error_ HEADRACE_GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ HEADRACE_GUARDED_BY(mutex_);  // for the id
  std::vector<SentPart> sent_ HEADRACE_GUARDED_BY(mutex_);   // by part number
};

// Where completing takes conditions: the upload makes the object itself.
// Thread: any.
class DirectMultipartUpload final : public MultipartUpload {
 public:
  DirectMultipartUpload(std::shared_ptr<HttpStore> store, WriteRequest target);
  void publish(const Whole& whole, Published done) override;

 private:
  void begin_cleaning() override;
  bool completed_ HEADRACE_GUARDED_BY(mutex_) = false;
};

// Where completing takes no conditions: the upload makes a temporary object, which publish()
// composes into the target with a conditional request.
// Thread: any. Owns the temporary object.
class StagedMultipartUpload final : public MultipartUpload {
 public:
  StagedMultipartUpload(std::shared_ptr<HttpStore> store, WriteRequest target);
  void publish(const Whole& whole, Published done) override;

 private:
  void begin_cleaning() override;
  void step_cleaned(Result<bool> result);

  bool completing_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::string generation_ HEADRACE_GUARDED_BY(mutex_);  // of the temporary object, once it is there
  size_t cleaning_steps_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> clean_error_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
