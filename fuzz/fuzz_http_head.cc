// A head is the same however it arrives: incomplete before its last byte, the same after it. Every
// view lies in the input, and two framings never stand in one head.
#include <algorithm>
#include <string>

#include "fuzz/check.h"
#include "headrace/format/http_head.h"

using namespace headrace;
using fuzz::check;

namespace {

bool lies_in(std::string_view part, std::string_view whole) {
  return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::as_text(data, size);
  ResponseHead head;
  const Result<size_t> head_bytes = parse_response_head(bytes, head);
  fuzz::Choices choices(bytes);
  const size_t cut = size == 0 ? 0 : choices() % size;
  ResponseHead early;
  const Result<size_t> early_bytes = parse_response_head(bytes.substr(0, cut), early);

  if (!head_bytes) {
    check(head_bytes.error().code() == Code::kUnavailable && head.fields().empty());
    return 0;
  }
  check(*head_bytes <= size);
  if (*head_bytes == 0) {  // then no beginning of it is complete, or wrong
    check(early_bytes.has_value() && *early_bytes == 0);
    return 0;
  }
  check(early_bytes.has_value() && *early_bytes == (cut < *head_bytes ? 0 : *head_bytes));

  check(head.status >= 100 && head.status <= 999);
  check(!(head.chunked && head.content_length));
  check(head.fields().size() <= kMaxResponseHeadFields);
  std::string rebuilt = cat("HTTP/1.1 ", head.status, " \r\n");
  for (const HeaderField& field : head.fields()) {
    check(lies_in(field.name, bytes.substr(0, *head_bytes)) && !field.name.empty());
    check(lies_in(field.value, bytes.substr(0, *head_bytes)));
    check(field.name.find_first_of("\r\n: ") == std::string_view::npos);
    check(field.value.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos);
    check(head.find(field.name).has_value());
    rebuilt += cat(field.name, ":", field.value, "\r\n");
  }
  rebuilt += "\r\n";

  // Written again from what was understood, it says the same.
  if (rebuilt.size() > kMaxResponseHeadBytes) return 0;
  ResponseHead again;
  const Result<size_t> again_bytes = parse_response_head(rebuilt, again);
  check(again_bytes.has_value() && *again_bytes == rebuilt.size());
  check(again.status == head.status && again.content_length == head.content_length);
  check(again.chunked == head.chunked);
  check(std::ranges::equal(again.fields(), head.fields(), [](const auto& a, const auto& b) {
    return a.name == b.name && a.value == b.value;
  }));
  return 0;
}
