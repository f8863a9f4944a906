// Reading one piece of an object: where its bytes go, and whether they are correct.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/block_pool.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/slot_memory.h"
#include "headrace/store/transfer/attempt.h"
#include "headrace/store/transfer/learned_of_bucket.h"
#include "headrace/store/transfer/operation.h"

namespace headrace {

struct ReadRules {
  uint64_t range_threshold_bytes = 0;
  uint64_t range_bytes = 0;
  ContentEncoding content_encoding = ContentEncoding::kStored;
  Verify verify = Verify::kCrcs;
  // A body that ends with its connection is known to be whole (TLS ends with a close notification).
  bool end_is_told = false;
  // Of the bucket; null: nothing.
  std::shared_ptr<const LearnedOfBucket> learned = nullptr;
};

// Goes through all attempts at one piece. After a broken body the next attempt requests the missing
// bytes, pinned to the generation of the first ones. The first piece of a slot (its lead) learns
// the size and the generation, makes the memory, and splits a large range into more pieces. Where
// neither the caller nor the server names a generation, the object could change unnoticed between
// two requests. Such a read takes one request, and starts over if that breaks off.
// Thread: I/O. Borrows slot and piece.
class ReadAttempt final : public Attempt {
 public:
  ReadAttempt(const Protocol& protocol, const ReadRules& rules, BlockPool& pool, ReadSlot& slot,
              ReadPiece& piece);

  void build(HttpRequest& request) override;
  std::string url() const override;
  std::chrono::steady_clock::time_point queued() const override {
    const bool is_first = lead() && slot_.restarts == 0;
    return is_first ? piece_.batch->handed_over : std::chrono::steady_clock::time_point();
  }
  std::optional<ExpectedAnswer> hedgeable() const override {
    return asks_for_sum_ ? ExpectedAnswer{.kind = AnswerKind::kStat}
                         : ExpectedAnswer::of_bytes(asked_bytes());
  }
  bool resumes() const override {
    return is_pinned() && !in_one_request_ && !length_unknown_ && !skipped_;
  }
  // Ended well, and yet nothing has come: an answer told a size for which there is no room now. The
  // piece, whose size is known from now on, has to wait for it.
  bool lacks_room() const { return lacks_room_; }
  // A listing or an earlier answer has told of it.
  bool is_known_to_exist() const override {
    return is_pinned() || slot_.listed_bytes != kUnknownSize;
  }

  // Called with the pieces that were split off, once the head of the lead's answer has told the
  // size. There may be none.
  std::function<void(PieceList)> on_split;

  // Whether the sum of a whole object is not known, and its parts would not tell it, but another
  // answer would.
  static bool lacks_sum(const Protocol& protocol, const ReadRules& rules, const ReadSlot& slot);

 protected:
  bool accepts(int status) const override { return status == 200 || status == 206; }
  Result<void> begin_body(const ResponseHead& head) override;
  Result<std::span<std::byte>> body_space(uint64_t outstanding_bytes) override;
  Result<void> took_body(size_t count) override;
  Result<Verdict> finish() override;
  void refusal_head(const ResponseHead& head) override;
  Result<Verdict> refused(Error error) override;

 private:
  static bool tells_sums(const Protocol& protocol, const ReadRules& rules);
  bool lead() const { return &piece_ == &slot_.first_piece; }
  // Whether the next request can be limited to one generation.
  bool is_pinned() const;
  Result<void> check_generation(std::string_view generation);
  Result<void> take_size(uint64_t object_bytes);
  void take_sum(const Checksum& checksum);
  Result<void> fit_memory();
  Result<void> begin_growing(const ResponseHead& head, bool has_sum);
  std::optional<ByteRange> asked_range() const;
  // By the present request.
  uint64_t asked_bytes() const {
    return knows_end_ ? piece_.range.size_bytes() - received_before_ : kUnknownSize;
  }

  const ReadRules& rules_;
  BlockPool& pool_;
  ReadSlot& slot_;
  ReadPiece& piece_;
  bool asks_for_sum_;                         // by a stat, before the object is read in parts
  bool knows_end_ = false;                    // of the piece, when the request was built
  bool asked_whole_ = false;                  // though its size is not known, so that its sum comes
  bool without_range_ = false;                // an empty object cannot be asked for by range
  std::optional<uint64_t> unsatisfied_size_;  // of the object, as a 416 tells it
  bool in_one_request_ = false;               // since nobody names a generation
  bool lacks_room_ = false;
  bool skipped_ = false;  // the present body is read, and thrown away
  bool length_unknown_ =
      false;  // only the end of the body tells its length (chunked); it goes to `growing_`
  // Of the present answer, where the object's size is known:
  bool partial_ = false;                  // a range (206), not the whole object
  bool chunked_ = false;                  // the body itself tells where it ends
  uint64_t announced_bytes_ = 0;          // of its body
  uint64_t received_before_ = 0;          // of the piece, by earlier attempts
  uint64_t skip_bytes_ = 0;               // of a body that begins before the requested range
  std::optional<uint64_t> stored_bytes_;  // as the server tells, for a body of unknown length
  std::vector<std::byte> growing_;
  std::vector<Flight> growing_flights_;
  std::optional<Charge> growing_charge_;
  size_t growing_filled_ = 0;
};

}  // namespace headrace
