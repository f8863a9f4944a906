// A large object, sent as many small ones that the server then composes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/store/writing/http_upload.h"

namespace headrace {

// Each part becomes an object of its own with a unique name. Every 32 neighbours are joined as soon
// as they exist. publish() joins the rest into the target on its condition; only this request has a
// visible effect. The request that makes an object checks its size and CRC32C.
//
// Thread: any. Owns the temporary objects.
class PartObjects final : public HttpUpload {
 public:
  PartObjects(std::shared_ptr<RemoteRoot> remote, WriteRequest target);

  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  void publish(const Whole& whole, Published done) override;

 private:
  // Has a unique name. The generation is "" while the object may or may not exist.
  struct Temporary {
    std::string name;
    std::string generation = {};
  };
  size_t add_temporary(std::string name) HEADRACE_REQUIRES(mutex_);
  void part_there(uint32_t part_number, size_t temporary, ComposeSource source);
  // Joins `sources`, and passes the result to `place`.
  void start_join(Sources sources, std::function<void(ComposeSource)> place);
  void join_done(size_t temporary, Result<ObjectInfo> info,
                 const std::function<void(ComposeSource)>& place);
  // Starts the next level of joins, or the last request.
  void advance();
  void begin_cleaning() override;
  void remove_next();
  void removed(Result<bool> result);

  const std::string prefix_;  // of all temporary names
  const size_t join_width_;

  std::vector<Temporary> temporaries_ HEADRACE_GUARDED_BY(mutex_);
  Sources parts_ HEADRACE_GUARDED_BY(mutex_);                     // by part number
  Sources joined_ HEADRACE_GUARDED_BY(mutex_);                    // by group of parts
  std::vector<size_t> group_counts_ HEADRACE_GUARDED_BY(mutex_);  // parts that exist
  size_t joins_in_flight_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> join_error_ HEADRACE_GUARDED_BY(mutex_);
  bool publishing_ HEADRACE_GUARDED_BY(mutex_) = false;
  Sources sources_ HEADRACE_GUARDED_BY(mutex_);  // what is to be joined next, in order
  size_t removing_ HEADRACE_GUARDED_BY(mutex_) = 0;
  size_t left_count_ HEADRACE_GUARDED_BY(mutex_) =
      0;  // temporary objects that could not be removed
  std::optional<Error> clean_error_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
