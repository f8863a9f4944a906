// The errors of S3 and its kind: documents that come with a bad status, and sometimes with a good
// one. https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

class XmlDocument;

// The contents of an error document, each "" or none where it is missing. The texts are for people:
// one line of printable characters, at most 200 of them.
struct XmlError {
  std::string code = {}, message = {};
  std::string region = {}, endpoint = {}, bucket = {};  // where the bucket is found
  std::string request_id = {};
  std::optional<uint64_t> object_bytes = {};  // of an object that ends before a range begins
  // What time it is there: part of a refusal for a clock that is off.
  std::optional<std::chrono::system_clock::time_point> server_time = {};
};

// Without a code if it is no error document.
XmlError parse_xml_error(std::string_view xml);
// The same of what came with a good status, which usually is none (null): that costs a look at its
// beginning. Without a code if it is one that cannot be read.
std::optional<XmlError> parse_late_xml_error(std::string_view xml);
XmlError read_xml_error(const XmlDocument& document);

}  // namespace headrace
