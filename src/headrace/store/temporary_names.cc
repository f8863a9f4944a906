#include "headrace/store/temporary_names.h"

#include <algorithm>
#include <string>
#include <vector>

namespace headrace {
namespace {

constexpr size_t kCompositeDigits = 32;

void hide(std::vector<std::string>& prefixes, std::string_view asked_prefix) {
  std::erase_if(prefixes, [asked_prefix](const std::string& prefix) {
    return is_hidden(prefix, asked_prefix);
  });
}

}  // namespace

bool is_hidden(std::string_view name, std::string_view asked_prefix) {
  for (const std::string_view hidden : {kCompositePrefix, kUploadPrefix}) {
    if (name.starts_with(hidden)) return !asked_prefix.starts_with(hidden);
  }
  return false;
}

bool is_own_composite(std::string_view name) {
  if (!name.starts_with(kCompositePrefix)) return false;
  name.remove_prefix(kCompositePrefix.size());
  if (!name.starts_with(kCompositeMark)) return false;
  name.remove_prefix(kCompositeMark.size());
  return name.size() == kCompositeDigits && std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

void hide_temporaries(ObjectPage& page, std::string_view asked_prefix) {
  hide(page.prefixes, asked_prefix);
  std::erase_if(page.objects, [asked_prefix](const ObjectInfo& object) {
    return is_hidden(object.name, asked_prefix);
  });
}

void hide_temporaries(ColumnPage& page, std::string_view asked_prefix) {
  hide(page.prefixes, asked_prefix);
  page.erase_if([asked_prefix](std::string_view name) { return is_hidden(name, asked_prefix); });
}

}  // namespace headrace
