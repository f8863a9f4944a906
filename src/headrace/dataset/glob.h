// Patterns for names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

// Matches whole names. `*` is any characters except '/', `?` a single one, `[a-z]` and `[!a-z]` one
// that is (not) in the set, `**` anything; `**/` at the beginning or after a '/' is any number of
// folders, including none. Everything else matches itself; `[*]` is a star. A character is a code
// point of UTF-8.
// Thread: any (immutable).
class Glob {
 public:
  // Errors: kInvalidArgument for a bracket that is not closed, or a range whose ends are reversed.
  static Result<Glob> parse(std::string_view pattern);

  // Takes time proportional to at most length of name × (length of name + length of pattern).
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
