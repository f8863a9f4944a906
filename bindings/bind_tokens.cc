// The headers of files of tokens.
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/packed_sequences.h"
#include "headrace/format/megatron_index.h"
#include "headrace/format/npy.h"
#include "object_index.h"
#include "waiting.h"

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

void bind_tokens(Module& module) {
  module.def("npy_header_bytes", &header_bytes, "beginning"_a);
  module.def("npy_header", &header_of, "beginning"_a);
  module.def("megatron_index", &megatron_of, "file"_a);
  Class<PackedSequences>(module, "PackedSequences")
      .def_static("pack", &pack, "file"_a, "order"_a)
      .def_static("from_parts", &from_parts, "parts"_a)
      .def("parts", &parts_of)
      .def("file_byte", &file_byte, "at"_a)
      .def_prop_ro("size_bytes", &PackedSequences::size_bytes);
}

}  // namespace headrace::python
