// The attempt of a request whose answer says no more than that it was carried out.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "headrace/store/appends.h"
#include "headrace/store/multipart_uploads.h"
#include "headrace/store/transfer/attempt.h"

namespace headrace {

// It may be repeated.
class PlainAttempt final : public TextAttempt {
 public:
  using Build = std::function<void(const Protocol&, HttpRequest&)>;
  enum class Ends { kNothing, kUpload, kSession };
  // `ends`: it ends an upload, of which nothing may be left, or such an upload's session.
  PlainAttempt(const Protocol& protocol, std::string name, Build build, Ends ends = Ends::kNothing)
      : TextAttempt(protocol), name_(std::move(name)), build_(std::move(build)), ends_(ends) {}
  void build(HttpRequest& request) override { build_(protocol(), request); }
  std::string url() const override { return protocol().url_of(name_); }
  Result<bool> result = true;  // false: there was no such upload any more

 private:
  static constexpr int kSessionCancelled = 499;  // as GCS answers, and explains
  bool accepts(int status) const override {
    return status / 100 == 2 || (ends_ == Ends::kSession && status == kSessionCancelled);
  }
  bool ignores_body() const override { return status() != kSessionCancelled; }
  Result<Verdict> finish() override { return Verdict::kDone; }
  Result<Verdict> refused(Error error) override {
    if (ends_ == Ends::kNothing || error.code() != Code::kNotFound)
      return std::unexpected(std::move(error));
    result = false;
    return Verdict::kDone;
  }

  const std::string name_;
  const Build build_;
  const Ends ends_;
};

inline PlainAttempt::Build abort_of_multipart(std::string name, std::string upload_id) {
  return [name = std::move(name), id = std::move(upload_id)](const Protocol& protocol,
                                                             HttpRequest& request) {
    protocol.multipart()->build_abort(request, name, id);
  };
}

// Whether an object that was found has to be told its type and encoding: where uploads do not tell
// them, it has none, or those of what it has replaced.
inline bool has_to_describe(const Protocol& protocol, const ObjectInfo& found,
                            const WriteRequest& like) {
  return protocol.describing() != nullptr && (found.content_type != like.content_type ||
                                              found.content_encoding != like.content_encoding);
}
inline PlainAttempt::Build description_of(std::string name, WriteRequest like) {
  return [name = std::move(name), like = std::move(like)](const Protocol& protocol,
                                                          HttpRequest& request) {
    protocol.describing()->build_describe(request, name, like);
  };
}

}  // namespace headrace
