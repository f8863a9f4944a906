// Row groups of Parquet files: what to read for them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/store/reading/column_chunks.h"

namespace headrace::python {
namespace {

using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;

nb::tuple plan(const Pairs& chunks, uint64_t end, uint64_t max_gap_bytes,
               uint64_t max_request_bytes) {
  std::vector<ByteRange> ranges;
  ranges.reserve(chunks.size());
  for (const auto& [begin, chunk_end] : chunks) ranges.push_back({begin, chunk_end});
  const ColumnChunkPlan made = value_or_raise(plan_column_chunks(
      ranges, end, {.max_gap_bytes = max_gap_bytes, .max_request_bytes = max_request_bytes}));
  nb::list requests, locations;
  for (const ByteRange& each : made.requests) {
    requests.append(nb::make_tuple(each.begin, each.end));
  }
  for (const ColumnChunkPlan::Location& each : made.locations) {
    locations.append(nb::make_tuple(each.request, each.offset_bytes));
  }
  return nb::make_tuple(requests, locations);
}

}  // namespace

void bind_parquet(Module& module) {
  module.def("plan_column_chunks", &plan, "chunks"_a, "end"_a, "max_gap_bytes"_a,
             "max_request_bytes"_a);
}

}  // namespace headrace::python
