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

PartObjects::PartObjects(std::shared_ptr<RemoteRoot> remote, WriteRequest target)
    : HttpUpload(std::move(remote), std::move(target)),
      prefix_(new_temporary_prefix(*remote_)),
      join_width_(remote_->protocol().composing()->max_sources()) {}

size_t PartObjects::add_temporary(std::string name) {
  temporaries_.push_back({std::move(name)});
  return temporaries_.size() - 1;
}

// ── Parts ────────────────────────────────────────────────────────────────────────────────────

void PartObjects::send(std::shared_ptr<const UploadPart> part, Done done) {
  const std::string name = cat(prefix_, padded(part->part_number));
  size_t temporary = 0;
  {
    const Lock lock(mutex_);
    temporary = add_temporary(name);
  }
  // Create-only: a request that is repeated because its answer was lost finds what it has made.
  WriteRequest request{.name = name, .precondition = {.generation = ""}, .linger = kLinger};
  // Without the part itself, whose memory should be free as soon as it has been sent.
  ComposeSource source{.name = name, .size_bytes = part->size_bytes, .crc32c = part->crc32c};
  const uint32_t number = part->part_number;
  track<ObjectInfo>(write(bucket_, std::move(request), std::move(part)),
                    [this, number, temporary, source = std::move(source),
                     done = std::move(done)](Result<ObjectInfo> info) mutable {
                      if (!info) {
                        done(std::unexpected(in_part(number, std::move(info.error()))));
                        return;
                      }
                      source.generation = std::move(info->generation);
                      part_there(number, temporary, std::move(source));
                      done({});
                    });
}

void PartObjects::part_there(uint32_t part_number, size_t temporary, ComposeSource source) {
  Sources group;
  const size_t index = part_number - 1;
  const size_t group_index = index / join_width_;
  {
    const Lock lock(mutex_);
    temporaries_[temporary].generation = source.generation;
    parts_.resize(std::max(parts_.size(), index + 1));
    parts_[index] = std::move(source);
    joined_.resize(std::max(joined_.size(), group_index + 1));
    group_counts_.resize(joined_.size());
    if (++group_counts_[group_index] == join_width_ && !cancelled_) {
      const auto begin = parts_.begin() + static_cast<ptrdiff_t>(group_index * join_width_);
      group.assign(begin, begin + static_cast<ptrdiff_t>(join_width_));
      ++joins_in_flight_;
    }
  }
  if (group.empty()) return;
  start_join(std::move(group), [this, group_index](ComposeSource source) HEADRACE_REQUIRES(mutex_) {
    joined_[group_index] = std::move(source);
  });
}

// ── Joining ──────────────────────────────────────────────────────────────────────────────────

void PartObjects::start_join(Sources sources, std::function<void(ComposeSource)> place) {
  size_t temporary = 0;
  std::string name;
  {
    const Lock lock(mutex_);
    name = cat(prefix_, "joined-", padded(temporaries_.size()));
    temporary = add_temporary(name);
  }
  track<ObjectInfo>(bucket_->run<ComposeAttempt>(ComposeRequest{.sources = std::move(sources),
                                                                .name = name,
                                                                .precondition = {.generation = ""},
                                                                .linger = kLinger}),
                    [this, temporary, place = std::move(place)](Result<ObjectInfo> info) {
                      join_done(temporary, std::move(info), place);
                    });
}

void PartObjects::join_done(size_t temporary, Result<ObjectInfo> info,
                            const std::function<void(ComposeSource)>& place) {
  {
    const Lock lock(mutex_);
    --joins_in_flight_;
    if (info) {
      temporaries_[temporary].generation = info->generation;
      place({.name = info->name,
             .generation = info->generation,
             .size_bytes = info->size_bytes,
             .crc32c = info->crc32c().value_or(Crc32c())});
    } else if (!join_error_) {
      join_error_ = with_url(std::move(info.error()));
    }
  }
  advance();
}

void PartObjects::publish(const Whole& whole, Published done) {
  begin_publishing(whole, std::move(done));
  {
    const Lock lock(mutex_);
    publishing_ = true;
  }
  advance();
}

void PartObjects::advance() {
  Sources last;
  std::vector<std::pair<size_t, Sources>> groups;
  std::optional<Error> error;
  {
    const Lock lock(mutex_);
    if (joins_in_flight_ > 0 || !publishing_) return;
    if (sources_.empty()) {
      for (size_t i = 0; i < parts_.size(); i += join_width_) {
        if (!joined_[i / join_width_].generation.empty()) {
          sources_.push_back(joined_[i / join_width_]);
          continue;
        }
        for (size_t j = i; j < std::min(i + join_width_, parts_.size()); ++j) {
          sources_.push_back(parts_[j]);
        }
      }
    }
    // The thread that claims a step must mark it claimed, so that no other takes it, too: the last
    // step by this flag, the next level by counting its joins.
    if (join_error_) {
      publishing_ = false;
      error = *join_error_;
    } else if (sources_.size() <= join_width_) {
      publishing_ = false;
      last = sources_;
    } else {
      // The next level replaces this one. A single last object moves up unchanged.
      Sources level;
      for (size_t i = 0; i < sources_.size(); i += join_width_) {
        const size_t count = std::min(join_width_, sources_.size() - i);
        const auto begin = sources_.begin() + static_cast<ptrdiff_t>(i);
        if (count == 1) {
          level.push_back(*begin);
        } else {
          groups.emplace_back(level.size(), Sources(begin, begin + static_cast<ptrdiff_t>(count)));
          level.emplace_back();
        }
      }
      sources_ = std::move(level);
      joins_in_flight_ = groups.size();
    }
  }
  if (error) {
    finish(std::unexpected(std::move(*error)));
  } else if (!last.empty()) {
    publish_joined(std::move(last));
  }
  for (auto& [index, group] : groups) {
    start_join(std::move(group), [this, index](ComposeSource source) HEADRACE_REQUIRES(mutex_) {
      sources_[index] = std::move(source);
    });
  }
}

// ── Ending ───────────────────────────────────────────────────────────────────────────────────

void PartObjects::begin_cleaning() {
  size_t count = 0;
  {
    const Lock lock(mutex_);
    count = std::min(kMaxRemovals, temporaries_.size());
    removing_ = count;
  }
  if (count == 0) cleaned({});
  for (size_t i = 0; i < count; ++i) remove_next();
}

// One of `removing_` removers: takes the next name, or ends.
void PartObjects::remove_next() {
  Temporary next;
  bool all_done = false;
  Result<void> result;
  {
    const Lock lock(mutex_);
    if (!temporaries_.empty()) {
      next = std::move(temporaries_.back());
      temporaries_.pop_back();
    } else if (--removing_ == 0) {
      all_done = true;
      if (clean_error_) {
        result = std::unexpected(
            Error(clean_error_->code(),
                  cat(left_count_, left_count_ == 1 ? " temporary object" : " temporary objects",
                      " below ", prefix_, " could not be removed: ", clean_error_->message())));
      }
    }
  }
  if (all_done) cleaned(std::move(result));
  if (next.name.empty()) return;
  Precondition condition;
  // Nobody else writes to this name, so without a known generation whatever is there is ours.
  if (!next.generation.empty()) condition.generation = next.generation;
  bucket_
      ->run<RemoveAttempt>(std::move(next.name), std::move(condition),
                           bucket_->learned().removal_conditions)
      ->then(
          [this, self = shared_from_this()](Result<bool> answer) { removed(std::move(answer)); });
}

void PartObjects::removed(Result<bool> result) {
  if (!result && result.error().code() != Code::kNotFound) {
    const Lock lock(mutex_);
    ++left_count_;
    if (result.error().code() == Code::kCancelled) {
      // The engine has stopped, so no other request would be sent.
      left_count_ += temporaries_.size();
      temporaries_.clear();
    }
    if (!clean_error_) clean_error_ = std::move(result.error());
  }
  remove_next();
}

}  // namespace headrace
