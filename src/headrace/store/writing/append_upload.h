// A large object, sent as one stream of pieces that follow each other.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "headrace/format/xxh64.h"
#include "headrace/store/writing/http_upload.h"

namespace headrace {

// Writes a temporary object, one part after another, compares it with what was sent, and renames
// it. A part whose answer was lost cannot be repeated: the object has to be written again.
// Thread: any. Owns the temporary object.
class AppendUpload final : public HttpUpload {
 public:
  AppendUpload(std::shared_ptr<RemoteRoot> remote, WriteRequest target);

  // In any order; they are sent in theirs.
  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  void publish(const Whole& whole, Published done) override;

 private:
  struct Waiting {
    std::shared_ptr<const UploadPart> part;
    Done done;
  };
  // If nothing is in progress, sends the next part.
  void advance();
  // Once the map of the cluster is known, or is known not to come.
  void choose_name(Result<bool> known);
  void appended(uint32_t part_number, Done done, Result<std::string> handle);
  // Looks at what the flush has made, or, if its answer was lost, may have made.
  void look_at_temporary(std::optional<Error> flush_error);
  void check(const ObjectInfo& temporary);
  void rename(ObjectInfo temporary);
  void begin_cleaning() override;
  std::string temporary();
  std::string full_target() const;

  bool busy_ HEADRACE_GUARDED_BY(mutex_) = false;
  uint32_t next_part_ HEADRACE_GUARDED_BY(mutex_) = 1;
  std::map<uint32_t, Waiting> waiting_ HEADRACE_GUARDED_BY(mutex_);
  bool named_ HEADRACE_GUARDED_BY(mutex_) = false;
  // A full name, at the host that the object will have: there it is renamed without being copied.
  std::string temporary_ HEADRACE_GUARDED_BY(mutex_);
  std::string handle_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);
  Xxh64 sum_ HEADRACE_GUARDED_BY(mutex_);  // of what was sent
  bool flushed_ HEADRACE_GUARDED_BY(mutex_) = false, renamed_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
