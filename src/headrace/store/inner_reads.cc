#include "headrace/store/inner_reads.h"

#include <utility>

namespace headrace {

InnerRead read_slots(const ReadBatch& outer, std::vector<uint32_t> slots,
                     std::shared_ptr<ObjectStore> store, ReadBatch::Planned planned) {
  std::shared_ptr<ReadBatch> inner = ReadBatch::create(slots.size(), slots.size() * 64);
  inner->planned = planned;
  for (const uint32_t slot : slots) inner->add(outer.target(slot));
  return {.store = std::move(store),
          .batch = std::move(inner),
          .give_back = [slots = std::move(slots)](ReadBatch& to, ReadBatch& from) {
            for (size_t i = 0; i < slots.size(); ++i) to.take_outcome(slots[i], from.slot(i));
          }};
}

void carry_out(const std::shared_ptr<ReadBatch>& outer, std::vector<InnerRead> plan) {
  outer->hand_over(plan.empty() ? nullptr : plan.front().store->pool());
  for (InnerRead& read : plan) add_read(outer, std::move(read));
}

void add_read(const std::shared_ptr<ReadBatch>& outer, InnerRead read) {
  const std::shared_ptr<ObjectStore> store = read.store;
  const std::shared_ptr<ReadBatch> inner = std::move(read.batch);
  inner->then([outer, read = std::move(read)](ReadBatch& done) { read.give_back(*outer, done); });
  store->read(inner);
  outer->pass_on_to(inner);
}

}  // namespace headrace
