// Open stores, and batches read from them, for StoreHandle and IndexReader.
#pragma once

#include <memory>
#include <vector>

#include "convert.h"
#include "headrace/engine.h"
#include "headrace/store/read_batch.h"

namespace headrace {
class PackedSequences;
}  // namespace headrace

namespace headrace::python {

// The contents of a StoreHandle.
struct OpenStore {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<ObjectStore> store;
  nb::object url_prefix;  // precedes a name in its URL
};

// Raises CancelledError if it was opened before a fork.
OpenStore opened_store(nb::handle store_handle);

// How the caller named the objects of a batch: by names and ObjectInfos, or by positions in an
// ObjectIndex.
struct Origins {
  std::vector<nb::object> items = {};
  nb::object index = {};
  std::vector<size_t> positions = {};
};

// Starts reading, and returns a Batch. `store_of` has for each slot its store's index; if it is
// empty, all slots are in the first. `buffers` is the caller's memory: one buffer per slot or, with
// an index, one for all.
nb::object start_batch(std::vector<OpenStore> stores, std::vector<uint32_t> store_of,
                       std::shared_ptr<ReadBatch> batch, Origins origins,
                       std::vector<std::shared_ptr<HeldBuffer>> buffers);

// Starts reading entries of an ObjectIndex: `stores` has one for each of its roots.
// `into` is None, or a buffer that is filled entry by entry, or at `places`, one for each entry.
// With `packed`, entries are windows of that stream, and each takes a slot for each of its ranges.
nb::object start_entries(std::vector<OpenStore> stores, nb::handle index, nb::handle indices,
                         const nb::object& into, const PackedSequences* packed = nullptr,
                         const nb::object& places = nb::none());

}  // namespace headrace::python
