// Reading a batch whose objects are in several stores.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "headrace/store/object_store.h"

namespace headrace {

// Reads slot `i` of the batch from `stores[store_of[i]]`, as ObjectStore::read() would. A batch
// whose objects are all in one store is handed to that store as it is. Otherwise the outcomes of
// each store's slots arrive together.
void split_read(std::span<const std::shared_ptr<ObjectStore>> stores,
                std::span<const uint32_t> store_of, std::shared_ptr<ReadBatch> batch);

}  // namespace headrace
