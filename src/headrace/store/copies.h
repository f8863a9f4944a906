// Objects that are copied on the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/http_head.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/object_info.h"
#include "headrace/http/message.h"
#include "headrace/store/options.h"
#include "headrace/store/response.h"

namespace headrace {

// What describes an object besides its bytes, as headers that a new object is given.
using ObjectMetadata = std::vector<std::pair<std::string, std::string>>;

// An object that is copied.
struct CopySource {
  ObjectInfo info = {};
  ObjectMetadata metadata = {};
};

// A part of a multipart upload that the server copies from another object.
struct CopiedPart {
  std::string_view source_name = {}, source_generation = {};
  ByteRange range = {};
  std::string_view name = {}, upload_id = {};
  uint32_t part_number = 1;
};

struct CopyStep {
  bool done = false;
  std::string token;
  std::optional<ObjectInfo> object;  // the copy, if the response describes it
};

// Multipart uploads whose parts are ranges of another object, for objects that are too large to be
// copied by one request. Such an upload is completed and aborted like any other.
// Thread: any (immutable).
class PartCopies {
 public:
  virtual ~PartCopies() = default;
  // Of the object that this response to a stat is about.
  virtual ObjectMetadata metadata(const ResponseHead& head) const = 0;
  virtual void build_start(HttpRequest& request, std::string_view name,
                           const ObjectMetadata& metadata) const = 0;
  virtual void build_part(HttpRequest& request, const CopiedPart& part) const = 0;
  virtual Result<SentPart> parse_part(const Response& response, uint32_t part_number) const = 0;
};

// Copies objects on the server.
// Thread: any (immutable).
class Copies {
 public:
  virtual ~Copies() = default;
  // Whether every service that speaks this looks at the conditions of a copy. If not, the target is
  // looked at first, which is less than a condition and more than nothing.
  virtual bool is_conditional() const = 0;
  // `token`: of the step before; "": the first.
  virtual void build_copy(HttpRequest& request, const CopyRequest& copy,
                          std::string_view token) const = 0;
  virtual Result<CopyStep> parse_copy(const Response& response) const = 0;
  // Null: one request copies an object of any size.
  virtual const PartCopies* in_parts() const = 0;
};

}  // namespace headrace
