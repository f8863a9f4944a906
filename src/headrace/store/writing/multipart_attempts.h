// The attempts behind multipart uploads (format/multipart_xml).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/thread_pool.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/store/copies.h"
#include "headrace/store/transfer/operation.h"
#include "headrace/store/upload.h"
#include "headrace/store/writing/publish_attempt.h"
#include "headrace/store/writing/sums_of_part.h"

namespace headrace {

// A repeated request may start a second upload, which has no parts, costs nothing, and is never
// seen. If it is cancelled in flight, its answer is still awaited: without the id nobody could
// abort the upload.
class StartMultipartAttempt final : public TextAttempt {
 public:
  // With `copied`, parts will be copied from an object that has this metadata; then no sums are
  // sent.
  StartMultipartAttempt(const Protocol& protocol, WriteRequest request,
                        std::shared_ptr<SumLadder> sums, std::optional<ObjectMetadata> copied = {});
  std::chrono::milliseconds linger_when_stopped() const override {
    return std::chrono::milliseconds(1000);
  }
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(request_.name); }
  Result<std::string> result;  // the upload's id

 private:
  Result<Verdict> finish() override;
  Result<Verdict> refused(Error error) override;
  SumLevel level() const { return now_.ignored.value_or(now_.level); }
  const WriteRequest request_;
  const std::shared_ptr<SumLadder> ladder_;
  UploadSums now_;  // of the present request
  std::optional<Error> first_refusal_;
  const std::optional<ObjectMetadata> copied_;
};

// A part that is sent again replaces the earlier one. The first one of an upload finds out what
// sums the service takes, unless that is known.
class SendPartAttempt final : public TextAttempt {
 public:
  SendPartAttempt(const Protocol& protocol, std::string name, std::string upload_id,
                  std::shared_ptr<const UploadPart> part, SumsOfPart sums,
                  std::shared_ptr<ThreadPool> readers);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  bool arrived_spoilt() const override { return sums_.arrived_spoilt(); }
  Result<SentPart> result;

 private:
  Result<Verdict> finish() override;
  Result<Verdict> refused(Error error) override;
  bool ignores_body() const override { return true; }

  const std::string name_, upload_id_;
  const std::shared_ptr<const UploadPart> part_;
  const std::shared_ptr<ThreadPool> readers_;
  SumsOfPart sums_;
};

// What is to be copied in parts.
class CopySourceAttempt final : public TextAttempt {
 public:
  CopySourceAttempt(const Protocol& protocol, std::string name);
  void build(HttpRequest& request) override { protocol().build_stat(request, name_); }
  std::string url() const override { return protocol().url_of(name_); }
  Result<CopySource> result;

 private:
  Result<Verdict> finish() override;
  const std::string name_;
};

// Copies one part; one that is copied again replaces the earlier one.
class CopyPartAttempt final : public TextAttempt {
 public:
  // `part` names the range and its number.
  CopyPartAttempt(const Protocol& protocol, CopyRequest request, std::string upload_id,
                  std::shared_ptr<const UploadPart> part);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(request_.name); }
  Result<SentPart> result;

 private:
  Result<Verdict> finish() override;
  Result<Verdict> refused(Error error) override;

  const CopyRequest request_;
  const std::string upload_id_;
  const std::shared_ptr<const UploadPart> part_;
};

// The sums that the object must have, of those that are known.
struct WholeSums {
  std::optional<Crc32c> crc32c = {};  // none: the parts were copied by the server
  Checksum xxh64 = {};                // for servers that have summed the whole in this way
  Checksum crc64nvme = {};            // the same
  Checksum sent = {};                 // the one that goes along; of no kind: none
  bool always_told = false;           // that no sum is told of the object is an error
};

// Makes the object from its parts. If the answer is lost, a stat tells what became of it: by the
// sum of the object, or else by the ETag that S3 makes of those of the parts. What the service
// tells no sum of is good if it has the size: of its parts, each was taken on its own.
class CompleteMultipartAttempt final : public PublishAttempt {
 public:
  CompleteMultipartAttempt(const Protocol& protocol, std::string name, std::string upload_id,
                           std::vector<SentPart> parts, uint64_t size_bytes, WholeSums sums,
                           Precondition precondition, WriteConditions& conditions);
  std::chrono::milliseconds linger_when_stopped() const override {
    return std::chrono::milliseconds(1000);
  }

 private:
  void build_change(HttpRequest& request, const Precondition& precondition) override;
  // The result has no type and no encoding if nobody had to look at the object.
  Result<Verdict> finish_change() override;
  Match compare(const ObjectInfo& found) const override;
  bool is_good(Match match) const override;
  // Some services keep to the conditions of single writes only.
  bool looks_at_target() const override {
    return protocol().looks_before_writes() || protocol().condition_proof() != nullptr;
  }
  std::optional<Error> wrong_result(const ObjectInfo& found) const override;
  std::optional<ObjectInfo> made_object(const ObjectInfo& found) const override;
  // That of ours with which this one can be compared.
  Checksum sum_like(const Checksum& told) const;
  // Of the parts, as the service has told them.
  std::vector<Checksum> part_sums() const;
  // kUnknown: there is nothing to compare it with.
  Match compare_told(const StoredChecksum& told) const;
  // Whether it is the sum of these, which some services do not say.
  bool is_composite(const Checksum& told) const;
  // Ends with the object that the answer describes.
  Verdict end_with_sum(std::string generation, Checksum sum);

  const std::string name_, upload_id_;
  const std::vector<SentPart> parts_;
  const uint64_t size_bytes_;
  const WholeSums sums_;
  std::string made_generation_;  // that the answer names
  bool contradicted_ = false;    // the answer has another sum than ours
  std::string scratch_;
};

class ListMultipartAttempt final : public TextAttempt {
 public:
  ListMultipartAttempt(const Protocol& protocol, std::string prefix, std::string after_name,
                       std::string after_upload_id);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(prefix_); }
  Result<UploadsPage> result;

 private:
  Result<Verdict> finish() override;
  const std::string prefix_, after_name_, after_upload_id_;
};

}  // namespace headrace
