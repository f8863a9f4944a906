// How requests to AIStore name a bucket and what is in it.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/url.h"
#include "headrace/http/message.h"
#include "headrace/store/options.h"
#include "headrace/store/root.h"

namespace headrace {

// Thread: any (immutable). Borrows the root.
class AisPaths {
 public:
  AisPaths(const Url& url, const AisOptions& options, const Root& root);

  // "ais://bucket", "ais+s3://@cluster#namespace/bucket"
  const std::string& bucket_url() const { return bucket_url_; }
  // What rendezvous hashing takes for what precedes a name below the root.
  const std::string& hashed_root() const { return hashed_root_; }

  std::string full_name(std::string_view name) const { return root_.full_name(name); }
  // Begins a request about an object below the root, or about the bucket. A name that AIStore
  // cannot hold makes the request invalid: AIStore itself would take it for another one.
  void begin(HttpRequest& request, std::string_view method, std::string_view name) const;
  void begin_bucket(HttpRequest& request, std::string_view method) const;
  // "&<name>=<value>".
  static void append_parameter(std::string& target, std::string_view name, std::string_view value);
  // What transforms the objects that are read, as parameters; "" if nothing does.
  const std::string& etl_parameters() const { return etl_parameters_; }

  // "provider=...&namespace=...", encoded.
  std::string_view parameters() const { return std::string_view(parameters_).substr(1); }
  const std::string& bucket() const { return bucket_name_; }
  // What is wrong with a full name; "" if AIStore can hold an object of that name.
  static std::string wrong_with(std::string_view full_name);

 private:
  const Root& root_;
  const std::string bucket_name_, bucket_url_, hashed_root_;
  const std::string objects_;     // "/v1/objects/<bucket>/<root>"
  const std::string bucket_;      // "/v1/buckets/<bucket>"
  const std::string parameters_;  // "?provider=...&namespace=..."
  std::string etl_parameters_;
};

// AIStore's own name of where it has a bucket from: "ais", "aws", "gcp", "azure", "oci", "ht".
std::string_view ais_provider_name(std::string_view backend);

}  // namespace headrace
