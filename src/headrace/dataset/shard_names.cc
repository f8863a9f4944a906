#include "headrace/dataset/shard_names.h"

#include <utility>

namespace headrace {
namespace {

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

MemberName split_member_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return {};
  if (name.starts_with("__")) {
    // "__meta__", and what lies below a folder of such a name.
    const std::string_view first = name.substr(0, name.find('/'));
    if (first.size() >= 4 && first.ends_with("__")) return {};
  }
  return {.key = name.substr(0, dot), .field = name.substr(dot + 1), .has_key = true};
}

void ShardNames::begin_shard() {
  keys_.clear();
  fields_.clear();
}

Result<ShardNames::Place> ShardNames::add(std::string_view name) {
  const MemberName parts = split_member_name(name);
  if (!parts.has_key) return Place{};
  Place place{.has_key = true, .begins_sample = fields_.empty() || parts.key != key_};
  if (place.begins_sample) {
    key_ = parts.key;
    fields_.clear();
    if (!keys_.insert(key_).second) {
      return invalid_argument("the sample '", key_,
                              "' is in two places of the shard, with others between them: pack it "
                              "sample by sample, with each key once");
    }
  }
  std::string field = lower_case(parts.field);
  if (field == "__key__" || field == "__url__") {
    return invalid_argument("the member '", name, "': samples have a '", field, "' of their own");
  }
  if (fields_.size() == kMaxSampleFields) {
    return invalid_argument("the member '", name, "': its sample has ", kMaxSampleFields,
                            " fields already, and may have no more. A sample's key ends at the "
                            "first dot: pack members whose names differ before it");
  }
  const auto [at, is_new] = fields_.insert(std::move(field));
  if (!is_new) {
    return invalid_argument("the member '", name, "': its sample has a field '", *at, "' already");
  }
  place.field = *at;
  return place;
}

}  // namespace headrace
