// What this process knows of the buckets of one host.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/store/learned.h"
#include "headrace/store/optional_headers.h"
#include "headrace/store/upload_sums.h"

namespace headrace {

// How a service treats the conditions of writes. Accepting one is no proof that it is kept to: see
// ConditionProbe.
struct WriteConditions {
  Learned create, replace;

  // Of writes that must create the object (""), and of those that replace one generation.
  Learned& of(const std::string& generation) { return generation.empty() ? create : replace; }
};

// Buckets of one host may lie on different services behind it, and have rules of their own.
// Thread: any.
struct LearnedOfBucket {
  // Of requests with one of Protocol::optional_headers(), in their order.
  std::array<Learned, kMostHeaderGroups> headers;
  WriteConditions conditions;
  Learned removal_conditions;
  Learned multipart;
  Learned unequal_parts;  // of one upload
  SumsRecord part_sums;   // of uploads in parts
  SumsRecord write_sums;  // of writes by one request

  // Those of `groups` that are refused.
  HeaderGroups refused(HeaderGroups groups, Learned::TimePoint now) const {
    return those(groups, Learned::Treatment::kRefused, now);
  }
  HeaderGroups taken(HeaderGroups groups, Learned::TimePoint now) const {
    return those(groups, Learned::Treatment::kTaken, now);
  }
  // Returns the groups for which this is news.
  HeaderGroups note(HeaderGroups groups, Learned::Treatment answer, Learned::TimePoint now) {
    HeaderGroups news = 0;
    for (size_t i = 0; groups >> i != 0; ++i) {
      if ((groups >> i & 1U) != 0 && headers[i].note(answer, now)) news |= header_group(i);
    }
    return news;
  }

 private:
  HeaderGroups those(HeaderGroups groups, Learned::Treatment answer, Learned::TimePoint now) const {
    HeaderGroups found = 0;
    for (size_t i = 0; groups >> i != 0; ++i) {
      if ((groups >> i & 1U) != 0 && headers[i].at(now) == answer) found |= header_group(i);
    }
    return found;
  }
};

// Thread: any.
class LearnedOfBuckets {
 public:
  std::shared_ptr<LearnedOfBucket> of(const std::string& bucket_url) {
    const Lock lock(mutex_);
    std::shared_ptr<LearnedOfBucket>& found = buckets_[bucket_url];
    if (found == nullptr) found = std::make_shared<LearnedOfBucket>();
    return found;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<LearnedOfBucket>> buckets_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
