#include "text.h"

#include <array>
#include <charconv>
#include <chrono>
#include <ctime>

namespace faultserver {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool unreserved(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '_' || c == '.' || c == '~';
}

template <typename T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::tm utc(int64_t us) {
  const time_t seconds = static_cast<time_t>(us / 1'000'000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return parts;
}

}  // namespace

std::string percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
        hex_value(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' && plus_is_space ? ' ' : text[i];
    }
  }
  return out;
}

std::string percent_encode(std::string_view text) {
  constexpr char kUpper[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size() + 16);
  for (const char c : text) {
    if (unreserved(c)) {
      out += c;
    } else {
      const auto byte = static_cast<uint8_t>(c);
      out += {'%', kUpper[byte >> 4], kUpper[byte & 15]};
    }
  }
  return out;
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  uint32_t bits = 0;
  int bit_count = 0;
  for (const char c : bytes) {
    bits = (bits << 8) | static_cast<uint8_t>(c);
    for (bit_count += 8; bit_count >= 6; bit_count -= 6) {
      out += kBase64[(bits >> (bit_count - 6)) & 63];
    }
  }
  if (bit_count > 0) out += kBase64[(bits << (6 - bit_count)) & 63];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int bit_count = 0;
  for (const char c : text) {
    const size_t value = kBase64.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(value);
    bit_count += 6;
    if (bit_count >= 8) {
      bit_count -= 8;
      out += static_cast<char>((bits >> bit_count) & 255);
    }
  }
  return out;
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    out += {kHexDigits[byte >> 4], kHexDigits[byte & 15]};
  }
  return out;
}

std::string hex16(uint64_t value) {
  std::string out(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) out[i] = kHexDigits[value & 15];
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return out;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const char x = a[i] >= 'A' && a[i] <= 'Z' ? static_cast<char>(a[i] | 32) : a[i];
    const char y = b[i] >= 'A' && b[i] <= 'Z' ? static_cast<char>(b[i] | 32) : b[i];
    if (x != y) return false;
  }
  return true;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<uint64_t> parse_u64(std::string_view text) { return parse<uint64_t>(text); }
std::optional<int64_t> parse_i64(std::string_view text) { return parse<int64_t>(text); }

void append_number(std::string& out, uint64_t value) { append_padded(out, value, 1); }

void append_padded(std::string& out, uint64_t value, int width) {
  std::array<char, 24> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  const auto length = static_cast<int>(end - digits.data());
  if (length < width) out.append(static_cast<size_t>(width - length), '0');
  out.append(digits.data(), static_cast<size_t>(length));
}

int64_t now_us() {
  using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::system_clock;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

std::string iso_time(int64_t us) {
  const std::tm parts = utc(us);
  std::array<char, 32> text;
  std::string out(text.data(),
                  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S.", &parts));
  append_padded(out, static_cast<uint64_t>(us % 1'000'000) / 1000, 3);
  return out + "Z";
}

std::string http_date(int64_t us) {
  const std::tm parts = utc(us);
  std::array<char, 40> text;
  return std::string(text.data(),
                     std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts));
}

void append_utf8(std::string& out, uint32_t character) {
  const auto put = [&out](uint32_t bits) { out += static_cast<char>(bits); };
  const auto put_rest = [&](int count) {
    for (int i = count - 1; i >= 0; --i) put(0x80 | ((character >> (6 * i)) & 63));
  };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0 | (character >> 6));
    put_rest(1);
  } else if (character < 0x10000) {
    put(0xE0 | (character >> 12));
    put_rest(2);
  } else {
    put(0xF0 | (character >> 18));
    put_rest(3);
  }
}

std::string xml_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&apos;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace faultserver
