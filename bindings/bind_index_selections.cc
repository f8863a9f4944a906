#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "convert.h"
#include "errors.h"
#include "headrace/dataset/roots.h"
#include "object_index.h"
#include "waiting.h"

namespace headrace::python {
namespace {

nb::object concat_all(const std::vector<std::shared_ptr<const ObjectIndex>>& indexes) {
  return to_python(value_or_raise(without_gil([&](MayBlock) { return concat(indexes); })));
}

nb::object concat_indexes(nb::handle indexes) {
  std::vector<std::shared_ptr<const ObjectIndex>> parts;
  for_each(indexes, [&parts](nb::handle each) {
    if (!nb::isinstance<IndexHandle>(each)) {
      raise_type_error("an ObjectIndex is needed, not %.100s", type_name_of(each).c_str());
    }
    parts.push_back(nb::inst_ptr<IndexHandle>(each)->index);
  });
  return concat_all(parts);
}

nb::object add(const IndexHandle& self, nb::handle other) {
  if (!nb::isinstance<IndexHandle>(other)) return nb::borrow(Py_NotImplemented);
  return concat_all({self.index, nb::inst_ptr<IndexHandle>(other)->index});
}

// A URL or a path as a root.
std::string to_root(nb::handle url) {
  return value_or_raise(normal_root(std::string(Text{fspath(url)})));
}

nb::object index_at(const IndexHandle& self, nb::handle where, bool keep_generations) {
  const ObjectIndex& index = *self.index;
  std::vector<std::string> roots = index.roots();
  if (PyMapping_Check(where.ptr()) && !PyUnicode_Check(where.ptr())) {
    const nb::object items_of = attribute(where, "items");
    const nb::object items = in_python([&] { return items_of(); });
    for_each(items, [&](nb::handle item) {
      const nb::object pair = nb::borrow(item);
      const std::string from = to_root(nb::object(pair[0]));
      const auto found = std::ranges::find(index.roots(), from);
      if (found == index.roots().end()) {
        raise(Error(Code::kInvalidArgument,
                    cat(from, " is no root of this index; it has ", some_of(index.roots(), 5))));
      }
      roots[static_cast<size_t>(found - index.roots().begin())] = to_root(nb::object(pair[1]));
    });
  } else if (roots.size() > 1) {
    raise(Error(Code::kInvalidArgument,
                cat("the index has ", roots.size(), " roots, ", some_of(roots, 5),
                    ": at({root: url, ...}) says which goes where")));
  } else {
    roots[0] = to_root(where);
  }
  return to_python(value_or_raise(
      without_gil([&](MayBlock) { return at_roots(index, roots, keep_generations); })));
}

nb::object index_rebased(nb::handle_t<IndexHandle> self, nb::handle url) {
  const std::string root = to_root(url);
  const std::shared_ptr<const ObjectIndex>& index = nb::inst_ptr<IndexHandle>(self)->index;
  std::shared_ptr<const ObjectIndex> made =
      value_or_raise(without_gil([&](MayBlock) { return rebased(index, root); }));
  if (made == index) return nb::borrow(self);
  return to_python(std::move(made));
}

std::vector<std::string> to_suffixes(nb::handle suffix) {
  std::vector<std::string> out;
  if (suffix.is_none()) return out;
  const auto add = [&out](nb::handle each) {
    if (!nb::try_cast(each, out.emplace_back())) {
      throw nb::type_error("`suffix` must be a str or several, each of them Unicode text");
    }
  };
  if (PyUnicode_Check(suffix.ptr())) {
    add(suffix);
    return out;
  }
  for_each(suffix, add);
  if (out.empty()) raise(Error(Code::kInvalidArgument, "`suffix` is an empty collection"));
  return out;
}

std::optional<uint64_t> to_bound(const char* name, nb::handle value) {
  if (value.is_none()) return {};
  const nb::object number = PyBool_Check(value.ptr()) ? nb::object() : to_index(value);
  const unsigned long long bound = number.is_valid() ? PyLong_AsUnsignedLongLong(number.ptr()) : 0;
  if (!number.is_valid() || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise_type_error("`%s` is %.300R; it must be an int of at least 0", name, value.ptr());
  }
  return bound;
}

nb::object windows_of(const IndexHandle& self, nb::handle window, nb::handle stride,
                      nb::handle begins, nb::handle ends) {
  const ObjectIndex& index = *self.index;
  const uint64_t window_bytes = to_bound("window_bytes", window).value_or(0);
  const uint64_t stride_bytes = to_bound("stride_bytes", stride).value_or(window_bytes);
  std::vector<ByteRange> parts;
  if (!begins.is_none() || !ends.is_none()) {
    for (size_t i = 0; i < index.size(); ++i) parts.push_back({0, index.size_bytes(i)});
  }
  const auto set = [&](const char* name, nb::handle values, uint64_t ByteRange::* side) {
    if (values.is_none()) return;
    const nb::object given = nb::steal(in_python([&] { return PySequence_Tuple(values.ptr()); }));
    if (!given.is_valid()) throw nb::python_error();
    if (nb::len(given) != parts.size()) {
      raise(Error(Code::kInvalidArgument,
                  cat(name, " has ", nb::len(given), " values for ", parts.size(), " entries")));
    }
    size_t at = 0;
    for (const nb::handle each : nb::iter(given)) {
      ByteRange& part = parts[at++];
      part.*side = to_bound(name, each).value_or(part.*side);
    }
  };
  set("begins", begins, &ByteRange::begin);
  set("ends", ends, &ByteRange::end);
  return to_python(value_or_raise(
      without_gil([&](MayBlock) { return windows(index, window_bytes, stride_bytes, parts); })));
}

std::string to_text(const char* name, nb::handle value) {
  std::string out;
  if (value.is_none() || nb::try_cast(value, out)) return out;
  raise_type_error("`%s` is %.300R; it must be a str of Unicode text", name, value.ptr());
}

// By hand, because nanobind's own error for an unknown keyword lists signatures.
nb::object filter_index(const IndexHandle& self, const nb::args& args, const nb::kwargs& wanted) {
  constexpr const char* kKnown =
      "prefix=, suffix=, glob=, min_size_bytes=, max_size_bytes= and leave_out=";
  if (!args.empty()) {
    raise_type_error("filter() takes keywords only: %s", kKnown);
  }
  IndexFilter filtered;
  for (const auto& [key, value] : wanted) {
    const auto name = nb::cast<std::string>(key);
    if (name == "prefix") {
      filtered.prefix = to_text("prefix", value);
    } else if (name == "suffix") {
      filtered.suffixes = to_suffixes(value);
    } else if (name == "glob") {
      if (value.is_none()) continue;
      filtered.glob = value_or_raise(Glob::parse(to_text("glob", value)));
    } else if (name == "min_size_bytes") {
      filtered.min_size_bytes = to_bound("min_size_bytes", value).value_or(0);
    } else if (name == "max_size_bytes") {
      filtered.max_size_bytes = to_bound("max_size_bytes", value).value_or(UINT64_MAX);
    } else if (name == "leave_out") {
      if (value.is_none()) continue;
      filtered.leave_out = to_text("leave_out", value);
    } else {
      raise_type_error("filter() has no argument %s=; it has %s", name.c_str(), kKnown);
    }
  }
  return select_positions(*self.index,
                          without_gil([&](MayBlock) { return filter(*self.index, filtered); }));
}

}  // namespace

// Indexes of some of the entries, or of others made from them.
void bind_index_selections(Class<IndexHandle>& index_class) {
  index_class.def("__add__", &add, "other"_a)
      .def(
          "select",
          [](const IndexHandle& self, nb::handle indices) {
            return select_positions(*self.index, to_positions(indices, self.index->size()));
          },
          "indices"_a)
      .def("filter", &filter_index)
      .def("windows", &windows_of, "window_bytes"_a, "stride_bytes"_a = nb::none(), nb::kw_only(),
           "begins"_a = nb::none(), "ends"_a = nb::none())
      .def_static("concat", &concat_indexes, "indexes"_a)
      .def("at", &index_at, "url"_a, nb::kw_only(), "keep_generations"_a = false)
      .def("rebased", &index_rebased, "url"_a);
}

}  // namespace headrace::python
