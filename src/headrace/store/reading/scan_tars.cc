#include "headrace/store/reading/scan_tars.h"

#include <string_view>
#include <utility>

#include "headrace/store/reading/many_jobs.h"

namespace headrace {
namespace {

constexpr std::string_view kNotDone = "it was not scanned to its end";

// Thread: any. A tar's scan belongs to whichever thread takes its latest read.
class ScanTars final : public ManyJobs<ScannedTar, ReadBatch> {
 public:
  ScanTars(std::vector<std::shared_ptr<ObjectStore>> stores, std::vector<TarToScan> tars,
           bool skip_errors, size_t max_in_flight, std::shared_ptr<std::atomic<size_t>> done_count)
      : ManyJobs(tars.size(), max_in_flight, kNotDone),
        stores_(std::move(stores)),
        tars_(std::move(tars)),
        skip_errors_(skip_errors),
        done_count_(std::move(done_count)) {}

 private:
  struct Scan {
    size_t at;
    TarScan tar;
    std::string generation;
  };

  void begin(size_t at) override {
    const TarToScan& tar = tars_[at];
    auto scan = std::make_shared<Scan>(
        Scan{.at = at, .tar = TarScan(tar.size_bytes), .generation = tar.generation});
    if (tar.size_bytes == 0) {
      Result<void> taken = scan->tar.take({});
      answer(*scan, std::move(taken));
    } else {
      read_on(std::move(scan));
    }
  }

  void read_on(std::shared_ptr<Scan> scan) {
    const TarToScan& tar = tars_[scan->at];
    const std::shared_ptr<ReadBatch> batch = ReadBatch::create(1, tar.name.size());
    batch->add({.name = tar.name,
                .generation = scan->generation,
                .size_bytes = tar.size_bytes,
                .range = scan->tar.wanted()});
    const bool goes_on = running(scan->at, batch);
    batch->then([self = shared_from_this(), this, scan = std::move(scan)](ReadBatch& done) {
      take(scan, done);
    });
    stores_[tar.store]->read(batch);
    batch->want();
    if (!goes_on) batch->cancel();
  }

  void take(const std::shared_ptr<Scan>& scan, ReadBatch& batch) {
    ReadSlot& slot = batch.slot(0);
    Result<void> taken = slot.error ? Result<void>(std::unexpected(std::move(*slot.error)))
                                    : take_bytes(*scan, slot);
    if (taken && scan->tar.wanted()) {
      if (!stopped()) {
        read_on(scan);
        return;
      }
      taken = fail(Code::kCancelled, kNotDone);
    }
    answer(*scan, std::move(taken));
  }

  Result<void> take_bytes(Scan& scan, const ReadSlot& slot) {
    const std::string_view found = slot.found_generation.view();
    if (scan.generation.empty()) scan.generation = found;
    if (!found.empty() && found != scan.generation) {
      return fail(Code::kPreconditionFailed, "it changed while its headers were read");
    }
    if (slot.into.size() != scan.tar.wanted()->size_bytes()) {
      return corrupt("it ends before byte ", scan.tar.wanted()->end, ", and was listed with ",
                     tars_[scan.at].size_bytes, " bytes");
    }
    return scan.tar.take(slot.into);
  }

  void answer(Scan& scan, Result<void> taken) {
    const TarToScan& tar = tars_[scan.at];
    Result<ScannedTar> answer;
    if (taken) {
      std::vector<std::string> warnings = scan.tar.warnings();
      answer = ScannedTar{.files = std::move(scan.tar).take_files(),
                          .generation = std::move(scan.generation),
                          .warnings = std::move(warnings)};
    } else {
      Error error = std::move(taken.error());
      if (error.url().empty()) {
        error = std::move(error).with_url(stores_[tar.store]->url_of(tar.name));
      }
      answer = std::unexpected(std::move(error));
    }
    done_count_->fetch_add(1, std::memory_order_relaxed);
    const bool ends_all = !answer && !skip_errors_;
    end(scan.at, std::move(answer), ends_all);
  }

  const std::vector<std::shared_ptr<ObjectStore>> stores_;
  const std::vector<TarToScan> tars_;
  const bool skip_errors_;
  const std::shared_ptr<std::atomic<size_t>> done_count_;
};

}  // namespace

std::shared_ptr<Pending<std::vector<Result<ScannedTar>>>> scan_tars(
    std::vector<std::shared_ptr<ObjectStore>> stores, std::vector<TarToScan> tars, bool skip_errors,
    size_t max_in_flight, std::shared_ptr<std::atomic<size_t>> done_count) {
  return std::make_shared<ScanTars>(std::move(stores), std::move(tars), skip_errors, max_in_flight,
                                    std::move(done_count))
      ->start();
}

}  // namespace headrace
