#include "headrace/store/reading/split_read.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "headrace/store/inner_reads.h"

namespace headrace {

void split_read(std::span<const std::shared_ptr<ObjectStore>> stores,
                std::span<const uint32_t> store_of, std::shared_ptr<ReadBatch> batch) {
  const auto is_of_first = [&](uint32_t store) { return store == store_of.front(); };
  if (store_of.empty() || std::ranges::all_of(store_of, is_of_first)) {
    stores[store_of.empty() ? 0 : store_of.front()]->read(std::move(batch));
    return;
  }
  std::vector<std::vector<uint32_t>> slots(stores.size());
  for (uint32_t i = 0; i < store_of.size(); ++i) slots[store_of[i]].push_back(i);
  std::vector<InnerRead> plan;
  for (size_t i = 0; i < stores.size(); ++i) {
    if (slots[i].empty()) continue;
    plan.push_back(
        read_slots(*batch, std::move(slots[i]), stores[i], ReadBatch::Planned::kNothing));
  }
  carry_out(batch, std::move(plan));
}

}  // namespace headrace
