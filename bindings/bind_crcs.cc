// Checksums of bytes that Python holds, and of wholes from the checksums of their pieces.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "convert.h"
#include "headrace/format/crc32.h"
#include "headrace/format/running_sum.h"
#include "waiting.h"

namespace headrace::python {
namespace {

template <class Sum>
auto summed(nb::handle data, const Sum& sum) {
  const HeldBuffer buffer(data, /*writable=*/false);
  const std::span<const std::byte> bytes = buffer.bytes();
  return without_gil_if_long(bytes.size(), [&] { return sum(bytes); });
}

uint32_t crc32c(nb::handle data, uint32_t begin) {
  return summed(data, [&](auto bytes) { return Crc32c(begin).extended(bytes).value(); });
}

uint32_t crc32(nb::handle data, uint32_t begin) {
  return summed(data, [&](auto bytes) { return Crc32(begin).extended(bytes).value(); });
}

// Sums of one kind, as numbers.
// Thread: any (immutable).
class CrcKind {
 public:
  explicit CrcKind(const std::string& name)
      : kind_(checksum_kind(name).value_or(ChecksumKind::kNone)) {
    if (!can_join(kind_)) throw nb::value_error("sums of that kind cannot be joined");
  }

  std::string name() const { return std::string(to_string(kind_)); }
  std::string label() const { return std::string(headrace::label(kind_)); }
  uint64_t of(nb::handle data) const {
    return summed(data, [&](auto bytes) { return sum_of(kind_, bytes).number(); });
  }
  uint64_t joined(uint64_t first, uint64_t next, uint64_t next_size_bytes) const {
    return headrace::joined({kind_, first}, {kind_, next}, next_size_bytes).number();
  }
  uint64_t of_beginning(uint64_t whole, uint64_t last, uint64_t last_size_bytes) const {
    return without_last({kind_, whole}, {kind_, last}, last_size_bytes).number();
  }

 private:
  const ChecksumKind kind_;
};

}  // namespace

void bind_crcs(Module& module) {
  module.def("crc32c", &crc32c, "data"_a, "begin"_a = 0);
  module.def("crc32", &crc32, "data"_a, "begin"_a = 0);

  Class<CrcKind>(module, "CrcKind")
      .def(nb::init<const std::string&>(), "name"_a)
      .def_prop_ro("name", &CrcKind::name)
      .def_prop_ro("label", &CrcKind::label)
      .def("of", &CrcKind::of, "data"_a)
      .def("joined", &CrcKind::joined, "first"_a, "next"_a, "next_size_bytes"_a)
      .def(
          "of_rest",
          [](const CrcKind& self, uint64_t whole, uint64_t first, uint64_t rest_size_bytes) {
            return self.joined(first, whole, rest_size_bytes);
          },
          "whole"_a, "first"_a, "rest_size_bytes"_a)
      .def("of_beginning", &CrcKind::of_beginning, "whole"_a, "last"_a, "last_size_bytes"_a);

  Class<Xxh64>(module, "Xxh64")
      .def(nb::init<>())
      .def(
          "extend",
          [](Xxh64& self, nb::handle data) {
            summed(data, [&self](auto bytes) {
              self.extend(bytes);
              return true;
            });
          },
          "data"_a)
      .def("value", &Xxh64::value);
}

}  // namespace headrace::python
