// The attempt behind streams that grow piece by piece.
#pragma once

#include <memory>
#include <string>

#include "headrace/store/transfer/attempt.h"
#include "headrace/store/upload.h"

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

}  // namespace headrace
