// The URLs that names are relative to. Sans-IO.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

// The canonical form of a URL as a root: "gs://bucket", "gs://bucket/run", "file:///data", "data",
// without a trailing slash except in "file:///". "gs://bucket/run" and "gs://bucket/run/" are the
// same root.
// Errors: kInvalidArgument if it is not a URL.
Result<std::string> normal_root(std::string_view url);

// The URL of `name` below `root`. Below the root "", which means unknown, it is the name itself.
std::string url_below(std::string_view root, std::string_view name);

// The name of this URL below `root`, or none if it is elsewhere. Both must be in canonical form.
std::optional<std::string_view> name_below(std::string_view root, std::string_view url);

// The bucket of a root: "gs://bucket"; of files "file:///", of a path that is not absolute ".".
std::string_view bucket_of(std::string_view root);

}  // namespace headrace
