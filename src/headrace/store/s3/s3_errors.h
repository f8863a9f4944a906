// What S3's errors mean.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

inline bool is_one_of(std::string_view code, std::initializer_list<std::string_view> codes) {
  return std::ranges::find(codes, code) != codes.end();
}

// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
Code s3_code_of(int status, std::string_view code);
// The status that this error comes with, where it is noticed in time; none: no such error is known.
std::optional<int> s3_status_of(std::string_view code);

}  // namespace headrace
