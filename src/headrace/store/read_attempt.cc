#include "headrace/store/read_attempt.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "headrace/format/http_range.h"
#include "headrace/store/slot_memory.h"

namespace headrace {
namespace {

// Where bytes go that nobody asked for: a server that ignores Range sends the whole object.
constexpr size_t kScratchBytes = 16 * 1024;

std::span<std::byte> scratch() {
  thread_local std::array<std::byte, kScratchBytes> bytes;
  return bytes;
}

}  // namespace

ReadAttempt::ReadAttempt(const Protocol& protocol, const ReadRules& rules, BlockPool& pool,
                         ReadSlot& slot, ReadPiece& piece)
    : Attempt(protocol), rules_(rules), pool_(pool), slot_(slot), piece_(piece) {}

std::string ReadAttempt::url() const { return protocol().url_of(piece_.batch->name(slot_)); }

std::optional<ByteRange> ReadAttempt::asked_range() const {
  if (without_range_) return std::nullopt;
  const uint64_t begin = piece_.range.begin + piece_.received_bytes;
  if (piece_.range.end != kUnknownSize) {
    if (begin == 0 && piece_.range.end == slot_.object_bytes) return std::nullopt;
    // No range of HTTP is empty: a byte that goes nowhere tells whether the object is there.
    if (piece_.range.size_bytes() == 0) return ByteRange{begin, begin + 1};
    if (piece_.range.end == begin) return std::nullopt;  // all came, and yet the body broke off
    return ByteRange{begin, piece_.range.end};
  }
  // The size is not known: one request brings a small object whole, and of a large one the first
  // part together with its size.
  return ByteRange{begin, piece_.range.begin + rules_.range_threshold_bytes};
}

void ReadAttempt::build(HttpRequest& request) {
  const std::string_view generation = slot_.found_generation.empty()
                                          ? piece_.batch->generation(slot_)
                                          : slot_.found_generation.view();
  protocol().build_read(request, piece_.batch->name(slot_), generation, asked_range());
}

ReadPiece* ReadAttempt::split(const ReadRules& rules, ReadSlot& slot, ReadPiece& lead,
                              uint64_t lead_bytes) {
  lead.range.end = std::min(slot.range.end, slot.range.begin + lead_bytes);
  const uint64_t rest_bytes = slot.range.end - lead.range.end;
  if (rest_bytes == 0) return nullptr;
  const auto count =
      static_cast<uint32_t>((rest_bytes + rules.range_bytes - 1) / rules.range_bytes);
  slot.more_pieces = std::make_unique<ReadPiece[]>(count);
  slot.piece_count = 1 + count;
  slot.pieces_left.store(slot.piece_count, std::memory_order_relaxed);
  uint64_t begin = lead.range.end;
  for (uint32_t i = 0; i < count; ++i) {
    ReadPiece& piece = slot.more_pieces[i];
    piece.batch = lead.batch;
    piece.store = lead.store;
    piece.slot_index = lead.slot_index;
    piece.range = {begin, std::min(slot.range.end, begin + rules.range_bytes)};
    begin = piece.range.end;
    piece.next = i + 1 < count ? &slot.more_pieces[i + 1] : nullptr;
  }
  return &slot.more_pieces[0];
}

// The object's size is certain now, from a response.
Result<void> ReadAttempt::take_size(uint64_t object_bytes) {
  if (slot_.object_bytes != kUnknownSize) {
    if (slot_.object_bytes == object_bytes) return {};
    return fail(Code::kPreconditionFailed, "has changed since it was listed: ", slot_.object_bytes,
                " bytes then, ", object_bytes, " bytes now");
  }
  slot_.object_bytes = object_bytes;
  if (slot_.range.begin > object_bytes) {
    return invalid_argument("the range begins at ", slot_.range.begin, ", beyond the object's ",
                            object_bytes, " bytes");
  }
  slot_.range.end = std::min(slot_.range.end, object_bytes);
  return {};
}

Result<void> ReadAttempt::fit_memory() {
  const uint64_t wanted = slot_.range.size_bytes();
  if (slot_.has_into) {
    if (slot_.into.size() == wanted) return {};
    return invalid_argument("the destination holds ", slot_.into.size(), " bytes, the read gives ",
                            wanted);
  }
  return make_room(pool_, slot_, wanted, piece_.batch->waited_for());
}

Result<void> ReadAttempt::begin_body(const ResponseHead& head) {
  const ReadFacts facts = protocol().read_facts(head);
  length_unknown_ = false;
  skip_bytes_ = 0;
  received_before_ = piece_.received_bytes;

  if (facts.decompressed_by_server) {
    if (rules_.content_encoding == ContentEncoding::kStored) {
      return corrupt(
          "the server decompressed it on the way, so what came is not what is stored "
          "and cannot be checked");
    }
    if (slot_.has_into || !slot_.whole || slot_.piece_count > 1) {
      return invalid_argument(
          "the server decompressed it on the way: it can be read only whole, in "
          "one request, and into the engine's memory");
    }
    // Begin anew: what comes has neither the stored object's size nor its sum.
    give_memory_back(pool_, slot_);
    slot_.gzip = false;
    slot_.object_bytes = kUnknownSize;
    slot_.expected.reset();
    slot_.range = slot_.asked;
    piece_.received_bytes = 0;
    piece_.crc32c = {};
    length_unknown_ = true;
    growing_filled_ = 0;
    return {};
  }
  if (lead()) slot_.gzip = facts.stored_gzip;

  if (!facts.generation.empty()) {
    if (slot_.found_generation.empty()) {
      slot_.found_generation.assign(facts.generation);
    } else if (slot_.found_generation.view() != facts.generation) {
      return fail(Code::kPreconditionFailed, "has changed while it was read: generation ",
                  slot_.found_generation.view(), " became ", facts.generation);
    }
  }
  if (lead() && slot_.whole && !slot_.expected) slot_.expected = facts.crc32c;

  // Where the body begins within the object, and how large the object is.
  ByteRange sent{0, kUnknownSize};
  std::optional<uint64_t> total;
  if (head.status == 206) {
    const std::optional<std::string_view> value = head.find("content-range");
    if (!value) return fail(Code::kUnavailable, "a partial answer without Content-Range");
    const Result<ContentRange> range = parse_content_range(*value);
    if (!range) return std::unexpected(range.error());
    sent = range->range;
    total = range->total_bytes;
  } else {
    total = head.content_length;
    sent.end = head.content_length.value_or(kUnknownSize);
  }
  if (total) {
    // A length that even the server's own statement of the object's size contradicts is a
    // defective answer; otherwise it is another object than the one that was listed.
    if (facts.stored_bytes && *facts.stored_bytes != *total) {
      return corrupt("the answer announces ", *total, " bytes of an object of ",
                     *facts.stored_bytes);
    }
    if (Result<void> taken = take_size(*total); !taken) return taken;
  }
  const uint64_t position = piece_.range.begin + piece_.received_bytes;
  if (sent.begin > position) {
    return fail(Code::kUnavailable, "the answer begins at byte ", sent.begin, " instead of ",
                position);
  }
  skip_bytes_ = position - sent.begin;
  if (slot_.object_bytes == kUnknownSize) {
    if (position != 0 || sent.begin != 0 || slot_.range.end != kUnknownSize) {
      return fail(Code::kUnavailable, "a partial answer that does not tell the object's size");
    }
    length_unknown_ = true;
    growing_filled_ = 0;
    return {};
  }
  if (Result<void> fitted = fit_memory(); !fitted) return fitted;
  if (piece_.range.end == kUnknownSize) {
    ReadPiece* more =
        split(rules_, slot_, piece_, std::min(sent.end, slot_.range.end) - slot_.range.begin);
    if (more != nullptr) on_split(more);
  } else {
    piece_.range.end = std::min(piece_.range.end, slot_.range.end);
  }
  return {};
}

Result<std::span<std::byte>> ReadAttempt::body_space(uint64_t) {
  if (length_unknown_) {
    if (growing_filled_ == growing_.size()) {
      if (growing_.size() * 2 > pool_.budget_bytes()) {
        return fail(Code::kExhausted, "an answer of unknown length exceeds the memory budget of ",
                    pool_.budget_bytes(), " bytes");
      }
      growing_.resize(std::max<size_t>(64 * 1024, growing_.size() * 2));
    }
    return std::span(growing_).subspan(growing_filled_);
  }
  const uint64_t left = piece_.range.size_bytes() - piece_.received_bytes;
  if (skip_bytes_ > 0) {
    return scratch().first(static_cast<size_t>(std::min<uint64_t>(skip_bytes_, kScratchBytes)));
  }
  if (left == 0) return scratch();
  const uint64_t offset = piece_.range.begin - slot_.range.begin + piece_.received_bytes;
  space_ = slot_.into.subspan(static_cast<size_t>(offset), static_cast<size_t>(left));
  return space_;
}

Result<void> ReadAttempt::took_body(size_t count) {
  if (length_unknown_) {
    growing_filled_ += count;
  } else if (skip_bytes_ > 0) {
    skip_bytes_ -= count;
  } else if (piece_.received_bytes < piece_.range.size_bytes()) {
    // While it is in cache, as far as it is.
    if (slot_.is_summed()) piece_.crc32c = piece_.crc32c.extended(space_.first(count));
    piece_.received_bytes += count;
  }
  return {};
}

Result<Attempt::Verdict> ReadAttempt::finish() {
  if (length_unknown_) {
    slot_.object_bytes = kUnknownSize;
    if (Result<void> taken = take_size(growing_filled_); !taken) {
      return std::unexpected(std::move(taken.error()));
    }
    piece_.range = slot_.range;
    if (Result<void> fitted = fit_memory(); !fitted) {
      return std::unexpected(std::move(fitted.error()));
    }
    const std::span<const std::byte> bytes = std::span(growing_).subspan(
        static_cast<size_t>(slot_.range.begin), static_cast<size_t>(slot_.range.size_bytes()));
    if (!bytes.empty()) std::memcpy(slot_.into.data(), bytes.data(), bytes.size());
    piece_.crc32c = Crc32c().extended(bytes);
    piece_.received_bytes = bytes.size();
    return Verdict::kDone;
  }
  if (piece_.received_bytes == piece_.range.size_bytes()) return Verdict::kDone;
  if (piece_.received_bytes == received_before_) {
    return fail(Code::kUnavailable, "an empty answer where ",
                piece_.range.size_bytes() - piece_.received_bytes, " bytes are missing");
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
    // "bytes */SIZE": a range that begins at the end is empty, not wrong.
    if (unsatisfied_size_ == piece_.range.begin + piece_.received_bytes && lead()) {
      if (Result<void> taken = take_size(*unsatisfied_size_); !taken) {
        return std::unexpected(std::move(taken.error()));
      }
      if (Result<void> fitted = fit_memory(); !fitted) {
        return std::unexpected(std::move(fitted.error()));
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
    return std::unexpected(
        Error(Code::kPreconditionFailed,
              listed ? cat("has changed since it was listed (generation ",
                           piece_.batch->generation(slot_), " is no longer the live one)")
                     : cat("has changed while it was read (generation ",
                           slot_.found_generation.view(), " is no longer the live one)"))
            .with_http_status(error.http_status())
            .with_request_id(error.request_id()));
  }
  return std::unexpected(std::move(error));
}

}  // namespace headrace
