// A head is the same however it arrives: incomplete before its last byte, the same after it. Every
// view lies in the input, and two framings never stand in one head. And it is what Beast makes of
// it (Boost's parser), where that is as strict.
#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <functional>
#include <string>

#include "fuzz/check.h"
#include "headrace/format/http_head.h"

using namespace headrace;
using fuzz::check;

namespace {

namespace http = boost::beast::http;

bool same_name(std::string_view a, std::string_view b) {
  return boost::beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

// Beast refuses both framings in one head and a second Transfer-Encoding. What it lets pass and two
// readers could understand differently is refused here, as it is by us.
class BeastParser final : public http::basic_parser<false> {
 public:
  BeastParser(std::string_view bytes, std::vector<HeaderField>& fields)
      : bytes_(bytes), fields_(fields) {
    header_limit(static_cast<uint32_t>(kMaxResponseHeadBytes));
    body_limit(boost::none);
  }

  int status() const { return status_; }
  const char* refusal() const { return refusal_; }  // null if Beast itself said no

 private:
  using ErrorCode = boost::beast::error_code;
  using StringView = boost::beast::string_view;

  void refuse(const char* why, ErrorCode& error) {
    refusal_ = why;
    error = http::error::bad_field;
  }

  void on_response_impl(int code, StringView, int, ErrorCode& error) override {
    status_ = code;
    if (code < 100) refuse("its status is not in 100 to 999", error);
  }

  void on_field_impl(http::field field, StringView name, StringView value,
                     ErrorCode& error) override {
    // Beast joins folded lines in a buffer of its own, which would leave a dangling view, and skips
    // an empty first line: then the line break lies between name and value.
    const std::less<> before;
    const char* const name_end = name.data() + name.size();
    const char* const bytes_end = bytes_.data() + bytes_.size();
    const bool is_ours =
        !before(value.data(), name_end) && !before(bytes_end, value.data() + value.size());
    if (!is_ours || std::find(name_end, value.data(), '\n') != value.data()) {
      return refuse("a field goes over several lines", error);
    }
    if (fields_.size() == kMaxResponseHeadFields) return refuse("it has too many fields", error);
    if (field == http::field::content_length) {
      if (saw_length_) return refuse("Content-Length is given twice", error);
      saw_length_ = true;
      if (!std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; })) {
        return refuse("Content-Length is no number", error);
      }
    }
    if (field == http::field::transfer_encoding) {
      if (!same_name({value.data(), value.size()}, "chunked")) {
        return refuse("its transfer coding is not chunked", error);
      }
    }
    fields_.push_back({.name = {name.data(), name.size()}, .value = {value.data(), value.size()}});
  }

  void on_header_impl(ErrorCode&) override {}
  void on_finish_impl(ErrorCode&) override {}
  // Not reached: only the head is put in.
  void on_request_impl(http::verb, StringView, StringView, int, ErrorCode&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, ErrorCode&) override {}
  size_t on_body_impl(StringView body, ErrorCode&) override { return body.size(); }
  void on_chunk_header_impl(uint64_t, StringView, ErrorCode&) override {}
  size_t on_chunk_body_impl(uint64_t, StringView body, ErrorCode&) override { return body.size(); }

  const std::string_view bytes_;
  std::vector<HeaderField>& fields_;
  int status_ = 0;
  bool saw_length_ = false;
  const char* refusal_ = nullptr;
};

bool same_fields(std::span<const HeaderField> a, std::span<const HeaderField> b) {
  return std::ranges::equal(a, b, [](const HeaderField& x, const HeaderField& y) {
    return x.name == y.name && x.value == y.value;
  });
}

// `head`: what we made of the head `whole`, or null if we refused it.
void compare_with_beast(std::string_view given, const ResponseHead* head) {
  // Beast wants a blank behind the status also where no reason follows.
  constexpr size_t kReasonAt = std::string_view("HTTP/1.1 200").size();
  std::string whole(given);
  if (given.size() > kReasonAt && given[kReasonAt] == '\r') whole.insert(kReasonAt, " ");
  std::vector<HeaderField> fields;
  BeastParser parser(whole, fields);
  boost::beast::error_code error;
  const size_t consumed = parser.put(boost::asio::const_buffer(whole.data(), whole.size()), error);
  const bool accepted = !error && parser.is_header_done() && consumed == whole.size();
  check(accepted == (head != nullptr));
  if (!accepted) return;
  check(parser.status() == head->status && same_fields(fields, head->fields()));
  const auto length = parser.content_length();
  check(length.has_value() == head->content_length.has_value());
  check(!length || *length == *head->content_length);
  check(parser.chunked() == head->chunked && parser.keep_alive() == head->keep_alive);
}

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

  const size_t end = bytes.substr(0, kMaxResponseHeadBytes).find("\r\n\r\n");
  if (bytes.starts_with("HTTP/1.") && end != std::string_view::npos) {
    compare_with_beast(bytes.substr(0, end + 4), head_bytes ? &head : nullptr);
  }
  if (!head_bytes) {
    check(head_bytes.error().code() == Code::kUnavailable && head.fields().empty());
    check(!early_bytes || *early_bytes == 0);  // what is wrong is wrong to the end
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
  check(same_fields(again.fields(), head.fields()));
  return 0;
}
