// Members and samples of shards.
#include <algorithm>
#include <vector>

#include "headrace/dataset/shard_samples.h"
#include "object_index.h"
#include "sample.h"

namespace headrace::python {
namespace {

nb::tuple sample_index_of(const IndexHandle& members, bool skip_errors) {
  SampleIndex samples = value_or_raise(
      without_gil([&](MayBlock) { return sample_index(*members.index, skip_errors); }));
  nb::list errors;
  for (const Error& error : samples.errors) errors.append(to_exception(error));
  return nb::make_tuple(to_python(std::move(samples.index)), errors, samples.left_out,
                        to_str(samples.first_left_out));
}

nb::object with_fields_of(const IndexHandle& samples, const nb::object& fields) {
  std::vector<std::string> names;
  for (const nb::handle field : nb::iter(fields)) names.emplace_back(utf8_of(field));
  return to_python(
      value_or_raise(without_gil([&](MayBlock) { return with_fields(*samples.index, names); })));
}

// A store that reads changed objects anew (on_change="reread") gives other bytes of the same range.
void require_version(const ObjectIndex& index, size_t i, std::string_view found) {
  std::string indexed;
  index.append_generation(i, indexed);
  if (found.empty() || indexed.empty() || found == indexed) return;
  raise(
      Error(Code::kPreconditionFailed,
            cat("has changed since it was indexed, and its samples are elsewhere now: generation ",
                indexed, " then, ", found, " now"))
          .with_url(index.url(i)));
}

nb::dict split_sample(nb::handle_t<Sample> whole) {
  Sample& sample = *nb::inst_ptr<Sample>(whole);
  if (!sample.position() || !nb::isinstance<IndexHandle>(sample.origin())) {
    raise(Error(Code::kInvalidArgument, "it was read by no index of samples"));
  }
  const ObjectIndex& index = *nb::inst_ptr<IndexHandle>(sample.origin())->index;
  require_version(index, *sample.position(), sample.generation());
  const SampleFields fields = value_or_raise(sample_fields(index, *sample.position()));
  nb::dict out;
  out["__key__"] = to_str(fields.key);
  out["__url__"] = sample.url();
  std::string_view names = fields.names;
  for (const ByteRange& place : fields.places) {
    const std::string_view name = names.substr(0, names.find('/'));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    if (place.end > sample.bytes().size()) {
      raise(Error(Code::kCorrupt, cat("the field '", name, "' of the sample '", fields.key,
                                      "' ends behind the bytes that were read"))
                .with_url(index.url(*sample.position())));
    }
    nb::object part = nb::inst_alloc(nb::type<Sample>());
    new (nb::inst_ptr<Sample>(part))
        Sample(sample, nb::borrow(whole), sample.bytes().subspan(place.begin, place.size_bytes()));
    nb::inst_mark_ready(part);
    out[to_str(name)] = part;
  }
  return out;
}

}  // namespace

void bind_shards(nb::module_& module) {
  module.def("sample_index", &sample_index_of, nb::arg("members"), nb::arg("skip_errors"),
             nb::sig("def sample_index(members: ObjectIndex, skip_errors: bool) -> "
                     "tuple[ObjectIndex, list[Exception], int, str]"),
             "An index of samples, the errors of shards that are left out, how many members are in "
             "no sample, and the first of these.");
  module.def("with_fields", &with_fields_of, nb::arg("samples"), nb::arg("fields"),
             nb::sig("def with_fields(samples: ObjectIndex, "
                     "fields: collections.abc.Sequence[str]) -> ObjectIndex"),
             "The same samples with these fields alone.");
  module.def("split_sample", &split_sample, nb::arg("sample"),
             nb::sig("def split_sample(sample: Sample) -> dict[str, typing.Any]"),
             "``__key__``, ``__url__``, and for each field a sample that shares the memory.");
}

}  // namespace headrace::python
