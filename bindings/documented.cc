#include "documented.h"

#include <algorithm>

#include "headrace/base/result.h"

namespace headrace::python {

const Documentation& documentation(std::string_view name, std::string_view parameters) {
  const std::span<const Documentation> all = all_documentation();
  const auto found = std::ranges::lower_bound(all, name, {}, &Documentation::name);
  if (found == all.end() || found->name != name) {
    throw nb::import_error(cat("python/headrace/_engine.pyi does not declare ", name).c_str());
  }
  if (!parameters.empty() && parameters != found->parameters) {
    throw nb::import_error(cat("python/headrace/_engine.pyi declares ", name, "(",
                               found->parameters, "), and the bindings define it with (",
                               parameters, ")")
                               .c_str());
  }
  return *found;
}

}  // namespace headrace::python
