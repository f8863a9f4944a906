// A large object, sent as one stream of pieces that follow each other.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "headrace/format/xxh64.h"
#include "headrace/store/writing/http_upload.h"

namespace headrace {

// Writes a temporary object, one part after another, compares it with what was sent, and renames
// it. A part whose answer was lost cannot be repeated: the object has to be written again.
// Thread: as HttpUpload. Owns the temporary object.
class AppendUpload final : public HttpUpload {
 public:
  AppendUpload(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target, IoThread& thread);

  awaitable<Result<void>> send_part(Outgoing outgoing) override;
  awaitable<Result<ObjectInfo>> publish_parts(Whole whole) override;
  awaitable<Result<void>> remove_rest() override;

 private:
  // Once the map of the cluster is known, or is known not to come.
  awaitable<Result<void>> choose_name();
  // Ends the stream.
  std::shared_ptr<Pending<bool>> flush();
  // Compares what the flush has made.
  Result<void> check(const ObjectInfo& temporary, const Whole& whole) const;
  awaitable<Result<ObjectInfo>> rename(ObjectInfo temporary, Whole whole);
  std::string full_target() const;

  // A full name, at the host that the object will have: there it is renamed without being copied.
  std::string temporary_;
  std::string handle_;
  std::optional<Error> error_;
  Xxh64 sum_;  // of what was sent
  bool flushed_ = false, renamed_ = false;
};

}  // namespace headrace
