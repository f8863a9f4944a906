#include "headrace/format/percent.h"

#include <array>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

constexpr std::array<bool, 256> kUnreserved = [] {
  std::array<bool, 256> unreserved{};
  for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789-._~")) {
    unreserved[static_cast<unsigned char>(c)] = true;
  }
  return unreserved;
}();

void encode(std::string& out, std::string_view text, bool keep_slash) {
  constexpr std::string_view kHex = "0123456789ABCDEF";  // RFC 3986, 2.1, asks for capitals
  const auto stays = [&](char c) {
    return kUnreserved[static_cast<unsigned char>(c)] || (keep_slash && c == '/');
  };
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && stays(text[end])) ++end;
    out.append(text.substr(i, end - i));  // most names are one run
    if (end < text.size()) {
      const auto byte = static_cast<unsigned char>(text[end++]);
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
    i = end;
  }
}

}  // namespace

std::string percent_encode(std::string_view text) {
  std::string out;
  encode(out, text, /*keep_slash=*/false);
  return out;
}

void percent_encode_to(std::string& out, std::string_view text) {
  encode(out, text, /*keep_slash=*/false);
}

std::string percent_encode_path(std::string_view text) {
  std::string out;
  encode(out, text, /*keep_slash=*/true);
  return out;
}

void percent_encode_path_to(std::string& out, std::string_view text) {
  encode(out, text, /*keep_slash=*/true);
}

Result<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      return invalid_argument("a '%' without two hexadecimal digits at byte ", i);
    }
    out += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return out;
}

bool form_decode_to(std::string& out, std::string_view text) {
  if (text.find('%') == text.npos && text.find('+') == text.npos) {  // most names
    out.append(text);
    return true;
  }
  const size_t begin = out.size();
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && text[plain] != '%' && text[plain] != '+') ++plain;
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    if (text[0] == '+') {
      out += ' ';
      text.remove_prefix(1);
      continue;
    }
    const int high = text.size() > 2 ? hex_value(text[1]) : -1;
    const int low = text.size() > 2 ? hex_value(text[2]) : -1;
    if (high < 0 || low < 0) {
      out.resize(begin);
      return false;
    }
    out += static_cast<char>(high << 4 | low);
    text.remove_prefix(3);
  }
  return true;
}

Result<std::string> form_decode(std::string_view text) {
  std::string out;
  if (!form_decode_to(out, text)) {
    return invalid_argument("a '%' without two hexadecimal digits");
  }
  return out;
}

}  // namespace headrace
