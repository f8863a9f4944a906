// Plans that assign samples to shards, and the headers of shards.
#include <algorithm>
#include <utility>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/pack_plan.h"
#include "headrace/dataset/shard_samples.h"
#include "headrace/format/tar_writer.h"
#include "object_index.h"
#include "waiting.h"

namespace headrace::python {
namespace {

// Positions of samples from Python, which has checked none of them.
PackPlan::Samples checked(const PackPlan& plan, size_t begin, size_t end) {
  if (begin > end || end > plan.sample_count()) {
    raise(Error(Code::kInternal, "there are no such samples in the plan"));
  }
  return {.begin = begin, .end = end};
}

nb::object int64_view(const auto& values) {
  return int64_buffer(values.size(), [&values](std::span<int64_t> out) {
    std::ranges::transform(values, out.begin(),
                           [](auto value) { return static_cast<int64_t>(value); });
  });
}

PackPlan make_plan(const IndexHandle& index, uint64_t max_shard_bytes,
                   std::optional<uint64_t> max_shard_samples, bool shuffle, uint64_t seed,
                   std::optional<std::string> label, bool documents) {
  PackRules rules{.max_shard_bytes = max_shard_bytes,
                  .max_shard_samples = max_shard_samples.value_or(UINT64_MAX),
                  .shuffle = shuffle,
                  .seed = seed,
                  .label = std::move(label),
                  .documents = documents};
  return value_or_raise(
      without_gil([&](MayBlock) { return PackPlan::make(index.index, std::move(rules)); }));
}

nb::tuple shard(const PackPlan& plan, size_t i) {
  const PackPlan::Samples samples =
      plan.shard(checked_position(static_cast<int64_t>(i), plan.shard_count()));
  return nb::make_tuple(samples.begin, samples.end);
}

// A piece, and its plan, which Python keeps alive.
struct PackPiece {
  const PackPlan& plan;
  PackPlan::Piece piece;
};

PackPiece piece(const PackPlan& plan, size_t begin, size_t end, uint64_t max_bytes) {
  const PackPlan::Samples samples = checked(plan, begin, end);
  return {.plan = plan,
          .piece = without_gil([&](MayBlock) { return plan.piece(samples, max_bytes); })};
}

nb::tuple lay_out(const PackPiece& self, nb::handle into) {
  const HeldBuffer buffer(into, /*writable=*/true);
  const PackPlan::Layout layout = value_or_raise(
      without_gil([&](MayBlock) { return self.plan.lay_out(self.piece, buffer.bytes()); }));
  return nb::make_tuple(int64_view(layout.entries), int64_view(layout.places));
}

nb::list describe(const PackPiece& self) {
  nb::list out;
  for (const PackPlan::Sample& sample : self.plan.describe(self.piece)) {
    nb::list fields;
    for (const std::string& field : sample.fields) fields.append(to_str(field));
    const nb::object label = sample.label ? nb::object(to_str(*sample.label)) : nb::none();
    out.append(nb::make_tuple(to_str(sample.key), fields, label));
  }
  return out;
}

// The files that were put into a shard, in their order. Thread: confined (the GIL).
struct PackedFiles {
  TarFiles files;

  nb::object index(const IndexHandle& shard) const {
    if (shard.index->size() != 1) raise(Error(Code::kInternal, "the files are those of one shard"));
    const TarFiles* const own = &files;
    std::string generation;
    shard.index->append_generation(0, generation);
    return to_python(
        value_or_raise(member_index(*shard.index, std::span(&own, 1), std::span(&generation, 1))));
  }
};

nb::bytes header(const Text& name, uint64_t size_bytes) {
  const std::string text = name;
  std::string out(value_or_raise(tar_header_bytes(text, size_bytes)), '\0');
  write_tar_headers(text, size_bytes, std::as_writable_bytes(std::span(out)));
  return nb::bytes(out.data(), out.size());
}

}  // namespace

void bind_packing(Module& module) {
  Class<PackPlan>(module, "PackPlan")
      .def(
          "__init__",
          [](PackPlan* self, const IndexHandle& index, uint64_t max_shard_bytes,
             std::optional<uint64_t> max_shard_samples, bool shuffle, uint64_t seed,
             std::optional<std::string> label, bool documents) {
            new (self) PackPlan(make_plan(index, max_shard_bytes, max_shard_samples, shuffle, seed,
                                          std::move(label), documents));
          },
          "index"_a, nb::kw_only(), "max_shard_bytes"_a, "max_shard_samples"_a.none(), "shuffle"_a,
          "seed"_a, "label"_a.none(), "documents"_a)
      .def_prop_ro("sample_count", &PackPlan::sample_count)
      .def_prop_ro("shard_count", &PackPlan::shard_count)
      .def_prop_ro("has_given_ranges", &PackPlan::has_given_ranges)
      .def_prop_ro("left_out_count", &PackPlan::left_out_count)
      .def_prop_ro("first_left_out",
                   [](const PackPlan& self) { return to_str(self.first_left_out()); })
      .def("shard", &shard, "i"_a)
      .def(
          "source_bytes",
          [](const PackPlan& self, size_t begin, size_t end) {
            const PackPlan::Samples samples = checked(self, begin, end);
            return without_gil([&](MayBlock) { return self.source_bytes(samples); });
          },
          "begin"_a, "end"_a)
      .def("piece", &piece, "begin"_a, "end"_a, "max_bytes"_a, nb::keep_alive<0, 1>());

  Class<PackPiece>(module, "PackPiece")
      .def_prop_ro("begin", [](const PackPiece& self) { return self.piece.samples.begin; })
      .def_prop_ro("end", [](const PackPiece& self) { return self.piece.samples.end; })
      .def_prop_ro("size_bytes", [](const PackPiece& self) { return self.piece.size_bytes; })
      .def("lay_out", &lay_out, "into"_a)
      .def("describe", &describe);

  Class<PackedFiles>(module, "PackedFiles")
      .def(nb::init<>())
      .def(
          "add_planned",
          [](PackedFiles& self, const PackPiece& piece, uint64_t offset) {
            piece.plan.add_files(piece.piece, offset, self.files);
          },
          "piece"_a, "offset_bytes"_a)
      .def(
          "add",
          [](PackedFiles& self, const Text& name, uint64_t begin, uint64_t end) {
            const std::string text = name;
            self.files.add(text, {.begin = begin, .end = end});
          },
          "name"_a, "begin"_a, "end"_a)
      .def("index", &PackedFiles::index, "shard"_a);

  module.def("tar_header", &header, "name"_a, "size_bytes"_a);
}

}  // namespace headrace::python
