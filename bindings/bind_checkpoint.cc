#include <nanobind/stl/vector.h>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/checkpoint/zip_directory.h"
#include "headrace/checkpoint/zip_layout.h"
#include "waiting.h"

namespace headrace::python {
namespace {

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

void add(ZipLayout& self, nb::handle data) {
  const HeldBuffer buffer(data, /*writable=*/false);
  const std::span<const std::byte> bytes = buffer.bytes();
  const Result<void> added = without_gil_if_long(bytes.size(), [&] { return self.add(bytes); });
  if (!added) raise(added.error());
}

uint64_t find(nb::handle tail, uint64_t file_bytes) {
  const HeldBuffer buffer(tail, /*writable=*/false);
  return value_or_raise(find_directory(buffer.bytes(), file_bytes));
}

// The entries, whether we wrote the file, and the CRC-32C that it must have as a whole.
nb::tuple parse(nb::handle directory, uint64_t begin) {
  const HeldBuffer buffer(directory, /*writable=*/false);
  const ZipDirectory parsed = value_or_raise(parse_directory(buffer.bytes(), begin));
  nb::list entries, frames;
  for (const ZipEntry& entry : parsed.entries) entries.append(nb::cast(entry));
  nb::object crc32c = nb::none();
  if (parsed.sealed) {
    for (const ZipFrame& frame : parsed.frames()) {
      frames.append(nb::make_tuple(frame.begin, to_bytes(frame.bytes)));
    }
    crc32c = nb::int_(parsed.crc32c(buffer.bytes()).value());
  }
  return nb::make_tuple(entries, frames, crc32c);
}

}  // namespace

void bind_checkpoint(Module& module) {
  Class<ZipLayout>(module, "ZipLayout")
      .def(nb::init<>())
      .def(
          "begin_record",
          [](ZipLayout& self, std::string_view name, uint64_t size_bytes) {
            return to_bytes(value_or_raise(self.begin_record(name, size_bytes)));
          },
          "name"_a, "size_bytes"_a)
      .def("add", &add, "data"_a)
      .def("end_record",
           [](ZipLayout& self) { return to_bytes(value_or_raise(self.end_record())); })
      .def("finish", [](ZipLayout& self) { return to_bytes(value_or_raise(self.finish())); })
      .def_prop_ro("offset_bytes", &ZipLayout::offset_bytes);

  Class<ZipEntry>(module, "ZipEntry")
      .def_prop_ro("name", [](const ZipEntry& self) { return to_str(self.name); })
      .def_ro("size_bytes", &ZipEntry::size_bytes)
      .def_ro("header_offset_bytes", &ZipEntry::header_offset_bytes)
      .def_prop_ro("crc32", [](const ZipEntry& self) { return self.crc32.value(); })
      .def_prop_ro("crc32c",
                   [](const ZipEntry& self) -> std::optional<uint32_t> {
                     if (!self.crc32c) return std::nullopt;
                     return self.crc32c->value();
                   })
      .def_ro("begin", &ZipEntry::begin)
      .def(
          "content_begin",
          [](const ZipEntry& self, nb::handle local_header) {
            const HeldBuffer buffer(local_header, /*writable=*/false);
            return value_or_raise(content_begin(self, buffer.bytes()));
          },
          "local_header"_a);
  module.attr("LEAST_TAIL_BYTES") = kLeastTailBytes;
  module.def("find_directory", &find, "tail"_a, "file_bytes"_a);
  module.def("parse_directory", &parse, "directory"_a, "begin"_a);
}

}  // namespace headrace::python
