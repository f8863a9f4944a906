#include "headrace/format/http_head.h"

#include <algorithm>
#include <array>
#include <bit>

#include "headrace/base/ascii.h"
#include "headrace/format/head_bytes.h"

namespace headrace {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// RFC 9110, 5.6.2: what names are made of.
constexpr auto kTokenCharacters = [] {
  std::array<bool, 256> is_token{};
  for (const char c : std::string_view("0123456789abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&'*+-.^_`|~")) {
    is_token[static_cast<uint8_t>(c)] = true;
  }
  return is_token;
}();

// How much of the beginning of `text` could be a name.
size_t token_size(std::string_view text) {
  size_t size = usual_name_size(text);
  while (size < text.size() && kTokenCharacters[static_cast<uint8_t>(text[size])]) ++size;
  return size;
}

// Where the lines of a head end, found in one pass that also looks for what no line may have.
class Lines {
 public:
  // `bytes` is the part of the head that has arrived, and perhaps some of what follows it. Returns
  // why it is refused, or null.
  const char* find(std::string_view bytes) {
    uint64_t after_return = 0;  // 1 if the bytes before ended with a CR
    size_t line_begin = 0;
    for (size_t at = 0; at < bytes.size(); at += kMaskedBytes) {
      const std::string_view rest = bytes.substr(at);
      uint64_t looked_at = UINT64_MAX;
      HeadMasks masks;
      if (rest.size() >= kMaskedBytes) {
        masks = head_masks(std::span(rest).first<kMaskedBytes>());
      } else {
        std::array<char, kMaskedBytes> padded{};
        std::ranges::copy(rest, padded.begin());
        masks = head_masks(padded);
        looked_at = (uint64_t{1} << rest.size()) - 1;
      }
      for (uint64_t feeds = masks.feeds & looked_at; feeds != 0; feeds &= feeds - 1) {
        const size_t feed = at + static_cast<size_t>(std::countr_zero(feeds));
        if (feed == line_begin + 1) {  // an empty line
          head_bytes_ = feed + 1;
          looked_at = feeds ^ (feeds - 1);  // up to here
          break;
        }
        if (count_ == feeds_.size()) return "it has too many fields";
        feeds_[count_++] = static_cast<uint16_t>(feed);
        line_begin = feed + 1;
      }
      const uint64_t unpaired = masks.feeds ^ (masks.returns << 1 | after_return);
      if (((unpaired | masks.bad) & looked_at) != 0) return "it has control characters";
      if (head_bytes_ != 0) return nullptr;
      after_return = masks.returns >> (kMaskedBytes - 1);
    }
    return nullptr;
  }

  // With the empty line at its end; 0 if that has not come.
  size_t head_bytes() const { return head_bytes_; }
  // The line feeds of the status line and the fields.
  std::span<const uint16_t> feeds() const { return std::span(feeds_).first(count_); }

 private:
  static_assert(kMaxResponseHeadBytes <= size_t{1} << 16);
  std::array<uint16_t, 1 + kMaxResponseHeadFields> feeds_;  // the first count_
  size_t count_ = 0;
  size_t head_bytes_ = 0;
};

// What the fields say about the connection and the body.
struct Framing {
  bool says_close = false;
  bool says_keep_alive = false;

  // Each returns why the head is refused, or null.
  const char* take(const HeaderField& field, ResponseHead& head) {
    // Few fields are as long as one of these.
    switch (field.name.size()) {
      case 14:
        return same_ignoring_case(field.name, "content-length") ? length(field.value, head)
                                                                : nullptr;
      case 17:
        return same_ignoring_case(field.name, "transfer-encoding") ? coding(field.value, head)
                                                                   : nullptr;
      case 10:
        return same_ignoring_case(field.name, "connection") ? connection(field.value) : nullptr;
      case 16:
        return same_ignoring_case(field.name, "proxy-connection") ? connection(field.value)
                                                                  : nullptr;
      default: return nullptr;
    }
  }

 private:
  static const char* length(std::string_view value, ResponseHead& head) {
    if (head.content_length) return "Content-Length is given twice";
    if (head.chunked) return "it has both Content-Length and Transfer-Encoding";
    head.content_length = parse_number(value);
    return head.content_length ? nullptr : "Content-Length is no number";
  }

  static const char* coding(std::string_view value, ResponseHead& head) {
    if (head.chunked) return "Transfer-Encoding is given twice";
    if (head.content_length) return "it has both Content-Length and Transfer-Encoding";
    if (!same_ignoring_case(value, "chunked")) return "its transfer coding is not chunked";
    head.chunked = true;
    return nullptr;
  }

  const char* connection(std::string_view value) {
    while (!value.empty()) {
      const size_t comma = std::min(value.find(','), value.size());
      const std::string_view option = trimmed(value.substr(0, comma));
      if (token_size(option) != option.size()) return "Connection is no list of options";
      says_close |= same_ignoring_case(option, "close");
      says_keep_alive |= same_ignoring_case(option, "keep-alive");
      value.remove_prefix(std::min(comma + 1, value.size()));
    }
    return nullptr;
  }
};

// "HTTP/1.1 200 OK". Returns why it is refused, or null.
const char* take_status_line(std::string_view line, bool& is_http_11, ResponseHead& head) {
  // The version, a blank, three digits, a blank, the reason, which may be empty. Where it is, some
  // servers leave out the blank, too.
  constexpr size_t kDigitsEnd = std::string_view("HTTP/1.1 200").size();
  const std::string_view digits = line.substr(std::min(line.size(), size_t{9}), 3);
  if (line.size() < kDigitsEnd || (line[7] != '0' && line[7] != '1') || line[8] != ' ' ||
      !std::ranges::all_of(digits, is_digit) ||
      (line.size() > kDigitsEnd && line[kDigitsEnd] != ' ')) {
    return "its first line is no status line";
  }
  is_http_11 = line[7] == '1';
  head.status = (digits[0] - '0') * 100 + (digits[1] - '0') * 10 + (digits[2] - '0');
  return head.status < 100 ? "its status is not in 100 to 999" : nullptr;
}

// "Name: value", `line_size` bytes at the beginning of `text`, and then CR LF. Returns why it is
// refused, or null.
const char* take_field(std::string_view text, size_t line_size, HeaderField& field) {
  if (is_blank(text.front())) return "a field goes over several lines";
  const size_t name_size = token_size(text);  // CR is no part of a name
  if (name_size == 0 || text[name_size] != ':') return "a line is no field";
  field = {.name = text.substr(0, name_size),
           .value = trimmed(text.substr(name_size + 1, line_size - name_size - 1))};
  return nullptr;
}

}  // namespace

std::optional<std::string_view> ResponseHead::find(std::string_view name) const {
  for (const HeaderField& field : fields_) {
    if (same_ignoring_case(field.name, name)) return field.value;
  }
  return std::nullopt;
}

void OwnedHead::assign(const ResponseHead& head) {
  size_t text_bytes = 0;
  for (const HeaderField& field : head.fields())
    text_bytes += field.name.size() + field.value.size();
  text_.clear();
  text_.reserve(text_bytes);  // views into it must stay valid
  head_ = head;
  const auto keep = [this](std::string_view& view) {
    const size_t begin = text_.size();
    text_.append(view);
    view = std::string_view(text_).substr(begin);
  };
  for (HeaderField& field : head_.fields_) {
    keep(field.name);
    keep(field.value);
  }
}

void ResponseHead::clear() {
  status = 0;
  content_length.reset();
  chunked = false;
  keep_alive = false;
  fields_.clear();
}

// `whole` ends with the empty line, `feeds` are the line feeds of the others. Returns why it is
// refused, or null.
const char* ResponseHead::take(std::string_view whole, std::span<const uint16_t> feeds) {
  bool is_http_11 = false;
  if (const char* const refusal =
          take_status_line(whole.substr(0, feeds.front() - size_t{1}), is_http_11, *this)) {
    return refusal;
  }
  Framing framing;
  size_t begin = feeds.front() + size_t{1};
  for (const uint16_t feed : feeds.subspan(1)) {
    HeaderField& field = fields_.emplace_back();
    const char* refusal = take_field(whole.substr(begin), feed - 1 - begin, field);
    if (refusal == nullptr) refusal = framing.take(field, *this);
    if (refusal != nullptr) return refusal;
    begin = feed + size_t{1};
  }
  // RFC 9112, 9.3; and a body that is not framed ends with the connection.
  keep_alive = (is_http_11 ? !framing.says_close : framing.says_keep_alive) &&
               (content_length || chunked || never_has_body());
  return nullptr;
}

Result<size_t> parse_response_head(std::string_view bytes, ResponseHead& head) {
  head.clear();
  // Taking fields only once the end is there keeps a head that comes byte by byte from being parsed
  // again for each byte; looking at the beginning first tells at once that this is no HTTP (a TLS
  // port, say).
  constexpr std::string_view kBeginning = "HTTP/1.";
  const size_t compared = std::min(bytes.size(), kBeginning.size());
  if (bytes.substr(0, compared) != kBeginning.substr(0, compared)) {
    return fail(Code::kUnavailable, "the answer is not HTTP/1");
  }
  Lines lines;
  const char* refusal = lines.find(bytes.substr(0, kMaxResponseHeadBytes));
  if (refusal == nullptr && lines.head_bytes() == 0) {
    if (bytes.size() < kMaxResponseHeadBytes) return size_t{0};
    return fail(Code::kUnavailable, "the answer's head is longer than ", kMaxResponseHeadBytes,
                " bytes");
  }
  if (refusal == nullptr) {
    refusal = head.take(bytes.substr(0, lines.head_bytes()), lines.feeds());
  }
  if (refusal != nullptr) {
    head.clear();
    return fail(Code::kUnavailable, "the answer's head is malformed: ", refusal);
  }
  return lines.head_bytes();
}

}  // namespace headrace
