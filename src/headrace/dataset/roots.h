// URLs that names are relative to. Sans-IO.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

// A URL as a root is written: "gs://bucket", "gs://bucket/run", "file:///data", "data"; with no
// slash at its end but for "file:///". One that has none and one that has one are the same root.
// Errors: kInvalidArgument for what is no URL.
Result<std::string> normal_root(std::string_view url);

// The URL of what is called `name` below `root`. Below the root "", which nobody has told, that is
// the name itself.
std::string url_below(std::string_view root, std::string_view name);

// The name below `root` of what has this URL, or nothing where it lies elsewhere. Both are written
// normally.
std::optional<std::string_view> name_below(std::string_view root, std::string_view url);

// The bucket of a root: "gs://bucket"; of files "file:///", of a path that is not absolute ".".
std::string_view bucket_of(std::string_view root);

}  // namespace headrace
