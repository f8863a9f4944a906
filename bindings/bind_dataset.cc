#include <algorithm>
#include <limits>
#include <vector>

#include "headrace/dataset/order.h"
#include "object_index.h"

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

namespace {

// A view of int64 values, if `object` is one. Destroyed with the GIL.
class Int64View {
 public:
  explicit Int64View(nb::handle object) {
    if (!PyObject_CheckBuffer(object.ptr())) return;
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
      PyErr_Clear();
      return;
    }
    held_ = true;
    const std::string_view format = view_.format == nullptr ? "B" : view_.format;
    usable_ = view_.ndim == 1 && view_.itemsize == sizeof(int64_t) &&
              (format == "q" || format == "l" || format == "<q" || format == "=q");
  }
  ~Int64View() {
    if (held_) PyBuffer_Release(&view_);
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

// `count` values of int64 as a writable memoryview, which torch and NumPy take as it is; `fill`
// gets them as a span.
template <class Fill>
nb::object int64_buffer(size_t count, Fill fill) {
  const auto size = static_cast<Py_ssize_t>(count * sizeof(int64_t));
  const nb::object bytes = nb::steal(PyByteArray_FromStringAndSize(nullptr, size));
  if (!bytes.is_valid()) throw nb::python_error();
  fill(std::span(reinterpret_cast<int64_t*>(PyByteArray_AS_STRING(bytes.ptr())), count));
  const nb::object view = nb::steal(PyMemoryView_FromObject(bytes.ptr()));
  if (!view.is_valid()) throw nb::python_error();
  return view.attr("cast")("q");
}

nb::object from_objects(nb::handle objects, std::string store_url, std::string prefix) {
  ObjectIndexBuilder builder;
  builder.set_source(std::move(store_url), std::move(prefix));
  const nb::handle info_type = nb::type<ObjectInfo>();
  for (const nb::handle object : nb::iter(objects)) {
    if (!nb::handle(object.type()).is(info_type)) {
      PyErr_Format(PyExc_TypeError, "an ObjectInfo is needed, not %.100s",
                   Py_TYPE(object.ptr())->tp_name);
      throw nb::python_error();
    }
    builder.add(*nb::inst_ptr<ObjectInfo>(object));
  }
  return to_python(value_or_raise(without_gil([&builder](MayBlock) { return builder.build(); })));
}

nb::object select_positions(const ObjectIndex& index, const std::vector<size_t>& positions) {
  return to_python(value_or_raise(without_gil([&](MayBlock) {
    ObjectIndexBuilder builder;
    builder.set_source(index.store_url(), index.prefix());
    for (const size_t position : positions) builder.add(index.info(position));
    return builder.build();
  })));
}

nb::object get_slice(const ObjectIndex& index, nb::handle slice) {
  Py_ssize_t begin = 0, end = 0, step = 1;
  if (PySlice_Unpack(slice.ptr(), &begin, &end, &step) != 0) throw nb::python_error();
  const Py_ssize_t count =
      PySlice_AdjustIndices(static_cast<Py_ssize_t>(index.size()), &begin, &end, step);
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
  const Py_ssize_t position = PyNumber_AsSsize_t(key.ptr(), PyExc_IndexError);
  if (position == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return nb::cast(index.info(checked_position(position, index.size())));
}

nb::str name_of(const IndexHandle& self, int64_t position) {
  std::string name;
  self.index->append_name(checked_position(position, self.index->size()), name);
  return to_str(name);
}

uint64_t size_of(const IndexHandle& self, int64_t position) {
  return self.index->size_bytes(checked_position(position, self.index->size()));
}

nb::object sizes_of(const IndexHandle& self, nb::handle positions) {
  const std::vector<size_t> wanted = to_positions(positions, self.index->size());
  return int64_buffer(wanted.size(), [&](std::span<int64_t> out) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const uint64_t size_bytes = self.index->size_bytes(wanted[i]);
      if (size_bytes > uint64_t{INT64_MAX}) {
        raise(Error(Code::kInvalidArgument,
                    cat("object ", wanted[i], " has ", size_bytes, " bytes: more than int64 has")));
      }
      out[i] = static_cast<int64_t>(size_bytes);
    }
  });
}

uint64_t sum_bytes(const IndexHandle& self, nb::handle positions) {
  uint64_t sum = 0;
  for (const size_t position : to_positions(positions, self.index->size())) {
    const uint64_t size_bytes = self.index->size_bytes(position);
    if (size_bytes > UINT64_MAX - sum) {
      raise(Error(Code::kInvalidArgument, "the sizes add up to more than 2^64 bytes"));
    }
    sum += size_bytes;
  }
  return sum;
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
  for (const nb::handle each : nb::iter(suffix)) add(each);
  if (out.empty()) raise(Error(Code::kInvalidArgument, "`suffix` is an empty collection"));
  return out;
}

nb::object filter_index(const IndexHandle& self, nb::handle suffix, std::optional<std::string> glob,
                        std::optional<uint64_t> min_size_bytes,
                        std::optional<uint64_t> max_size_bytes) {
  IndexFilter wanted{.suffixes = to_suffixes(suffix),
                     .min_size_bytes = min_size_bytes.value_or(0),
                     .max_size_bytes = max_size_bytes.value_or(UINT64_MAX)};
  if (glob) wanted.glob = value_or_raise(Glob::parse(*glob));
  return select_positions(*self.index,
                          without_gil([&](MayBlock) { return filter(*self.index, wanted); }));
}

const std::string& fingerprint_of(IndexHandle& self) {
  if (self.fingerprint.empty()) {
    std::string made = without_gil([index = self.index](MayBlock) { return index->fingerprint(); });
    self.fingerprint = std::move(made);
  }
  return self.fingerprint;
}

std::span<const std::byte> image_of(const IndexHandle& self) { return self.index->image().bytes(); }

nb::bytes to_image(const IndexHandle& self) {
  return nb::bytes(image_of(self).data(), image_of(self).size());
}

nb::object open_image(Result<SharedBytes> image, std::string url) {
  Result<std::shared_ptr<const ObjectIndex>> index =
      image ? without_gil([&image](MayBlock) { return ObjectIndex::open(std::move(*image)); })
            : std::unexpected(std::move(image.error()));
  if (!index) raise(std::move(index.error()).with_url(std::move(url)));
  return to_python(std::move(*index));
}

nb::object from_image(nb::handle data, std::string url) {
  const HeldBuffer buffer(data, /*writable=*/false);
  return open_image(
      without_gil([&buffer](MayBlock) { return SharedBytes::copy_of(buffer.bytes()); }),
      std::move(url));
}

nb::object from_descriptor(int descriptor) { return open_image(SharedBytes::map(descriptor), ""); }

nb::object equals(const IndexHandle& self, nb::handle other) {
  if (!nb::isinstance<IndexHandle>(other)) return nb::borrow(Py_NotImplemented);
  return nb::bool_(std::ranges::equal(image_of(self), image_of(*nb::inst_ptr<IndexHandle>(other))));
}

nb::object repr(const IndexHandle& self) {
  const ObjectIndex& index = *self.index;
  return nb::str("<headrace.ObjectIndex of {} {}, {} bytes>")
      .attr("format")(index.size(), index.size() == 1 ? "object" : "objects",
                      index.total_size_bytes());
}

// Stores and processes are Python's business.
nb::module_ travel() { return nb::module_::import_("headrace._saved_index"); }

void bind_index(nb::module_& module) {
  nb::class_<IndexHandle>(
      module, "ObjectIndex", nb::is_final(), nb::sig("@typing.final\nclass ObjectIndex(object)"),
      R"doc(The names, sizes and versions of many objects, in a fixed order. Immutable.

About 25 bytes an object, outside Python's heap: ``index[i]`` makes an `ObjectInfo` when it is asked
for. `Store.index` makes one from a listing, `ObjectIndex.from_objects` from anything.)doc")
      .def_static("from_objects", &from_objects, nb::arg("objects"), nb::kw_only(),
                  nb::arg("store_url") = "", nb::arg("prefix") = "",
                  nb::sig("def from_objects(objects: collections.abc.Iterable[ObjectInfo], *, "
                          "store_url: str = '', prefix: str = '') -> ObjectIndex"),
                  R"doc(An index of `objects`, in their order.

Args:
    store_url: what ``store_url`` will say.
    prefix: what ``prefix`` will say.

Raises:
    InvalidArgumentError: an object has no name.)doc")
      .def("__len__", [](const IndexHandle& self) { return self.index->size(); })
      .def("__getitem__", &get_item, nb::arg("key"),
           nb::sig("def __getitem__(self, key: typing.SupportsIndex) -> "
                   "ObjectInfo"))
      .def("__getitem__", &get_item, nb::arg("key"),
           nb::sig("def __getitem__(self, key: slice) -> ObjectIndex"))
      .def(
          "__iter__",
          [](nb::handle self) {
            const nb::module_ builtins = nb::module_::import_("builtins");
            return nb::object(builtins.attr("map")(self.attr("__getitem__"),
                                                   builtins.attr("range")(nb::len(self))));
          },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[ObjectInfo]"))
      .def("name", &name_of, nb::arg("i"), "The name of object `i`; -1 is the last.")
      .def("size_bytes", &size_of, nb::arg("i"), "The size of object `i`; -1 is the last.")
      .def("sizes", &sizes_of, nb::arg("indices"),
           nb::sig("def sizes(self, indices: collections.abc.Sequence[int] | "
                   "typing_extensions.Buffer) -> memoryview"),
           "The sizes of these objects in bytes, as a buffer of int64.")
      .def("sum_bytes", &sum_bytes, nb::arg("indices"),
           nb::sig("def sum_bytes(self, indices: collections.abc.Sequence[int] | "
                   "typing_extensions.Buffer) -> int"),
           "How many bytes these objects have together.")
      .def_prop_ro(
          "total_size_bytes",
          [](const IndexHandle& self) { return self.index->total_size_bytes(); },
          "How many bytes all objects have together.")
      .def_prop_ro(
          "common_size_bytes",
          [](const IndexHandle& self) { return self.index->common_size_bytes(); },
          "The size of every object, if all are of one size; else ``None``.")
      .def_prop_ro(
          "store_url", [](const IndexHandle& self) { return to_str(self.index->store_url()); },
          "The URL of the store that was listed, to which names are appended; ``''`` if nobody "
          "said.")
      .def_prop_ro(
          "prefix", [](const IndexHandle& self) { return to_str(self.index->prefix()); },
          "The prefix that was listed.")
      .def_prop_ro(
          "fingerprint", [](IndexHandle& self) { return to_str(fingerprint_of(self)); },
          "A hash of names, sizes and generations in their order: what a saved state belongs to.")
      .def(
          "select",
          [](const IndexHandle& self, nb::handle indices) {
            return select_positions(*self.index, to_positions(indices, self.index->size()));
          },
          nb::arg("indices"),
          nb::sig("def select(self, indices: collections.abc.Sequence[int] | "
                  "typing_extensions.Buffer) -> ObjectIndex"),
          R"doc(An index of these objects, in this order.

Args:
    indices: integers, or a buffer of int64 such as a NumPy array; -1 is the last.

Raises:
    IndexError: there is no such object.)doc")
      .def("filter", &filter_index, nb::kw_only(), nb::arg("suffix") = nb::none(),
           nb::arg("glob") = nb::none(), nb::arg("min_size_bytes") = nb::none(),
           nb::arg("max_size_bytes") = nb::none(),
           nb::sig("def filter(self, *, suffix: str | collections.abc.Iterable[str] | None = None, "
                   "glob: str | None = None, min_size_bytes: int | None = None, "
                   "max_size_bytes: int | None = None) -> ObjectIndex"),
           R"doc(An index of the objects for which all of this holds, in their order.

Args:
    suffix: the name ends with it, or with one of several.
    glob: the whole name matches: ``*`` is anything but ``/``, ``?`` one character, ``[a-z]`` and
        ``[!a-z]`` one of (not of) these, ``**`` anything, ``**/`` any folders or none.
    min_size_bytes: the object has so many bytes at least ...
    max_size_bytes: ... and at most.

Raises:
    InvalidArgumentError: the pattern makes no sense.)doc")
      .def(
          "save",
          [](nb::handle self, nb::handle url, const nb::kwargs& options) {
            return travel().attr("save")(self, url, options);
          },
          nb::arg("url"), nb::arg("store_options"),
          nb::sig("def save(self, url: str | os.PathLike[str], **store_options: typing.Any) -> "
                  "ObjectInfo"),
          R"doc(Write a manifest, atomically, so that the next job need not list.

Args:
    url: of the manifest: an object of any store, or a file.
    store_options: as for `Store`: ``endpoint=...``.

Returns what was written.)doc")
      .def_static(
          "load",
          [](nb::handle url, const nb::kwargs& options) {
            return travel().attr("load")(url, options);
          },
          nb::arg("url"), nb::arg("store_options"),
          nb::sig("def load(url: str | os.PathLike[str], **store_options: typing.Any) -> "
                  "ObjectIndex"),
          R"doc(The index that `save` wrote. Nothing is listed: objects that have changed since are noticed when
they are read, by `PreconditionFailedError`.

Raises:
    NotFoundError: there is no such manifest.
    CorruptDataError: it is cut, changed, no manifest, or of a newer version.)doc")
      .def("__eq__", &equals, nb::arg("other").none(),
           nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__hash__",
           [](const IndexHandle& self) {
             // The image begins with its sum.
             const auto bytes = image_of(self).first(std::min<size_t>(image_of(self).size(), 32));
             return nb::hash(nb::bytes(bytes.data(), bytes.size()));
           })
      .def(
          "__copy__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __copy__(self) -> ObjectIndex"))
      .def(
          "__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); },
          nb::arg("memo"), nb::sig("def __deepcopy__(self, memo: object) -> ObjectIndex"))
      .def(
          "__reduce__", [](nb::handle self) { return travel().attr("reduce")(self); },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def("__repr__", &repr, nb::sig("def __repr__(self) -> str"));

  module.def("index_image", &to_image, nb::arg("index"), "What index_from_image() takes.");
  module.def("index_from_image", &from_image, nb::arg("image"), nb::arg("url") = "",
             nb::sig("def index_from_image(image: typing_extensions.Buffer, url: str = '') -> "
                     "ObjectIndex"),
             "`url` is where it came from, for errors.");
  module.def(
      "index_descriptor", [](const IndexHandle& self) { return self.index->image().descriptor(); },
      nb::arg("index"), "The descriptor of its shared memory; -1 where it is too small for that.");
  module.def("index_from_descriptor", &from_descriptor, nb::arg("descriptor"),
             nb::sig("def index_from_descriptor(descriptor: int) -> ObjectIndex"),
             "The index behind a copy of another process's descriptor, which is taken over.");
}

void check_span(const Order& order, int64_t begin, int64_t end) {
  if (begin >= 0 && begin <= end && static_cast<uint64_t>(end) <= order.count()) return;
  raise(Error(Code::kInvalidArgument,
              cat("positions [", begin, ", ", end, ") of an order of ", order.count())));
}

void bind_order(nb::module_& module) {
  nb::class_<Order>(module, "Order", nb::is_final(), nb::sig("@typing.final\nclass Order(object)"),
                    R"doc(The order of one epoch: position → index, a pure function.

Nothing is stored: any position is computed without those before it.

Args:
    count: how many objects there are, below 2^63.
    seed: below 2^64.
    epoch: below 2^64.
    shuffle: ``False`` gives the identity.)doc")
      .def(
          "__init__",
          [](Order* self, uint64_t count, uint64_t seed, uint64_t epoch, bool shuffle) {
            if (count > uint64_t{INT64_MAX}) throw nb::value_error("count is 2^63 or more");
            new (self) Order(count, seed, epoch, shuffle);
          },
          nb::arg("count"), nb::arg("seed"), nb::arg("epoch"), nb::arg("shuffle"))
      .def("__len__", &Order::count)
      .def(
          "__getitem__",
          [](const Order& self, int64_t position) {
            return self.index(checked_position(position, self.count()));
          },
          nb::arg("position"))
      .def(
          "indices",
          [](const Order& self, int64_t begin, int64_t end, int64_t step) {
            check_span(self, begin, end);
            if (step < 1) throw nb::value_error("`step` must be at least 1");
            const auto first = static_cast<uint64_t>(begin), by = static_cast<uint64_t>(step);
            const uint64_t span = static_cast<uint64_t>(end) - first;
            return int64_buffer(span / by + (span % by != 0), [&](std::span<int64_t> out) {
              if (by == 1) return self.indices(first, out);
              for (size_t i = 0; i < out.size(); ++i) {
                out[i] = static_cast<int64_t>(self.index(first + i * by));
              }
            });
          },
          nb::arg("begin"), nb::arg("end"), nb::arg("step") = 1,
          nb::sig("def indices(self, begin: int, end: int, step: int = 1) -> memoryview"),
          "What stands at every `step`-th position of [begin, end), as a buffer of int64.");
}

}  // namespace

std::vector<size_t> to_positions(nb::handle positions, size_t count) {
  std::vector<size_t> out;
  if (const Int64View view(positions); view.usable()) {
    out.reserve(view.values().size());
    for (const int64_t position : view.values()) out.push_back(checked_position(position, count));
    return out;
  }
  const nb::object sequence = nb::steal(
      PySequence_Fast(positions.ptr(), "indices must be int64 values or a sequence of integers"));
  if (!sequence.is_valid()) throw nb::python_error();
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence.ptr());
  out.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(sequence.ptr(), i);
    const Py_ssize_t position = PyNumber_AsSsize_t(item, PyExc_IndexError);
    if (position == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    out.push_back(checked_position(position, count));
  }
  return out;
}

void bind_dataset(nb::module_& module) {
  bind_index(module);
  bind_order(module);
}

}  // namespace headrace::python
