// The attempts behind streams that grow piece by piece.
#pragma once

#include <memory>
#include <string>

#include "headrace/store/upload.h"
#include "headrace/store/writing/publish_attempt.h"

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
  bool ignores_body() const override { return true; }
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
  bool ignores_body() const override { return true; }
  const std::string name_, handle_;
};

// Whether an object that was found has to be told its type and encoding: where uploads do not tell
// them, it has none, or those of what it has replaced.
inline bool has_to_describe(const Protocol& protocol, const ObjectInfo& found,
                            const WriteRequest& like) {
  return protocol.describing() != nullptr && (found.content_type != like.content_type ||
                                              found.content_encoding != like.content_encoding);
}

// Tells what an object is. It may be repeated.
class DescribeAttempt final : public TextAttempt {
 public:
  DescribeAttempt(const Protocol& protocol, std::string name, WriteRequest like);
  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(name_); }
  Result<bool> result;

 private:
  Result<Verdict> finish() override;
  bool ignores_body() const override { return true; }
  const std::string name_;
  const WriteRequest like_;
};

}  // namespace headrace
