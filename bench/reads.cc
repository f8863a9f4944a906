// Reads objects of a store in batches, and nothing else: a program to count instructions with, as
// tests/python/test_locked_instructions.py does.
//
//   headrace-bench-reads URL ENDPOINT BATCHES [IO_THREADS]
//
// reads all objects below URL BATCHES times, as one batch each time, and prints how many objects
// that were.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "headrace/engine.h"

namespace {

int report(const headrace::Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace headrace;
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s URL ENDPOINT BATCHES [IO_THREADS]\n", argv[0]);
    return 2;
  }
  const Result<Url> url = parse_url(argv[1]);
  if (!url) return report(url.error());
  const long batches = std::strtol(argv[3], nullptr, 10);
  EngineOptions engine_options;
  engine_options.io_threads = argc > 4 ? static_cast<uint32_t>(std::atoi(argv[4])) : 2;
  // A limit that does not move, and no request sent twice because a slow program is late.
  StoreOptions options;
  options.endpoint = argv[2];
  options.initial_in_flight = options.max_in_flight = 32;
  options.hedge = false;

  Engine engine(engine_options);
  const Result<std::shared_ptr<ObjectStore>> opened = engine.open(*url, options);
  if (!opened) return report(opened.error());
  const MayBlock may_block = MayBlock::on_this_thread();
  std::vector<ObjectInfo> objects;
  ListRequest request;
  do {
    Result<ColumnPage> page = (*opened)->list(request)->take(may_block);
    if (!page) return report(page.error());
    for (ObjectInfo& each : page->objects()) objects.push_back(std::move(each));
    request.page_token = page->next_page_token;
  } while (!request.page_token.empty());

  size_t read_count = 0;
  for (long i = 0; i < batches; ++i) {
    const std::shared_ptr<ReadBatch> batch = ReadBatch::create(objects.size());
    for (const ObjectInfo& object : objects) {
      batch->add({.name = object.name,
                  .generation = object.generation,
                  .size_bytes = object.size_bytes,
                  .checksum = object.checksum});
    }
    (*opened)->read(batch);
    while (
        !batch->wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(1), may_block)) {
    }
    for (size_t slot = 0; slot < batch->size(); ++slot) {
      if (batch->slot(slot).error) return report(*batch->slot(slot).error);
    }
    read_count += batch->size();
  }
  std::printf("%zu\n", read_count);
  return 0;
}
