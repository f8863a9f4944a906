// What StoreHandle and IndexReader have in common: stores that are open, and batches that they
// read.
#pragma once

#include <memory>
#include <vector>

#include "convert.h"
#include "headrace/engine.h"
#include "headrace/store/read_batch.h"

namespace headrace::python {

// What a StoreHandle holds.
struct OpenStore {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<ObjectStore> store;
  nb::object url_prefix;  // what stands before a name in its URL
};

// Raises CancelledError for one that was opened before a fork.
OpenStore opened_store(nb::handle store_handle);

// What the objects of a batch were called by whoever asked: names and ObjectInfos, or positions in
// one ObjectIndex.
struct Origins {
  std::vector<nb::object> items = {};
  nb::object index = {};
  std::vector<size_t> positions = {};
};

// Starts reading, and returns a Batch. `store_of` says in which of `stores` each slot is; empty:
// all are in the first. `buffers` has the caller's memory: one for each slot, or with an index one
// for all.
nb::object start_batch(std::vector<OpenStore> stores, std::vector<uint32_t> store_of,
                       std::shared_ptr<ReadBatch> batch, Origins origins,
                       std::vector<std::shared_ptr<HeldBuffer>> buffers);

// Starts reading entries of an ObjectIndex: `stores` has one for each of its roots.
// `into` is None, or one buffer that is filled entry after entry.
nb::object start_entries(std::vector<OpenStore> stores, nb::handle index, nb::handle indices,
                         const nb::object& into);

}  // namespace headrace::python
