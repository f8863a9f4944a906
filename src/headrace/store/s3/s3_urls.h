// URLs that carry a signature.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "headrace/store/protocol.h"
#include "headrace/store/s3/s3_home.h"
#include "headrace/store/s3/s3_paths.h"
#include "headrace/store/url_signing.h"

namespace headrace {

// https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-presigned-url.html
// Thread: any (immutable, except for what its S3Home learns). Borrows the paths.
class S3Urls final : public UrlSigning {
 public:
  S3Urls(std::shared_ptr<const S3Home> home, const S3Paths& paths, const S3Options& options)
      : home_(std::move(home)),
        paths_(paths),
        has_customer_key_(!options.customer_key.empty()),
        has_encryption_(!options.encryption.empty()) {}
  bool knows_place() const override { return home_->knows_region(); }
  Result<std::string> signed_url(const UrlRequest& request, const Credential& credential,
                                 std::chrono::system_clock::time_point now) const override;

 private:
  const std::shared_ptr<const S3Home> home_;
  const S3Paths& paths_;
  const bool has_customer_key_, has_encryption_;
};

}  // namespace headrace
