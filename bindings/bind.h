// What each file of this folder adds to the module, with its documentation.
#pragma once

#include "documented.h"

namespace headrace::python {

void bind_sample(Module& module);
void bind_object_info(Module& module);
void bind_index(Module& module);
void bind_orders(Module& module);
void bind_batch(Module& module);
void bind_batches(Module& module);
void bind_index_reader(Module& module);
void bind_checkpoint(Module& module);
void bind_crcs(Module& module);
void bind_packing(Module& module);
void bind_shards(Module& module);
void bind_tar(Module& module);
void bind_batch_memory(Module& module);
void bind_tokens(Module& module);
void bind_parquet(Module& module);
void bind_credentials(Module& module);
void bind_listing(Module& module);
void bind_store(Module& module);
void bind_writer(Module& module);
void bind_engine(Module& module);
void bind_timeline(Module& module);

}  // namespace headrace::python
