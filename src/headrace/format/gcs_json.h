// The answers of Google Cloud Storage's JSON API.
// https://cloud.google.com/storage/docs/json_api/v1/objects
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/column_page.h"
#include "headrace/format/object_info.h"

namespace headrace {

// Each of these fails with kCorrupt on JSON that is truncated or has the wrong types, and never
// returns the part that could be read: half a listing looks like a small bucket. Unknown members
// are ignored. 64-bit numbers may be JSON strings, as the service writes them, or numbers, as some
// emulators do.

// An object resource. `name` is required; "size" and the rest may be missing (a `fields`
// parameter).
Result<ObjectInfo> parse_gcs_object(std::string_view json);

// objects.list. An empty listing has no "items".
Result<ColumnPage> parse_gcs_list(std::string_view json);

// objects.rewrite: a copy that may need more calls with `token`.
struct GcsRewrite {
  bool done = false;
  std::string token = {};  // "" once done
  ObjectInfo object = {};  // only once done
};
Result<GcsRewrite> parse_gcs_rewrite(std::string_view json);

struct GcsError {
  std::string message = {}, reason = {};
  int code = 0;  // 0 if the body says none
};
// Never fails: a body that is not the service's JSON (XML, a proxy's HTML, nothing) gives its first
// 200 printable characters as the message.
GcsError parse_gcs_error(std::string_view body);

}  // namespace headrace
