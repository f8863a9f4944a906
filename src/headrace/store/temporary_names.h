// Names of the objects that headrace writes for a moment and deletes again.
//
// They are full names: they lie at the bucket's root whatever a store's root is, or below the
// prefix that the store was given for them. Nothing there is data: listings leave it out unless
// they ask for what lies there. Composites share their prefix with other programs that join objects
// on the server.
#pragma once

#include <string>
#include <string_view>

#include "headrace/format/column_page.h"
#include "headrace/format/object_info.h"

namespace headrace {

inline constexpr std::string_view kCompositePrefix = "dataflux-composed-objects/";
inline constexpr std::string_view kUploadPrefix = "headrace-uploads/";
// What stands behind kCompositePrefix in names of ours, before 32 hexadecimal digits.
inline constexpr std::string_view kCompositeMark = "headrace-";

// Thread: any (immutable).
class TemporaryNames {
 public:
  TemporaryNames() : TemporaryNames("") {}
  // "team/tmp" and "team/tmp/" are the same; "": the bucket's root.
  explicit TemporaryNames(std::string_view prefix);

  const std::string& composites() const { return composites_; }
  const std::string& uploads() const { return uploads_; }

  // A listing of what begins with `asked_prefix` does not show `name`. What lies at the bucket's
  // root is hidden in any case: other stores write it.
  bool hides(std::string_view name, std::string_view asked_prefix) const;
  // It was composed by headrace, to be read once: composites(), kCompositeMark, 32 digits.
  bool is_own_composite(std::string_view name) const;

  // Take hidden objects and prefixes off a page.
  void hide(ObjectPage& page, std::string_view asked_prefix) const;
  void hide(ColumnPage& page, std::string_view asked_prefix) const;

 private:
  const std::string composites_, uploads_;
};

}  // namespace headrace
