// The attempts behind streams that grow piece by piece.
#pragma once

#include <memory>
#include <string>

#include "headrace/store/writing/publish_attempt.h"
#include "headrace/store/writing/upload.h"

namespace headrace {

// Adds a part to the object in the making. Once any byte of it was sent, it is not sent again:
// nobody knows whether the part is there.
class AppendAttempt final : public TextAttempt {
 public:
  AppendAttempt(const Protocol& protocol, std::string name, std::string handle,
                std::shared_ptr<const UploadPart> part);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  bool has_alternative() const override { return body_begun_; }
  Result<std::string> result;  // the handle for what follows

 private:
  Result<Verdict> finish() override;
  const std::string name_, handle_;
  const std::shared_ptr<const UploadPart> part_;
  bool body_begun_;  // by any attempt
};

// Ends the stream. It may be repeated: that it has ended, and once, is found out from the object.
class FlushAttempt final : public TextAttempt {
 public:
  FlushAttempt(const Protocol& protocol, std::string name, std::string handle);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  Result<bool> result;

 private:
  Result<Verdict> finish() override;
  const std::string name_, handle_;
};

// Tells what an object is. It may be repeated.
class DescribeAttempt final : public TextAttempt {
 public:
  DescribeAttempt(const Protocol& protocol, std::string name, WriteRequest like);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  Result<bool> result;

 private:
  Result<Verdict> finish() override;
  const std::string name_;
  const WriteRequest like_;
};

// What was written under a name of its own, and verified, becomes the object.
struct RenameRequest {
  std::string from = {}, name = {};
  Precondition precondition = {};
  uint64_t size_bytes = 0;
  Checksum checksum = {};  // of a kind that the server tells
};

class RenameAttempt final : public PublishAttempt {
 public:
  RenameAttempt(const Protocol& protocol, RenameRequest request);

 private:
  void build_change(HttpRequest& request, const Precondition& precondition) override;
  Result<Verdict> finish_change() override { return look_at_result(); }
  bool looks_at_target() const override { return protocol().looks_before_writes(); }
  Match compare(const ObjectInfo& found) const override;
  bool is_good(Match match) const override { return match != Match::kOther; }
  std::optional<Error> wrong_result(const ObjectInfo& found) const override;

  const RenameRequest request_;
};

}  // namespace headrace
