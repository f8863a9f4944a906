// How the bytes of what is written are proved, on services that differ in the sums that they take.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/format/checksum.h"
#include "headrace/store/learned.h"
#include "headrace/store/options.h"

namespace headrace {

// The sums that go along with some bytes, each of another kind.
// Thread: any (immutable).
class SentSums {
 public:
  SentSums() = default;
  // Implicit: one sum is the usual case. Those of no kind are left out.
  SentSums(Crc32c sum) : SentSums{Checksum(sum)} {}
  SentSums(std::initializer_list<Checksum> sums) {
    for (const Checksum& sum : sums) {
      if (!sum.empty() && count_ < sums_.size()) sums_[count_++] = sum;
    }
  }
  std::span<const Checksum> all() const { return std::span(sums_).first(count_); }
  Checksum of(ChecksumKind kind) const {
    const auto at = std::ranges::find(all(), kind, &Checksum::kind);
    return at != all().end() ? *at : Checksum();
  }

 private:
  std::array<Checksum, 2> sums_{};
  size_t count_ = 0;
};

// Whether the ETags of a service are MD5s of the bytes.
enum class Etags : uint8_t { kUnknown, kMd5, kOther };

// What an answer to the start of an upload says of the sum that the object will have.
enum class AnnouncedSum : uint8_t { kNone, kWhole, kOfParts };

// What goes along with the bytes of one upload, or of a write by one request. A value: the
// functions below make the next one from an answer.
struct UploadSums {
  SumLevel level = SumLevel::kCrc32c;
  bool known = false;        // an answer has shown it, or it is fixed
  bool fixed = false;        // the caller or the protocol has said it: no other level is tried
  bool sends_whole = false;  // the sum of the whole object goes with the end of an upload
  // On the level of MD5: the CRC-32C goes along as on this level, which the service takes and tells
  // nothing of. It may compare it, and an object may keep it.
  std::optional<SumLevel> ignored = {};
  bool always_told = false;  // a service that tells no sum of what was written has failed
  Etags etags = Etags::kUnknown;
  bool operator==(const UploadSums&) const = default;
};

// Of the sums of parts on this level; kNone: there are none.
ChecksumKind sum_kind(SumLevel level);
// What the service has proved of an upload on this level, for messages: "Content-MD5 of each part".
std::string_view label(SumLevel level);
// The names that options and reports have for it: "crc32c", "crc64nvme", "composite", "md5",
// "none".
std::string_view to_string(SumLevel level);
// None for other names.
std::optional<SumLevel> sum_level(std::string_view name);

// The start of an upload was accepted.
UploadSums after_start(UploadSums sums, AnnouncedSum said);
// The start was refused for its sum: what to try next. None: there is nothing else.
std::optional<UploadSums> after_refused_start(const UploadSums& sums);
// Bytes were accepted. `told`: the answer has the sum of the level's kind; `etag_is_md5`: its ETag
// is the MD5 of the bytes. If it is still not known, nothing has proved the bytes yet.
UploadSums after_bytes(UploadSums sums, bool told, bool etag_is_md5);
// Bytes were refused for their sum: what to try next. None: there is nothing else.
std::optional<UploadSums> after_refused_bytes(const UploadSums& sums);
// Whether the sum of this request may be the reason of its refusal. One that is about the bytes is
// not; nor is one on a level that the service has taken before, unless `blames_taken`.
bool may_be_about_sums(const UploadSums& sums, const Error& refusal, bool blames_taken);

// The level that one bucket is known to take. Any but the best is forgotten after a while, so that
// better ones are tried again.
// Thread: any.
class SumsRecord {
 public:
  using TimePoint = Learned::TimePoint;

  // None: it is not known.
  std::optional<UploadSums> at(TimePoint now) const;
  // True unless this level was known already.
  bool learn(const UploadSums& sums, TimePoint now);

 private:
  mutable Mutex mutex_;
  std::optional<UploadSums> sums_ HEADRACE_GUARDED_BY(mutex_);
  TimePoint since_ HEADRACE_GUARDED_BY(mutex_){};
};

// The level of one upload, shared by its requests. A request that tries a lower level keeps it to
// itself until the service has accepted a request at that level.
// Thread: any.
class SumLadder {
 public:
  using Learned = std::function<void(const UploadSums&)>;

  explicit SumLadder(UploadSums begin, Learned learned = {})
      : learned_(std::move(learned)), sums_(begin) {}
  UploadSums now() const {
    const Lock lock(mutex_);
    return sums_;
  }
  // For the requests that follow the start of the upload, which was accepted on this level.
  void begin_with(const UploadSums& next) {
    const Lock lock(mutex_);
    sums_ = next;
  }
  // What follows from an answer that accepts.
  void settle(const UploadSums& next) {
    begin_with(next);
    if (learned_) learned_(next);
  }

 private:
  const Learned learned_;
  mutable Mutex mutex_;
  UploadSums sums_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
