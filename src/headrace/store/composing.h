// Objects that the server makes of others.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/base/result.h"
#include "headrace/format/object_info.h"
#include "headrace/http/message.h"
#include "headrace/store/options.h"
#include "headrace/store/response.h"

namespace headrace {

// Composes objects on the server.
// Thread: any (immutable).
class Composing {
 public:
  virtual ~Composing() = default;
  virtual uint32_t max_sources() const = 0;
  // `scratch` owns the request's body.
  virtual void build_compose(HttpRequest& request, const ComposeRequest& compose,
                             std::string& scratch) const = 0;
  virtual Result<ObjectInfo> parse_composed(const Response& response) const = 0;
};

}  // namespace headrace
