#include "convert.h"
#include "headrace/format/crc32c.h"

namespace headrace::python {

void bind_checkpoint(nb::module_& module) {
  module.def(
      "crc32c",
      [](nb::handle data) {
        const HeldBuffer buffer(data, /*writable=*/false);
        return without_gil(
            [&buffer](MayBlock) { return Crc32c().extended(buffer.bytes()).value(); });
      },
      nb::arg("data"), nb::sig("def crc32c(data: Buffer) -> int"), "The CRC-32C of a buffer.");
}

}  // namespace headrace::python
