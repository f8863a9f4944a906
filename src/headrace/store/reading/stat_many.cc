#include "headrace/store/reading/stat_many.h"

#include <utility>

#include "headrace/store/reading/many_jobs.h"

namespace headrace {
namespace {

// Thread: any.
class StatMany final : public ManyJobs<ObjectInfo, Pending<ObjectInfo>> {
 public:
  StatMany(std::shared_ptr<ObjectStore> store, std::vector<std::string> names, bool missing_ok,
           size_t max_in_flight)
      : ManyJobs(names.size(), max_in_flight, "it was not asked for"),
        store_(std::move(store)),
        names_(std::move(names)),
        missing_ok_(missing_ok) {}

 private:
  void begin(size_t at) override {
    const std::shared_ptr<Pending<ObjectInfo>> stat = store_->stat(names_[at]);
    const bool goes_on = running(at, stat);
    stat->then([self = shared_from_this(), this, at](Result<ObjectInfo> answer) {
      const bool ends_all = !answer && !(missing_ok_ && answer.error().code() == Code::kNotFound);
      end(at, std::move(answer), ends_all);
    });
    if (!goes_on) stat->cancel();
  }

  const std::shared_ptr<ObjectStore> store_;
  const std::vector<std::string> names_;
  const bool missing_ok_;
};

}  // namespace

std::shared_ptr<Pending<std::vector<Result<ObjectInfo>>>> stat_many(
    std::shared_ptr<ObjectStore> store, std::vector<std::string> names, bool missing_ok,
    size_t max_in_flight) {
  return std::make_shared<StatMany>(std::move(store), std::move(names), missing_ok, max_in_flight)
      ->start();
}

}  // namespace headrace
