#include "headrace/store/reading/read_attempt.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "headrace/format/http_range.h"

namespace headrace {
namespace {

// For bytes that nobody asked for: a server that ignores Range sends the whole object.
constexpr size_t kScratchBytes = 16 * 1024;

// An answer shorter than requested does not count as a failure if it brings at least this much.
constexpr uint64_t kLeastProgressBytes = 64 * 1024;

std::span<std::byte> scratch() {
  thread_local std::array<std::byte, kScratchBytes> bytes;
  return bytes;
}

// What a head says about its body: which bytes of the object it has, and the size of the object.
struct Announcement {
  ByteRange sent = {0, kUnknownSize};  // the end is unknown where a whole object's length is
  std::optional<uint64_t> object_bytes = {};
  bool partial = false;  // only `sent` comes; its end is known
};

// Errors: kUnavailable for a head that contradicts itself.
Result<Announcement> announcement(const ResponseHead& head, bool asked_for_range) {
  Announcement said;
  // Some servers answer 200 to a range. What was sent, Content-Range tells. Where no range was
  // asked for, it means nothing beside 200 (RFC 9110, 14.4), and some servers send it.
  std::optional<std::string_view> value = head.find("content-range");
  if (head.status != 206 && !asked_for_range) value.reset();
  if (!value && head.status != 206) {
    if (head.content_length == kUnknownSize) {
      return fail(Code::kUnavailable, "an answer of impossible length");
    }
    said.object_bytes = head.content_length;
    said.sent.end = head.content_length.value_or(kUnknownSize);
    return said;
  }
  if (!value) return fail(Code::kUnavailable, "a partial answer without Content-Range");
  const Result<ContentRange> range = parse_content_range(*value);
  if (!range) return std::unexpected(range.error());
  if (range->unsatisfied) return fail(Code::kUnavailable, "a partial answer of no range");
  // This also catches several ranges (multipart/byteranges) that pass for one.
  if (head.content_length && *head.content_length != range->range.size_bytes()) {
    return fail(Code::kUnavailable, "the answer's length is ", *head.content_length,
                " bytes, its range has ", range->range.size_bytes());
  }
  said.sent = range->range;
  said.object_bytes = range->total_bytes;
  said.partial = true;
  return said;
}

}  // namespace

ReadAttempt::ReadAttempt(const Protocol& protocol, const ReadRules& rules, BlockPool& pool,
                         ReadSlot& slot, ReadPiece& piece)
    : Attempt(protocol),
      rules_(rules),
      pool_(pool),
      slot_(slot),
      piece_(piece),
      asks_for_sum_(lead() && slot.object_bytes != kUnknownSize &&
                    slot.range.size_bytes() > rules.range_threshold_bytes &&
                    lacks_sum(protocol, rules, slot)) {}

// It has refused to be asked.
bool ReadAttempt::tells_sums(const Protocol& protocol, const ReadRules& rules) {
  return rules.learned == nullptr ||
         rules.learned->refused(protocol.headers_for_sums(), std::chrono::steady_clock::now()) == 0;
}

bool ReadAttempt::lacks_sum(const Protocol& protocol, const ReadRules& rules,
                            const ReadSlot& slot) {
  return rules.verify != Verify::kNone && !slot.is_range() && slot.expected.empty() &&
         protocol.sum_told_with_parts() == ChecksumKind::kNone && tells_sums(protocol, rules);
}

std::string ReadAttempt::url() const {
  const std::string url = protocol().url_of(piece_.batch->name(slot_));
  return !slot_.has_member() ? url : cat(url, "/", piece_.batch->member(slot_));
}

std::optional<ByteRange> ReadAttempt::asked_range() const {
  if (without_range_) return std::nullopt;
  if (in_one_request_ && piece_.range.end == kUnknownSize) {
    const bool all = slot_.range.begin == 0 && slot_.range.end >= slot_.object_bytes;
    return all ? std::nullopt : std::optional(slot_.range);
  }
  const uint64_t begin = piece_.range.begin + piece_.received_bytes;
  if (piece_.range.end != kUnknownSize) {
    if (begin == 0 && piece_.range.end == slot_.object_bytes) return std::nullopt;
    // HTTP ranges cannot be empty: request one byte, and drop it, to learn whether the object
    // exists.
    if (piece_.range.size_bytes() == 0) return ByteRange{begin, begin + 1};
    if (piece_.range.end == begin) return std::nullopt;  // all came, and yet the body broke off
    return ByteRange{begin, piece_.range.end};
  }
  // The size is not known: one request brings all of a small object, or the first part of a large
  // one together with its size.
  return ByteRange{begin, piece_.range.begin + rules_.range_threshold_bytes};
}

void ReadAttempt::build(HttpRequest& request) {
  if (!is_pinned()) {
    // The rest might come from another version of the object, so the read starts over.
    piece_.reset(slot_.running_kind);
  }
  received_before_ = piece_.received_bytes;
  knows_end_ = piece_.range.end != kUnknownSize;
  const std::string_view generation = slot_.found_generation.empty()
                                          ? piece_.batch->generation(slot_)
                                          : slot_.found_generation.view();
  if (asks_for_sum_) {
    protocol().build_stat(request, piece_.batch->name(slot_));
    return;
  }
  if (slot_.has_member()) {  // the answer is the whole member
    protocol().build_member_read(request, piece_.batch->name(slot_), piece_.batch->member(slot_));
    return;
  }
  std::optional<ByteRange> range = asked_range();
  asked_whole_ = range && range->begin == 0 && slot_.object_bytes == kUnknownSize &&
                 lacks_sum(protocol(), rules_, slot_);
  if (asked_whole_) range.reset();
  protocol().build_read(request, piece_.batch->name(slot_), generation, range);
}

// A response has told the object's size.
Result<void> ReadAttempt::take_size(uint64_t object_bytes) {
  if (slot_.object_bytes != kUnknownSize) {
    if (slot_.object_bytes == object_bytes) return {};
    const bool was_told = slot_.listed_bytes != kUnknownSize;
    if (was_told && slot_.generation.empty()) {
      return fail(Code::kPreconditionFailed, "has ", object_bytes, " bytes, and not the ",
                  slot_.object_bytes,
                  " that were expected: it has changed since it was listed, or ",
                  "was never so large (no generation of then is known that would tell)");
    }
    return fail(Code::kPreconditionFailed, "has changed ",
                was_told ? "since it was listed: " : "while it was read: ", slot_.object_bytes,
                " bytes then, ", object_bytes, " bytes now");
  }
  slot_.object_bytes = object_bytes;
  return slot_.limit_to(object_bytes);
}

// A response has told the sum of the whole object.
void ReadAttempt::take_sum(const Checksum& checksum) {
  // Once there are more pieces, others look at the kind.
  if (!lead() || slot_.is_range() || !slot_.expected.empty()) return;
  slot_.expected = checksum;
  if (slot_.piece_count == 1 && piece_.received_bytes == 0) slot_.choose_running_kind();
}

// For the bytes that are to come. If there is no room for them now, they are asked for once more.
Result<void> ReadAttempt::fit_memory() {
  if (Result<void> fits = slot_.check_destination(); !fits) return fits;
  const Result<Room> room =
      make_room(pool_, slot_, slot_.range.size_bytes(), piece_.batch->waited_for());
  if (!room) return std::unexpected(room.error());
  lacks_room_ = *room == Room::kNotNow;
  return lacks_room_ ? take_no_body(Verdict::kDone) : Result<void>();
}

// A body of unknown length begins. Whether all of it came shows from its end, the size that the
// server tells, or its sum.
Result<void> ReadAttempt::begin_growing(const ResponseHead& head, bool has_sum) {
  const bool ends_by_itself = head.chunked || head.content_length || rules_.end_is_told;
  if (!ends_by_itself && !stored_bytes_ && !has_sum) {
    return fail(Code::kUnavailable,
                "an answer that ends with its connection and tells neither size nor checksum");
  }
  length_unknown_ = true;
  growing_filled_ = 0;
  return {};
}

bool ReadAttempt::is_pinned() const {
  return !slot_.found_generation.empty() || !slot_.generation.empty();
}

Result<void> ReadAttempt::begin_body(const ResponseHead& head) {
  const ReadFacts facts = protocol().read_facts(head);
  if (!facts.foreign.empty() && !slot_.has_member()) {
    return fail(Code::kInvalidArgument, facts.foreign);
  }
  if (facts.sums_differ && rules_.verify != Verify::kNone) {
    return corrupt("the answer tells two different checksums of one kind");
  }
  length_unknown_ = false;
  skipped_ = false;
  skip_bytes_ = 0;
  if (Result<void> same = check_generation(facts.generation.view()); !same) return same;
  if (std::exchange(asks_for_sum_, false)) {
    take_sum(facts.checksum);
    skipped_ = true;
    return {};
  }

  if (facts.decompressed_by_server) {
    if (rules_.content_encoding == ContentEncoding::kStored) {
      return corrupt(
          "the server decompressed it on the way, so what came is not what is stored "
          "and cannot be checked");
    }
    if (slot_.into.is_callers() || slot_.is_range() || slot_.piece_count > 1) {
      return invalid_argument(
          "the server decompressed it on the way: it can be read only whole, in "
          "one request, and into the engine's memory");
    }
    // Start over: the body has neither the size nor the checksum of the stored object.
    give_memory_back(pool_, slot_);
    slot_.gzip = false;
    slot_.object_bytes = kUnknownSize;
    slot_.expected = {};
    slot_.range = piece_.range = slot_.asked_range();
    piece_.received_bytes = 0;
    slot_.choose_running_kind();
    stored_bytes_.reset();
    return begin_growing(head, false);
  }

  const Result<Announcement> said = announcement(head, asked_range().has_value());
  if (!said) return std::unexpected(said.error());
  const uint64_t position = piece_.range.begin + piece_.received_bytes;
  if (said->sent.begin > position) {
    return fail(Code::kUnavailable, "the answer begins at byte ", said->sent.begin, " instead of ",
                position);
  }
  if (said->partial && said->sent.end <= position && said->object_bytes != 0) {
    return fail(Code::kUnavailable, "the answer ends at byte ", said->sent.end, ", before byte ",
                position, ", from which on it was asked for");
  }
  // Malformed: either number may be the wrong one. Nothing of the body is taken.
  if (said->object_bytes && facts.stored_bytes && *facts.stored_bytes != *said->object_bytes) {
    return fail(Code::kUnavailable, "the answer announces ", *said->object_bytes,
                " bytes of an object of ", *facts.stored_bytes);
  }
  const uint64_t total_bytes = said->object_bytes.value_or(slot_.object_bytes);
  if (!is_pinned() && said->partial && total_bytes != kUnknownSize &&
      said->sent.end < std::min(slot_.range.end, total_bytes)) {
    // The rest might come from another version of the object.
    if (piece_.range.end != kUnknownSize || in_one_request_) {
      return fail(Code::kUnavailable, "the answer has only ", said->sent.size_bytes(),
                  " bytes and names no generation, so the rest cannot be pinned to the same one");
    }
    in_one_request_ = skipped_ = true;
    return {};
  }
  if (lead()) slot_.gzip = facts.stored_gzip;
  take_sum(facts.checksum);
  if (said->object_bytes) {
    // A size other than the listed one means another object.
    if (Result<void> taken = take_size(*said->object_bytes); !taken) return taken;
  }
  if (std::exchange(asked_whole_, false) && !said->partial && is_pinned() &&
      slot_.object_bytes != kUnknownSize &&
      slot_.range.size_bytes() > rules_.range_threshold_bytes) {
    // All of a large object would come by one request. With its size and sum known, it is read in
    // parts.
    return take_no_body(Verdict::kAgain);
  }
  if (slot_.object_bytes == kUnknownSize) {
    // Only the body of the whole object can tell the size, by its end.
    if (said->partial || position != 0 || slot_.range.end != kUnknownSize) {
      return fail(Code::kUnavailable, "an answer that does not tell the object's size");
    }
    stored_bytes_ = facts.stored_bytes;
    return begin_growing(head, !slot_.expected.empty());
  }
  if (said->partial && said->sent.end > slot_.object_bytes) {
    return fail(Code::kUnavailable, "the answer ends at byte ", said->sent.end, " of an object of ",
                slot_.object_bytes, " bytes");
  }
  skip_bytes_ = position - said->sent.begin;
  partial_ = said->partial;
  chunked_ = head.chunked;
  announced_bytes_ = partial_ ? said->sent.size_bytes() : slot_.object_bytes;
  if (Result<void> fitted = fit_memory(); !fitted) return fitted;
  if (piece_.range.end == kUnknownSize) {
    // Written before other threads get their pieces, since they compare it without a lock.
    if (slot_.found_generation.empty()) {
      slot_.found_generation.assign(piece_.batch->generation(slot_));
    }
    on_split(slot_.split(std::min(said->sent.end, slot_.range.end) - slot_.range.begin,
                         rules_.range_bytes));
  } else {
    piece_.range.end = std::min(piece_.range.end, slot_.range.end);
  }
  return {};
}

// Bytes of two versions must never mix: every answer must have the generation that was requested,
// whether or not the server checked the condition, or else that of the lead's answer.
Result<void> ReadAttempt::check_generation(std::string_view generation) {
  if (generation.empty()) return {};
  if (const std::string_view found = slot_.found_generation.view(); !found.empty()) {
    if (found == generation) return {};
    return fail(Code::kPreconditionFailed, "has changed while it was read: generation ", found,
                " became ", generation);
  }
  if (const std::string_view asked = piece_.batch->generation(slot_);
      !asked.empty() && asked != generation) {
    return fail(Code::kPreconditionFailed, "has changed since it was listed: generation ", asked,
                " then, ", generation, " now");
  }
  // Other pieces run on other threads, which may only compare.
  if (!lead()) return {};
  slot_.found_generation.assign(generation);
  return {};
}

Result<std::span<std::byte>> ReadAttempt::body_space(uint64_t) {
  if (skipped_) return scratch();
  if (length_unknown_) {
    if (growing_filled_ == growing_.size()) {
      // The bytes are copied into place at the end.
      const size_t most = pool_.budget_bytes() / 2;
      const size_t wanted = std::min(most, std::max<size_t>(64 * 1024, growing_.size() * 2));
      if (wanted <= growing_.size()) {
        return fail(Code::kExhausted, "an answer of unknown length exceeds half of the memory ",
                    "budget of ", pool_.budget_bytes(), " bytes; raise memory_budget_bytes");
      }
      growing_charge_.reset();
      growing_flights_.emplace_back(pool_, wanted - growing_.size());
      growing_.resize(wanted);
      growing_charge_.emplace(pool_.shared_from_this(), wanted);
    }
    return std::span(growing_).subspan(growing_filled_);
  }
  if (skip_bytes_ > 0) {
    return scratch().first(static_cast<size_t>(std::min<uint64_t>(skip_bytes_, kScratchBytes)));
  }
  return piece_.received_bytes == piece_.range.size_bytes() ? scratch() : slot_.space(piece_);
}

Result<void> ReadAttempt::took_body(size_t count) {
  if (skipped_) return {};
  if (length_unknown_) {
    growing_filled_ += count;
    return {};
  }
  if (body_bytes() > announced_bytes_) {
    // If the whole object was sent, it has grown.
    if (!partial_) return take_size(body_bytes());
    return corrupt("the answer brings more than the ", announced_bytes_, " bytes of its range");
  }
  if (skip_bytes_ > 0) {
    skip_bytes_ -= count;
  } else if (piece_.received_bytes < piece_.range.size_bytes()) {
    slot_.took(piece_, count);
  }
  return {};
}

Result<Attempt::Verdict> ReadAttempt::finish() {
  if (skipped_) return Verdict::kAgain;
  if (length_unknown_) {
    if (stored_bytes_ && *stored_bytes_ != growing_filled_) {
      return fail(Code::kUnavailable, "the answer brought ", growing_filled_,
                  " bytes of an object of ", *stored_bytes_);
    }
    slot_.object_bytes = kUnknownSize;
    if (Result<void> taken = take_size(growing_filled_); !taken) {
      return std::unexpected(std::move(taken.error()));
    }
    piece_.range = slot_.range;
    Result<void> fitted = slot_.check_destination();
    if (fitted) fitted = make_room_for_arrived(pool_, slot_, slot_.range.size_bytes());
    if (!fitted) return std::unexpected(std::move(fitted.error()));
    const std::span<const std::byte> bytes = std::span(growing_).subspan(
        static_cast<size_t>(slot_.range.begin), static_cast<size_t>(slot_.range.size_bytes()));
    if (!bytes.empty()) std::memcpy(slot_.into.data(), bytes.data(), bytes.size());
    piece_.sum = RunningSum(slot_.running_kind);
    piece_.sum.extend(bytes);
    piece_.received_bytes = bytes.size();
    return Verdict::kDone;
  }
  if (body_bytes() < announced_bytes_ && chunked_) {  // it ended well, and yet too early
    if (partial_) {
      return corrupt("the answer brought ", body_bytes(), " of the ", announced_bytes_,
                     " bytes of its range");
    }
    return std::unexpected(take_size(body_bytes()).error());
  }
  if (piece_.received_bytes == piece_.range.size_bytes()) return Verdict::kDone;
  const uint64_t came_bytes = piece_.received_bytes - received_before_;
  if (came_bytes < kLeastProgressBytes || !is_pinned()) {
    // Counts as a failure: a server that sends a byte at a time must not be asked for ever.
    return fail(Code::kUnavailable, came_bytes == 0 ? "an empty answer" : "a short answer",
                " where ", piece_.range.size_bytes() - piece_.received_bytes, " bytes are missing");
  }
  return Verdict::kAgain;  // fewer bytes than asked for; the rest is another request's
}

void ReadAttempt::refusal_head(const ResponseHead& head) {
  unsatisfied_size_.reset();
  if (const std::optional<std::string_view> value = head.find("content-range")) {
    const Result<ContentRange> range = parse_content_range(*value);
    if (range && range->unsatisfied) unsatisfied_size_ = range->total_bytes;
  }
}

Result<Attempt::Verdict> ReadAttempt::refused(Error error) {
  if (error.http_status() == 416) {
    // "bytes */SIZE", or the body: a range that begins at the end is empty, not wrong.
    if (!unsatisfied_size_ && refusal() != nullptr) unsatisfied_size_ = refusal()->object_bytes;
    if (unsatisfied_size_ == piece_.range.begin + piece_.received_bytes && lead()) {
      if (Result<void> taken = take_size(*unsatisfied_size_); !taken) {
        return std::unexpected(std::move(taken.error()));
      }
      if (Result<void> fits = slot_.check_destination(); !fits) {
        return std::unexpected(std::move(fits.error()));
      }
      piece_.range = slot_.range;
      return Verdict::kDone;
    }
    const bool may_be_empty = lead() && slot_.object_bytes == kUnknownSize &&
                              piece_.range.begin == 0 && piece_.received_bytes == 0;
    if (may_be_empty && !without_range_) {
      without_range_ = true;
      return Verdict::kAgain;
    }
    if (piece_.received_bytes > 0) {
      return corrupt("it ends after ", piece_.range.begin + piece_.received_bytes,
                     " bytes, before the size that the server told");
    }
    return std::unexpected(
        Error(Code::kInvalidArgument,
              cat("the range begins at ", piece_.range.begin, ", beyond the object's end"))
            .with_http_status(416));
  }
  if (error.code() == Code::kPreconditionFailed) {
    const bool listed = !piece_.batch->generation(slot_).empty() && piece_.received_bytes == 0;
    return std::unexpected(std::move(error).with_message(
        listed ? cat("has changed since it was listed (generation ",
                     piece_.batch->generation(slot_), " is no longer the live one)")
               : cat("has changed while it was read (generation ", slot_.found_generation.view(),
                     " is no longer the live one)")));
  }
  return std::unexpected(std::move(error));
}

}  // namespace headrace
