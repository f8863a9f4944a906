// Patterns for names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

// Matches whole names: `*` is any characters but '/', `?` one of them, `[a-z]` and `[!a-z]` one
// that is (not) among those, `**` anything; `**/` at the beginning or after a '/' is any number of
// folders, or none. All else stands for itself; `[*]` is a star. A character is a code point of
// UTF-8.
// Thread: any (immutable).
class Glob {
 public:
  // Errors: kInvalidArgument for a bracket without its end, or a range that is upside down.
  static Result<Glob> parse(std::string_view pattern);

  // Takes no longer than length of name × (length of name + pattern).
  bool matches(std::string_view name) const;

 private:
  enum class Kind : uint8_t { kCharacter, kAnyOne, kOneOf, kStar, kAnything, kFolders };
  struct Token {
    Kind kind;
    bool negated = false;
    std::vector<std::pair<uint32_t, uint32_t>> ranges = {};  // first and last; one for kCharacter
  };
  static bool takes(const Token& token, uint32_t character);

  std::vector<Token> tokens_;
};

}  // namespace headrace
