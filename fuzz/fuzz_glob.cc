// A pattern (the first line) matches names (the others) as a matcher that tries everything says.
#include <string>
#include <string_view>

#include "fuzz/check.h"
#include "headrace/dataset/glob.h"

using namespace headrace;
using fuzz::check;

namespace {

bool is_plain(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80 || c == '[') return false;
  }
  return true;
}

// For ASCII without brackets. Exponential, therefore for short texts only.
bool expected(std::string_view whole, size_t at, std::string_view name) {
  const std::string_view pattern = whole.substr(at);
  if (pattern.empty()) return name.empty();
  if (pattern.starts_with("**/") && (at == 0 || whole[at - 1] == '/')) {
    if (expected(whole, at + 3, name)) return true;
    for (size_t i = 0; i < name.size(); ++i) {
      if (name[i] == '/' && expected(whole, at + 3, name.substr(i + 1))) return true;
    }
    return false;
  }
  if (pattern.starts_with("**")) {
    for (size_t i = 0; i <= name.size(); ++i) {
      if (expected(whole, at + 2, name.substr(i))) return true;
    }
    return false;
  }
  if (pattern[0] == '*') {
    for (size_t i = 0; i <= name.size(); ++i) {
      if (expected(whole, at + 1, name.substr(i))) return true;
      if (i < name.size() && name[i] == '/') return false;
    }
    return false;
  }
  if (name.empty()) return false;
  const bool takes = pattern[0] == '?' ? name[0] != '/' : name[0] == pattern[0];
  return takes && expected(whole, at + 1, name.substr(1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMostPattern = 10, kMostName = 12;
  std::string_view text = fuzz::as_text(data, size);
  const std::string_view pattern = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), pattern.size() + 1));
  const Result<Glob> glob = Glob::parse(pattern);
  if (!glob) {
    check(glob.error().code() == Code::kInvalidArgument);
    check(pattern.find('[') != std::string_view::npos);
    return 0;
  }
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
    const bool matches = glob->matches(name);
    if (is_plain(pattern) && is_plain(name) && pattern.size() <= kMostPattern &&
        name.size() <= kMostName) {
      check(matches == expected(pattern, 0, name));
    }
    if (pattern == name && is_plain(name) && name.find_first_of("*?") == std::string_view::npos) {
      check(matches);
    }
  }
  return 0;
}
