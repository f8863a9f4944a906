// How requests to S3 name a bucket and what is in it, and the headers that they have in common.
#pragma once

#include <string>
#include <string_view>

#include "headrace/http/message.h"
#include "headrace/store/optional_headers.h"
#include "headrace/store/options.h"
#include "headrace/store/root.h"
#include "headrace/store/upload_sums.h"

namespace headrace {

// Headers that a request would do without: the groups of S3Protocol::optional_headers().
struct S3Headers {
  static constexpr HeaderGroups kObjectSize = header_group(0);
  static constexpr HeaderGroups kChecksumMode = header_group(1);
  // Conditions that we add, by the kind of request: some services take them with some kinds only.
  static constexpr HeaderGroups kCreate = header_group(2), kReplace = header_group(3);
  static constexpr HeaderGroups kCreateByEnd = header_group(4), kReplaceByEnd = header_group(5);
  static constexpr HeaderGroups kCreateByCopy = header_group(6), kReplaceByCopy = header_group(7);
};
// What a write with a condition is.
enum class S3Change : uint8_t { kWrite, kEndOfUpload, kCopy };

// Thread: any (immutable). Borrows the root.
class S3Paths {
 public:
  // `in_path`: the bucket is the beginning of every path. Otherwise it is a part of the host's
  // name.
  S3Paths(std::string bucket, bool in_path, const S3Options& options, const Root& root);

  const std::string& bucket() const { return bucket_; }
  const Root& root() const { return root_; }

  // Begins a request about an object below the root, or about the bucket.
  void begin(HttpRequest& request, std::string_view method, std::string_view name) const;
  void begin_bucket(HttpRequest& request) const;
  // What a copy names as its source: "/<bucket>/<name>".
  std::string source(std::string_view name) const;
  // "&<name>=<value>": a name below the root, omitted if both are empty.
  void append_below(std::string& target, std::string_view parameter, std::string_view name) const;
  // "&<name>=<value>", omitted if the value is empty.
  static void append_parameter(std::string& target, std::string_view name, std::string_view value);

  // The headers of every request, as parameters of a URL.
  void append_common_parameters(std::string& target) const {
    if (!common_parameters_.empty()) target.append("?").append(common_parameters_);
  }

  // Conditions, with ETags in quotes.
  static void add_precondition(HttpRequest& request, const Precondition& precondition,
                               S3Change change = S3Change::kWrite);
  // The same of writes, which may have none.
  void add_write_precondition(HttpRequest& request, const Precondition& precondition,
                              S3Change change = S3Change::kWrite) const {
    if (!looks_before_writes_) add_precondition(request, precondition, change);
  }
  // Asks for the sums that are stored with the object.
  static void add_checksum_mode(HttpRequest& request);
  // Of the bytes that are sent, or of the object that is made of what was.
  static void add_sums(HttpRequest& request, const SentSums& sums);
  // The type, encoding and encryption of a new object.
  void add_new_object(HttpRequest& request, const WriteRequest& write) const;
  void add_encryption(HttpRequest& request) const {
    request.header_lines.append(encryption_lines_).append(customer_key_lines_);
  }
  // The key of an object that the caller encrypts: for reads and parts.
  void add_customer_key(HttpRequest& request) const {
    request.header_lines.append(customer_key_lines_);
  }
  void add_copy_source_customer_key(HttpRequest& request) const {
    request.header_lines.append(copy_source_key_lines_);
  }

 private:
  const std::string bucket_;
  const std::string bucket_path_;  // "/<bucket>", or ""
  const Root& root_;
  const std::string root_path_;   // the root, encoded for paths: once for all requests
  const std::string root_value_;  // the same, encoded for parameters
  const bool looks_before_writes_;
  // Header lines that are the same for all requests: of every request, of new objects, and with the
  // caller's key.
  std::string common_parameters_;
  std::string common_lines_, encryption_lines_, customer_key_lines_, copy_source_key_lines_;
};

}  // namespace headrace
