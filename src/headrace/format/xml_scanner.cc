#include "headrace/format/xml_scanner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "headrace/base/ascii.h"
#include "headrace/format/utf8.h"

namespace headrace {
namespace {

bool is_white_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_white_space(std::string_view text) {
  return is_white_space(text.front()) && text.find_first_not_of(kXmlWhiteSpace) == text.npos;
}

// What names consist of; each byte beyond ASCII counts as a letter.
constexpr uint8_t kInNames = 1, kBeginsNames = 2, kColon = 4;
constexpr auto kNameCharacters = [] {
  std::array<uint8_t, 256> kinds{};
  for (size_t byte = 128; byte < kinds.size(); ++byte) kinds[byte] = kInNames | kBeginsNames;
  for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")) {
    kinds[static_cast<uint8_t>(c)] = kInNames | kBeginsNames;
  }
  for (const char c : std::string_view("0123456789-.")) kinds[static_cast<uint8_t>(c)] = kInNames;
  kinds[static_cast<uint8_t>(':')] = kInNames | kBeginsNames | kColon;
  return kinds;
}();

const char* skip_white_space(const char* at) {
  while (is_white_space(*at)) ++at;
  return at;
}

uint8_t kind_of(char c) { return kNameCharacters[static_cast<uint8_t>(c)]; }
bool begins_name(char c) { return (kind_of(c) & kBeginsNames) != 0; }

// The text between the '&' that `rest` begins with and its ';', "" if there is none.
std::string_view reference_name(std::string_view rest) {
  constexpr size_t kLongest = 16;  // with zeros in front
  const size_t end = rest.substr(0, kLongest + 1).find(';');
  return end == rest.npos ? std::string_view() : rest.substr(1, end - 1);
}

// The character of that name, 0 if there is none. Names of objects may have what XML 1.0 has not,
// which S3 refers to all the same.
char32_t referred_character(std::string_view name) {
  if (name == "quot") return U'"';
  if (name == "amp") return U'&';
  if (name == "lt") return U'<';
  if (name == "gt") return U'>';
  if (name == "apos") return U'\'';
  if (!name.starts_with('#')) return 0;
  name.remove_prefix(1);
  const bool is_hex = name.starts_with('x');
  if (is_hex) name.remove_prefix(1);
  const uint32_t code = parse_number<uint32_t>(name, is_hex ? 16 : 10).value_or(0);
  return code <= 0xD7FF || (code >= 0xE000 && code <= 0x10FFFF) ? code : 0;
}

void append_lines(std::string& out, std::string_view text) {
  while (true) {
    const size_t end = std::min(text.find('\r'), text.size());
    out.append(text.substr(0, end));
    text.remove_prefix(end);
    if (text.empty()) return;
    out += '\n';
    text.remove_prefix(text.starts_with("\r\n") ? 2 : 1);
  }
}

}  // namespace

bool has_good_references(std::string_view xml) {
  const auto is_good = [xml](size_t at) {
    return referred_character(reference_name(xml.substr(at))) != 0;
  };
  size_t at = xml.find('&');
  while (at != xml.npos && is_good(at)) at = xml.find('&', at + 1);
  if (at == xml.npos) return true;
  // A bare one may stand in CDATA and in comments. That is rare, so only now from the beginning.
  for (at = xml.find_first_of("&<"); at != xml.npos; at = xml.find_first_of("&<", at + 1)) {
    const std::string_view rest = xml.substr(at);
    if (rest.starts_with('&')) {
      if (!is_good(at)) return false;
      continue;
    }
    const std::string_view end = rest.starts_with("<![CDATA[") ? "]]>"
                                 : rest.starts_with("<!--")    ? "-->"
                                                               : "";
    if (!end.empty()) at = std::min(xml.find(end, at), xml.size());
  }
  return true;
}

std::string_view XmlText::meant(std::string& scratch) const {
  scratch.clear();
  std::string_view rest = raw;
  while (true) {
    const size_t end = is_cdata ? rest.size() : std::min(rest.find('&'), rest.size());
    append_lines(scratch, rest.substr(0, end));
    rest.remove_prefix(end);
    if (rest.empty()) return scratch;
    const std::string_view name = reference_name(rest);
    const char32_t c = referred_character(name);
    scratch += c == 0 ? "&" : encode_utf8({&c, 1});
    rest.remove_prefix(c == 0 ? 1 : name.size() + 2);
  }
}

XmlScanner::Marks::Marks(std::string_view xml)
    : end_(xml.data() + xml.size()),
      reference_(next('&', std::to_address(xml.begin()))),
      return_(next('\r', std::to_address(xml.begin()))),
      next_(std::min(reference_, return_)) {}

const char* XmlScanner::Marks::next(char c, const char* begin) const {
  if (begin == end_) return end_;
  const void* const found = std::memchr(begin, c, static_cast<size_t>(end_ - begin));
  return found == nullptr ? end_ : static_cast<const char*>(found);
}

void XmlScanner::Marks::search(const char* begin) {
  if (reference_ < begin) reference_ = next('&', begin);
  if (return_ < begin) return_ = next('\r', begin);
  next_ = std::min(reference_, return_);
}

XmlScanner::XmlScanner(std::string_view document)
    : at_(document.data()),
      end_(at_ + (document.find_last_not_of(kXmlWhiteSpace) + 1)),
      marks_({at_, end_}) {
  const std::string_view xml(at_, end_);
  if (xml.starts_with("\xEF\xBB\xBF")) at_ += 3;  // that it is UTF-8
  if (!xml.ends_with('>') || xml.find('\0') != xml.npos || !has_good_references(xml)) fail();
}

bool XmlScanner::enter() {
  // Most elements stand right here: no token in between.
  if (at_ != end_ && *at_ == '<' && !is_empty_ && begins_name(at_[1])) {
    return take_begin() == Token::kBegin;
  }
  while (true) {
    switch (next()) {
      case Token::kBegin: return true;
      case Token::kEnd:
      case Token::kNothing: return false;
      case Token::kText:
      case Token::kCdata: break;
    }
  }
}

void XmlScanner::leave() {
  if (take_rest(text_)) return;
  const size_t depth = open_.size();
  while (depth > 0 && open_.size() >= depth) enter();
}

bool XmlScanner::leave_text(XmlText& text) {
  if (take_rest(text)) return true;
  text = {};
  size_t pieces = 0, sections = 0;
  bool has_elements = false;
  std::string scratch;
  const auto add = [&] {
    if (pieces++ == 0) {
      text = text_;
      return;
    }
    if (pieces == 2) joined_.emplace_front(text.read(scratch));
    joined_.front().append(text_.read(scratch));
    text = {.raw = joined_.front()};
  };
  while (true) {
    switch (next()) {
      case Token::kBegin:
        has_elements = true;
        leave();
        break;
      case Token::kText: {
        const bool is_last = at_[1] == '/';
        if (is_white_space(text_.raw) && (!is_last || sections > 0 || pieces > 1)) break;
        add();
        break;
      }
      case Token::kCdata:
        add();
        ++sections;
        break;
      case Token::kEnd: return !has_elements;
      case Token::kNothing: text = {}; return true;
    }
  }
}

bool XmlScanner::is_whole() {
  do {
    while (!open_.empty()) leave();
  } while (enter());
  return is_good_;
}

XmlScanner::Token XmlScanner::next() {
  if (is_empty_) {
    is_empty_ = false;
    open_.pop_back();
    return Token::kEnd;
  }
  while (at_ != end_) {
    if (*at_ != '<') return take_text();
    switch (at_[1]) {
      case '/': return take_end();
      case '!':
        if (std::string_view(at_, end_).starts_with("<![CDATA[")) return take_cdata();
        if (!skip_comment()) return fail();
        break;
      case '?':
        if (!skip_instruction()) return fail();
        break;
      default: return take_begin();
    }
  }
  return has_root_ && open_.empty() ? Token::kNothing : fail();
}

bool XmlScanner::take_rest(XmlText& text) {
  if (is_empty_ || open_.empty()) return false;
  const std::string_view name = open_.back();
  const char* const end = find('<', at_);
  if (end == nullptr || static_cast<size_t>(end_ - end) < name.size() + 3 || end[1] != '/' ||
      std::memcmp(end + 2, name.data(), name.size()) != 0 || end[2 + name.size()] != '>') {
    return false;
  }
  text = text_between(at_, end);
  at_ = end + name.size() + 3;
  open_.pop_back();
  return true;
}

XmlScanner::Token XmlScanner::take_begin() {
  const char* const begin = at_ + 1;
  if (!begins_name(*begin) || (open_.empty() && has_root_)) return fail();
  if (open_.size() == kMaxDepth) return fail();
  const char* end = begin;
  uint8_t kinds = 0;
  for (uint8_t kind; (kind = kind_of(*end)) != 0; ++end) kinds |= kind;
  const std::string_view name(begin, end);
  name_ = (kinds & kColon) == 0 ? name : name.substr(name.find(':') + 1);
  if (*end != '>') {
    if (is_white_space(*end)) end = skip_attributes(end);
    if (end == nullptr) return fail();
    is_empty_ = *end == '/';
    if (is_empty_) ++end;
    if (*end != '>') return fail();
  }
  at_ = end + 1;
  open_.push_back(name);
  has_root_ = true;
  return Token::kBegin;
}

XmlScanner::Token XmlScanner::take_end() {
  const char* const begin = at_ + 2;
  if (open_.empty() || !std::string_view(begin, end_).starts_with(open_.back())) return fail();
  const char* const end = skip_white_space(begin + open_.back().size());
  if (*end != '>') return fail();
  at_ = end + 1;
  open_.pop_back();
  return Token::kEnd;
}

XmlScanner::Token XmlScanner::take_text() {
  const char* const end = find('<', at_);
  if (end == nullptr) return fail();
  text_ = text_between(at_, end);
  if (open_.empty() && !is_white_space(text_.raw)) return fail();
  at_ = end;
  return Token::kText;
}

XmlScanner::Token XmlScanner::take_cdata() {
  const char* const begin = at_ + std::string_view("<![CDATA[").size();
  if (open_.empty() || !skip_past("]]>", begin)) return fail();
  text_ = text_between(begin, at_ - 3);
  text_.is_cdata = true;
  return Token::kCdata;
}

bool XmlScanner::skip_comment() {
  return std::string_view(at_, end_).starts_with("<!--") && skip_past("-->", at_ + 4);
}

bool XmlScanner::skip_instruction() {
  const char* const begin = at_ + 2;
  if (!begins_name(*begin)) return false;
  const char* end = begin;
  while (kind_of(*end) != 0) ++end;
  // The declaration of XML itself stands in front.
  if (!open_.empty() && same_ignoring_case({begin, end}, "xml")) return false;
  return skip_past("?>", end);
}

bool XmlScanner::skip_past(std::string_view end, const char* begin) {
  const size_t found = std::string_view(begin, end_).find(end);
  if (found == std::string_view::npos) return false;
  at_ = begin + found + end.size();
  return true;
}

const char* XmlScanner::skip_attributes(const char* at) const {
  at = skip_white_space(at);
  while (begins_name(*at)) {
    while (kind_of(*at) != 0) ++at;
    at = skip_white_space(at);
    if (*at != '=') return nullptr;
    at = skip_white_space(at + 1);
    if (*at != '"' && *at != '\'') return nullptr;
    const char* const end = find(*at, at + 1);
    if (end == nullptr || begins_name(end[1])) return nullptr;
    at = skip_white_space(end + 1);
  }
  return at;
}

const char* XmlScanner::find(char c, const char* begin) const {
  return static_cast<const char*>(std::memchr(begin, c, static_cast<size_t>(end_ - begin)));
}

XmlScanner::Token XmlScanner::fail() {
  is_good_ = false;
  at_ = end_;
  open_.clear();
  is_empty_ = false;
  return Token::kNothing;
}

}  // namespace headrace
