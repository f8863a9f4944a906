// The headers of files of tokens.
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "headrace/dataset/packed_sequences.h"
#include "headrace/format/megatron_index.h"
#include "headrace/format/npy.h"
#include "object_index.h"

namespace headrace::python {
namespace {

size_t header_bytes(nb::handle beginning) {
  const HeldBuffer buffer(beginning, /*writable=*/false);
  return value_or_raise(npy_header_bytes(buffer.bytes()));
}

nb::tuple header_of(nb::handle beginning) {
  const HeldBuffer buffer(beginning, /*writable=*/false);
  const NpyHeader header = value_or_raise(parse_npy_header(buffer.bytes()));
  nb::list shape;
  for (const uint64_t each : header.shape) shape.append(each);
  return nb::make_tuple(to_str(header.descr), header.fortran_order, nb::tuple(shape),
                        header.data_begin);
}

nb::tuple megatron_of(nb::handle file) {
  const HeldBuffer buffer(file, /*writable=*/false);
  const MegatronIndex index = value_or_raise(
      without_gil([&buffer](MayBlock) { return MegatronIndex::parse(buffer.bytes()); }));
  return nb::make_tuple(to_str(index.item_type()), index.sequence_count(), index.end(),
                        index.is_contiguous());
}

PackedSequences pack(nb::handle file, nb::handle order) {
  const HeldBuffer buffer(file, /*writable=*/false);
  const MegatronIndex index = value_or_raise(
      without_gil([&buffer](MayBlock) { return MegatronIndex::parse(buffer.bytes()); }));
  const std::vector<size_t> wanted = to_positions(order, index.sequence_count());
  return value_or_raise(
      without_gil([&](MayBlock) { return PackedSequences::pack(index, wanted); }));
}

PackedSequences from_parts(nb::handle parts) {
  const HeldBuffer buffer(parts, /*writable=*/false);
  return value_or_raise(
      without_gil([&buffer](MayBlock) { return PackedSequences::from_parts(buffer.bytes()); }));
}

nb::bytes parts_of(const PackedSequences& packed) {
  const std::string parts = packed.parts();
  return nb::bytes(parts.data(), parts.size());
}

uint64_t file_byte(const PackedSequences& packed, uint64_t at) {
  if (at >= packed.size_bytes()) {
    raise(Error(Code::kInvalidArgument,
                cat("byte ", at, " lies behind the ", packed.size_bytes(), " packed bytes")));
  }
  return packed.file_byte(at);
}

}  // namespace

void bind_tokens(nb::module_& module) {
  module.def("npy_header_bytes", &header_bytes, nb::arg("beginning"),
             nb::sig("def npy_header_bytes(beginning: typing_extensions.Buffer) -> int"),
             "The size of the header of a .npy file; twelve bytes of it are enough.");
  module.def("npy_header", &header_of, nb::arg("beginning"),
             nb::sig("def npy_header(beginning: typing_extensions.Buffer) -> "
                     "tuple[str, bool, tuple[int, ...], int]"),
             "What the header of a .npy file says: type, Fortran order, shape, and where the items "
             "begin.");
  module.def("megatron_index", &megatron_of, nb::arg("file"),
             nb::sig("def megatron_index(file: typing_extensions.Buffer) -> "
                     "tuple[str, int, int, bool]"),
             "What an .idx of Megatron-Core says: the type of tokens, the number of sequences, "
             "where the last one ends in the .bin, and whether they follow each other without a "
             "gap.");
  nb::class_<PackedSequences>(module, "PackedSequences",
                              "The sequences of a dataset of Megatron-Core in some order, as one "
                              "stream of bytes.")
      .def_static("pack", &pack, nb::arg("file"), nb::arg("order"),
                  nb::sig("def pack(file: typing_extensions.Buffer, order: "
                          "collections.abc.Sequence[int] | typing_extensions.Buffer) -> "
                          "PackedSequences"),
                  "Packs the sequences with these numbers; `file` is the .idx.")
      .def_static("from_parts", &from_parts, nb::arg("parts"),
                  nb::sig("def from_parts(parts: typing_extensions.Buffer) -> PackedSequences"),
                  "What has these `parts()`.")
      .def("parts", &parts_of,
           "Everything that the stream consists of, at most 16 bytes a sequence.")
      .def("file_byte", &file_byte, nb::arg("at"),
           "Where in the .bin this byte of the stream lies.")
      .def_prop_ro("size_bytes", &PackedSequences::size_bytes,
                   "The bytes of all of them together.");
}

}  // namespace headrace::python
