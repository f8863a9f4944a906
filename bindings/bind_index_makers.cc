#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/roots.h"
#include "headrace/format/url.h"
#include "object_index.h"
#include "waiting.h"

namespace headrace::python {
namespace {

[[noreturn]] void refuse(const std::string& what) { raise(Error(Code::kInvalidArgument, what)); }

// ── Values ───────────────────────────────────────────────────────────────────────────────────

// A one-dimensional buffer of numbers. Destroyed with the GIL held.
class NumberView {
 public:
  explicit NumberView(nb::handle object) {
    // bytes and str are sequences, but not of numbers.
    if (!PyObject_CheckBuffer(object.ptr()) || PyBytes_Check(object.ptr())) return;
    constexpr int kFlags = PyBUF_FORMAT | PyBUF_STRIDES;
    if (in_python([&] { return PyObject_GetBuffer(object.ptr(), &view_, kFlags); }) != 0) {
      PyErr_Clear();
      return;
    }
    held_ = true;
    std::string_view format = view_.format == nullptr ? "B" : view_.format;
    if (format.size() == 2 && (format[0] == '<' || format[0] == '=' || format[0] == '@')) {
      format.remove_prefix(1);
    }
    if (view_.ndim == 1 && format.size() == 1) format_ = format[0];
  }
  ~NumberView() {
    if (held_) in_python([this] { PyBuffer_Release(&view_); });
  }
  NumberView(const NumberView&) = delete;
  NumberView& operator=(const NumberView&) = delete;

  bool is_float() const { return format_ == 'f' || format_ == 'd'; }
  bool is_boolean() const { return format_ == '?'; }
  bool is_integer() const { return std::string_view("bBhHiIlLqQ").contains(format_); }
  size_t size() const { return static_cast<size_t>(view_.shape[0]); }

  // Reads booleans as bool, integers as int64, floats as double. Raises for values that do not fit.
  template <class To>
  std::vector<To> values(std::string_view name) const {
    switch (format_) {
      case '?': return read<To, unsigned char>(name);  // a byte that may be any
      case 'b': return read<To, signed char>(name);
      case 'B': return read<To, unsigned char>(name);
      case 'h': return read<To, short>(name);
      case 'H': return read<To, unsigned short>(name);
      case 'i': return read<To, int>(name);
      case 'I': return read<To, unsigned>(name);
      case 'l': return read<To, long>(name);
      case 'L': return read<To, unsigned long>(name);
      case 'q': return read<To, long long>(name);
      case 'Q': return read<To, unsigned long long>(name);
      case 'f': return read<To, float>(name);
      default: return read<To, double>(name);
    }
  }

 private:
  template <class To, class From>
  std::vector<To> read(std::string_view name) const {
    if (view_.itemsize != sizeof(From)) refuse(cat(name, " has values of an unknown size"));
    std::vector<To> out;
    out.reserve(size());
    const auto* at = static_cast<const std::byte*>(view_.buf);
    for (size_t i = 0; i < size(); ++i, at += view_.strides[0]) {
      From value;
      std::memcpy(&value, at, sizeof(value));
      if constexpr (std::is_same_v<To, int64_t> && std::is_unsigned_v<From> &&
                    sizeof(From) == sizeof(To)) {
        if (value > static_cast<From>(std::numeric_limits<To>::max())) {
          refuse(cat("value ", i, " of ", name, " is more than int64 has"));
        }
      }
      out.push_back(static_cast<To>(value));
    }
    return out;
  }

  Py_buffer view_{};
  bool held_ = false;
  char format_ = '\0';
};

// The values of a sequence, or of an object that can be turned into one: a pandas Series, a NumPy
// array of strings. A tuple, because converting a value can run Python code, which could change a
// list.
nb::object to_tuple(std::string_view name, nb::handle values) {
  if (PyUnicode_Check(values.ptr()) || PyBytes_Check(values.ptr())) {
    refuse(cat(name, " is one value, ", shown(values), "; one for each entry is needed"));
  }
  const nb::object tuple = nb::steal(in_python([&] { return PySequence_Tuple(values.ptr()); }));
  if (tuple.is_valid()) return tuple;
  PyErr_Clear();
  raise_type_error("%s is %.300R; it must be a sequence or a buffer", std::string(name).c_str(),
                   values.ptr());
}

int64_t to_int64(std::string_view name, size_t at, nb::handle value) {
  const nb::object number = to_index(value);
  int overflow = 0;
  const long long out =
      number.is_valid() ? PyLong_AsLongLongAndOverflow(number.ptr(), &overflow) : 0;
  if (!number.is_valid() || overflow != 0) {
    PyErr_Clear();
    refuse(cat("value ", at, " of ", name, " is ", shown(value),
               overflow != 0 ? ", more than int64 has" : ", and no int"));
  }
  return out;
}

TextValues to_texts(std::string_view name, std::span<PyObject* const> items, bool is_bytes) {
  TextValues out{.is_bytes = is_bytes};
  out.ends.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    PyObject* const item = items[i];
    if (is_bytes && PyBytes_Check(item)) {
      out.add({PyBytes_AsString(item), static_cast<size_t>(PyBytes_Size(item))});
    } else if (!is_bytes && PyUnicode_Check(item)) {
      out.add(utf8_of(item));
    } else {
      refuse(cat("value ", i, " of ", name, " is ", shown(item), ", and those before it are ",
                 is_bytes ? "bytes" : "str", ": all must be of one type"));
    }
  }
  return out;
}

size_t size_of(const nb::object& tuple) { return static_cast<size_t>(PyTuple_Size(tuple.ptr())); }

// Borrowed from `tuple`.
PyObject* item_of(const nb::object& tuple, size_t i) {
  return PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i));
}

// Borrowed from `tuple`. The stable ABI does not say where a tuple has its items.
std::vector<PyObject*> items_of(const nb::object& tuple) {
  std::vector<PyObject*> items;
  items.reserve(size_of(tuple));
  for (size_t i = 0; i < size_of(tuple); ++i) items.push_back(item_of(tuple, i));
  return items;
}

// A bool of Python, or a scalar of NumPy or torch, whose classes are not known here.
bool is_boolean(PyObject* item) {
  if (PyBool_Check(item)) return true;
  if (PyLong_Check(item) || PyFloat_Check(item)) return false;
  const nb::object dtype =
      nb::steal(in_python([item] { return PyObject_GetAttrString(item, "dtype"); }));
  if (!dtype.is_valid()) {
    PyErr_Clear();
    return false;
  }
  const nb::object text = nb::steal(in_python([&] { return PyObject_Str(dtype.ptr()); }));
  if (!text.is_valid()) throw nb::python_error();
  const auto name = nb::cast<std::string>(text);
  return name == "bool" || name == "torch.bool";
}

bool to_bool(PyObject* item) {
  const int value = in_python([item] { return PyObject_IsTrue(item); });
  if (value < 0) throw nb::python_error();
  return value != 0;
}

bool is_integer(PyObject* item) { return PyIndex_Check(item) != 0 || is_boolean(item); }

bool is_number(PyObject* item) {
  return PyFloat_Check(item) || PyIndex_Check(item) ||
         PyType_GetSlot(Py_TYPE(item), Py_nb_float) != nullptr;
}

}  // namespace

ColumnValues to_column(std::string_view column, nb::handle values) {
  const std::string name = cat("the column '", column, "'");
  if (const NumberView view(values); view.is_boolean()) {
    return view.values<bool>(name);
  } else if (view.is_integer()) {
    return view.values<int64_t>(name);
  } else if (view.is_float()) {
    return view.values<double>(name);
  }
  const nb::object tuple = to_tuple(name, values);
  const std::vector<PyObject*> items = items_of(tuple);
  if (items.empty()) return std::vector<int64_t>();
  if (PyUnicode_Check(items[0]) || PyBytes_Check(items[0])) {
    return to_texts(name, items, PyBytes_Check(items[0]) != 0);
  }
  if (std::ranges::all_of(items, &is_boolean)) {
    std::vector<bool> out;
    out.reserve(items.size());
    for (PyObject* const item : items) out.push_back(to_bool(item));
    return out;
  }
  if (std::ranges::all_of(items, &is_integer)) {
    std::vector<int64_t> out;
    out.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      out.push_back(is_boolean(items[i]) ? to_bool(items[i]) : to_int64(name, i, items[i]));
    }
    return out;
  }
  std::vector<double> out;
  out.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const double value =
        is_number(items[i]) ? in_python([&] { return PyFloat_AsDouble(items[i]); }) : -1;
    if (!is_number(items[i]) || PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      refuse(cat("value ", i, " of ", name, " is ", shown(items[i]),
                 "; a column's values are all bool, all int, all float, all str or all bytes"));
    }
    out.push_back(value);
  }
  return out;
}

std::vector<int64_t> to_optional_integers(std::string_view name, nb::handle values) {
  std::vector<int64_t> out;
  if (const NumberView view(values); view.is_integer()) {
    out = view.values<int64_t>(name);
  } else {
    const nb::object tuple = to_tuple(name, values);
    const std::vector<PyObject*> items = items_of(tuple);
    out.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      out.push_back(items[i] == Py_None ? -1 : to_int64(name, i, items[i]));
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] >= -1) continue;
    refuse(
        cat("value ", i, " of ", name, " is ", out[i], "; if it is not known, it is None or -1"));
  }
  return out;
}

nb::object to_python(const ColumnValues& values) {
  const auto to_view = [](const void* data, size_t size, const char* format) {
    const nb::object bytes = nb::steal(PyByteArray_FromStringAndSize(
        static_cast<const char*>(data), static_cast<Py_ssize_t>(size)));
    if (!bytes.is_valid()) throw nb::python_error();
    const nb::object view = nb::steal(PyMemoryView_FromObject(bytes.ptr()));
    if (!view.is_valid()) throw nb::python_error();
    return view.attr("cast")(format);
  };
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&values)) {
    return to_view(integers->data(), integers->size() * sizeof(int64_t), "q");
  }
  if (const auto* floats = std::get_if<std::vector<double>>(&values)) {
    return to_view(floats->data(), floats->size() * sizeof(double), "d");
  }
  if (const auto* booleans = std::get_if<std::vector<bool>>(&values)) {
    const std::vector<unsigned char> bytes(booleans->begin(), booleans->end());
    return to_view(bytes.data(), bytes.size(), "?");
  }
  const auto& texts = std::get<TextValues>(values);
  nb::list out = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(texts.size())));
  if (!out.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < texts.size(); ++i) {
    nb::object text = texts.is_bytes ? nb::object(nb::bytes(texts[i].data(), texts[i].size()))
                                     : nb::object(to_str(texts[i]));
    PyList_SetItem(out.ptr(), static_cast<Py_ssize_t>(i), text.release().ptr());
  }
  return out;
}

namespace {

// ── Rows ─────────────────────────────────────────────────────────────────────────────────────

// The facts about each name, column by column; None if unknown.
struct Rows {
  std::optional<std::vector<int64_t>> sizes_bytes = {}, begins = {}, ends = {};
  std::optional<nb::object> generations = {}, checksums = {};
  ChecksumKind checksum_kind = ChecksumKind::kCrc32c;
  std::vector<std::pair<std::string, ColumnValues>> columns = {};

  Rows(nb::handle sizes_bytes_given, nb::handle generations_given, nb::handle begins_given,
       nb::handle ends_given, nb::handle checksums_given, const std::string& kind,
       nb::handle columns_given, size_t count) {
    const auto integers = [count](const char* name, nb::handle given,
                                  std::optional<std::vector<int64_t>>& to) {
      if (given.is_none()) return;
      to = to_optional_integers(name, given);
      require_count(name, to->size(), count);
    };
    integers("sizes_bytes", sizes_bytes_given, sizes_bytes);
    integers("begins", begins_given, begins);
    integers("ends", ends_given, ends);
    const auto objects = [count](const char* name, nb::handle given,
                                 std::optional<nb::object>& to) {
      if (given.is_none()) return;
      to = to_tuple(name, given);
      require_count(name, size_of(*to), count);
    };
    objects("generations", generations_given, generations);
    objects("checksums", checksums_given, checksums);
    const std::optional<ChecksumKind> known = headrace::checksum_kind(kind);
    if (!known) {
      refuse(cat("checksum_kind is '", kind, "'; it must be crc32c, crc32, crc64nvme, sha1, ",
                 "sha256, md5 or xxh64"));
    }
    checksum_kind = *known;
    if (columns_given.is_none()) return;
    const nb::object items_of = attribute(columns_given, "items");
    const nb::object items = in_python([&] { return items_of(); });
    for_each(items, [this](nb::handle item) {
      const nb::object pair = nb::borrow(item);
      std::string name = Text{pair[0]};
      ColumnValues values = to_column(name, nb::object(pair[1]));
      columns.emplace_back(std::move(name), std::move(values));
    });
  }

  static void require_count(const char* name, size_t size, size_t count) {
    if (size == count) return;
    refuse(cat(name, " has ", size, " values for ", count, " entries"));
  }

  // Fills in row `i`, except for its name and its root.
  void fill(size_t i, ObjectInfo& info, EntryDetails& details) const {
    info.size_bytes = kUnknownSize;
    if (sizes_bytes && (*sizes_bytes)[i] >= 0) {
      info.size_bytes = static_cast<uint64_t>((*sizes_bytes)[i]);
    }
    info.generation.clear();
    if (generations) {
      PyObject* const text = item_of(*generations, i);
      if (PyUnicode_Check(text)) {
        info.generation = utf8_of(text);
      } else if (text != Py_None) {
        refuse(cat("generation ", i, " is ", shown(text), "; it must be a str or None"));
      }
    }
    details.range = range(i, info.size_bytes);
    const Checksum sum = checksum(i);
    details.range_checksum = details.range ? sum : Checksum();
    info.checksum = details.range ? Checksum() : sum;
  }

 private:
  std::optional<ByteRange> range(size_t i, uint64_t object_bytes) const {
    const int64_t begin = begins ? (*begins)[i] : -1, end = ends ? (*ends)[i] : -1;
    if (begin < 0 && end < 0) return {};
    if (end < 0 && object_bytes == kUnknownSize) {
      refuse(cat("entry ", i, " begins at ", begin, " and has no end: give its end or its size"));
    }
    return ByteRange{begin < 0 ? 0 : static_cast<uint64_t>(begin),
                     end < 0 ? object_bytes : static_cast<uint64_t>(end)};
  }

  Checksum checksum(size_t i) const {
    if (!checksums) return {};
    PyObject* const value = item_of(*checksums, i);
    if (value == Py_None) return {};
    const size_t size = checksum_size(checksum_kind);
    if (PyBytes_Check(value)) {
      const std::span bytes(PyBytes_AsString(value), static_cast<size_t>(PyBytes_Size(value)));
      if (bytes.size() != size) {
        refuse(cat("checksum ", i, " has ", bytes.size(), " bytes; a ", to_string(checksum_kind),
                   " has ", size));
      }
      return {checksum_kind, std::as_bytes(bytes)};
    }
    const nb::object number = to_index(value);
    const unsigned long long wide = number.is_valid() ? PyLong_AsUnsignedLongLong(number.ptr()) : 0;
    if (PyErr_Occurred() != nullptr || size > sizeof(wide) || (size < 8 && wide >> 8 * size != 0)) {
      PyErr_Clear();
      refuse(cat("checksum ", i, " is ", shown(value), "; a ", to_string(checksum_kind), " is ",
                 size > sizeof(wide) ? "" : "an int or ", size, " bytes"));
    }
    return {checksum_kind, uint64_t{wide}};
  }
};

nb::object build(ObjectIndexBuilder& builder, Rows* rows) {
  return to_python(value_or_raise(without_gil([&](MayBlock) {
    if (rows != nullptr) {
      for (auto& [name, values] : rows->columns) builder.set_column(name, std::move(values));
    }
    return std::move(builder).build();
  })));
}

std::string to_root_if_any(nb::handle url) {
  const std::string given = Text{fspath(url)};
  return given.empty() ? std::string() : value_or_raise(normal_root(given));
}

nb::object from_objects(nb::handle objects, nb::handle root, nb::handle columns) {
  ObjectIndexBuilder builder;
  builder.add_root(to_root_if_any(root));
  const nb::handle info_type = nb::type<ObjectInfo>();
  for_each(objects, [&](nb::handle object) {
    if (!nb::handle(object.type()).is(info_type)) {
      raise_type_error("an ObjectInfo is needed, not %.100s", type_name_of(object).c_str());
    }
    builder.add(*nb::inst_ptr<ObjectInfo>(object));
  });
  const nb::none none;
  Rows rows(none, none, none, none, none, "crc32c", columns, builder.size());
  return build(builder, &rows);
}

std::string_view text_at(std::span<PyObject* const> items, size_t i, const char* what) {
  if (PyUnicode_Check(items[i])) return utf8_of(items[i]);
  refuse(cat(what, " ", i, " is ", shown(items[i]), "; it must be a str"));
}

nb::object from_names(nb::handle names, nb::handle root, nb::handle sizes_bytes,
                      nb::handle generations, nb::handle begins, nb::handle ends,
                      nb::handle checksums, const std::string& checksum_kind, nb::handle columns) {
  const nb::object tuple = to_tuple("names", names);
  const std::vector<PyObject*> items = items_of(tuple);
  Rows rows(sizes_bytes, generations, begins, ends, checksums, checksum_kind, columns,
            items.size());
  ObjectIndexBuilder builder;
  builder.add_root(to_root_if_any(root));
  ObjectInfo info;
  EntryDetails details;
  for (size_t i = 0; i < items.size(); ++i) {
    info.name = text_at(items, i, "name");
    rows.fill(i, info, details);
    builder.add(info, details);
  }
  return build(builder, &rows);
}

// Splits a URL into its root and the name below it.
class UrlSplitter {
 public:
  UrlSplitter(ObjectIndexBuilder& builder, nb::handle roots) : builder_(builder) {
    for_each(roots, [this](nb::handle root) { given_.push_back(to_root_if_any(root)); });
    // Longest first, so that of nested roots the innermost is found.
    std::ranges::sort(given_, std::ranges::greater(), &std::string::size);
  }

  std::pair<uint32_t, std::string> split(std::string_view text) {
    // Most URLs of a table are in the same bucket as the one before.
    // A URL with a NUL is left to parse_url(), which refuses it.
    if (given_.empty() && !last_.empty() && !text.contains('\0')) {
      const std::optional<std::string_view> name = name_below(last_, text);
      if (name && !name->empty()) return {last_number_, std::string(*name)};
    }
    Url url = value_or_raise(parse_url(text));
    if (url.scheme == Scheme::kFile && !url.name.starts_with('/')) {
      url.name = (std::filesystem::current_path() / url.name).lexically_normal().string();
    }
    const std::string whole = url.to_string();
    for (const std::string& root : given_) {
      const std::optional<std::string_view> name = name_below(root, whole);
      if (name && !name->empty()) return {builder_.add_root(root), std::string(*name)};
    }
    const std::string_view root = bucket_of(whole);
    const std::optional<std::string_view> name = name_below(root, whole);
    if (!name || name->empty()) refuse(cat(text, " names no object"));
    last_ = root;
    last_number_ = builder_.add_root(root);
    return {last_number_, std::string(*name)};
  }

 private:
  ObjectIndexBuilder& builder_;
  std::vector<std::string> given_;
  std::string last_;
  uint32_t last_number_ = 0;
};

nb::object from_urls(nb::handle urls, nb::handle roots, nb::handle sizes_bytes,
                     nb::handle generations, nb::handle begins, nb::handle ends,
                     nb::handle checksums, const std::string& checksum_kind, nb::handle columns) {
  const nb::object tuple = to_tuple("urls", urls);
  const std::vector<PyObject*> items = items_of(tuple);
  Rows rows(sizes_bytes, generations, begins, ends, checksums, checksum_kind, columns,
            items.size());
  ObjectIndexBuilder builder;
  UrlSplitter splitter(builder, roots);
  ObjectInfo info;
  EntryDetails details;
  for (size_t i = 0; i < items.size(); ++i) {
    std::tie(details.root, info.name) = splitter.split(text_at(items, i, "URL"));
    rows.fill(i, info, details);
    builder.add(info, details);
  }
  return build(builder, &rows);
}

}  // namespace

void bind_index_makers(Class<IndexHandle>& index_class) {
  index_class
      .def_static("from_objects", &from_objects, "objects"_a, nb::kw_only(), "root"_a = "",
                  "columns"_a = nb::none())
      .def_static("from_names", &from_names, "names"_a, nb::kw_only(), "root"_a = "",
                  "sizes_bytes"_a = nb::none(), "generations"_a = nb::none(),
                  "begins"_a = nb::none(), "ends"_a = nb::none(), "checksums"_a = nb::none(),
                  "checksum_kind"_a = "crc32c", "columns"_a = nb::none())
      .def_static("from_urls", &from_urls, "urls"_a, nb::kw_only(), "roots"_a = nb::tuple(),
                  "sizes_bytes"_a = nb::none(), "generations"_a = nb::none(),
                  "begins"_a = nb::none(), "ends"_a = nb::none(), "checksums"_a = nb::none(),
                  "checksum_kind"_a = "crc32c", "columns"_a = nb::none());
}

}  // namespace headrace::python
