// headrace.ObjectIndex as the bindings hold it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convert.h"
#include "headrace/dataset/object_index.h"

namespace headrace::python {

// Thread: confined (the GIL).
struct IndexHandle {
  std::shared_ptr<const ObjectIndex> index;
  std::string fingerprint = {};  // "" until somebody asks
};

nb::object to_python(std::shared_ptr<const ObjectIndex> index);

// Python's rule for positions: -1 is the last. Raises IndexError.
size_t checked_position(int64_t position, size_t count);
// Positions as they come from Python: a buffer of int64 (array, memoryview, NumPy array), or a
// sequence of integers, checked against `count`.
std::vector<size_t> to_positions(nb::handle positions, size_t count);

}  // namespace headrace::python
