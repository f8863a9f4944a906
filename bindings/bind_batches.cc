// Batches of samples whose cost is bounded.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/batch_steps.h"

namespace headrace::python {
namespace {

// The weights of samples; empty for a limit that is not set. They live as long as the buffers.
class Weights {
 public:
  Weights(size_t count, nb::handle costs, nb::handle bytes) {
    hold(costs, costs_);
    hold(bytes, bytes_);
    if ((costs_ && costs_->values<double>().size() != count) ||
        (bytes_ && bytes_->values<double>().size() != count)) {
      throw nb::value_error("there must be a weight for each sample");
    }
  }
  Weight operator[](size_t at) const {
    return {.cost = costs_ ? costs_->values<double>()[at] : 0,
            .bytes = bytes_ ? bytes_->values<double>()[at] : 0};
  }

 private:
  static void hold(nb::handle values, std::optional<HeldBuffer>& out) {
    if (!values.is_none()) out.emplace(values, /*writable=*/false);
  }

  std::optional<HeldBuffer> costs_, bytes_;
};

// Thread: confined (the GIL).
struct StepsHandle {
  BatchSteps steps;
  std::vector<int64_t> left_out = {};  // positions, until somebody asks
  const OpenBatch* so_far = nullptr;   // while `fits` is asked about it

  const OpenBatch& asked() const {
    if (so_far == nullptr) {
      raise(
          Error(Code::kInvalidArgument,
                "this batch was there for one call of `fits`, which has ended; keep what you need "
                "of it"));
    }
    return *so_far;
  }
};

void make(StepsHandle* self, uint64_t count, uint64_t position, double max_cost, double max_bytes,
          std::optional<uint64_t> max_samples, std::vector<double> boundaries, bool skip_oversized,
          uint64_t world_size, bool drop_last, double saturation) {
  new (self)
      StepsHandle{.steps = BatchSteps(
                      {.max_cost = max_cost,
                       .max_bytes = max_bytes,
                       .max_samples = max_samples.value_or(UINT64_MAX),
                       .oversized = skip_oversized ? Oversized::kLeftOut : Oversized::kEndsBatch,
                       .boundaries = std::move(boundaries)},
                      {.world_size = world_size, .drop_last = drop_last, .saturation = saturation},
                      count, position)};
}

// Whether the user's function lets the sample join the batch that is open for it.
bool joins(StepsHandle& self, nb::handle fits, const Weight& weight, int64_t index) {
  const BatchMaker& maker = self.steps.maker();
  if (fits.is_none() || maker.open_for(weight).entries().empty() || !maker.has_room_for(weight)) {
    return true;
  }
  self.so_far = &maker.open_for(weight);
  const nb::int_ number(index);
  const nb::object answer = nb::steal(
      in_python([&] { return PyObject_CallFunctionObjArgs(fits.ptr(), number.ptr(), nullptr); }));
  self.so_far = nullptr;
  const int is_true =
      answer.is_valid() ? in_python([&] { return PyObject_IsTrue(answer.ptr()); }) : -1;
  if (is_true < 0) throw nb::python_error();
  return is_true != 0;
}

void add_all(StepsHandle& self, nb::handle positions, nb::handle indices, nb::handle costs,
             nb::handle bytes, nb::handle fits) {
  const HeldBuffer held_indices(indices, /*writable=*/false);
  const auto numbers = held_indices.values<int64_t>();
  std::optional<HeldBuffer> held_positions;
  if (!positions.is_none()) held_positions.emplace(positions, /*writable=*/false);
  const Weights weights(numbers.size(), costs, bytes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Weight weight = weights[i];
    const bool is_joining = joins(self, fits, weight, numbers[i]);
    uint64_t at = self.steps.position();
    bool is_in = false;
    if (held_positions) {
      at = static_cast<uint64_t>(held_positions->values<int64_t>()[i]);
      is_in = self.steps.add_waiting({.position = at, .weight = weight}, is_joining);
    } else {
      is_in = self.steps.add(weight, is_joining);
    }
    if (!is_in) self.left_out.push_back(static_cast<int64_t>(at));
  }
}

template <class Values>
nb::object to_buffer(const Values& values) {
  return int64_buffer(values.size(), [&values](std::span<int64_t> out) {
    std::ranges::transform(values, out.begin(),
                           [](auto value) { return static_cast<int64_t>(value); });
  });
}

nb::object positions_of(std::span<const BatchEntry> entries) {
  return int64_buffer(entries.size(), [entries](std::span<int64_t> out) {
    std::ranges::transform(entries, out.begin(), [](const BatchEntry& entry) {
      return static_cast<int64_t>(entry.position);
    });
  });
}

nb::object next_step(StepsHandle& self, size_t rank) {
  const std::optional<BatchStep> step = self.steps.next();
  if (!step) return nb::none();
  return nb::make_tuple(positions_of(step->batches.at(rank)), step->position,
                        step->waiting.empty() ? nb::object(nb::tuple()) : to_buffer(step->waiting));
}

nb::tuple packed(nb::handle costs, double max_cost) {
  const HeldBuffer held(costs, /*writable=*/false);
  const auto values = held.values<double>();
  BatchMaker maker({.max_cost = max_cost, .oversized = Oversized::kOvertakes});
  std::vector<MadeBatch> made;
  for (size_t at = 0; at < values.size(); ++at) {
    maker.add({.position = at, .weight = {.cost = values[at]}}, true, at, at + 1, made);
  }
  const double rest = maker.open().front().total().cost;
  std::vector<int64_t> ends;
  size_t end = 0;
  for (const MadeBatch& batch : made) {
    end += batch.entries.size();
    ends.push_back(static_cast<int64_t>(end));
  }
  maker.flush(-1, values.size(), made);
  std::vector<uint64_t> order;
  order.reserve(values.size());
  for (const MadeBatch& batch : made) {
    for (const BatchEntry& entry : batch.entries) order.push_back(entry.position);
  }
  return nb::make_tuple(to_buffer(order), to_buffer(ends), rest);
}

}  // namespace

void bind_batches(Module& module) {
  Class<StepsHandle>(module, "BatchSteps", nb::is_final())
      .def("__init__", &make, "count"_a, "position"_a, nb::kw_only(), "max_cost"_a, "max_bytes"_a,
           "max_samples"_a.none(), "boundaries"_a, "skip_oversized"_a, "world_size"_a,
           "drop_last"_a, "saturation"_a)
      .def_prop_ro("position", [](const StepsHandle& self) { return self.steps.position(); })
      .def_prop_ro("is_ready", [](const StepsHandle& self) { return self.steps.is_ready(); })
      .def("add", &add_all, "positions"_a.none(), "indices"_a, "costs"_a.none(), "bytes"_a.none(),
           "fits"_a.none())
      .def("next", &next_step, "rank"_a)
      .def("take_left_out",
           [](StepsHandle& self) { return to_buffer(std::exchange(self.left_out, {})); })
      .def_prop_ro("so_far_size",
                   [](const StepsHandle& self) { return self.asked().entries().size(); })
      .def_prop_ro("so_far_cost", [](const StepsHandle& self) { return self.asked().total().cost; })
      .def_prop_ro("so_far_bytes",
                   [](const StepsHandle& self) { return self.asked().total().bytes; })
      .def_prop_ro("so_far_largest_cost",
                   [](const StepsHandle& self) { return self.asked().largest_cost(); })
      .def_prop_ro("so_far_positions",
                   [](const StepsHandle& self) { return positions_of(self.asked().entries()); });
  module.def("packed_batches", &packed, "costs"_a, "max_cost"_a);
}

}  // namespace headrace::python
