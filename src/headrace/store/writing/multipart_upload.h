// A large object, sent as one multipart upload.
#pragma once

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
// Thread: as HttpUpload.
class MultipartUpload : public HttpUpload {
 public:
  Limits limits() const override;
  Outgoing prepare(std::shared_ptr<const UploadPart> part) override;
  awaitable<Result<void>> send_part(Outgoing outgoing) override;
  // Whether the server has started it.
  bool has_started() const { return !id_.empty(); }

 protected:
  // The upload makes the object `at.name` of the store `uploader`.
  MultipartUpload(const std::shared_ptr<RemoteRoot>& remote, std::shared_ptr<RemoteRoot> uploader,
                  WriteRequest target, WriteRequest at, IoThread& thread);

  // Makes an object of the parts, on condition `precondition`.
  awaitable<Result<ObjectInfo>> complete(uint64_t size_bytes, std::optional<Crc32c> crc32c,
                                         Precondition precondition);
  awaitable<Result<bool>> abort();
  const MultipartUploads& multipart() const { return *remote_->protocol().multipart(); }

  const std::shared_ptr<RemoteRoot> uploader_;
  const WriteRequest at_;
  std::shared_ptr<SumLadder> sums_;  // changes in constructors only
  const bool tells_xxh64_;           // the server sums objects so
  std::string id_;                   // once it has started

 private:
  // While the first part is sent. However that ends, by an exception too, others learn of it.
  class FirstPart {
   public:
    explicit FirstPart(MultipartUpload* upload) : upload_(upload) {}
    ~FirstPart() {
      if (upload_ != nullptr) upload_->first_part_ended();
    }
    FirstPart(const FirstPart&) = delete;
    FirstPart& operator=(const FirstPart&) = delete;

   private:
    MultipartUpload* upload_;
  };
  void first_part_ended();
  virtual std::shared_ptr<Pending<std::string>> request_start();
  virtual std::shared_ptr<Pending<SentPart>> request_part(Outgoing outgoing);
  // Whether all parts but the last must have one size, as far as it is known.
  bool has_equal_parts() const;
  WholeSums whole_sums(const std::optional<Crc32c>& crc32c) const;

  Xxh64 xxh64_;  // of the parts, in order: the sender adds to it, before the last step
  bool starting_ = false;
  bool trying_ = false;         // the first part is on its way alone
  std::optional<Error> error_;  // of the start, or of that part: nothing else is sent
  std::vector<SentPart> sent_;  // by part number
  std::vector<uint64_t> sizes_;
};

// Where completing takes conditions: the upload makes the object itself.
// Thread: as HttpUpload.
class DirectMultipartUpload : public MultipartUpload {
 public:
  DirectMultipartUpload(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target,
                        IoThread& thread);
  awaitable<Result<ObjectInfo>> publish_parts(Whole whole) override;
  awaitable<Result<void>> remove_rest() override;

 private:
  // The sum that the object must have, if it is known.
  virtual std::optional<Crc32c> sum_of(const Whole& whole) const { return whole.crc32c; }
  // The same error, or one that says what the next upload will do about it.
  Error learn_from_refusal(Error error);
  bool completed_ = false;
};

// A copy of an object: its parts are ranges, which the server copies, and have no bytes here.
// Thread: as HttpUpload.
class CopyUpload final : public DirectMultipartUpload {
 public:
  // `request` names the source in its generation, and the copy.
  CopyUpload(const std::shared_ptr<RemoteRoot>& remote, CopyRequest request,
             ObjectMetadata metadata);
  Outgoing prepare(std::shared_ptr<const UploadPart> part) override { return {std::move(part)}; }

 private:
  std::shared_ptr<Pending<std::string>> request_start() override;
  std::shared_ptr<Pending<SentPart>> request_part(Outgoing outgoing) override;
  std::optional<Crc32c> sum_of(const Whole&) const override { return std::nullopt; }

  const CopyRequest request_;
  const ObjectMetadata metadata_;
};

// Where completing takes no conditions: the upload makes a temporary object, which the last step
// composes into the target with a conditional request.
// Thread: as HttpUpload. Owns the temporary object.
class StagedMultipartUpload final : public MultipartUpload {
 public:
  StagedMultipartUpload(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target);
  awaitable<Result<ObjectInfo>> publish_parts(Whole whole) override;
  awaitable<Result<void>> remove_rest() override;

 private:
  bool completing_ = false;
  std::string generation_;  // of the temporary object, once it is there
};

}  // namespace headrace
