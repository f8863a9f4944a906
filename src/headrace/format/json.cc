#include "headrace/format/json.h"

#include <cstring>
#include <vector>

namespace headrace {
namespace {

namespace dom = simdjson::dom;

// One parser a thread: it keeps its tables and the padded copy of the text from page to page. The
// DOM is taken, not On-Demand, because it looks at all of the text (a cut answer must not pass) and
// because it chooses its instruction set at run time.
class JsonParser {
 public:
  Result<dom::element> parse(std::string_view json) {
    if (json.size() > kMaxBytes) return corrupt("JSON of ", json.size(), " bytes");
    if (padded_.size() < json.size() + simdjson::SIMDJSON_PADDING) {
      padded_.resize(json.size() + simdjson::SIMDJSON_PADDING);
    }
    if (!json.empty()) std::memcpy(padded_.data(), json.data(), json.size());
    dom::element root;
    const simdjson::error_code error =
        parser_.parse(padded_.data(), json.size(), /*realloc_if_needed=*/false).get(root);
    if (error != simdjson::SUCCESS) {
      return corrupt("malformed JSON: ", simdjson::error_message(error));
    }
    return root;
  }

 private:
  static constexpr size_t kMaxBytes = size_t{256} << 20;
  dom::parser parser_;
  std::vector<char> padded_;
};

}  // namespace

Result<dom::element> parse_json(std::string_view json) {
  thread_local JsonParser parser;
  return parser.parse(json);
}

void MemberReader::text(const char* name, std::string& out) {
  std::string_view value;
  const std::optional<dom::element> element = find(name);
  if (!element) return;
  if (element->get(value) != simdjson::SUCCESS) return fail(name);
  out = value;
}

void MemberReader::boolean(const char* name, bool& out) {
  const std::optional<dom::element> element = find(name);
  if (element && element->get(out) != simdjson::SUCCESS) fail(name);
}

bool MemberReader::object(const char* name, dom::object& out) {
  const std::optional<dom::element> element = find(name);
  if (element && element->get(out) != simdjson::SUCCESS) fail(name);
  return element.has_value();
}

bool MemberReader::array(const char* name, dom::array& out) {
  const std::optional<dom::element> element = find(name);
  if (element && element->get(out) != simdjson::SUCCESS) fail(name);
  return element.has_value();
}

std::optional<dom::element> MemberReader::find(const char* name) const {
  dom::element element;
  if (object_[name].get(element) != simdjson::SUCCESS || element.is_null()) return std::nullopt;
  return element;
}

}  // namespace headrace
