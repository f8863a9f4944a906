#include <algorithm>
#include <limits>
#include <vector>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/sample_seeds.h"
#include "object_index.h"
#include "sample.h"

namespace headrace::python {

Sample::Sample(nb::handle data, nb::str url, std::string_view generation, nb::str name,
               std::optional<size_t> position, std::optional<uint64_t> seed, nb::object label)
    : url_(std::move(url)),
      origin_(std::move(name)),
      position_(position.value_or(kNoPosition)),
      seed_(seed),
      label_(std::move(label)) {
  generation_.assign(generation);
  const HeldBuffer source(data, /*writable=*/false);
  copy_ = std::make_unique_for_overwrite<std::byte[]>(source.bytes().size());
  std::ranges::copy(source.bytes(), copy_.get());
  bytes_ = {copy_.get(), source.bytes().size()};
}

nb::object Sample::name() const {
  if (PyUnicode_Check(origin_.ptr())) return origin_;
  if (!nb::isinstance<IndexHandle>(origin_)) return origin_.attr("name");
  std::string name;
  nb::inst_ptr<IndexHandle>(origin_)->index->append_name(position_, name);
  return to_str(name);
}

nb::object Sample::url() const {
  if (!url_prefix_.is_valid()) return url_;
  return url_prefix_ + name();
}

nb::object Sample::rng() {
  if (!seed_) {
    raise(Error(Code::kInvalidArgument,
                "the sample has no seed: it was read by no dataset or loader of headrace.torch "
                "(Sample(data, seed=...) has one)"));
  }
  if (!rng_.is_valid()) {
    const nb::object type = imported("headrace._index.sample_rng").attr("SampleRng");
    const nb::int_ seed(*seed_);
    rng_ = in_python([&] { return type(seed); });
  }
  return rng_;
}

namespace {

void seed_samples(nb::list samples, uint64_t seed, uint64_t epoch, nb::handle positions) {
  const SampleSeeds seeds(seed, epoch);
  const std::vector<size_t> wanted =
      to_positions(positions, static_cast<size_t>(std::numeric_limits<int64_t>::max()));
  if (wanted.size() != nb::len(samples)) {
    raise(Error(Code::kInvalidArgument, "there are not as many positions as samples"));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    nb::cast<Sample&>(samples[i]).set_seed(seeds.at(wanted[i]));
  }
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  static std::byte nothing;  // consumers dislike a null pointer even for zero bytes
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_BufferError, "the sample was not initialised");
    return -1;
  }
  const std::span<std::byte> bytes = nb::inst_ptr<Sample>(self)->bytes();
  return PyBuffer_FillInfo(view, self, bytes.empty() ? &nothing : bytes.data(),
                           static_cast<Py_ssize_t>(bytes.size()), /*readonly=*/0, flags);
}

PyType_Slot sample_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                              {0, nullptr}};

nb::bytes to_bytes(const Sample& self) {
  return nb::bytes(self.bytes().data(), self.bytes().size());
}

// Adds a note that names the sample to exceptions about its bytes.
template <typename Function>
nb::object naming(nb::handle self, Function function) {
  try {
    return function();
  } catch (nb::python_error& error) {
    const nb::object add_note = imported("headrace._base.errors").attr("add_note");
    const nb::object note = nb::str("in {}").attr("format")(self.attr("url"));
    const nb::handle raised = error.value();
    in_python([&] { return add_note(raised, note); });
    throw;
  }
}

nb::object to_text(nb::handle self, const std::string& encoding, const std::string& errors) {
  return naming(self, [&] {
    PyObject* text = in_python(
        [&] { return PyUnicode_FromEncodedObject(self.ptr(), encoding.c_str(), errors.c_str()); });
    if (text == nullptr) throw nb::python_error();
    return nb::steal(text);
  });
}

nb::object to_json(nb::handle self) {
  return naming(self, [&] {
    const nb::object loads = imported("json").attr("loads");
    const nb::bytes bytes = to_bytes(*nb::inst_ptr<Sample>(self));
    return in_python([&] { return loads(bytes); });
  });
}

nb::object to_numpy(nb::handle self) {
  const nb::object asarray = imported("numpy").attr("asarray");
  const nb::object view = nb::steal(PyMemoryView_FromObject(self.ptr()));
  return in_python([&] { return asarray(view); });
}

nb::object to_tensor(nb::handle self) {
  const nb::object torch = imported("torch");
  const nb::arg_v dtype = "dtype"_a = torch.attr("uint8");
  // torch.frombuffer raises for an empty buffer.
  if (nb::inst_ptr<Sample>(self)->bytes().empty()) {
    const nb::object empty = attribute(torch, "empty");
    return in_python([&] { return empty(0, dtype); });
  }
  const nb::object frombuffer = attribute(torch, "frombuffer");
  return in_python([&] { return frombuffer(self, dtype); });
}

}  // namespace

void bind_sample(Module& module) {
  Class<Sample>(module, "Sample", nb::type_slots(sample_slots), nb::is_final())
      .def(nb::init<nb::handle, nb::str, std::string_view, nb::str, std::optional<size_t>,
                    std::optional<uint64_t>, nb::object>(),
           "data"_a, "url"_a = "", "generation"_a = "", "name"_a = "", "index"_a = nb::none(),
           nb::kw_only(), "seed"_a = nb::none(), "label"_a = nb::none())
      .def_prop_ro("name", &Sample::name)
      .def_prop_ro("url", &Sample::url)
      .def_prop_ro("index", [](const Sample& self) { return self.position(); })
      .def_prop_ro("generation", [](const Sample& self) { return to_str(self.generation()); })
      .def_prop_ro("size_bytes", [](const Sample& self) { return self.bytes().size(); })
      .def_prop_ro("seed", &Sample::seed)
      .def("rng", &Sample::rng)
      .def_prop_ro("label", &Sample::label)
      .def("__len__", [](const Sample& self) { return self.bytes().size(); })
      .def("bytes", &to_bytes)
      .def("text", &to_text, "encoding"_a = "utf-8", "errors"_a = "strict")
      .def("json", &to_json)
      .def("numpy", &to_numpy)
      .def("tensor", &to_tensor)
      .def("__reduce__",
           [](nb::handle self) {
             const Sample& sample = *nb::inst_ptr<Sample>(self);
             return nb::make_tuple(
                 imported("headrace._index.sample_rng").attr("make_sample"),
                 nb::make_tuple(to_bytes(sample), sample.url(), to_str(sample.generation()),
                                sample.name(), sample.position(), sample.seed(), sample.label()));
           })
      .def("__repr__", [](const Sample& self) {
        return nb::str("<headrace.Sample {!r}, {} bytes>")
            .attr("format")(self.url(), self.bytes().size());
      });
  module.def("seed_samples", &seed_samples, "samples"_a, "seed"_a, "epoch"_a, "positions"_a);
  module.def(
      "label_samples",
      [](nb::list samples, nb::list labels) {
        if (nb::len(samples) != nb::len(labels)) {
          raise(Error(Code::kInvalidArgument, "there are not as many labels as samples"));
        }
        for (size_t i = 0; i < nb::len(samples); ++i) {
          nb::cast<Sample&>(samples[i]).set_label(nb::borrow(labels[i]));
        }
      },
      "samples"_a, "labels"_a);
}

}  // namespace headrace::python
