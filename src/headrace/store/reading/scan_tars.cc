#include "headrace/store/reading/scan_tars.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "headrace/base/mutex.h"

namespace headrace {
namespace {

using Answers = std::vector<Result<ScannedTar>>;

// Thread: any. A tar's scan belongs to whichever thread takes its latest read.
class ScanTars : public std::enable_shared_from_this<ScanTars> {
 public:
  ScanTars(std::vector<std::shared_ptr<ObjectStore>> stores, std::vector<TarToScan> tars,
           bool skip_errors, size_t max_in_flight, std::shared_ptr<std::atomic<size_t>> done_count)
      : stores_(std::move(stores)),
        tars_(std::move(tars)),
        skip_errors_(skip_errors),
        max_in_flight_(std::max<size_t>(max_in_flight, 1)),
        done_count_(std::move(done_count)) {
    answers_.reserve(tars_.size());
    for (size_t i = 0; i < tars_.size(); ++i) {
      answers_.push_back(fail(Code::kCancelled, "it was not scanned to its end"));
    }
  }

  std::shared_ptr<Pending<Answers>> start() {
    pending_->set_on_cancel([weak = weak_from_this()] {
      if (const std::shared_ptr<ScanTars> self = weak.lock()) self->stop();
    });
    pump();
    return pending_;
  }

 private:
  struct Scan {
    size_t at;
    TarScan tar;
    std::string generation;
  };

  // Only one thread at a time starts scans. A read that ends at once, on this very thread, is left
  // to the loop and starts none itself.
  void pump() {
    {
      const Lock lock(mutex_);
      again_ = true;
      if (pumping_) return;
      pumping_ = true;
    }
    for (;;) {
      size_t at = 0;
      {
        const Lock lock(mutex_);
        if (stopped_ || next_ == tars_.size() || under_way_ == max_in_flight_) {
          if (!std::exchange(again_, false)) {
            pumping_ = false;
            break;
          }
          continue;
        }
        at = next_++;
        ++under_way_;
      }
      const TarToScan& tar = tars_[at];
      auto scan = std::make_shared<Scan>(
          Scan{.at = at, .tar = TarScan(tar.size_bytes), .generation = tar.generation});
      if (tar.size_bytes == 0) {
        Result<void> taken = scan->tar.take({});
        end(*scan, std::move(taken));
      } else {
        read_on(std::move(scan));
      }
    }
    end_if_done();
  }

  void read_on(std::shared_ptr<Scan> scan) {
    const TarToScan& tar = tars_[scan->at];
    const std::shared_ptr<ReadBatch> batch = ReadBatch::create(1, tar.name.size());
    batch->add({.name = tar.name,
                .generation = scan->generation,
                .size_bytes = tar.size_bytes,
                .range = scan->tar.wanted()});
    bool stopped = false;
    {
      const Lock lock(mutex_);
      reads_.insert_or_assign(scan->at, batch);
      stopped = stopped_;
    }
    const size_t store = tar.store;
    batch->then([self = shared_from_this(), scan = std::move(scan)](ReadBatch& done) {
      self->take(scan, done);
    });
    stores_[store]->read(batch);
    batch->want();
    if (stopped) batch->cancel();
  }

  void take(const std::shared_ptr<Scan>& scan, ReadBatch& batch) {
    ReadSlot& slot = batch.slot(0);
    Result<void> taken = slot.error ? Result<void>(std::unexpected(std::move(*slot.error)))
                                    : take_bytes(*scan, slot);
    bool goes_on = false;
    if (taken && scan->tar.wanted()) {
      const Lock lock(mutex_);
      goes_on = !stopped_;
      if (!goes_on) taken = fail(Code::kCancelled, "it was not scanned to its end");
    }
    if (goes_on) {
      read_on(scan);
      return;
    }
    end(*scan, std::move(taken));
    pump();
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

  void end(Scan& scan, Result<void> result) {
    const TarToScan& tar = tars_[scan.at];
    const bool failed = !result;
    Result<ScannedTar> answer;
    if (failed) {
      Error error = std::move(result.error());
      if (error.url().empty()) {
        error = std::move(error).with_url(stores_[tar.store]->url_of(tar.name));
      }
      answer = std::unexpected(std::move(error));
    } else {
      std::vector<std::string> warnings = scan.tar.warnings();
      answer = ScannedTar{.files = std::move(scan.tar).take_files(),
                          .generation = std::move(scan.generation),
                          .warnings = std::move(warnings)};
    }
    done_count_->fetch_add(1, std::memory_order_relaxed);
    std::vector<std::shared_ptr<ReadBatch>> cancelled;
    {
      const Lock lock(mutex_);
      answers_[scan.at] = std::move(answer);
      reads_.erase(scan.at);
      --under_way_;
      if (failed && !skip_errors_ && !std::exchange(stopped_, true)) cancelled = reads();
    }
    for (const std::shared_ptr<ReadBatch>& each : cancelled) each->cancel();
  }

  void stop() {
    std::vector<std::shared_ptr<ReadBatch>> cancelled;
    {
      const Lock lock(mutex_);
      stopped_ = true;
      cancelled = reads();
    }
    for (const std::shared_ptr<ReadBatch>& each : cancelled) each->cancel();
    pump();
  }

  std::vector<std::shared_ptr<ReadBatch>> reads() const HEADRACE_REQUIRES(mutex_) {
    std::vector<std::shared_ptr<ReadBatch>> out;
    out.reserve(reads_.size());
    for (const auto& [at, read] : reads_) out.push_back(read);
    return out;
  }

  void end_if_done() {
    Answers answers;
    {
      const Lock lock(mutex_);
      const bool done = under_way_ == 0 && (stopped_ || next_ == tars_.size());
      if (!done || std::exchange(ended_, true)) return;
      answers = std::move(answers_);
    }
    pending_->complete(std::move(answers));
  }

  const std::vector<std::shared_ptr<ObjectStore>> stores_;
  const std::vector<TarToScan> tars_;
  const bool skip_errors_;
  const size_t max_in_flight_;
  const std::shared_ptr<std::atomic<size_t>> done_count_;
  const std::shared_ptr<Pending<Answers>> pending_ = std::make_shared<Pending<Answers>>();

  mutable Mutex mutex_;
  Answers answers_ HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<size_t, std::shared_ptr<ReadBatch>> reads_ HEADRACE_GUARDED_BY(mutex_);
  size_t next_ HEADRACE_GUARDED_BY(mutex_) = 0, under_way_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool pumping_ HEADRACE_GUARDED_BY(mutex_) = false, again_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool stopped_ HEADRACE_GUARDED_BY(mutex_) = false, ended_ HEADRACE_GUARDED_BY(mutex_) = false;
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
