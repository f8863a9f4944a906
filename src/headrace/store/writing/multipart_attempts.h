// The attempts behind multipart uploads (format/multipart_xml).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/format/multipart_xml.h"
#include "headrace/store/transfer/operation.h"
#include "headrace/store/writing/publish_attempt.h"
#include "headrace/store/writing/upload.h"

namespace headrace {

// A repeated request may start a second upload, which has no parts, costs nothing, and is never
// seen. If it is cancelled in flight, its answer is still awaited: without the id nobody could
// abort the upload.
class StartMultipartAttempt final : public TextAttempt {
 public:
  StartMultipartAttempt(const Protocol& protocol, WriteRequest request);
  std::chrono::milliseconds linger_when_stopped() const override {
    return std::chrono::milliseconds(1000);
  }
  void build(HttpRequest& request) override {
    protocol().multipart()->build_start(request, request_);
  }
  std::string url() const override { return protocol().url_of(request_.name); }
  Result<std::string> result;  // the upload's id

 private:
  Result<Verdict> finish() override;
  const WriteRequest request_;
};

// A part that is sent again replaces the earlier one.
class SendPartAttempt final : public TextAttempt {
 public:
  SendPartAttempt(const Protocol& protocol, std::string name, std::string upload_id,
                  std::shared_ptr<const UploadPart> part);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  Result<SentPart> result;

 private:
  Result<Verdict> finish() override;

  const std::string name_, upload_id_;
  const std::shared_ptr<const UploadPart> part_;
};

// Makes the object from its parts. If the answer is lost, a stat tells what became of it.
class CompleteMultipartAttempt final : public PublishAttempt {
 public:
  CompleteMultipartAttempt(const Protocol& protocol, std::string name, std::string upload_id,
                           std::vector<SentPart> parts, Upload::Whole whole,
                           Precondition precondition);
  std::chrono::milliseconds linger_when_stopped() const override {
    return std::chrono::milliseconds(1000);
  }

 private:
  void build_change(HttpRequest& request, const Precondition& precondition) override;
  Result<Verdict> finish_change() override;
  Match compare(const ObjectInfo& found) const override;
  std::optional<Error> wrong_result(const ObjectInfo& found) const override;

  const std::string name_, upload_id_;
  const std::vector<SentPart> parts_;
  const Upload::Whole whole_;
  std::string scratch_;
};

class AbortMultipartAttempt final : public TextAttempt {
 public:
  AbortMultipartAttempt(const Protocol& protocol, std::string name, std::string upload_id);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  Result<bool> result;  // false: there was no such upload any more

 private:
  Result<Verdict> finish() override;
  Result<Verdict> refused(Error error) override;
  const std::string name_, upload_id_;
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
