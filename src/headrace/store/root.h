// What stands before every name of a store: its URL's path inside the bucket.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/column_page.h"
#include "headrace/format/multipart_xml.h"
#include "headrace/format/object_info.h"

namespace headrace {

// Callers say names below the root, services hear and answer full names. A protocol writes the root
// before a name, in the encoding of the place; strip() takes it off what the service answered.
// Thread: any (immutable).
class Root {
 public:
  Root() = default;  // the bucket's own: full names
  // "run", "run/" and "run//" are the same root; "" is the bucket's own.
  explicit Root(std::string_view path);

  const std::string& text() const { return text_; }  // "" or ends with one '/'
  bool is_bucket() const { return text_.empty(); }
  std::string full_name(std::string_view name) const { return cat(text_, name); }

  // Errors: kCorrupt for a name that is not below the root.
  Result<void> strip(std::string& name) const;
  Result<void> strip(ObjectInfo& info) const { return strip(info.name); }
  // The object that has the root's own name, which browsers of buckets put there to show a folder,
  // is counted and left out: it has no name here.
  Result<void> strip(ObjectPage& page) const;
  Result<void> strip(ColumnPage& page) const;
  Result<void> strip(UploadsPage& page) const;

 private:
  Result<void> check(std::string_view name) const;
  std::string text_;
};

}  // namespace headrace
