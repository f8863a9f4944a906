// The header of a .npy file: what the array is made of, and where its items begin.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/result.h"

namespace headrace {

struct NpyHeader {
  std::string descr = {};  // of an item: "<u2"
  bool fortran_order = false;
  std::vector<uint64_t> shape = {};
  uint64_t data_begin = 0;  // the header's own size

  bool operator==(const NpyHeader&) const = default;
};

// What says how long the header is.
inline constexpr size_t kNpyLengthBytes = 12;
// Longer ones belong to arrays of records with very many fields.
inline constexpr size_t kMostNpyHeaderBytes = 64 * 1024;

// The size of the header, from the first kNpyLengthBytes of the file.
// Errors: kCorrupt if this is no .npy file of a version from 1 to 3, or one that is cut.
Result<size_t> npy_header_bytes(std::span<const std::byte> beginning);
// `header` may be longer than it.
// Errors: kCorrupt; kInvalidArgument for arrays of records.
Result<NpyHeader> parse_npy_header(std::span<const std::byte> header);

}  // namespace headrace
