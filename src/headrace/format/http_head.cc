#include "headrace/format/http_head.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <functional>
#include <string>

namespace headrace {
namespace {

namespace http = boost::beast::http;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

// Beast tokenises, and refuses both framings in one head and a second Transfer-Encoding. What it
// lets pass and two readers could understand differently is refused here.
class HeadParser final : public http::basic_parser<false> {
 public:
  HeadParser(std::string_view bytes, std::vector<HeaderField>& fields)
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

}  // namespace

std::optional<std::string_view> ResponseHead::find(std::string_view name) const {
  for (const HeaderField& field : fields_) {
    if (same_name(field.name, name)) return field.value;
  }
  return std::nullopt;
}

void ResponseHead::clear() {
  status = 0;
  content_length.reset();
  chunked = false;
  keep_alive = false;
  fields_.clear();
}

Result<size_t> parse_response_head(std::string_view bytes, ResponseHead& head) {
  head.clear();
  // Looking for the end first keeps a head that comes byte by byte from being parsed again for each
  // byte; looking at the beginning first tells at once that this is no HTTP (a TLS port, say).
  constexpr std::string_view kBeginning = "HTTP/1.";
  const size_t compared = std::min(bytes.size(), kBeginning.size());
  if (bytes.substr(0, compared) != kBeginning.substr(0, compared)) {
    return fail(Code::kUnavailable, "the answer is not HTTP/1");
  }
  const size_t end = bytes.substr(0, kMaxResponseHeadBytes).find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (bytes.size() < kMaxResponseHeadBytes) return size_t{0};
    return fail(Code::kUnavailable, "the answer's head is longer than ", kMaxResponseHeadBytes,
                " bytes");
  }
  const std::string_view whole = bytes.substr(0, end + 4);
  HeadParser parser(whole, head.fields_);
  boost::beast::error_code error;
  const size_t consumed = parser.put(boost::asio::const_buffer(whole.data(), whole.size()), error);
  if (error || !parser.is_header_done() || consumed != whole.size()) {
    head.clear();
    return fail(Code::kUnavailable, "the answer's head is malformed: ",
                parser.refusal() != nullptr ? std::string(parser.refusal()) : error.message());
  }
  head.status = parser.status();
  if (const auto length = parser.content_length()) head.content_length = *length;
  head.chunked = parser.chunked();
  head.keep_alive = parser.keep_alive();
  return whole.size();
}

}  // namespace headrace
