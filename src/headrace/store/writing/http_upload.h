// What all methods of uploading a large object over HTTP share: the last request, and the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/pending.h"
#include "headrace/store/options.h"
#include "headrace/store/transfer/remote_root.h"
#include "headrace/store/upload.h"
#include "headrace/store/writing/change.h"
#include "headrace/store/writing/sums_of_part.h"

namespace headrace {

// An object of one part is written directly. Otherwise a subclass sends the parts to the server,
// and one conditional request makes the object visible.
// Thread: any for what Upload offers, and I/O, its own, for the steps.
class HttpUpload : public Upload, public Change {
 public:
  // A part, and what was summed of it where it comes from, away from the I/O threads.
  struct Outgoing {
    std::shared_ptr<const UploadPart> part;
    std::optional<SumsOfPart> sums = {};
  };

  Limits limits() const override;
  void send(std::shared_ptr<const UploadPart> part, Done done) final;
  void publish(const Whole& whole, Published done) final;
  void publish_single(std::shared_ptr<const UploadPart> part, Published done) override;
  void cancel() override { cancel_requests(); }
  void clean(Done done) final;

  // Called where send() is, for each part in turn.
  virtual Outgoing prepare(std::shared_ptr<const UploadPart> part) { return {std::move(part)}; }
  // The steps. Many parts are sent at a time; the last step begins once nothing is in progress, and
  // removes what is left, even if requests are cancelled.
  virtual awaitable<Result<void>> send_part(Outgoing outgoing) = 0;
  virtual awaitable<Result<ObjectInfo>> publish_parts(Whole whole) = 0;
  virtual awaitable<Result<void>> remove_rest() = 0;

 protected:
  using Sources = std::vector<ComposeSource>;

  HttpUpload(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target, IoThread& thread);

  // Composes the object from these sources, which have full names, on its condition.
  awaitable<Result<ObjectInfo>> publish_composed(Sources sources, Whole whole);
  // Waits for the request that makes the object visible.
  awaitable<Result<ObjectInfo>> publish_by(std::shared_ptr<Pending<ObjectInfo>> last, Whole whole);
  // Ends publishing with the result of that request.
  awaitable<Result<ObjectInfo>> published(Result<ObjectInfo> info, Whole whole);
  static Whole whole_of(const UploadPart& part);

  // For parts that follow each other: waits until those before this one have ended.
  // Errors: kCancelled, if requests are cancelled before.
  awaitable<Result<void>> wait_for_turn(uint32_t part_number);
  // Ends the turn of a part.
  class Turn {
   public:
    explicit Turn(HttpUpload& upload) : upload_(upload) {}
    ~Turn() {
      ++upload_.next_part_;
      upload_.wake();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    HttpUpload& upload_;
  };

  // A prefix of full names that nobody else uses.
  static std::string new_temporary_prefix(const RemoteRoot& remote);
  Error with_url(Error error) const;
  Error in_part(uint32_t part_number, Error error) const;

  // How long to wait for the answer to a cancelled request that the server will carry out anyway.
  static constexpr std::chrono::milliseconds kLinger{1000};

  // `remote_` is where the object will be.
  const std::shared_ptr<RemoteRoot> bucket_;  // the same by full names, for temporary objects
  const WriteRequest target_;

 private:
  awaitable<Result<void>> clean_up();

  uint32_t next_part_ = 1;
};

}  // namespace headrace
