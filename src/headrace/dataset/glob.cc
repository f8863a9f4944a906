#include "headrace/dataset/glob.h"

#include <algorithm>

namespace headrace {
namespace {

// The code point at text[at], and where the next one begins. A byte that is no UTF-8 is a character
// of its own, also where it begins a longer form of what fewer bytes say: `[` is one byte.
std::pair<uint32_t, size_t> character_at(std::string_view text, size_t at) {
  const auto byte = [text](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(text[i]));
  };
  constexpr uint32_t kBeyondUnicode = 0x110000;
  const uint32_t first = byte(at);
  const size_t length = first < 0x80             ? 1
                        : (first & 0xE0) == 0xC0 ? 2
                        : (first & 0xF0) == 0xE0 ? 3
                        : (first & 0xF8) == 0xF0 ? 4
                                                 : 0;
  if (length == 1) return {first, at + 1};
  uint32_t value = length == 0 ? 0 : first & (0x7Fu >> length);
  bool good = length != 0 && at + length <= text.size();
  for (size_t i = 1; good && i < length; ++i) {
    good = (byte(at + i) & 0xC0) == 0x80;
    value = value << 6 | (byte(at + i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  good = good && value >= kLeast[length] && value < kBeyondUnicode;
  if (!good) return {kBeyondUnicode + first, at + 1};
  return {value, at + length};
}

}  // namespace

Result<Glob> Glob::parse(std::string_view pattern) {
  Glob out;
  size_t at = 0;
  while (at < pattern.size()) {
    const auto [character, next] = character_at(pattern, at);
    const bool new_folder = at == 0 || pattern[at - 1] == '/';
    if (pattern.substr(at).starts_with("**/") && new_folder) {
      out.tokens_.push_back({.kind = Kind::kFolders});
      at += 3;
    } else if (pattern.substr(at).starts_with("**")) {
      out.tokens_.push_back({.kind = Kind::kAnything});
      at += 2;
    } else if (character == '[') {
      Token token{.kind = Kind::kOneOf};
      at = next;
      if (at < pattern.size() && pattern[at] == '!') {
        token.negated = true;
        ++at;
      }
      // A ']' that comes first is one of the characters.
      const size_t begin = at;
      while (at < pattern.size() && (pattern[at] != ']' || at == begin)) {
        const auto [first, after] = character_at(pattern, at);
        uint32_t last = first;
        at = after;
        if (at + 1 < pattern.size() && pattern[at] == '-' && pattern[at + 1] != ']') {
          const auto [end, after_end] = character_at(pattern, at + 1);
          last = end;
          at = after_end;
        }
        if (last < first) {
          return invalid_argument("the pattern '", pattern, "' has a range that is upside down");
        }
        token.ranges.emplace_back(first, last);
      }
      if (at >= pattern.size()) {
        return invalid_argument("the pattern '", pattern, "' has a '[' without its ']'");
      }
      out.tokens_.push_back(std::move(token));
      ++at;
    } else {
      const Kind kind = character == '*'   ? Kind::kStar
                        : character == '?' ? Kind::kAnyOne
                                           : Kind::kCharacter;
      out.tokens_.push_back({.kind = kind, .ranges = {{character, character}}});
      at = next;
    }
  }
  return out;
}

bool Glob::takes(const Token& token, uint32_t character) {
  const auto among = [&token, character] {
    return std::ranges::any_of(token.ranges, [character](const auto& range) {
      return range.first <= character && character <= range.second;
    });
  };
  switch (token.kind) {
    case Kind::kCharacter: return character == token.ranges[0].first;
    case Kind::kAnyOne: return character != '/';
    case Kind::kOneOf: return character != '/' && among() != token.negated;
    case Kind::kStar:
    case Kind::kAnything:
    case Kind::kFolders: break;
  }
  return false;
}

// Goes on with as little as each wildcard can take, and comes back to the last one to let it take
// more. Earlier ones need no second thought: whatever they could take besides, the last one can
// take as well. For a star that holds within a folder, and beyond it the last `**` decides.
bool Glob::matches(std::string_view name) const {
  struct Return {
    bool possible = false;
    size_t token = 0, at = 0;  // where to go on, and what has been taken so far
    bool folders = false;
  } star, anything;
  size_t token = 0, at = 0;
  for (;;) {
    if (token == tokens_.size() && at == name.size()) return true;
    if (token < tokens_.size()) {
      const Token& next = tokens_[token];
      if (next.kind == Kind::kStar) {
        star = {.possible = true, .token = ++token, .at = at};
        continue;
      }
      if (next.kind == Kind::kAnything || next.kind == Kind::kFolders) {
        anything = {
            .possible = true, .token = ++token, .at = at, .folders = next.kind == Kind::kFolders};
        star = {};
        continue;
      }
      if (at < name.size()) {
        const auto [character, after] = character_at(name, at);
        if (takes(next, character)) {
          ++token;
          at = after;
          continue;
        }
      }
    }
    if (star.possible && star.at < name.size() && name[star.at] != '/') {
      star.at = character_at(name, star.at).second;
      token = star.token;
      at = star.at;
      continue;
    }
    if (!anything.possible || anything.at == name.size()) return false;
    if (anything.folders) {
      const size_t slash = name.find('/', anything.at);
      if (slash == std::string_view::npos) return false;
      anything.at = slash + 1;
    } else {
      anything.at = character_at(name, anything.at).second;
    }
    token = anything.token;
    at = anything.at;
    star = {};
  }
}

}  // namespace headrace
