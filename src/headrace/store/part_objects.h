// A large object, sent as many small ones that the server then joins.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/pending.h"
#include "headrace/store/options.h"
#include "headrace/store/upload.h"

namespace headrace {

class HttpStore;

// Everything below is temporary: parts of objects that are being written, or what a killed process
// left of them. `headrace-uploads/<32 hex digits>/...`
inline constexpr std::string_view kUploadsPrefix = "headrace-uploads/";

// Each part becomes an object of its own under a name that nobody else has. Every 32 neighbours are
// joined as soon as they are there; publish() joins what is left, onto the target, on its
// condition: the only request that anybody sees something of. Each object's size and CRC32C are
// checked by the request that makes it. An object of one part is written directly. Thread: any.
// Owns the temporary objects; borrows nothing.
class PartObjects final : public Upload, public std::enable_shared_from_this<PartObjects> {
 public:
  PartObjects(std::shared_ptr<HttpStore> store, WriteRequest target);

  void send(std::shared_ptr<const UploadPart> part, Done done) override;
  void publish(const Whole& whole, Published done) override;
  void publish_single(std::shared_ptr<const UploadPart> part, Published done) override;
  void cancel() override;
  void clean(Done done) override;

 private:
  // Under a name of ours; "" is the generation of what may be there, or may come to be.
  struct Temporary {
    std::string name;
    std::string generation = {};
  };
  // What is to be joined next, in order. A place without a generation waits for its object.
  using Sources = std::vector<ComposeSource>;

  // Runs `then` with the result; until then cancel() reaches the request.
  template <class T>
  void track(std::shared_ptr<Pending<T>> pending, std::move_only_function<void(Result<T>)> then);
  size_t add_temporary(std::string name) HEADRACE_REQUIRES(mutex_);
  void part_there(uint32_t part_number, size_t temporary, ComposeSource source);
  // Joins `sources`; the result goes to `place` in parts_ or sources_.
  void start_join(Sources sources, std::function<void(ComposeSource)> place);
  void join_done(size_t temporary, Result<ObjectInfo> info,
                 const std::function<void(ComposeSource)>& place);
  // The next level, or the last request.
  void advance();
  void publish_joined(Sources sources);
  // The server says that it has stored something else; it is asked once more what it has.
  void look_again(Error error);
  void finish(Result<ObjectInfo> result);
  void begin_cleaning();
  void remove_next();
  void removed(Result<bool> result);
  Error in_part(uint32_t part_number, Error error) const;
  Error with_url(Error error) const;

  const std::shared_ptr<HttpStore> store_;
  const WriteRequest target_;
  const std::string url_;
  const std::string prefix_;  // of all temporary names
  const size_t join_width_;

  Mutex mutex_;
  bool cancelled_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::map<const void*, std::function<void()>> running_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Temporary> temporaries_ HEADRACE_GUARDED_BY(mutex_);
  Sources parts_ HEADRACE_GUARDED_BY(mutex_);                     // by part number
  Sources joined_ HEADRACE_GUARDED_BY(mutex_);                    // by group of parts
  std::vector<size_t> group_counts_ HEADRACE_GUARDED_BY(mutex_);  // parts that are there
  size_t joins_in_flight_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::optional<Error> join_error_ HEADRACE_GUARDED_BY(mutex_);
  Whole whole_ HEADRACE_GUARDED_BY(mutex_);
  Sources sources_ HEADRACE_GUARDED_BY(mutex_);
  Published publish_done_ HEADRACE_GUARDED_BY(mutex_);
  Done clean_done_ HEADRACE_GUARDED_BY(mutex_);
  size_t removing_ HEADRACE_GUARDED_BY(mutex_) = 0;
  size_t left_count_ HEADRACE_GUARDED_BY(mutex_) = 0;  // could not be removed
  std::optional<Error> clean_error_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
