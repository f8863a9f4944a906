#include "headrace/store/root.h"

#include "headrace/format/json_quote.h"

namespace headrace {

Root::Root(std::string_view path) : text_(path) {
  while (text_.ends_with('/')) text_.pop_back();
  if (!text_.empty()) text_ += '/';
}

Result<void> Root::check(std::string_view name) const {
  if (name.starts_with(text_)) return {};
  return corrupt("the server answered with the name ", json_quote(name),
                 ", which is not below the root ", json_quote(text_));
}

Result<void> Root::strip(std::string& name) const {
  if (Result<void> below = check(name); !below) return below;
  name.erase(0, text_.size());
  return {};
}

Result<void> Root::strip(ColumnPage& page) const {
  if (is_bucket()) return {};
  page.placeholders +=
      static_cast<uint32_t>(page.erase_if([this](std::string_view name) { return name == text_; }));
  for (size_t i = 0; i < page.size(); ++i) {
    if (Result<void> below = check(page.name(i)); !below) return below;
  }
  page.cut_names(text_.size());
  for (std::string& prefix : page.prefixes) {
    if (Result<void> stripped = strip(prefix); !stripped) return stripped;
  }
  return {};
}

Result<void> Root::strip(UploadsPage& page) const {
  for (UnfinishedUpload& upload : page.uploads) {
    if (Result<void> stripped = strip(upload.name); !stripped) return stripped;
  }
  // Where the next page starts: one of the names, or a longer one.
  return page.next_name.empty() ? Result<void>() : strip(page.next_name);
}

}  // namespace headrace
