#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <tuple>

#include "bind.h"
#include "convert.h"
#include "errors.h"
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
  const nb::object epoch =
      datetime.attr("datetime")(1970, 1, 1, "tzinfo"_a = datetime.attr("timezone").attr("utc"));
  const int64_t since_us = duration_cast<microseconds>(time.time_since_epoch()).count();
  return epoch + datetime.attr("timedelta")("microseconds"_a = since_us);
}

system_clock::time_point from_datetime(nb::handle time) {
  const nb::object datetime = imported("datetime");
  const nb::object epoch =
      datetime.attr("datetime")(1970, 1, 1, "tzinfo"_a = datetime.attr("timezone").attr("utc"));
  const nb::object since = nb::borrow(time) - epoch;
  const nb::object since_us =
      nb::object(since.attr("__floordiv__")(datetime.attr("timedelta")("microseconds"_a = 1)));
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

void bind_object_info(Module& module) {
  Class<ObjectInfo>(module, "ObjectInfo", nb::is_final())
      .def("__init__", &construct, "name"_a, "size_bytes"_a = nb::none(), "generation"_a = "",
           "crc32c"_a = nb::none(), "content_type"_a = "", "content_encoding"_a = "",
           "updated"_a = nb::none(), "storage_class"_a = "", "component_count"_a = 0,
           "metageneration"_a = 0, "checksum"_a = nb::none())
      .def_prop_ro("name", [](const ObjectInfo& self) { return to_str(self.name); })
      .def_prop_ro("size_bytes", &size_of)
      .def_prop_ro("generation", [](const ObjectInfo& self) { return to_str(self.generation); })
      .def_prop_ro("crc32c", &crc32c_of)
      .def_prop_ro("checksum", [](const ObjectInfo& self) { return to_pair(self.checksum); })
      .def_prop_ro("content_type", [](const ObjectInfo& self) { return to_str(self.content_type); })
      .def_prop_ro("content_encoding",
                   [](const ObjectInfo& self) { return to_str(self.content_encoding); })
      .def_prop_ro("updated", [](const ObjectInfo& self) { return to_datetime(self.updated); })
      .def_prop_ro("_last_use",
                   [](const ObjectInfo& self) { return to_datetime(self.last_use.at); })
      .def_prop_ro("storage_class",
                   [](const ObjectInfo& self) { return to_str(self.storage_class); })
      .def_prop_ro("component_count", [](const ObjectInfo& self) { return self.component_count; })
      .def_prop_ro("metageneration", [](const ObjectInfo& self) { return self.metageneration; })
      .def(
          "__eq__",
          [](const ObjectInfo& self, nb::handle other) -> nb::object {
            if (!nb::isinstance<ObjectInfo>(other)) return nb::borrow(Py_NotImplemented);
            return nb::bool_(self == *nb::inst_ptr<ObjectInfo>(other));
          },
          "other"_a.none())
      .def("__hash__",
           [](const ObjectInfo& self) {
             return nb::hash(nb::make_tuple(to_str(self.name), to_str(self.generation)));
           })
      .def("__reduce__", &reduce)
      .def("__repr__", [](const ObjectInfo& self) {
        return nb::str("ObjectInfo(name={!r}, size_bytes={}, generation={!r})")
            .attr("format")(to_str(self.name), size_of(self), to_str(self.generation));
      });
}

}  // namespace headrace::python
