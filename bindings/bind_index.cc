#include <nanobind/stl/vector.h>

#include <algorithm>
#include <vector>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/roots.h"
#include "object_index.h"
#include "waiting.h"

namespace headrace::python {

size_t checked_position(int64_t position, size_t count) {
  const auto size = static_cast<int64_t>(count);
  if (position < -size || position >= size) {
    PyErr_SetString(PyExc_IndexError, cat("object ", position, " of an index that has ", count,
                                          count == 1 ? " object" : " objects")
                                          .c_str());
    throw nb::python_error();
  }
  return static_cast<size_t>(position < 0 ? position + size : position);
}

nb::object to_python(std::shared_ptr<const ObjectIndex> index) {
  return nb::cast(IndexHandle{.index = std::move(index)});
}

nb::object select_positions(const ObjectIndex& index, const std::vector<size_t>& positions) {
  return to_python(value_or_raise(without_gil([&](MayBlock) { return select(index, positions); })));
}

std::string some_of(const std::vector<std::string>& texts, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(texts.size(), most); ++i)
    out += cat(i == 0 ? "" : ", ", texts[i]);
  if (texts.size() > most) out += cat(" and ", texts.size() - most, " more");
  return out;
}

namespace {

// A view of int64 values, if `object` is one. Destroyed with the GIL.
class Int64View {
 public:
  explicit Int64View(nb::handle object) {
    if (!PyObject_CheckBuffer(object.ptr())) return;
    constexpr int kFlags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS;
    if (in_python([&] { return PyObject_GetBuffer(object.ptr(), &view_, kFlags); }) != 0) {
      PyErr_Clear();
      return;
    }
    held_ = true;
    const std::string_view format = view_.format == nullptr ? "B" : view_.format;
    usable_ = view_.ndim == 1 && view_.itemsize == sizeof(int64_t) &&
              (format == "q" || format == "l" || format == "<q" || format == "=q");
  }
  ~Int64View() {
    if (held_) in_python([this] { PyBuffer_Release(&view_); });
  }
  Int64View(const Int64View&) = delete;
  Int64View& operator=(const Int64View&) = delete;

  bool usable() const { return usable_; }
  std::span<const int64_t> values() const {
    return {static_cast<const int64_t*>(view_.buf),
            static_cast<size_t>(view_.len) / sizeof(int64_t)};
  }

 private:
  Py_buffer view_{};
  bool held_ = false, usable_ = false;
};

nb::object get_slice(const ObjectIndex& index, nb::handle slice) {
  Py_ssize_t begin = 0, end = 0, step = 1;
  if (PySlice_Unpack(slice.ptr(), &begin, &end, &step) != 0) throw nb::python_error();
  const Py_ssize_t count =
      PySlice_AdjustIndices(static_cast<Py_ssize_t>(index.size()), &begin, &end, step);
  if (step == 1 || count <= 1) {
    const auto first = static_cast<size_t>(count == 0 ? 0 : begin);
    return to_python(value_or_raise(without_gil([&](MayBlock) {
      return headrace::slice(index, first, first + static_cast<size_t>(count));
    })));
  }
  std::vector<size_t> positions;
  positions.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    positions.push_back(static_cast<size_t>(begin + i * step));
  }
  return select_positions(index, positions);
}

nb::object get_item(const IndexHandle& self, nb::handle key) {
  const ObjectIndex& index = *self.index;
  if (PySlice_Check(key.ptr())) return get_slice(index, key);
  const Py_ssize_t position =
      in_python([key] { return PyNumber_AsSsize_t(key.ptr(), PyExc_IndexError); });
  if (position == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return nb::cast(index.info(checked_position(position, index.size())));
}

ObjectInfo info_of(const IndexHandle& self, int64_t position) {
  return self.index->info(checked_position(position, self.index->size()));
}

nb::str name_of(const IndexHandle& self, int64_t position) {
  std::string name;
  self.index->append_name(checked_position(position, self.index->size()), name);
  return to_str(name);
}

nb::str url_of(const IndexHandle& self, int64_t position) {
  const size_t at = checked_position(position, self.index->size());
  if (self.index->roots()[self.index->root(at)].empty()) {
    raise(Error(Code::kInvalidArgument,
                "the index does not say where its objects are; index.at(url) makes one that does"));
  }
  return to_str(self.index->url(at));
}

nb::object to_size(std::optional<uint64_t> size_bytes) {
  if (!size_bytes || *size_bytes == kUnknownSize) return nb::none();
  return nb::int_(*size_bytes);
}

nb::object size_of(const IndexHandle& self, int64_t position) {
  return to_size(self.index->size_bytes(checked_position(position, self.index->size())));
}

nb::object range_of(const IndexHandle& self, int64_t position) {
  const auto range = self.index->range(checked_position(position, self.index->size()));
  if (!range) return nb::none();
  return nb::make_tuple(range->begin, range->end);
}

nb::object checksum_of(const IndexHandle& self, int64_t position) {
  return to_pair(self.index->checksum(checked_position(position, self.index->size())));
}

nb::object sizes_of(const IndexHandle& self, nb::handle positions) {
  const std::vector<size_t> wanted = to_positions(positions, self.index->size());
  return int64_buffer(wanted.size(), [&](std::span<int64_t> out) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const uint64_t size_bytes = self.index->size_bytes(wanted[i]);
      if (size_bytes > uint64_t{INT64_MAX} && size_bytes != kUnknownSize) {
        raise(Error(Code::kInvalidArgument,
                    cat("object ", wanted[i], " has ", size_bytes, " bytes: more than int64 has")));
      }
      out[i] = size_bytes == kUnknownSize ? -1 : static_cast<int64_t>(size_bytes);
    }
  });
}

uint64_t sum_bytes(const IndexHandle& self, nb::handle positions, uint64_t unknown_bytes) {
  uint64_t sum = 0;
  for (const size_t position : to_positions(positions, self.index->size())) {
    uint64_t size_bytes = self.index->size_bytes(position);
    if (size_bytes == kUnknownSize) size_bytes = unknown_bytes;
    if (size_bytes > UINT64_MAX - sum) {
      raise(Error(Code::kInvalidArgument, "the sizes add up to more than 2^64 bytes"));
    }
    sum += size_bytes;
  }
  return sum;
}

// ── Names ────────────────────────────────────────────────────────────────────────────────────

// The entries that have this name, or the one that has this URL.
std::vector<size_t> find_text(IndexHandle& self, std::string_view text) {
  const ObjectIndex& index = *self.index;
  if (!self.has_name_table) {  // making it takes a moment
    without_gil([&index](MayBlock) { index.find({}); });
    self.has_name_table = true;
  }
  if (const auto found = index.find(text)) {
    if (found->other_roots == 0) return {found->entry};
    return index.find_all(text);
  }
  for (uint32_t root = 0; root < index.roots().size(); ++root) {
    const std::optional<std::string_view> name = name_below(index.roots()[root], text);
    if (!name) continue;
    if (const auto found = index.find(*name, root)) return {found->entry};
  }
  return {};
}

size_t position_of(IndexHandle& self, nb::handle name) {
  constexpr size_t kMostTold = 5;
  if (!PyUnicode_Check(name.ptr())) {
    raise_type_error("a name or a URL is a str, and not %.100s: %.300R", type_name_of(name).c_str(),
                     name.ptr());
  }
  const std::string_view text = utf8_of(name);
  const std::vector<size_t> found = find_text(self, text);
  if (found.size() == 1) return found.front();
  const ObjectIndex& index = *self.index;
  if (found.empty()) {
    raise(Error(Code::kNotFound,
                cat("'", text, "' is not in this index of ", index.size(),
                    index.size() == 1 ? " entry" : " entries",
                    index.roots()[0].empty()
                        ? ""
                        : cat("; names are relative to ", some_of(index.roots(), kMostTold)))));
  }
  std::vector<std::string> urls;
  urls.reserve(found.size());
  for (const size_t entry : found) urls.push_back(index.url(entry));
  raise(Error(Code::kInvalidArgument,
              cat("'", text, "' is the name of ", found.size(),
                  " objects: ", some_of(urls, kMostTold), ". Ask by the URL")));
}

bool contains(IndexHandle& self, nb::handle key) {
  if (PyUnicode_Check(key.ptr())) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(key.ptr(), &size);
    if (text == nullptr) {
      PyErr_Clear();  // names are valid Unicode, so it is not one
      return false;
    }
    return !find_text(self, {text, static_cast<size_t>(size)}).empty();
  }
  if (!nb::isinstance<ObjectInfo>(key)) return false;
  const ObjectInfo& wanted = *nb::inst_ptr<ObjectInfo>(key);
  for (const size_t entry : find_text(self, wanted.name)) {
    if (self.index->info(entry) == wanted) return true;
  }
  return false;
}

// ── Columns ──────────────────────────────────────────────────────────────────────────────────

nb::tuple columns_of(const IndexHandle& self) {
  nb::list names;
  for (size_t i = 0; i < self.index->column_count(); ++i) {
    names.append(to_str(self.index->column_name(i)));
  }
  return nb::tuple(names);
}

nb::object column_of(const IndexHandle& self, Text given, nb::handle indices) {
  const ObjectIndex& index = *self.index;
  const std::string name = given;
  const std::optional<size_t> column = index.column(name);
  if (!column) {
    std::vector<std::string> names;
    names.reserve(index.column_count());
    for (size_t i = 0; i < index.column_count(); ++i) names.push_back(index.column_name(i));
    raise(Error(Code::kInvalidArgument,
                cat("the index has no column '", name, "'",
                    names.empty() ? "; it has none" : cat("; it has ", some_of(names, 20)))));
  }
  if (indices.is_none()) {
    return to_python(without_gil([&](MayBlock) { return index.values(*column); }));
  }
  return to_python(index.values(*column, to_positions(indices, index.size())));
}

nb::object with_columns_of(const IndexHandle& self, nb::handle columns) {
  std::vector<std::pair<std::string, ColumnValues>> added;
  std::vector<std::string> dropped;
  const nb::object items_of = attribute(columns, "items");
  const nb::object items = in_python([&] { return items_of(); });
  for_each(items, [&](nb::handle item) {
    const nb::object pair = nb::borrow(item);
    std::string name = Text{pair[0]};
    if (nb::object(pair[1]).is_none()) {
      dropped.push_back(std::move(name));
    } else {
      ColumnValues values = to_column(name, nb::object(pair[1]));
      added.emplace_back(std::move(name), std::move(values));
    }
  });
  return to_python(value_or_raise(
      without_gil([&](MayBlock) { return with_columns(*self.index, std::move(added), dropped); })));
}

const std::string& fingerprint_of(IndexHandle& self) {
  if (self.fingerprint.empty()) {
    // A few bytes of an image can stand for so many entries that this takes minutes.
    constexpr size_t kBetweenLooks = 4096;
    const std::shared_ptr<const ObjectIndex> index = self.index;
    Fingerprint made(*index);
    bool stopped = false;
    wait_interruptibly(
        [&](steady_clock::time_point until, MayBlock) {
          while (!stopped && !made.take(kBetweenLooks)) {
            if (steady_clock::now() >= until) return false;
          }
          return true;
        },
        [&stopped] { stopped = true; });
    self.fingerprint = std::move(made).finish();
  }
  return self.fingerprint;
}

std::span<const std::byte> image_of(const IndexHandle& self) { return self.index->image().bytes(); }

nb::bytes to_image(const IndexHandle& self) {
  return nb::bytes(image_of(self).data(), image_of(self).size());
}

nb::object open_image(Result<SharedBytes> image, std::string url, ImageReader::Known known) {
  Result<std::shared_ptr<const ObjectIndex>> index =
      image ? without_gil([&](MayBlock) { return ObjectIndex::open(std::move(*image), known); })
            : std::unexpected(std::move(image.error()));
  if (!index) raise(std::move(index.error()).with_url(std::move(url)));
  return to_python(std::move(*index));
}

nb::object from_image(nb::handle data, std::string url) {
  const HeldBuffer buffer(data, /*writable=*/false);
  return open_image(
      without_gil([&buffer](MayBlock) { return SharedBytes::copy_of(buffer.bytes()); }),
      std::move(url), ImageReader::Known::kNothing);
}

// Another process of the same program has checked it, and it is sealed: its million names need not
// be read.
nb::object from_descriptor(int descriptor) {
  return open_image(SharedBytes::map(descriptor), "", ImageReader::Known::kGood);
}

nb::object equals(const IndexHandle& self, nb::handle other) {
  if (!nb::isinstance<IndexHandle>(other)) return nb::borrow(Py_NotImplemented);
  return nb::bool_(std::ranges::equal(image_of(self), image_of(*nb::inst_ptr<IndexHandle>(other))));
}

nb::object repr(const IndexHandle& self) {
  const ObjectIndex& index = *self.index;
  const char* const noun = index.has_ranges()  ? (index.size() == 1 ? "entry" : "entries")
                           : index.size() == 1 ? "object"
                                               : "objects";
  const std::optional<uint64_t> total = index.total_size_bytes();
  return to_str(cat("<headrace.ObjectIndex of ", index.size(), " ", noun,
                    total ? cat(", ", *total, " bytes>") : ">"));
}

// Stores and processes are left to Python.
template <class... Arguments>
nb::object travel(const char* function, const Arguments&... arguments) {
  const nb::object called = attribute(imported("headrace._index.saved_index"), function);
  return in_python([&] { return called(arguments...); });
}

// What each entry is.
void bind_entries(Class<IndexHandle>& index_class) {
  index_class.def("__len__", [](const IndexHandle& self) { return self.index->size(); })
      .def("__getitem__", &get_item, "key"_a)
      .def("__iter__",
           [](nb::handle self) {
             const nb::object builtins = imported("builtins");
             return nb::object(builtins.attr("map")(self.attr("__getitem__"),
                                                    builtins.attr("range")(nb::len(self))));
           })
      .def("__contains__", &contains, "key"_a.none())
      .def("name", &name_of, "i"_a)
      .def("url", &url_of, "i"_a)
      .def("info", &info_of, "i"_a)
      .def("range", &range_of, "i"_a)
      .def("checksum", &checksum_of, "i"_a)
      .def("size_bytes", &size_of, "i"_a)
      .def("sizes", &sizes_of, "indices"_a)
      .def("sum_bytes", &sum_bytes, "indices"_a, "unknown_bytes"_a = 0)
      .def_prop_ro("total_size_bytes",
                   [](const IndexHandle& self) { return to_size(self.index->total_size_bytes()); })
      .def_prop_ro("common_size_bytes",
                   [](const IndexHandle& self) { return self.index->common_size_bytes(); })
      .def_prop_ro("roots",
                   [](const IndexHandle& self) {
                     nb::list roots;
                     for (const std::string& root : self.index->roots()) roots.append(to_str(root));
                     return nb::tuple(roots);
                   })
      .def("position", &position_of, "name"_a.none());
}

void bind_columns(Class<IndexHandle>& index_class) {
  index_class.def_prop_ro("columns", &columns_of)
      .def("column", &column_of, "name"_a, "indices"_a = nb::none())
      .def("with_columns", &with_columns_of, "columns"_a)
      .def_prop_ro("fingerprint", [](IndexHandle& self) { return to_str(fingerprint_of(self)); });
}

// To other stores, processes and copies.
void bind_travel(Class<IndexHandle>& index_class) {
  index_class
      .def(
          "save",
          [](nb::handle self, nb::handle url, nb::handle store, const nb::kwargs& options) {
            return travel("save", self, url, store, options);
          },
          "url"_a, nb::kw_only(), "store"_a = nb::none(), "options"_a)
      .def_static(
          "load",
          [](nb::handle url, nb::handle store, const nb::kwargs& options) {
            return travel("load", url, store, options);
          },
          "url"_a, nb::kw_only(), "store"_a = nb::none(), "options"_a)
      .def("__eq__", &equals, "other"_a.none())
      .def("__hash__",
           [](const IndexHandle& self) {
             // The image begins with its checksum.
             const auto bytes = image_of(self).first(std::min<size_t>(image_of(self).size(), 32));
             return nb::hash(nb::bytes(bytes.data(), bytes.size()));
           })
      .def("__copy__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); }, "memo"_a)
      .def("__reduce__", [](nb::handle self) { return travel("reduce", self); })
      .def("__repr__", &repr);
}

}  // namespace

std::vector<size_t> to_positions(nb::handle positions, size_t count) {
  std::vector<size_t> out;
  if (const Int64View view(positions); view.usable()) {
    out.reserve(view.values().size());
    for (const int64_t position : view.values()) out.push_back(checked_position(position, count));
    return out;
  }
  // A tuple, because __index__ is Python code, which could change a list.
  const nb::object tuple = nb::steal(in_python([&] { return PySequence_Tuple(positions.ptr()); }));
  if (!tuple.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();
    throw nb::type_error("indices must be int64 values or a sequence of integers");
  }
  const Py_ssize_t size = PyTuple_Size(tuple.ptr());
  out.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PyTuple_GetItem(tuple.ptr(), i);
    const Py_ssize_t position =
        in_python([item] { return PyNumber_AsSsize_t(item, PyExc_IndexError); });
    if (position == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    out.push_back(checked_position(position, count));
  }
  return out;
}

void bind_index(Module& module) {
  Class<IndexHandle> index_class(module, "ObjectIndex", nb::is_final());
  bind_index_makers(index_class);
  bind_entries(index_class);
  bind_columns(index_class);
  bind_index_selections(index_class);
  bind_travel(index_class);

  module.def("index_image", &to_image, "index"_a);
  module.def("index_from_image", &from_image, "image"_a, "url"_a = "");
  module.def(
      "index_descriptor", [](const IndexHandle& self) { return self.index->image().descriptor(); },
      "index"_a);
  module.def("index_from_descriptor", &from_descriptor, "descriptor"_a);
}

}  // namespace headrace::python
