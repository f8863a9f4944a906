// Names of the temporary objects that headrace writes and deletes.
//
// They are full names: whatever the store's root is, they are at the root of the bucket, or below
// the prefix that the store was given for them. They are not data, so listings omit them unless the
// listing's prefix asks for them. Composites share their prefix with other programs that compose
// objects on the server.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "headrace/format/column_page.h"
#include "headrace/format/object_info.h"

namespace headrace {

inline constexpr std::string_view kCompositePrefix = "dataflux-composed-objects/";
inline constexpr std::string_view kUploadPrefix = "headrace-uploads/";
// What follows kCompositePrefix in our names, before 32 hexadecimal digits.
inline constexpr std::string_view kCompositeMark = "headrace-";

// Thread: any (immutable).
class TemporaryNames {
 public:
  TemporaryNames() : TemporaryNames("") {}
  // "team/tmp" and "team/tmp/" are the same; "": the bucket's root.
  explicit TemporaryNames(std::string_view prefix);

  const std::string& composites() const { return composites_; }
  const std::string& uploads() const { return uploads_; }

  // The beginning of names below uploads() that nobody else uses: 128 random bits and '/'.
  std::string new_upload() const;

  // Whether a listing of `asked_prefix` omits `name`. Temporary objects at the bucket's root are
  // hidden in any case, since other stores may write them.
  bool hides(std::string_view name, std::string_view asked_prefix) const;
  // Whether headrace composed it to be read once: composites(), kCompositeMark, 32 digits.
  bool is_own_composite(std::string_view name) const;

  // Remove hidden objects and prefixes from a page.
  void hide(ColumnPage& page, std::string_view asked_prefix) const;

 private:
  const std::string composites_, uploads_;
  const std::array<char, 3> first_;  // characters that hidden names begin with
};

}  // namespace headrace
