#include "headrace/store/writing/publish_attempt.h"

#include "headrace/format/amz_checksum.h"
#include "headrace/store/appends.h"
#include "headrace/store/condition_proof.h"
#include "headrace/store/temporary_names.h"

namespace headrace {
namespace {

// So often a service may say that it has made what is not there. Another writer can have removed it
// each time, but not for ever.
constexpr int kMostTimesMade = 3;

}  // namespace

Match compare_bytes(const ObjectInfo& found, uint64_t size_bytes, const Checksum& sum) {
  if (found.size_bytes != size_bytes) return Match::kOther;
  if (size_bytes == 0) return Match::kSame;
  if (sum.empty() || found.checksum.kind() != sum.kind()) return Match::kUnknown;
  return found.checksum == sum ? Match::kSame : Match::kOther;
}

Match compare_copy(const ObjectInfo& copy, const ObjectInfo& source) {
  const Match match = compare_bytes(copy, source.size_bytes, source.checksum);
  if (match != Match::kUnknown) return match;
  const std::optional<Checksum> md5 = md5_of_etag(copy.generation);
  return md5 && md5 == md5_of_etag(source.generation) ? Match::kSame : match;
}

std::string crc32c_text(const ObjectInfo& info) {
  const std::optional<Crc32c> sum = info.crc32c();
  return sum ? cat(" with CRC32C ", sum->to_base64()) : " with no CRC32C told";
}

std::string unmet_condition(const std::string& wanted) {
  return wanted.empty() ? "exists already" : cat("is not in generation ", wanted, " any more");
}

PublishAttempt::PublishAttempt(const Protocol& protocol, std::string name,
                               Precondition precondition, WriteConditions* conditions)
    : TextAttempt(protocol),
      name_(std::move(name)),
      wanted_(std::move(precondition)),
      condition_(wanted_),
      conditions_(conditions) {}

Error PublishAttempt::unkept_condition(Learned::Treatment answer) const {
  const bool creates = wanted_.generation->empty();
  const bool ignores = answer == Learned::Treatment::kIgnored;
  return Error(
      Code::kInvalidArgument,
      cat("this service ", ignores ? "ignores" : "refuses", " ",
          creates ? "If-None-Match" : "If-Match", " on writes",
          ignores ? ", so that a write with if_generation could replace anything" : "",
          "; write without if_generation, or with S3Options(conditional_writes='look'), which "
          "looks at the object first and leaves a moment in which another writer can come "
          "between"));
}

bool PublishAttempt::build_before_change(HttpRequest& request) {
  using Treatment = Learned::Treatment;
  if (conditions_ != nullptr && wanted_.generation) {
    const ConditionProof* proof = protocol().condition_proof();
    if (proof != nullptr) {
      asking_ = Asking::kConditions;
      const Learned& kept = conditions_->of(*wanted_.generation);
      const auto now = std::chrono::steady_clock::now();
      if (!probe_ && kept.at(now) == Treatment::kUnknown) {
        probe_.emplace(*proof, *conditions_, TemporaryNames().new_upload() + "conditions");
      }
      if (probe_ && probe_->build(request)) return true;
      const Treatment answer = kept.at(now);
      if (answer == Treatment::kIgnored || answer == Treatment::kRefused) {
        request.refused = unkept_condition(answer);
        return true;
      }
    }
  }
  asking_ = Asking::kOther;
  if (build_first(request)) return true;
  if (!wanted_.generation || target_seen_ || !looks_at_target()) return false;
  asking_ = Asking::kTarget;
  protocol().build_stat(request, name_);
  return true;
}

Result<void> PublishAttempt::check_target(const std::string& generation) {
  target_seen_ = true;
  const std::string& wanted = *wanted_.generation;
  if (generation == wanted) return {};
  return fail(Code::kPreconditionFailed, unmet_condition(wanted));
}

void PublishAttempt::build(HttpRequest& request) {
  if (step_ == Step::kFirst) {
    if (build_before_change(request)) return;
    step_ = Step::kChange;
  }
  if (step_ == Step::kResolve) {
    protocol().build_stat(request, name_);
  } else if (step_ == Step::kDescribe) {
    protocol().describing()->build_describe(request, name_,
                                            {.name = name_,
                                             .content_type = described_.content_type,
                                             .content_encoding = described_.content_encoding});
  } else {
    made_ = false;
    build_change(request, condition_);
  }
}

void PublishAttempt::will_retry() {
  if (step_ == Step::kChange) {
    step_ = Step::kResolve;
    resolved_before_ = true;
  }
}

bool PublishAttempt::ignores_body() const {
  switch (step_) {
    case Step::kFirst: return asking_ == Asking::kConditions;
    case Step::kChange: return change_ignores_body();
    case Step::kResolve: return false;
    case Step::kDescribe: return true;
  }
  return false;
}

Result<Attempt::Verdict> PublishAttempt::finish() {
  if (step_ == Step::kFirst) {  // build() asks whether there is another one
    if (asking_ == Asking::kOther) return finish_first();
    if (asking_ == Asking::kConditions) {
      probe_->accepted();
      return Verdict::kAgain;
    }
    const Result<ObjectInfo> target = found_object(name_);
    if (!target) return std::unexpected(target.error());
    if (Result<void> good = check_target(target->generation); !good) {
      return std::unexpected(good.error());
    }
    return Verdict::kAgain;
  }
  if (step_ == Step::kChange) return finish_change();
  if (step_ == Step::kDescribe) {
    result = std::move(described_);
    return Verdict::kDone;
  }
  return finish_resolve();
}

Attempt::Verdict PublishAttempt::look_at_result() {
  made_ = true;
  return look_at_target_again();
}

Attempt::Verdict PublishAttempt::look_at_target_again() {
  step_ = Step::kResolve;
  return Verdict::kAgain;
}

Attempt::Verdict PublishAttempt::end_with_object(ObjectInfo found) {
  std::optional<Description> wanted;
  if (protocol().describing() != nullptr) wanted = description();
  if (!wanted || (found.content_type == wanted->content_type &&
                  found.content_encoding == wanted->content_encoding)) {
    result = std::move(found);
    return Verdict::kDone;
  }
  described_ = std::move(found);
  described_.content_type = std::move(wanted->content_type);
  described_.content_encoding = std::move(wanted->content_encoding);
  step_ = Step::kDescribe;
  return Verdict::kAgain;
}

Result<Attempt::Verdict> PublishAttempt::finish_resolve() {
  Result<ObjectInfo> found = found_object(name_);
  if (!found) return std::unexpected(std::move(found.error()));
  // With a precondition of the caller's, whatever has replaced the old object is either ours or a
  // violation; without one, equal bytes are as good as ours.
  const Match match = compare(*found);
  const bool replaced = !wanted_.generation || *wanted_.generation != found->generation;
  if (made_ && match != Match::kSame) {
    if (std::optional<ObjectInfo> made = made_object(*found)) {
      result = std::move(*made);
      return Verdict::kDone;
    }
  }
  const bool done = made_ ? is_good(match) : may_be_done(match, replaced);
  if (done && !is_proven_by(*found)) {
    step_ = Step::kFirst;
    return Verdict::kAgain;
  }
  if (done) return end_with_object(std::move(*found));
  if (made_) {
    if (std::optional<Error> wrong = wrong_result(*found)) {
      return std::unexpected(std::move(*wrong));
    }
  }
  if (match == Match::kUnknown && wanted_.generation && replaced) {
    // Sent again, it would be refused no matter who wrote the object that is there now.
    return end_with(outcome_unknown());
  }
  maybe_made_ = match == Match::kUnknown;
  return repeat_on(found->generation);
}

Result<Attempt::Verdict> PublishAttempt::repeat_on(const std::string& generation) {
  if (wanted_.generation && looks_at_target()) {
    if (Result<void> good = check_target(generation); !good) {
      return std::unexpected(std::move(good.error()));
    }
  }
  if (!wanted_.generation && condition_.generation != generation) {
    condition_ = {.generation = generation, .if_refused = Precondition::IfRefused::kLeaveOut};
    condition_changed();
  }
  will_repeat();
  step_ = Step::kFirst;
  return Verdict::kAgain;
}

Error PublishAttempt::outcome_unknown() const {
  return Error(Code::kUnavailable,
               "the answer was lost, and the server tells no CRC32C of what is there now: whether "
               "it is what this request has made is unknown; read it to find out");
}

Attempt::Verdict PublishAttempt::end_with(Error error) {
  result = std::unexpected(std::move(error).with_url(url()));
  return Verdict::kDone;
}

Result<Attempt::Verdict> PublishAttempt::refused(Error error) {
  if (step_ == Step::kFirst) {
    // What is about who we are is no answer.
    if (refusal()->stale_credentials) return std::unexpected(std::move(error));
    if (asking_ == Asking::kOther) return refused_first(std::move(error));
    Result<void> good;
    if (asking_ == Asking::kConditions) {
      good = probe_->refused(std::move(error));
    } else if (error.code() == Code::kNotFound) {
      good = check_target("");
    } else {
      good = std::unexpected(std::move(error));
    }
    if (!good) return std::unexpected(std::move(good.error()));
    return Verdict::kAgain;
  }
  if (step_ == Step::kDescribe) {
    return std::unexpected(std::move(error).with_words(
        "it is there, but its content type and encoding could not be set: "));
  }
  if (step_ == Step::kResolve && error.code() == Code::kNotFound) {
    if (made_ && ++times_made_ == kMostTimesMade) {
      return end_with(
          Error(Code::kUnavailable, cat("the server has said ", times_made_,
                                        " times that it was made, and nothing is there")));
    }
    // Nothing is there: the lost change has not arrived, and must not arrive after this one.
    return repeat_on("");
  }
  if (step_ == Step::kChange && adapts_to(error)) return Verdict::kAgain;
  if (step_ == Step::kChange && gives_up_on(error)) return end_with(std::move(error));
  if (step_ == Step::kChange && error.code() == Code::kThrottled && looks_at_target()) {
    target_seen_ = false;  // it is sent again much later
    step_ = Step::kFirst;
  }
  if (step_ == Step::kChange && maybe_made_ && error.code() == Code::kNotFound) {
    return end_with(outcome_unknown());  // an upload that was completed is no more
  }
  if (step_ == Step::kChange && resolved_before_ &&
      (error.code() == Code::kPreconditionFailed || error.code() == Code::kNotFound)) {
    // The lost change may have arrived after all. (An upload that was completed is no more.)
    resolved_before_ = false;
    step_ = Step::kResolve;
    return Verdict::kAgain;
  }
  if (step_ == Step::kChange && error.code() == Code::kPreconditionFailed) {
    std::string message = other_refusal();
    if (message.empty()) {
      message = wanted_.generation
                    ? unmet_condition(*wanted_.generation)
                    : "was changed by another writer while the answer to an attempt was lost";
    }
    return std::unexpected(std::move(error).with_message(std::move(message)));
  }
  return std::unexpected(std::move(error));
}

}  // namespace headrace
