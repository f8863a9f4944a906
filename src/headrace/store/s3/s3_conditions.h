// Whether a service that speaks S3 keeps to If-Match and If-None-Match on writes.
#pragma once

#include <string>

#include "headrace/store/condition_proof.h"
#include "headrace/store/protocol.h"
#include "headrace/store/root.h"
#include "headrace/store/s3/s3_paths.h"

namespace headrace {

// Thread: any (immutable).
class S3ConditionProof final : public ConditionProof {
 public:
  S3ConditionProof(std::string bucket, bool in_path, const S3Options& options)
      : paths_(std::move(bucket), in_path, options, root_) {}
  void build_write(HttpRequest& request, std::string_view full_name,
                   const Precondition& precondition, bool with_sum) const override {
    paths_.begin(request, "PUT", full_name);
    paths_.add_new_object(request, {});
    S3Paths::add_precondition(request, precondition);
    if (with_sum) request.header_lines.append("Content-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n");
    request.has_body = true;
  }
  void build_remove(HttpRequest& request, std::string_view full_name) const override {
    paths_.begin(request, "DELETE", full_name);
  }

 private:
  const Root root_;  // the bucket
  const S3Paths paths_;
};

}  // namespace headrace
