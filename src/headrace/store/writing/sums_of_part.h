// The sums of some bytes that are sent, of the kinds that a service turns out to take.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "headrace/base/block_pool.h"
#include "headrace/base/result.h"
#include "headrace/base/thread_pool.h"
#include "headrace/store/protocol.h"
#include "headrace/store/upload.h"
#include "headrace/store/upload_sums.h"

namespace headrace {

// The sums that one request sends with its bytes. Those of the present level are computed by the
// constructor, away from the I/O threads; others when an answer asks for them. Thread: confined.
class SumsOfPart {
 public:
  SumsOfPart(std::shared_ptr<const UploadPart> part, std::shared_ptr<SumLadder> ladder)
      : part_(std::move(part)), ladder_(std::move(ladder)), now_(ladder_->now()) {
    static_cast<void>(of(sum_kind(now_.level)));
    // What may be asked for later must not be read then, on an I/O thread.
    const bool may_change = !now_.known || now_.ignored;
    if (part_->source != nullptr && may_change) static_cast<void>(of(ChecksumKind::kMd5));
  }

  // Of no kind if that kind cannot be summed.
  Checksum of(ChecksumKind kind) const;
  // For the next request.
  SentSums next();
  // Has `request`, which was built with these sums and sends these bytes, read them while they are
  // sent: those of a file, by `readers`; and those in memory of others, where no answer would tell
  // that they have changed. It must not be sent if it is known that they have.
  void supervise(HttpRequest& request, const std::shared_ptr<ThreadPool>& readers,
                 BlockPool* pool) const;
  // The present one was refused because other bytes have arrived than were sent, or an answer has
  // contradicted them. Not if it is the bytes that have changed: then they cannot be sent again.
  bool arrived_spoilt() const { return spoilt_; }
  ChecksumKind kind() const { return sum_kind(now_.level); }

  // What an answer tells of the bytes, of the kinds that are compared: each of no kind if it tells
  // none.
  struct Told {
    Checksum sum = {};     // of this level
    Checksum crc32c = {};  // which is known on every level
    Checksum md5 = {};
  };
  Told told(const Protocol& protocol, const ResponseHead& head) const;
  // The request was accepted, and what the answer tells is right. False: nothing has proved the
  // bytes so far, and how they should be sent (again) is known now.
  // Errors: kCorrupt if they have changed meanwhile.
  Result<bool> accepted(const Told& told);
  // The same of bytes that are not sent again: the next ones have what proves them.
  Result<void> accepted_for_good(const Told& told);
  // Whether the service's ETags are known to be MD5s.
  bool has_md5_etags() const { return now_.etags == Etags::kMd5; }
  // Of an answer that was accepted: the sum that contradicts ours; of no kind: none does.
  Checksum contradiction(const Told& told);
  // The request was refused. True: it is to be sent again, perhaps with other sums. False: `error`
  // is the reason, the first one where several were refused.
  bool refused(Error& error, bool blames_taken);

 private:
  bool has_changed() const;
  void descend_to(const UploadSums& next);
  std::shared_ptr<const UploadPart> part_;
  std::shared_ptr<SumLadder> ladder_;
  UploadSums now_;             // of the present request
  bool is_own_ = false;        // and of no other request, before one on it was accepted
  bool was_compared_ = false;  // on a level that the service has taken before
  std::optional<Error> first_refusal_;
  bool was_repeated_ = false;  // with the same sums
  bool spoilt_ = false;
  mutable Checksum md5_, other_;  // once they were computed
  mutable bool changed_ = false;  // then other bytes were there than those that were given
};

}  // namespace headrace
