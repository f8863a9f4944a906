// Names of the objects that headrace writes for a moment and deletes again.
//
// They lie below two prefixes, and nothing there is data: listings leave it out unless they ask for
// what lies there. The first one is shared with other programs that join objects on the server.
#pragma once

#include <string_view>

#include "headrace/format/column_page.h"
#include "headrace/format/object_info.h"

namespace headrace {

inline constexpr std::string_view kCompositePrefix = "dataflux-composed-objects/";
inline constexpr std::string_view kUploadPrefix = "headrace-uploads/";
// What stands behind kCompositePrefix in names of ours, before 32 hexadecimal digits.
inline constexpr std::string_view kCompositeMark = "headrace-";

// A listing of what begins with `asked_prefix` does not show `name`.
bool is_hidden(std::string_view name, std::string_view asked_prefix);
// It was composed by headrace, to be read once: kCompositePrefix, kCompositeMark, 32 digits.
bool is_own_composite(std::string_view name);

// Takes hidden objects and prefixes off a page.
void hide_temporaries(ObjectPage& page, std::string_view asked_prefix);
void hide_temporaries(ColumnPage& page, std::string_view asked_prefix);

}  // namespace headrace
