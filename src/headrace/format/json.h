// JSON, read with simdjson: what gcs_json and the ais_* parsers share.
#pragma once

#include <simdjson.h>

#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "headrace/base/result.h"

namespace headrace {

// All of the text is looked at: an answer that was cut off is malformed. The element lives until
// the next call on this thread. Errors: kCorrupt.
Result<simdjson::dom::element> parse_json(std::string_view json);

// "123" or 123. False for anything else, and for what does not fit.
template <class Integer>
bool to_number(const simdjson::dom::element& element, Integer& out) {
  uint64_t value = 0;
  std::string_view digits;
  if (element.get(digits) == simdjson::SUCCESS) {
    // Up to 19 digits fit in any case, so that none has to be checked for an overflow.
    constexpr size_t kAlwaysFit = 19;
    if (digits.empty()) return false;
    if (digits.size() > kAlwaysFit) {
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc() || end != digits.data() + digits.size()) return false;
    } else {
      for (const char c : digits) {
        if (c < '0' || c > '9') return false;
        value = value * 10 + static_cast<uint64_t>(c - '0');
      }
    }
  } else if (element.get(value) != simdjson::SUCCESS) {
    return false;
  }
  if (value > std::numeric_limits<Integer>::max()) return false;
  out = static_cast<Integer>(value);
  return true;
}

// Reads members of one object and remembers the first that has the wrong type. A member that is
// missing or null leaves its default. Thread: confined. Borrows the object.
class MemberReader {
 public:
  explicit MemberReader(const simdjson::dom::object& object) : object_(object) {}

  void text(const char* name, std::string& out);
  void boolean(const char* name, bool& out);
  template <class Integer>
  void number(const char* name, Integer& out) {
    const std::optional<simdjson::dom::element> element = find(name);
    if (element && !to_number(*element, out)) fail(name);
  }
  // False if the member is missing.
  bool object(const char* name, simdjson::dom::object& out);
  bool array(const char* name, simdjson::dom::array& out);

  void fail(const char* name) {
    if (wrong_ == nullptr) wrong_ = name;
  }
  const char* wrong() const { return wrong_; }  // null if all is well

 private:
  std::optional<simdjson::dom::element> find(const char* name) const;

  const simdjson::dom::object& object_;
  const char* wrong_ = nullptr;
};

}  // namespace headrace
