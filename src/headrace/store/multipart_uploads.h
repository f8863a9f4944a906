// Uploads in numbered parts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/checksum.h"
#include "headrace/format/http_head.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/http/message.h"
#include "headrace/store/options.h"
#include "headrace/store/response.h"
#include "headrace/store/upload_sums.h"

namespace headrace {

// What completes a multipart upload.
struct MultipartCompletion {
  std::string_view name;
  std::string_view upload_id;
  std::span<const SentPart> parts;  // in order
  uint64_t size_bytes = 0;          // of the object
  Checksum sum = {};                // of the object; of no kind: none is sent
  Precondition precondition = {};   // only where completing takes conditions
};

// Uploads that are started, get numbered parts in any order, and are completed. Their responses are
// the XML that S3 introduced (format/multipart_xml) wherever there are such uploads.
// Thread: any (immutable).
class MultipartUploads {
 public:
  virtual ~MultipartUploads() = default;
  // Whether completing takes conditions. If not, an upload makes a temporary object, from which the
  // object is then composed on its condition.
  virtual bool is_conditional() const = 0;
  // Whether parts have a least size, except for the last one.
  virtual bool bounds_parts() const { return true; }
  // Whether all parts but the last must have one size; none: the service may still say so.
  virtual std::optional<bool> has_equal_parts() const { return std::nullopt; }
  // Whether it says so by this refusal to complete an upload.
  virtual bool wants_equal_parts(const Error& /*refusal*/) const { return false; }
  virtual void build_start(HttpRequest& request, const WriteRequest& write,
                           SumLevel level) const = 0;
  // What the answer says of the sum on this level.
  virtual AnnouncedSum announced_sum(const ResponseHead&, SumLevel) const {
    return AnnouncedSum::kNone;
  }
  // The id of the upload.
  virtual Result<std::string> parse_started(const Response& response) const {
    return parse_upload_id(response.body);
  }
  virtual void build_part(HttpRequest& request, std::string_view name, std::string_view upload_id,
                          uint32_t part_number, std::span<const std::span<const std::byte>> bytes,
                          const SentSums& sums) const = 0;
  // Whether the response to a part has a name for it, which completing the upload needs.
  virtual bool names_parts() const { return true; }
  // `whole` describes the object. `scratch` owns the request's body.
  virtual void build_complete(HttpRequest& request, const MultipartCompletion& completion,
                              std::string& scratch) const = 0;
  virtual Result<CompletedUpload> parse_completed(const Response& response) const {
    return completed_upload(response.body);
  }
  virtual void build_abort(HttpRequest& request, std::string_view name,
                           std::string_view upload_id) const = 0;
  virtual void build_list(HttpRequest& request, std::string_view prefix,
                          std::string_view after_name, std::string_view after_upload_id) const = 0;
};

}  // namespace headrace
