// A large object, sent as many small ones that the server then composes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/store/writing/http_upload.h"

namespace headrace {

// Each part becomes an object of its own with a unique name. Every 32 neighbours are composed as
// soon as they exist. The last step composes the rest into the target on its condition; only this
// request has a visible effect. The request that makes an object checks its size and CRC32C.
//
// Thread: as HttpUpload. Owns the temporary objects.
class PartObjects final : public HttpUpload {
 public:
  PartObjects(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target);

  awaitable<Result<void>> send_part(Outgoing outgoing) override;
  awaitable<Result<ObjectInfo>> publish_parts(Whole whole) override;
  awaitable<Result<void>> remove_rest() override;

 private:
  // Has a unique name. The generation is "" while the object may or may not exist.
  struct Temporary {
    std::string name;
    std::string generation = {};
  };
  size_t add_temporary(std::string name);
  void take_part(size_t index, ComposeSource source);
  // Composes `sources` into `into[index]`, which outlives that.
  void start_compose(Sources sources, Sources& into, size_t index);
  awaitable<Result<void>> compose(Sources sources, Sources& into, size_t index);
  // The parts, or what they have been composed into so far.
  Sources composed_so_far() const;
  awaitable<Result<void>> remove_some();

  const std::string prefix_;  // of all temporary names
  const size_t compose_width_;

  std::vector<Temporary> temporaries_;
  Sources parts_;                     // by part number
  Sources composed_;                  // by group of parts
  Sources level_;                     // by group of composed ones, in the last step
  std::vector<size_t> group_counts_;  // parts that exist
  size_t composes_in_flight_ = 0;
  std::optional<Error> compose_error_;
  size_t removers_ = 0;
  size_t left_count_ = 0;  // temporary objects that could not be removed
  std::optional<Error> clean_error_;
};

}  // namespace headrace
