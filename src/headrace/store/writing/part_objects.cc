#include "headrace/store/writing/part_objects.h"

#include <algorithm>
#include <utility>

#include "headrace/store/composing.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {
namespace {

constexpr size_t kMaxRemovals = 64;  // at a time

std::string padded(uint64_t number) {
  const std::string digits = std::to_string(number);
  return digits.size() < 6 ? std::string(6 - digits.size(), '0') + digits : digits;
}

}  // namespace

PartObjects::PartObjects(const std::shared_ptr<RemoteRoot>& remote, WriteRequest target)
    : HttpUpload(remote, std::move(target), next_thread(*remote)),
      prefix_(new_temporary_prefix(*remote_)),
      compose_width_(remote_->protocol().composing()->max_sources()) {}

size_t PartObjects::add_temporary(std::string name) {
  temporaries_.push_back({std::move(name)});
  return temporaries_.size() - 1;
}

// ── Parts ────────────────────────────────────────────────────────────────────────────────────

awaitable<Result<void>> PartObjects::send_part(Outgoing outgoing) {
  const UploadPart& part = *outgoing.part;
  const uint32_t number = part.part_number;
  const std::string name = cat(prefix_, padded(number));
  const size_t temporary = add_temporary(name);
  ComposeSource source{.name = name, .size_bytes = part.size_bytes, .crc32c = part.crc32c};
  // Create-only: a request that is repeated because its answer was lost finds what it has made.
  WriteRequest write{.name = name, .precondition = {.generation = ""}, .linger = kLinger};
  Result<ObjectInfo> info = co_await request(bucket_->run<WriteAttempt>(
      std::move(write), std::move(outgoing.part), bucket_->write_facts()));
  if (!info) co_return std::unexpected(in_part(number, std::move(info.error())));
  temporaries_[temporary].generation = source.generation = std::move(info->generation);
  take_part(number - 1, std::move(source));
  co_return Result<void>();
}

void PartObjects::take_part(size_t index, ComposeSource source) {
  const size_t group = index / compose_width_;
  parts_.resize(std::max(parts_.size(), index + 1));
  parts_[index] = std::move(source);
  composed_.resize(std::max(composed_.size(), group + 1));
  group_counts_.resize(composed_.size());
  if (++group_counts_[group] < compose_width_ || cancelled()) return;
  const auto begin = parts_.begin() + static_cast<ptrdiff_t>(group * compose_width_);
  start_compose(Sources(begin, begin + static_cast<ptrdiff_t>(compose_width_)), composed_, group);
}

// ── Composing ─────────────────────────────────────────────────────────────────────────────────

void PartObjects::start_compose(Sources sources, Sources& into, size_t index) {
  ++composes_in_flight_;
  start<void>([&] { return compose(std::move(sources), into, index); },
              [this, self = shared_from_this()](Result<void> composed) {
                --composes_in_flight_;
                if (!composed && !compose_error_)
                  compose_error_ = with_url(std::move(composed.error()));
              });
}

awaitable<Result<void>> PartObjects::compose(Sources sources, Sources& into, size_t index) {
  const std::string name = cat(prefix_, "joined-", padded(temporaries_.size()));
  const size_t temporary = add_temporary(name);
  ComposeRequest group{.sources = std::move(sources),
                       .name = name,
                       .precondition = {.generation = ""},
                       .linger = kLinger};
  const Result<ObjectInfo> info = co_await request(bucket_->run<ComposeAttempt>(std::move(group)));
  if (!info) co_return std::unexpected(info.error());
  temporaries_[temporary].generation = info->generation;
  into[index] = {.name = info->name,
                 .generation = info->generation,
                 .size_bytes = info->size_bytes,
                 .crc32c = info->crc32c().value_or(Crc32c())};
  co_return Result<void>();
}

PartObjects::Sources PartObjects::composed_so_far() const {
  Sources sources;
  for (size_t group = 0; group < composed_.size(); ++group) {
    if (!composed_[group].generation.empty()) {
      sources.push_back(composed_[group]);
      continue;
    }
    const size_t end = std::min((group + 1) * compose_width_, parts_.size());
    for (size_t i = group * compose_width_; i < end; ++i) sources.push_back(parts_[i]);
  }
  return sources;
}

awaitable<Result<ObjectInfo>> PartObjects::publish_parts(Whole whole) {
  while (composes_in_flight_ > 0) co_await park();
  Sources sources = composed_so_far();
  while (sources.size() > compose_width_ && !compose_error_) {
    // The next level replaces this one. A single last object moves up unchanged.
    level_ = Sources((sources.size() + compose_width_ - 1) / compose_width_);
    for (size_t i = 0; i < level_.size(); ++i) {
      const auto begin = sources.begin() + static_cast<ptrdiff_t>(i * compose_width_);
      const size_t count = std::min(compose_width_, sources.size() - i * compose_width_);
      if (count == 1) {
        level_[i] = *begin;
      } else {
        start_compose(Sources(begin, begin + static_cast<ptrdiff_t>(count)), level_, i);
      }
    }
    while (composes_in_flight_ > 0) co_await park();
    sources = std::move(level_);
  }
  if (compose_error_) co_return std::unexpected(*compose_error_);
  co_return co_await publish_composed(std::move(sources), whole);
}

// ── Ending ───────────────────────────────────────────────────────────────────────────────────

awaitable<Result<void>> PartObjects::remove_rest() {
  while (composes_in_flight_ > 0) co_await park();  // they could still make objects
  removers_ = std::min(kMaxRemovals, temporaries_.size());
  for (size_t i = removers_; i > 0; --i) {
    start<void>([this] { return remove_some(); },
                [this, self = shared_from_this()](Result<void> removed) {
                  --removers_;
                  if (!removed && !clean_error_) clean_error_ = std::move(removed.error());
                });
  }
  while (removers_ > 0) co_await park();
  // Where the engine has stopped, no (other) removal was asked for.
  left_count_ += temporaries_.size();
  if (!clean_error_) co_return Result<void>();
  co_return std::unexpected(
      Error(clean_error_->code(),
            cat(left_count_, left_count_ == 1 ? " temporary object" : " temporary objects",
                " below ", prefix_, " could not be removed: ", clean_error_->message())));
}

awaitable<Result<void>> PartObjects::remove_some() {
  while (!temporaries_.empty()) {
    Temporary next = std::move(temporaries_.back());
    temporaries_.pop_back();
    // Nobody else writes to this name, so without a known generation whatever is there is ours.
    Precondition condition;
    if (!next.generation.empty()) condition.generation = std::move(next.generation);
    Result<bool> removed = co_await result_of(bucket_->run<RemoveAttempt>(
        std::move(next.name), std::move(condition), bucket_->learned().removal_conditions));
    if (removed || removed.error().code() == Code::kNotFound) continue;
    ++left_count_;
    const bool has_stopped = removed.error().code() == Code::kCancelled;
    if (!clean_error_) clean_error_ = std::move(removed.error());
    if (has_stopped) break;
  }
  co_return Result<void>();
}

}  // namespace headrace
