#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <tuple>

#include "convert.h"
#include "headrace/format/object_info.h"

namespace headrace::python {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::system_clock;

// None for a time that is not known. datetime's own conversions from floats lose microseconds.
nb::object to_datetime(system_clock::time_point time) {
  if (time == system_clock::time_point{}) return nb::none();
  const nb::object datetime = imported("datetime");
  const nb::object epoch = datetime.attr("datetime")(
      1970, 1, 1, nb::arg("tzinfo") = datetime.attr("timezone").attr("utc"));
  const int64_t since_us = duration_cast<microseconds>(time.time_since_epoch()).count();
  return epoch + datetime.attr("timedelta")(nb::arg("microseconds") = since_us);
}

system_clock::time_point from_datetime(nb::handle time) {
  const nb::object datetime = imported("datetime");
  const nb::object epoch = datetime.attr("datetime")(
      1970, 1, 1, nb::arg("tzinfo") = datetime.attr("timezone").attr("utc"));
  const nb::object since = nb::borrow(time) - epoch;
  const nb::object since_us = nb::object(
      since.attr("__floordiv__")(datetime.attr("timedelta")(nb::arg("microseconds") = 1)));
  return system_clock::time_point(microseconds(nb::cast<int64_t>(since_us)));
}

Checksum given_checksum(std::optional<uint32_t> crc32c,
                        const std::optional<std::tuple<std::string, nb::bytes>>& checksum) {
  const Checksum known = crc32c ? Checksum(Crc32c(*crc32c)) : Checksum();
  if (!checksum) return known;
  const auto& [name, value] = *checksum;
  const std::optional<ChecksumKind> kind = checksum_kind(name);
  if (!kind || value.size() != checksum_size(*kind)) {
    raise(Error(Code::kInvalidArgument,
                cat("checksum is of kind '", name, "' and has ", value.size(),
                    " bytes; kinds are crc32 and crc32c (4 bytes), crc64nvme and xxh64 (8), md5 "
                    "(16), sha1 (20) and sha256 (32)")));
  }
  const Checksum given(*kind, std::as_bytes(std::span(value.c_str(), value.size())));
  if (crc32c && known != given) {
    raise(Error(Code::kInvalidArgument, "crc32c and checksum are not the same: give one of them"));
  }
  return given;
}

void construct(ObjectInfo* self, std::string name, std::optional<uint64_t> size_bytes,
               std::string generation, std::optional<uint32_t> crc32c, std::string content_type,
               std::string content_encoding, nb::object updated, std::string storage_class,
               uint32_t component_count, uint64_t metageneration,
               const std::optional<std::tuple<std::string, nb::bytes>>& checksum) {
  new (self)
      ObjectInfo{.name = std::move(name),
                 .size_bytes = size_bytes.value_or(kUnknownSize),
                 .generation = std::move(generation),
                 .checksum = given_checksum(crc32c, checksum),
                 .content_type = std::move(content_type),
                 .content_encoding = std::move(content_encoding),
                 .updated = updated.is_none() ? system_clock::time_point{} : from_datetime(updated),
                 .storage_class = std::move(storage_class),
                 .component_count = component_count,
                 .metageneration = metageneration};
}

nb::object crc32c_of(const ObjectInfo& self) {
  const std::optional<Crc32c> sum = self.crc32c();
  return sum ? nb::object(nb::int_(sum->value())) : nb::object(nb::none());
}

nb::object size_of(const ObjectInfo& self) {
  return self.size_bytes == kUnknownSize ? nb::object(nb::none())
                                         : nb::object(nb::int_(self.size_bytes));
}

nb::object reduce(nb::handle self) {
  const ObjectInfo& info = *nb::inst_ptr<ObjectInfo>(self);
  return nb::make_tuple(
      self.type(),
      nb::make_tuple(to_str(info.name), size_of(info), to_str(info.generation), crc32c_of(info),
                     to_str(info.content_type), to_str(info.content_encoding),
                     to_datetime(info.updated), to_str(info.storage_class), info.component_count,
                     info.metageneration, to_pair(info.checksum)));
}

}  // namespace

void bind_object_info(nb::module_& module) {
  nb::class_<ObjectInfo>(
      module, "ObjectInfo", nb::is_final(), nb::sig("@typing.final\nclass ObjectInfo(object)"),
      R"doc(What a store says about one object. Immutable, comparable, hashable; pickles.

Reads take it in place of a name: then they need not ask for the size, are pinned to its generation,
and are verified against its checksum. Only the name is needed; of what is left out, reads find out.

Examples:
    >>> info = headrace.Store("gs://bucket/train").stat("cat/001.jpg")
    >>> info.name, info.size_bytes
    ('cat/001.jpg', 52113)
    >>> headrace.ObjectInfo("cat/001.jpg").size_bytes is None
    True)doc")
      .def("__init__", &construct,
           nb::sig(
               "def __init__(self, name: str, size_bytes: int | None = None, generation: str = '', "
               "crc32c: int | None = None, content_type: str = '', "
               "content_encoding: str = '', updated: datetime.datetime | None = None, "
               "storage_class: str = '', component_count: int = 0, "
               "metageneration: int = 0, "
               "checksum: tuple[str, builtins.bytes] | None = None) -> None"),
           nb::arg("name"), nb::arg("size_bytes") = nb::none(), nb::arg("generation") = "",
           nb::arg("crc32c") = nb::none(), nb::arg("content_type") = "",
           nb::arg("content_encoding") = "", nb::arg("updated") = nb::none(),
           nb::arg("storage_class") = "", nb::arg("component_count") = 0,
           nb::arg("metageneration") = 0, nb::arg("checksum") = nb::none())
      .def_prop_ro(
          "name", [](const ObjectInfo& self) { return to_str(self.name); },
          "The name below the root of its store, or of its index.")
      // `int | Any`: stores always report it, and few programs meet an object without it. So with
      // `updated`, but for AIStore and for the answer to a write to S3.
      .def_prop_ro("size_bytes", &size_of, nb::sig("def size_bytes(self) -> int | typing.Any"),
                   "The size of the stored object; ``None`` where nobody has told it.")
      .def_prop_ro(
          "generation", [](const ObjectInfo& self) { return to_str(self.generation); },
          "The token for this very version.")
      .def_prop_ro("crc32c", &crc32c_of, nb::sig("def crc32c(self) -> int | None"),
                   "The CRC-32C of the stored bytes; ``None`` where the store keeps none.")
      .def_prop_ro(
          "checksum", [](const ObjectInfo& self) { return to_pair(self.checksum); },
          nb::sig("def checksum(self) -> tuple[str, builtins.bytes] | None"),
          R"doc(The kind and the value of the checksum of the stored bytes; ``None`` where none is known.

A kind is ``"crc32c"``, ``"crc32"``, ``"crc64nvme"``, ``"sha1"``, ``"sha256"``, ``"md5"`` or
``"xxh64"``. Stores tell it with `Store.stat`, listings only on ``gs://``; an index may have any.)doc")
      .def_prop_ro(
          "content_type", [](const ObjectInfo& self) { return to_str(self.content_type); },
          "The MIME type; ``''`` where the store keeps none.")
      .def_prop_ro(
          "content_encoding", [](const ObjectInfo& self) { return to_str(self.content_encoding); },
          "How the stored bytes are compressed, such as ``gzip``; ``''`` if they are not.")
      .def_prop_ro(
          "updated", [](const ObjectInfo& self) { return to_datetime(self.updated); },
          nb::sig("def updated(self) -> datetime.datetime | typing.Any"),
          "When it was written, in UTC; ``None`` where nobody has told it: AIStore keeps no such "
          "time, and S3 does not tell it in its answer to a write.")
      .def_prop_ro(
          "_last_use", [](const ObjectInfo& self) { return to_datetime(self.last_use.at); },
          nb::sig("def _last_use(self) -> datetime.datetime | None"),
          "When it was last read or written, if AIStore has told it.")
      .def_prop_ro(
          "storage_class", [](const ObjectInfo& self) { return to_str(self.storage_class); },
          "The store's word for it, such as ``STANDARD``; ``''`` if it says none.")
      .def_prop_ro(
          "component_count", [](const ObjectInfo& self) { return self.component_count; },
          "Of how many parts it was composed; 0 if it was not.")
      .def_prop_ro(
          "metageneration", [](const ObjectInfo& self) { return self.metageneration; },
          "Counts changes of metadata within one generation; 0 if unknown.")
      .def(
          "__eq__",
          [](const ObjectInfo& self, nb::handle other) -> nb::object {
            if (!nb::isinstance<ObjectInfo>(other)) return nb::borrow(Py_NotImplemented);
            return nb::bool_(self == *nb::inst_ptr<ObjectInfo>(other));
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__hash__",
           [](const ObjectInfo& self) {
             return nb::hash(nb::make_tuple(to_str(self.name), to_str(self.generation)));
           })
      .def("__reduce__", &reduce, nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def(
          "__repr__",
          [](const ObjectInfo& self) {
            return nb::str("ObjectInfo(name={!r}, size_bytes={}, generation={!r})")
                .attr("format")(to_str(self.name), size_of(self), to_str(self.generation));
          },
          nb::sig("def __repr__(self) -> str"));
}

}  // namespace headrace::python
