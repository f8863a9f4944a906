#include "json.h"

#include <array>
#include <charconv>

#include "text.h"

namespace faultserver {
namespace {

constexpr int kMaxDepth = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Json> whole() {
    std::optional<Json> value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) return std::nullopt;
    return value;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::optional<Json> parse_value(int depth) {
    skip_space();
    if (depth > kMaxDepth || at_ >= text_.size()) return std::nullopt;
    switch (text_[at_]) {
      case '{': return parse_object(depth);
      case '[': return parse_array(depth);
      case '"': {
        std::optional<std::string> text = parse_string();
        if (!text) return std::nullopt;
        return Json(std::move(*text));
      }
      case 't': return take_word("true") ? std::optional<Json>(Json(true)) : std::nullopt;
      case 'f': return take_word("false") ? std::optional<Json>(Json(false)) : std::nullopt;
      case 'n': return take_word("null") ? std::optional<Json>(Json()) : std::nullopt;
      default: return parse_number();
    }
  }

  std::optional<Json> parse_number() {
    size_t end = at_;
    while (end < text_.size() && std::string_view("+-.0123456789eE").contains(text_[end])) ++end;
    const std::string_view digits = text_.substr(at_, end - at_);
    at_ = end;
    if (const std::optional<int64_t> whole = parse_i64(digits)) return Json(*whole);
    double value = 0;
    const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || last != digits.data() + digits.size()) return std::nullopt;
    return Json(value);
  }

  std::optional<uint32_t> parse_hex4() {
    uint32_t value = 0;
    if (at_ + 4 > text_.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(&text_[at_], &text_[at_] + 4, value, 16);
    if (error != std::errc{} || end != &text_[at_] + 4) return std::nullopt;
    at_ += 4;
    return value;
  }

  static void append_utf8(std::string& out, uint32_t code) {
    const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xc0 | (code >> 6));
      put(0x80 | (code & 63));
    } else if (code < 0x10000) {
      put(0xe0 | (code >> 12));
      put(0x80 | ((code >> 6) & 63));
      put(0x80 | (code & 63));
    } else {
      put(0xf0 | (code >> 18));
      put(0x80 | ((code >> 12) & 63));
      put(0x80 | ((code >> 6) & 63));
      put(0x80 | (code & 63));
    }
  }

  std::optional<std::string> parse_string() {
    ++at_;
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ >= text_.size()) return std::nullopt;
      switch (const char escaped = text_[at_++]) {
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'u': {
          std::optional<uint32_t> code = parse_hex4();
          if (!code) return std::nullopt;
          if (*code >= 0xd800 && *code < 0xdc00 && take_word("\\u")) {
            const std::optional<uint32_t> low = parse_hex4();
            if (!low) return std::nullopt;
            code = 0x10000 + ((*code - 0xd800) << 10) + ((*low - 0xdc00) & 0x3ff);
          }
          append_utf8(out, *code);
          break;
        }
        default: out += escaped;
      }
    }
    return std::nullopt;
  }

  std::optional<Json> parse_array(int depth) {
    ++at_;
    Json::Array values;
    if (take(']')) return Json(std::move(values));
    while (true) {
      std::optional<Json> value = parse_value(depth + 1);
      if (!value) return std::nullopt;
      values.push_back(std::move(*value));
      if (take(']')) return Json(std::move(values));
      if (!take(',')) return std::nullopt;
    }
  }

  std::optional<Json> parse_object(int depth) {
    ++at_;
    Json::Object members;
    if (take('}')) return Json(std::move(members));
    while (true) {
      skip_space();
      if (at_ >= text_.size() || text_[at_] != '"') return std::nullopt;
      std::optional<std::string> name = parse_string();
      if (!name || !take(':')) return std::nullopt;
      std::optional<Json> value = parse_value(depth + 1);
      if (!value) return std::nullopt;
      members.emplace_back(std::move(*name), std::move(*value));
      if (take('}')) return Json(std::move(members));
      if (!take(',')) return std::nullopt;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Json> Json::parse(std::string_view text) { return Parser(text).whole(); }

void append_json_string(std::string& out, std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += "\\u00";
      out += {kDigits[static_cast<uint8_t>(c) >> 4], kDigits[static_cast<uint8_t>(c) & 15]};
    } else {
      out += c;
    }
  }
  out += '"';
}

void Json::append_to(std::string& out) const {
  if (is_null()) {
    out += "null";
  } else if (const auto* flag = std::get_if<bool>(&value_)) {
    out += *flag ? "true" : "false";
  } else if (const auto* whole = std::get_if<int64_t>(&value_)) {
    out += std::to_string(*whole);
  } else if (const auto* real = std::get_if<double>(&value_)) {
    std::array<char, 40> digits;
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), *real);
    out.append(digits.data(), end);
  } else if (const auto* string = std::get_if<std::string>(&value_)) {
    append_json_string(out, *string);
  } else if (is_array()) {
    out += '[';
    for (const Json& value : array()) {
      if (out.back() != '[') out += ',';
      value.append_to(out);
    }
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [name, value] : object()) {
      if (!first) out += ',';
      first = false;
      append_json_string(out, name);
      out += ':';
      value.append_to(out);
    }
    out += '}';
  }
}

std::string Json::dump() const {
  std::string out;
  append_to(out);
  return out;
}

const Json& Json::operator[](std::string_view name) const {
  static const Json none;
  for (const auto& [member, value] : object()) {
    if (member == name) return value;
  }
  return none;
}

bool Json::boolean(bool otherwise) const {
  const auto* value = std::get_if<bool>(&value_);
  return value ? *value : otherwise;
}

int64_t Json::integer(int64_t otherwise) const {
  if (const auto* whole = std::get_if<int64_t>(&value_)) return *whole;
  if (const auto* real = std::get_if<double>(&value_)) return static_cast<int64_t>(*real);
  if (const auto* string = std::get_if<std::string>(&value_)) {
    return parse_i64(*string).value_or(otherwise);
  }
  return otherwise;
}

double Json::number(double otherwise) const {
  if (const auto* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(&value_);
  return real ? *real : otherwise;
}

std::string Json::text(std::string_view otherwise) const {
  if (const auto* string = std::get_if<std::string>(&value_)) return *string;
  if (const auto* whole = std::get_if<int64_t>(&value_)) return std::to_string(*whole);
  return std::string(otherwise);
}

const Json::Array& Json::array() const {
  static const Array none;
  const auto* values = std::get_if<Array>(&value_);
  return values ? *values : none;
}

const Json::Object& Json::object() const {
  static const Object none;
  const auto* members = std::get_if<Object>(&value_);
  return members ? *members : none;
}

}  // namespace faultserver
