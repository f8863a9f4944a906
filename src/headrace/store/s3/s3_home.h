// Where a bucket is: in which region, and at which endpoint.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/format/url.h"
#include "headrace/store/options.h"

namespace headrace {

// Starts with what the options say, and learns from responses that name another region or endpoint.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/VirtualHosting.html
// Thread: any.
class S3Home {
 public:
  // Errors: kInvalidArgument for an endpoint that is none, and options that contradict each other.
  static Result<std::shared_ptr<S3Home>> create(std::string_view bucket,
                                                const std::string& endpoint,
                                                const S3Options& options);

  // The bucket is the beginning of every path; otherwise it is a part of the host's name.
  bool in_path() const { return in_path_; }
  // Where the store was opened.
  const Endpoint& first_endpoint() const { return first_endpoint_; }
  // Where the service said that the bucket is; null: at first_endpoint().
  std::shared_ptr<const Endpoint> moved_to() const;
  std::string region() const;
  // Whether somebody said which it is.
  bool knows_region() const { return !options_.region.empty() || version() > 1; }
  // Changes whenever something was learned.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

  // Takes the place that a response names; "" for what it does not. False if it names none that
  // requests may go to.
  bool learn(std::string_view region, std::string_view endpoint);

 private:
  S3Home(std::string bucket, S3Options options, std::string region);
  // That of the bucket in a region of AWS.
  Endpoint amazon_endpoint(std::string_view region) const;

  const std::string bucket_;
  const S3Options options_;
  bool is_amazon_ = true;  // no endpoint was given
  bool in_path_ = false;
  Endpoint first_endpoint_ = {};
  std::atomic<uint64_t> version_ = 1;
  mutable Mutex mutex_;
  std::string region_ HEADRACE_GUARDED_BY(mutex_);
  std::shared_ptr<const Endpoint> moved_to_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
