// headrace.ObjectIndex as the bindings hold it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "documented.h"
#include "headrace/dataset/object_index.h"

namespace headrace::python {

// Thread: confined (the GIL).
struct IndexHandle {
  std::shared_ptr<const ObjectIndex> index;
  std::string fingerprint = {};  // "" until requested
  bool has_name_table = false;   // built by the first find()
};

nb::object to_python(std::shared_ptr<const ObjectIndex> index);

// Python's rule for positions: -1 is the last. Raises IndexError.
size_t checked_position(int64_t position, size_t count);
// Converts a sequence or a buffer of Python values to a column of one type.
// Raises InvalidArgumentError, naming `name`, if that is not possible.
ColumnValues to_column(std::string_view name, nb::handle values);
// Converts a sequence or a buffer of integers, in which None is -1.
std::vector<int64_t> to_optional_integers(std::string_view name, nb::handle values);
// The result of index.column(): int64 and float64 as a memoryview, texts as a list.
nb::object to_python(const ColumnValues& values);

// Positions from Python: a buffer of int64 (array, memoryview, NumPy array) or a sequence of
// integers, checked against `count`.
std::vector<size_t> to_positions(nb::handle positions, size_t count);
// An index of the entries at these positions.
nb::object select_positions(const ObjectIndex& index, const std::vector<size_t>& positions);

// For messages: "a, b and 3 more".
std::string some_of(const std::vector<std::string>& texts, size_t most);

// bind_index_makers.cc: from_objects(), from_names() and from_urls().
void bind_index_makers(Class<IndexHandle>& index_class);
// bind_index_selections.cc: indexes of some of the entries, or made of other indexes.
void bind_index_selections(Class<IndexHandle>& index_class);

}  // namespace headrace::python
