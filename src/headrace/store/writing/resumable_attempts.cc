#include "headrace/store/writing/resumable_attempts.h"
#include "headrace/store/resumable_uploads.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

// The bytes [begin, end) of the object that lie in `part`.
std::vector<std::span<const std::byte>> cut(const UploadPart& part, uint64_t begin, uint64_t end) {
  std::vector<std::span<const std::byte>> spans;
  uint64_t at = part.offset_bytes;
  for (const std::span<const std::byte> span : part.spans) {
    const uint64_t from = std::clamp(begin, at, at + span.size());
    const uint64_t to = std::clamp(end, at, at + span.size());
    if (from < to) spans.push_back(span.subspan(from - at, to - from));
    at += span.size();
  }
  return spans;
}

}  // namespace

StartResumableAttempt::StartResumableAttempt(const Protocol& protocol, WriteRequest request)
    : TextAttempt(protocol), request_(std::move(request)) {}

void StartResumableAttempt::build(HttpRequest& request) {
  protocol().resumable()->build_start(request, request_, scratch_);
}

Result<void> StartResumableAttempt::begin_body(const ResponseHead& head) {
  session_ = protocol().resumable()->session(head);
  return TextAttempt::begin_body(head);
}

Result<Attempt::Verdict> StartResumableAttempt::finish() {
  if (session_.empty()) return corrupt("the answer to the start of an upload names no session");
  result = session_;
  return Verdict::kDone;
}

SendStreamAttempt::SendStreamAttempt(const Protocol& protocol, StreamRange range)
    : TextAttempt(protocol), range_(std::move(range)), from_(range_.begin) {}

void SendStreamAttempt::build(HttpRequest& request) {
  std::vector<std::span<const std::byte>> spans;
  if (!ask_ && range_.part) spans = cut(*range_.part, from_, range_.end);
  protocol().resumable()->build_put(
      request,
      {.session = range_.session,
       .range = ask_ ? std::nullopt : std::optional(ByteRange{from_, range_.end}),
       .object_bytes = range_.whole ? std::optional(range_.whole->size_bytes) : std::nullopt,
       .crc32c = range_.whole ? std::optional(range_.whole->crc32c) : std::nullopt,
       .bytes = spans});
}

Result<void> SendStreamAttempt::begin_body(const ResponseHead& head) {
  complete_ = head.status != 308;
  kept_bytes_ = complete_ ? 0 : protocol().resumable()->received_bytes(head);
  return TextAttempt::begin_body(head);
}

Result<Attempt::Verdict> SendStreamAttempt::finish() {
  if (complete_) {
    if (!range_.whole) return corrupt("the upload ended before all of it was sent");
    Result<ObjectInfo> made = below_root(
        protocol().parse_written(response(), {.name = range_.name}, range_.whole->size_bytes));
    if (!made) return std::unexpected(std::move(made.error()));
    // An unknown CRC32C is fine: the session is ours, and was given the CRC32C with the last bytes.
    if (compare_bytes(*made, range_.whole->size_bytes, range_.whole->crc32c) == Match::kOther) {
      return corrupt("the server stored ", made->size_bytes, " bytes", crc32c_text(*made),
                     " of the ", range_.whole->size_bytes, " bytes with CRC32C ",
                     range_.whole->crc32c.to_base64(), " that were sent");
    }
    result = std::move(made);
    return Verdict::kDone;
  }
  if (kept_bytes_ < range_.begin || kept_bytes_ > range_.end) {
    return corrupt("the server has ", kept_bytes_, " bytes of the upload, where from ",
                   range_.begin, " to ", range_.end, " were expected");
  }
  if (!range_.whole && kept_bytes_ == range_.end) {
    result = ObjectInfo{};
    return Verdict::kDone;
  }
  if (!std::exchange(ask_, false) && kept_bytes_ <= from_ && ++standstills_ > 3) {
    return fail(Code::kUnavailable, "the server takes no more bytes of the upload");
  }
  from_ = kept_bytes_;
  return Verdict::kAgain;
}

}  // namespace headrace
