// The files in many tars, found by reading their headers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/format/tar_scan.h"
#include "headrace/store/object_store.h"

namespace headrace {

// A tar whose size is known.
struct TarToScan {
  size_t store = 0;  // its index in `stores`
  std::string name = {};
  std::string generation = {};  // "": the one that the first read finds
  uint64_t size_bytes = 0;
};

struct ScannedTar {
  TarFiles files = {};
  std::string generation = {};
  std::vector<std::string> warnings = {};  // as TarScan has them
};

// Scans every tar (format/tar_scan.h), at most `max_in_flight` at a time, each by one request after
// the other. A tar that cannot be read gives its error, with its URL, in its place; with
// `skip_errors` the others continue, otherwise it ends the call, and tars not yet done give
// kCancelled. So does cancelling. `done_count` says meanwhile how many are done.
// Errors: those of reading and of TarScan; kPreconditionFailed if a tar changes meanwhile, whatever
// its store does about changes.
std::shared_ptr<Pending<std::vector<Result<ScannedTar>>>> scan_tars(
    std::vector<std::shared_ptr<ObjectStore>> stores, std::vector<TarToScan> tars, bool skip_errors,
    size_t max_in_flight, std::shared_ptr<std::atomic<size_t>> done_count);

}  // namespace headrace
