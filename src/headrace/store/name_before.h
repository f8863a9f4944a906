// Where a listing begins whose pages begin after a name.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// The name after which a page must begin so that it has `name`, and as little as possible before
// it. Some names between the two may come, too.
std::string name_before(std::string_view name);

}  // namespace headrace
