#include <cstdlib>

#include "bind.h"

NB_MODULE(_engine, plain) {
  using namespace headrace::python;
  // Objects that a user's tensor or cycle keeps until the end are no leak of ours; tests ask for
  // the report.
  if (std::getenv("HEADRACE_REPORT_LEAKS") == nullptr) nanobind::set_leak_warnings(false);
  Module module(plain);
  bind_object_info(module);
  bind_sample(module);
  bind_batch_memory(module);
  bind_index(module);
  bind_orders(module);
  bind_batches(module);
  bind_checkpoint(module);
  bind_crcs(module);
  bind_packing(module);
  bind_shards(module);
  bind_tar(module);
  bind_tokens(module);
  bind_parquet(module);
  bind_credentials(module);
  bind_engine(module);
  bind_timeline(module);
  bind_listing(module);
  bind_writer(module);
  bind_batch(module);
  bind_store(module);
  bind_index_reader(module);
}
