// Lists everything under a URL and reads it in batches, with several batches on the way at a time.
//
//   list_and_read gs://bucket/folder [endpoint]
//   list_and_read /some/folder
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "headrace/engine.h"

namespace {

constexpr size_t kBatchObjects = 64;
constexpr size_t kBatchesAhead = 8;

int report(const headrace::Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace headrace;
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s URL [ENDPOINT]\n", argv[0]);
    return 2;
  }
  const Result<Url> url = parse_url(argv[1]);
  if (!url) return report(url.error());
  StoreOptions options;
  if (argc > 2) options.endpoint = argv[2];

  Engine engine;
  const Result<std::shared_ptr<ObjectStore>> opened = engine.open(*url, options);
  if (!opened) return report(opened.error());
  ObjectStore& store = **opened;
  const MayBlock may_block = MayBlock::on_this_thread();

  std::vector<ObjectInfo> objects;
  ListRequest request;  // all that lies below the URL
  do {
    Result<ColumnPage> page = store.list(request)->take(may_block);
    if (!page) return report(page.error());
    for (ObjectInfo& each : page->objects()) objects.push_back(std::move(each));
    request.page_token = page->next_page_token;
  } while (!request.page_token.empty());
  std::printf("%zu objects\n", objects.size());

  const auto began = std::chrono::steady_clock::now();
  std::deque<std::shared_ptr<ReadBatch>> ahead;
  uint64_t bytes = 0;
  size_t next = 0;
  while (next < objects.size() || !ahead.empty()) {
    while (next < objects.size() && ahead.size() < kBatchesAhead) {
      const size_t count = std::min(kBatchObjects, objects.size() - next);
      std::shared_ptr<ReadBatch> batch = ReadBatch::create(count);
      for (size_t i = 0; i < count; ++i) {
        const ObjectInfo& object = objects[next + i];
        ReadTarget target;
        target.name = object.name;
        target.generation = object.generation;
        target.size_bytes = object.size_bytes;
        target.checksum = object.checksum;
        batch->add(target);
      }
      next += count;
      store.read(batch);
      ahead.push_back(std::move(batch));
    }
    const std::shared_ptr<ReadBatch> batch = std::move(ahead.front());
    ahead.pop_front();
    while (
        !batch->wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(1), may_block)) {
    }
    for (size_t i = 0; i < batch->size(); ++i) {
      if (batch->slot(i).error) return report(*batch->slot(i).error);
      bytes += batch->slot(i).into.size();
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const EngineMetrics metrics = engine.metrics();
  std::printf(
      "%.3f s, %.0f objects/s, %.1f MiB/s, %llu requests, %llu connections, %llu verified\n",
      seconds, static_cast<double>(objects.size()) / seconds,
      static_cast<double>(bytes) / seconds / static_cast<double>(kMiB),
      static_cast<unsigned long long>(metrics.requests_total),
      static_cast<unsigned long long>(metrics.connections_opened_total),
      static_cast<unsigned long long>(metrics.checksums_verified_total));
  return 0;
}
