#include <nanobind/stl/vector.h>

#include <memory>
#include <span>
#include <vector>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/block_order.h"
#include "headrace/dataset/mixture_order.h"
#include "headrace/dataset/order.h"
#include "headrace/dataset/weighted_order.h"
#include "object_index.h"
#include "waiting.h"

namespace headrace::python {
namespace {

// Thread: any (immutable).
struct DrawTableHandle {
  std::shared_ptr<const DrawTable> table;
};

// Thread: any (immutable).
struct MixtureScheduleHandle {
  std::shared_ptr<const MixtureSchedule> schedule;
};

void check_span(uint64_t count, int64_t begin, int64_t end) {
  if (begin >= 0 && begin <= end && static_cast<uint64_t>(end) <= count) return;
  raise(Error(Code::kInvalidArgument,
              cat("positions [", begin, ", ", end, ") of an order of ", count)));
}

// Looks up one position after another.
template <class AnyOrder>
class Reader {
 public:
  explicit Reader(const AnyOrder& order) : order_(order) {}
  uint64_t index(uint64_t position) const { return order_.index(position); }

 private:
  const AnyOrder& order_;
};
template <class AnyOrder>
  requires requires { typename AnyOrder::Reader; }
class Reader<AnyOrder> : public AnyOrder::Reader {
  using AnyOrder::Reader::Reader;
};

// Defines the members that all orders share: position → index.
template <class AnyOrder>
void bind_lookups(Class<AnyOrder>& order) {
  order.def("__len__", &AnyOrder::count)
      .def(
          "__getitem__",
          [](const AnyOrder& self, int64_t position) {
            return self.index(checked_position(position, self.count()));
          },
          "position"_a)
      .def(
          "indices",
          [](const AnyOrder& self, int64_t begin, int64_t end, int64_t step) {
            check_span(self.count(), begin, end);
            if (step < 1) throw nb::value_error("`step` must be at least 1");
            const auto first = static_cast<uint64_t>(begin), by = static_cast<uint64_t>(step);
            const uint64_t span = static_cast<uint64_t>(end) - first;
            return int64_buffer(span / by + (span % by != 0), [&](std::span<int64_t> out) {
              if (by == 1) return self.indices(first, out);
              Reader reader(self);
              for (size_t i = 0; i < out.size(); ++i) {
                out[i] = static_cast<int64_t>(reader.index(first + i * by));
              }
            });
          },
          "begin"_a, "end"_a, "step"_a = 1)
      .def(
          "pick",
          [](const AnyOrder& self, nb::handle positions) {
            const std::vector<size_t> wanted = to_positions(positions, self.count());
            return int64_buffer(wanted.size(), [&](std::span<int64_t> out) {
              Reader reader(self);
              for (size_t i = 0; i < out.size(); ++i) {
                out[i] = static_cast<int64_t>(reader.index(wanted[i]));
              }
            });
          },
          "positions"_a);
}

}  // namespace

void bind_orders(Module& module) {
  Class<Order> order(module, "Order", nb::is_final());
  order.def(
      "__init__",
      [](Order* self, uint64_t count, uint64_t seed, uint64_t epoch, bool shuffle) {
        if (count > uint64_t{INT64_MAX}) throw nb::value_error("count is 2^63 or more");
        new (self) Order(count, seed, epoch, shuffle);
      },
      "count"_a, "seed"_a, "epoch"_a, "shuffle"_a);
  bind_lookups(order);
  Class<BlockOrder> blocks(module, "BlockOrder", nb::is_final());
  blocks.def(
      "__init__",
      [](BlockOrder* self, uint64_t count, uint64_t seed, uint64_t epoch, uint64_t block_size,
         uint64_t window_blocks) {
        if (count > uint64_t{INT64_MAX}) throw nb::value_error("count is 2^63 or more");
        if (block_size == 0 || window_blocks == 0) {
          throw nb::value_error("block_size and window_blocks must be at least 1");
        }
        new (self) BlockOrder(count, seed, epoch, block_size, window_blocks);
      },
      "count"_a, "seed"_a, "epoch"_a, "block_size"_a, "window_blocks"_a);
  bind_lookups(blocks);
  Class<DrawTableHandle>(module, "DrawTable", nb::is_final())
      .def(
          "__init__",
          [](DrawTableHandle* self, nb::handle weights) {
            const HeldBuffer held(weights, /*writable=*/false);
            new (self) DrawTableHandle{value_or_raise(
                without_gil([&held](MayBlock) { return DrawTable::make(held.values<double>()); }))};
          },
          "weights"_a)
      .def("__len__", [](const DrawTableHandle& self) { return self.table->size(); });
  Class<WeightedOrder> weighted(module, "WeightedOrder", nb::is_final());
  weighted.def(
      "__init__",
      [](WeightedOrder* self, const DrawTableHandle& handle, uint64_t count, uint64_t seed,
         uint64_t epoch) {
        if (count > uint64_t{INT64_MAX}) throw nb::value_error("count is 2^63 or more");
        new (self) WeightedOrder(handle.table, count, seed, epoch);
      },
      "table"_a, "count"_a, "seed"_a, "epoch"_a);
  bind_lookups(weighted);
  Class<MixtureScheduleHandle>(module, "MixtureSchedule", nb::is_final())
      .def(
          "__init__",
          [](MixtureScheduleHandle* self, nb::handle weights) {
            const HeldBuffer held(weights, /*writable=*/false);
            new (self) MixtureScheduleHandle{std::make_shared<const MixtureSchedule>(
                value_or_raise(without_gil([&held](MayBlock) {
                  return MixtureSchedule::create(held.values<double>());
                })))};
          },
          "weights"_a)
      .def_prop_ro("parts", [](const MixtureScheduleHandle& self) {
        const std::span<const uint64_t> parts = self.schedule->parts();
        return std::vector<uint64_t>(parts.begin(), parts.end());
      });
  Class<MixtureOrder> mixture(module, "MixtureOrder", nb::is_final());
  mixture.def(
      "__init__",
      [](MixtureOrder* self, const MixtureScheduleHandle& handle,
         const std::vector<uint64_t>& counts, uint64_t count, uint64_t seed, uint64_t epoch,
         bool shuffle) {
        if (count > uint64_t{INT64_MAX}) throw nb::value_error("count is 2^63 or more");
        new (self) MixtureOrder(value_or_raise(
            MixtureOrder::create(handle.schedule, counts, count, seed, epoch, shuffle)));
      },
      "schedule"_a, "counts"_a, "count"_a, "seed"_a, "epoch"_a, "shuffle"_a);
  bind_lookups(mixture);
}

}  // namespace headrace::python
