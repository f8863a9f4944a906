// The prefix of every name of a store: the path of its URL inside the bucket.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/column_page.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/object_info.h"

namespace headrace {

inline constexpr const char* kEmptyName = "an object's name must not be empty";

// Callers use names below the root; services use full names. A protocol prepends the root, suitably
// encoded; strip() takes it off the names in answers.
// Thread: any (immutable).
class Root {
 public:
  Root() = default;  // the bucket itself: names are full names
  // "run", "run/" and "run//" are the same root; "" is the bucket itself.
  explicit Root(std::string_view path);

  const std::string& text() const { return text_; }  // "" or ends with one '/'
  bool is_bucket() const { return text_.empty(); }
  std::string full_name(std::string_view name) const { return cat(text_, name); }

  // Errors: kCorrupt for a name that is not below the root.
  Result<void> strip(std::string& name) const;
  Result<void> strip(ObjectInfo& info) const { return strip(info.name); }
  // An object with the root's own name, which bucket browsers create to show a folder, is counted
  // and left out: it has no name below the root.
  Result<void> strip(ColumnPage& page) const;
  Result<void> strip(UploadsPage& page) const;

 private:
  Result<void> check(std::string_view name) const;
  std::string text_;
};

}  // namespace headrace
