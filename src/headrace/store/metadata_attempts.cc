#include "headrace/store/metadata_attempts.h"

#include <type_traits>
#include <utility>

namespace headrace {

template <class Page>
ListAttempt<Page>::ListAttempt(const Protocol& protocol, const TemporaryNames& temporaries,
                               ListRequest request, std::atomic<uint64_t>& largest_page_bytes)
    : TextAttempt(protocol),
      temporaries_(temporaries),
      request_(std::move(request)),
      largest_page_bytes_(largest_page_bytes) {}

template <class Page>
void ListAttempt<Page>::build(HttpRequest& request) {
  protocol().build_list(request, request_);
}

template <class Page>
std::string ListAttempt<Page>::url() const {
  if (!no_bucket_) return protocol().url_of(request_.prefix);
  std::string url = protocol().url_of("");  // ends with the root
  url.resize(url.size() - protocol().root().text().size());
  if (url.ends_with('/')) url.pop_back();
  return url;
}

// A prefix that nothing begins with is an empty page: only the bucket can be missing. Google says
// so, emulators and proxies only "Not Found".
template <class Page>
Result<Attempt::Verdict> ListAttempt<Page>::refused(Error error) {
  if (error.code() != Code::kNotFound) return std::unexpected(std::move(error));
  no_bucket_ = true;
  if (error.message().contains("bucket") || error.message().contains("Bucket")) {
    return std::unexpected(std::move(error));
  }
  return std::unexpected(Error(Code::kNotFound, "there is no such bucket")
                             .with_http_status(error.http_status())
                             .with_request_id(error.request_id()));
}

template <class Page>
Result<Attempt::Verdict> ListAttempt<Page>::finish() {
  uint64_t largest = largest_page_bytes_.load(std::memory_order_relaxed);
  while (text().size() > largest &&
         !largest_page_bytes_.compare_exchange_weak(largest, text().size())) {
  }
  if constexpr (std::is_same_v<Page, ObjectPage>) {
    result = protocol().parse_objects(text());
  } else {
    result = protocol().parse_columns(text());
  }
  if (!result) return std::unexpected(std::move(result.error()));
  temporaries_.hide(*result, protocol().root().full_name(request_.prefix));
  if (Result<void> below = protocol().root().strip(*result); !below) {
    return std::unexpected(std::move(below.error()));
  }
  return Verdict::kDone;
}

template class ListAttempt<ObjectPage>;
template class ListAttempt<ColumnPage>;

StatAttempt::StatAttempt(const Protocol& protocol, std::string name)
    : TextAttempt(protocol), name_(std::move(name)) {}

void StatAttempt::build(HttpRequest& request) { protocol().build_stat(request, name_); }

Result<Attempt::Verdict> StatAttempt::finish() {
  Result<ObjectInfo> info = protocol().object_of(text());
  if (!info) return std::unexpected(std::move(info.error()));
  result = std::move(info);
  return Verdict::kDone;
}

Match compare_bytes(const ObjectInfo& found, uint64_t size_bytes, std::optional<Crc32c> crc32c) {
  if (found.size_bytes != size_bytes) return Match::kOther;
  if (size_bytes == 0) return Match::kSame;
  if (!found.crc32c || !crc32c) return Match::kUnknown;
  return *found.crc32c == *crc32c ? Match::kSame : Match::kOther;
}

std::string crc32c_text(const ObjectInfo& info) {
  return info.crc32c ? cat(" with CRC32C ", info.crc32c->to_base64()) : " with no CRC32C told";
}

PublishAttempt::PublishAttempt(const Protocol& protocol, std::string name,
                               Precondition precondition)
    : TextAttempt(protocol),
      name_(std::move(name)),
      wanted_(std::move(precondition)),
      condition_(wanted_) {}

void PublishAttempt::build(HttpRequest& request) {
  if (step_ == Step::kFirst) {
    if (build_first(request)) return;
    step_ = Step::kChange;
  }
  if (step_ == Step::kResolve) {
    protocol().build_stat(request, name_);
  } else {
    build_change(request, condition_);
  }
}

void PublishAttempt::will_retry() {
  if (step_ == Step::kChange) {
    step_ = Step::kResolve;
    resolved_before_ = true;
  }
}

Result<Attempt::Verdict> PublishAttempt::finish() {
  if (step_ == Step::kFirst) {
    Result<Verdict> verdict = finish_first();
    step_ = Step::kChange;
    return verdict;
  }
  if (step_ == Step::kChange) return finish_change();
  Result<ObjectInfo> found = protocol().object_of(text());
  if (!found) return std::unexpected(std::move(found.error()));
  // With a precondition of the caller's, whatever has replaced the old object is either ours or a
  // violation; without one, equal bytes are as good as ours.
  const Match match = compare(*found);
  const bool replaced = !wanted_.generation || *wanted_.generation != found->generation;
  if (match == Match::kSame && replaced) {
    result = std::move(found);
    return Verdict::kDone;
  }
  if (std::optional<Error> wrong = wrong_result(*found)) return std::unexpected(std::move(*wrong));
  if (match == Match::kUnknown && wanted_.generation && replaced) {
    // If sent again, it would be refused, whoever wrote what is there.
    return end_with(
        Error(Code::kUnavailable,
              cat("the answer was lost, and the server tells no CRC32C of the ", found->size_bytes,
                  " bytes that are there now (generation ", found->generation,
                  "): whether they are those of this request is unknown; read them to find out")));
  }
  return repeat_on(found->generation);
}

Attempt::Verdict PublishAttempt::repeat_on(const std::string& generation) {
  if (!wanted_.generation && condition_.generation != generation) {
    condition_.generation = generation;
    condition_changed();
  }
  step_ = Step::kChange;
  return Verdict::kAgain;
}

Attempt::Verdict PublishAttempt::end_with(Error error) {
  result = std::unexpected(std::move(error).with_url(url()));
  return Verdict::kDone;
}

Result<Attempt::Verdict> PublishAttempt::refused(Error error) {
  if (step_ == Step::kResolve && error.code() == Code::kNotFound) {
    // Nothing is there: the lost change has not arrived, and must not arrive after this one.
    return repeat_on("");
  }
  if (step_ == Step::kChange && gives_up_on(error)) return end_with(std::move(error));
  if (step_ == Step::kChange && error.code() == Code::kPreconditionFailed) {
    if (resolved_before_) {
      // The lost change may have arrived after all.
      resolved_before_ = false;
      step_ = Step::kResolve;
      return Verdict::kAgain;
    }
    std::string message = "exists already";
    if (const std::string other = other_refusal(); !other.empty()) {
      message = other;
    } else if (!wanted_.generation) {
      message = "was changed by another writer while the answer to an attempt was lost";
    } else if (!wanted_.generation->empty()) {
      message = cat("is not in generation ", *wanted_.generation, " any more");
    }
    return std::unexpected(Error(Code::kPreconditionFailed, std::move(message))
                               .with_http_status(error.http_status())
                               .with_request_id(error.request_id()));
  }
  return std::unexpected(std::move(error));
}

WriteAttempt::WriteAttempt(const Protocol& protocol, WriteRequest request,
                           std::span<const std::byte> bytes)
    : PublishAttempt(protocol, request.name, request.precondition),
      request_(std::move(request)),
      part_(std::make_shared<UploadPart>(UploadPart{
          .size_bytes = bytes.size(), .crc32c = Crc32c().extended(bytes), .spans = {bytes}})) {}

WriteAttempt::WriteAttempt(const Protocol& protocol, WriteRequest request,
                           std::shared_ptr<const UploadPart> part)
    : PublishAttempt(protocol, request.name, request.precondition),
      request_(std::move(request)),
      part_(std::move(part)) {}

void WriteAttempt::build_change(HttpRequest& request, const Precondition& precondition) {
  request_.precondition = precondition;
  protocol().build_write(request, request_, part_->spans, part_->crc32c, scratch_);
}

Result<Attempt::Verdict> WriteAttempt::finish_change() {
  Result<ObjectInfo> written = protocol().object_of(text());
  if (!written) return std::unexpected(std::move(written.error()));
  // An unknown CRC32C is fine: the server refuses bytes that do not match the one sent with them.
  if (compare(*written) == Match::kOther) {
    return corrupt("the server stored ", written->size_bytes, " bytes", crc32c_text(*written),
                   " of the ", part_->size_bytes, " bytes with CRC32C ", part_->crc32c.to_base64(),
                   " that were sent");
  }
  result = std::move(written);
  return Verdict::kDone;
}

Match WriteAttempt::compare(const ObjectInfo& found) const {
  return compare_bytes(found, part_->size_bytes, part_->crc32c);
}

CopyAttempt::CopyAttempt(const Protocol& protocol, CopyRequest request)
    : PublishAttempt(protocol, request.name, request.precondition), request_(std::move(request)) {}

std::string CopyAttempt::url() const {
  return before_change() ? protocol().url_of(request_.source_name) : PublishAttempt::url();
}

bool CopyAttempt::build_first(HttpRequest& request) {
  protocol().build_stat(request, request_.source_name);
  return true;
}

Result<Attempt::Verdict> CopyAttempt::finish_first() {
  Result<ObjectInfo> source = protocol().object_of(text());
  if (!source) return std::unexpected(std::move(source.error()));
  if (!request_.source_generation.empty() && request_.source_generation != source->generation) {
    return fail(Code::kPreconditionFailed, protocol().url_of(request_.source_name),
                " has changed: generation ", request_.source_generation,
                " is no longer the live one");
  }
  source_ = std::move(*source);
  request_.source_generation = source_.generation;
  return Verdict::kAgain;
}

void CopyAttempt::build_change(HttpRequest& request, const Precondition& precondition) {
  request_.precondition = precondition;
  protocol().build_copy(request, request_, token_);
}

Result<Attempt::Verdict> CopyAttempt::finish_change() {
  Result<CopyStep> step = protocol().parse_copy(text());
  if (!step) return std::unexpected(std::move(step.error()));
  if (!step->done) {
    token_ = std::move(step->token);
    return Verdict::kAgain;
  }
  // An unknown CRC32C is fine if that of the source is unknown, too: the server copied what it has.
  const Match match = compare(step->object);
  if (match == Match::kOther || (match == Match::kUnknown && source_.crc32c)) {
    return corrupt("the copy is not equal to its source: it has ", step->object.size_bytes,
                   " bytes", crc32c_text(step->object));
  }
  if (Result<void> below = protocol().root().strip(step->object); !below) {
    return std::unexpected(std::move(below.error()));
  }
  result = std::move(step->object);
  return Verdict::kDone;
}

Match CopyAttempt::compare(const ObjectInfo& found) const {
  return compare_bytes(found, source_.size_bytes, source_.crc32c);
}

ComposeAttempt::ComposeAttempt(const Protocol& protocol, ComposeRequest request)
    : PublishAttempt(protocol, request.name, request.precondition), request_(std::move(request)) {
  for (const ComposeSource& source : request_.sources) {
    size_bytes_ += source.size_bytes;
    crc32c_ = crc32c_.joined(source.crc32c, source.size_bytes);
  }
}

void ComposeAttempt::build_change(HttpRequest& request, const Precondition& precondition) {
  request_.precondition = precondition;
  protocol().build_compose(request, request_, scratch_);
}

Result<Attempt::Verdict> ComposeAttempt::finish_change() {
  Result<ObjectInfo> composed = protocol().object_of(text());
  if (!composed) return std::unexpected(std::move(composed.error()));
  if (compare(*composed) != Match::kSame) {
    return corrupt("the server composed ", composed->size_bytes, " bytes", crc32c_text(*composed),
                   " out of ", request_.sources.size(), " objects with ", size_bytes_,
                   " bytes and CRC32C ", crc32c_.to_base64());
  }
  result = std::move(composed);
  return Verdict::kDone;
}

Match ComposeAttempt::compare(const ObjectInfo& found) const {
  return compare_bytes(found, size_bytes_, crc32c_);
}

RemoveAttempt::RemoveAttempt(const Protocol& protocol, std::string name, Precondition precondition)
    : TextAttempt(protocol), name_(std::move(name)), precondition_(std::move(precondition)) {}

void RemoveAttempt::build(HttpRequest& request) {
  protocol().build_remove(request, name_, precondition_);
}

Result<Attempt::Verdict> RemoveAttempt::finish() {
  result = true;
  return Verdict::kDone;
}

Result<Attempt::Verdict> RemoveAttempt::refused(Error error) {
  if (lost_before_ && error.code() == Code::kNotFound) return finish();
  return std::unexpected(std::move(error));
}

}  // namespace headrace
