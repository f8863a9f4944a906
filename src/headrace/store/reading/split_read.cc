#include "headrace/store/reading/split_read.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace headrace {
namespace {

// Reads one store's part of a batch.
struct Part {
  std::shared_ptr<ObjectStore> store;
  std::vector<uint32_t> slots = {};
  std::shared_ptr<ReadBatch> batch = {};
};

}  // namespace

void split_read(std::span<const std::shared_ptr<ObjectStore>> stores,
                std::span<const uint32_t> store_of, std::shared_ptr<ReadBatch> batch) {
  const auto is_of_first = [&](uint32_t store) { return store == store_of.front(); };
  if (store_of.empty() || std::ranges::all_of(store_of, is_of_first)) {
    stores[store_of.empty() ? 0 : store_of.front()]->read(std::move(batch));
    return;
  }
  std::vector<Part> parts;
  for (const std::shared_ptr<ObjectStore>& store : stores) parts.push_back({.store = store});
  for (uint32_t i = 0; i < store_of.size(); ++i) parts[store_of[i]].slots.push_back(i);
  std::erase_if(parts, [](const Part& part) { return part.slots.empty(); });
  std::vector<std::shared_ptr<ReadBatch>> inner;
  for (Part& part : parts) {
    part.batch = ReadBatch::create(part.slots.size(), part.slots.size() * 64);
    for (const uint32_t slot : part.slots) part.batch->add(batch->target(slot));
    part.batch->then([batch, slots = std::move(part.slots)](ReadBatch& from) {
      for (size_t i = 0; i < slots.size(); ++i) batch->take_outcome(slots[i], from.slot(i));
    });
    inner.push_back(part.batch);
  }
  // A batch releases this function when it is done, as inner batches release `then`, so that no
  // cycle remains.
  batch->hand_over([outer = std::weak_ptr(batch), inner = std::move(inner)] {
    const std::shared_ptr<ReadBatch> alive = outer.lock();
    if (!alive) return;
    for (const std::shared_ptr<ReadBatch>& each : inner) {
      alive->cancelled() ? each->cancel() : each->want();
    }
  });
  for (const Part& part : parts) part.store->read(part.batch);
}

}  // namespace headrace
