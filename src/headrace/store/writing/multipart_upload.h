// A large object, sent as one multipart upload.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/format/multipart_xml.h"
#include "headrace/format/xxh64.h"
#include "headrace/store/copies.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/protocol.h"
#include "headrace/store/writing/http_upload.h"
#include "headrace/store/writing/multipart_attempts.h"

namespace headrace {

// The upload is started with its first part. Parts are sent as they come, but for those that wait
// until the first one has shown which sums the service takes.
// Thread: any.
class MultipartUpload : public HttpUpload {
 public:
  Limits limits() const override;
  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  // Whether the server has started it.
  bool has_started() { return !id().empty(); }

 protected:
  // The upload makes the object `at.name` of the store `uploader`.
  MultipartUpload(std::shared_ptr<RemoteRoot> remote, std::shared_ptr<RemoteRoot> uploader,
                  WriteRequest target, WriteRequest at);

  // Makes an object of the parts, on condition `precondition`.
  void complete(uint64_t size_bytes, std::optional<Crc32c> crc32c, Precondition precondition,
                Published done);
  void abort(std::string id, std::move_only_function<void(Result<bool>)> done);
  std::string id();
  const MultipartUploads& multipart() const { return *remote_->protocol().multipart(); }

  const std::shared_ptr<RemoteRoot> uploader_;
  const WriteRequest at_;
  std::shared_ptr<SumLadder> sums_;  // changes in constructors only
  const bool tells_xxh64_;           // the server sums objects so

 private:
  struct Waiting {
    std::shared_ptr<const UploadPart> part;
    Done done;
  };
  virtual std::shared_ptr<Pending<std::string>> request_start();
  virtual std::shared_ptr<Pending<SentPart>> request_part(const std::string& id,
                                                          std::shared_ptr<const UploadPart> part);
  // Whether all parts but the last must have one size, as far as it is known.
  bool has_equal_parts() const;
  void started(Result<std::string> id);
  void send_now(const std::string& id, Waiting waiting);
  // The first part has come to its end: so do those that waited for it.
  void end_trial();
  WholeSums whole_sums(const std::optional<Crc32c>& crc32c);

  bool starting_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::string id_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Error> start_error_ HEADRACE_GUARDED_BY(mutex_);
  bool trying_ HEADRACE_GUARDED_BY(mutex_) = false;          // the first part is on its way alone
  std::deque<Waiting> waiting_ HEADRACE_GUARDED_BY(mutex_);  // for the id, or for the first part
  std::vector<uint64_t> sizes_ HEADRACE_GUARDED_BY(mutex_);  // by part number
  Xxh64 xxh64_ HEADRACE_GUARDED_BY(mutex_);                  // of what was sent, in order
  std::vector<SentPart> sent_ HEADRACE_GUARDED_BY(mutex_);   // by part number
};

// Where completing takes conditions: the upload makes the object itself.
// Thread: any.
class DirectMultipartUpload : public MultipartUpload {
 public:
  DirectMultipartUpload(std::shared_ptr<RemoteRoot> remote, WriteRequest target);
  void publish(const Whole& whole, Published done) override;

 private:
  // The sum that the object must have, if it is known.
  virtual std::optional<Crc32c> sum_of(const Whole& whole) const { return whole.crc32c; }
  void describe(ObjectInfo info);
  // The same error, or one that says what the next upload will do about it.
  Error learn_from_refusal(Error error);
  void begin_cleaning() override;
  bool completed_ HEADRACE_GUARDED_BY(mutex_) = false;
};

// A copy of an object: its parts are ranges, which the server copies, and have no bytes here.
// Thread: any.
class CopyUpload final : public DirectMultipartUpload {
 public:
  // `request` names the source in its generation, and the copy.
  CopyUpload(std::shared_ptr<RemoteRoot> remote, CopyRequest request, ObjectMetadata metadata);

 private:
  std::shared_ptr<Pending<std::string>> request_start() override;
  std::shared_ptr<Pending<SentPart>> request_part(const std::string& id,
                                                  std::shared_ptr<const UploadPart> part) override;
  std::optional<Crc32c> sum_of(const Whole&) const override { return std::nullopt; }

  const CopyRequest request_;
  const ObjectMetadata metadata_;
};

// Where completing takes no conditions: the upload makes a temporary object, which publish()
// composes into the target with a conditional request.
// Thread: any. Owns the temporary object.
class StagedMultipartUpload final : public MultipartUpload {
 public:
  StagedMultipartUpload(std::shared_ptr<RemoteRoot> remote, WriteRequest target);
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
