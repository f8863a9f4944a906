#include "headrace/store/temporary_names.h"

#include <algorithm>
#include <bit>

#include "headrace/base/ascii.h"
#include "headrace/base/random.h"
#include "headrace/store/root.h"

namespace headrace {
namespace {

constexpr size_t kCompositeDigits = 32;

}  // namespace

TemporaryNames::TemporaryNames(std::string_view prefix)
    : composites_(Root(prefix).full_name(kCompositePrefix)),
      uploads_(Root(prefix).full_name(kUploadPrefix)),
      first_{kCompositePrefix.front(), kUploadPrefix.front(), composites_.front()} {}

bool TemporaryNames::hides(std::string_view name, std::string_view asked_prefix) const {
  // Of millions of names hardly any gets further than its first character.
  if (name.empty() || std::ranges::find(first_, name.front()) == first_.end()) return false;
  for (const std::string_view hidden :
       {kCompositePrefix, kUploadPrefix, std::string_view(composites_),
        std::string_view(uploads_)}) {
    if (name.starts_with(hidden)) return !asked_prefix.starts_with(hidden);
  }
  return false;
}

bool TemporaryNames::is_own_composite(std::string_view name) const {
  if (!name.starts_with(composites_)) return false;
  name.remove_prefix(composites_.size());
  if (!name.starts_with(kCompositeMark)) return false;
  name.remove_prefix(kCompositeMark.size());
  return name.size() == kCompositeDigits && std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

void TemporaryNames::hide(ColumnPage& page, std::string_view asked_prefix) const {
  std::erase_if(page.prefixes,
                [&](const std::string& prefix) { return hides(prefix, asked_prefix); });
  page.erase_if([&](std::string_view name) { return hides(name, asked_prefix); });
}

std::string TemporaryNames::new_upload() const {
  const auto bytes = std::bit_cast<std::array<uint8_t, 16>>(
      std::array<uint64_t, 2>{random_number(), random_number()});
  std::string text = uploads_;
  for (const uint8_t byte : bytes) {
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text + "/";
}

}  // namespace headrace
