#include "headrace/store/transfer/neighbours.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <span>
#include <utility>

#include "headrace/base/random.h"
#include "headrace/base/result.h"
#include "headrace/format/xxh64.h"

namespace headrace {

// Each member is whole by itself; together they may be of different moments, and the next interval
// corrects what that did to a mean.
struct alignas(64) Neighbours::Seat {
  std::atomic<uint64_t> owner;  // 0: nobody
  std::atomic<uint64_t> host;
  // By the clock that all processes of a machine share.
  std::atomic<int64_t> told_at_ns, fresh_until_ns;
  std::atomic<uint64_t> request_bytes;
  std::atomic<uint32_t> limit, max_limit;
  std::atomic<bool> is_busy;
};

namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int64_t kForgottenNs = nanoseconds(Neighbours::kForgotten).count();
constexpr double kLikeness = 4;  // a quarter of the size, or four times as much

// The memory that is shared, or null.
void* map_shared(const std::string& folder, size_t bytes) {
  // The number is that of the layout.
  const std::string path = cat(folder, "/headrace-in-flight-1-", std::to_string(::geteuid()));
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  // Others must not be able to write to it. A file of another size or with a second name is not
  // ours.
  struct stat status = {};
  bool usable = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                status.st_uid == ::geteuid() && (status.st_mode & 077) == 0 &&
                status.st_nlink == 1 &&
                (status.st_size == 0 || std::cmp_equal(status.st_size, bytes));
  // Pages that do not exist when the file system is full would end the process once it uses them.
  while (usable) {
    const int failed = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    if (failed != EINTR) usable = failed == 0;
    if (failed == 0) break;
  }
  void* const memory =
      usable ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  ::close(fd);
  return memory == MAP_FAILED ? nullptr : memory;
}

bool is_like(uint64_t one, uint64_t other) {
  const auto a = static_cast<double>(one) + 1, b = static_cast<double>(other) + 1;
  return a <= kLikeness * b && b <= kLikeness * a;
}

}  // namespace

Neighbours::Neighbours(std::string_view host, const std::string& folder)
    : host_(xxh64(host)),
      token_(random_number() | 1),
      seats_(static_cast<Seat*>(map_shared(folder, kMostProcesses * sizeof(Seat)))) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
}

Neighbours::~Neighbours() {
  if (seats_ == nullptr) return;
  uint64_t own = token_;
  if (own_ != nullptr) own_->owner.compare_exchange_strong(own, 0, kRelaxed);
  ::munmap(seats_, kMostProcesses * sizeof(Seat));
}

// Whether this process has a seat. Takes one if it has none.
bool Neighbours::has_seat(int64_t now_ns) {
  if (own_ != nullptr && own_->owner.load(kRelaxed) == token_) return true;
  own_ = nullptr;
  const int64_t earliest_ns = now_ns - kForgottenNs, latest_ns = now_ns + kForgottenNs;
  for (size_t i = 0; i < kMostProcesses; ++i) {
    Seat& seat = seats_[(token_ + i) % kMostProcesses];
    uint64_t owner = seat.owner.load(kRelaxed);
    // By a process that was killed, or whose clock is another one.
    const int64_t told_at_ns = seat.told_at_ns.load(kRelaxed);
    const bool is_left = told_at_ns < earliest_ns || told_at_ns > latest_ns;
    if (owner != 0 && !is_left) continue;
    if (!seat.owner.compare_exchange_strong(owner, token_, kRelaxed)) continue;
    own_ = &seat;
    return true;
  }
  return false;
}

std::optional<double> Neighbours::mean_limit(const Share& own, TimePoint now) {
  const int64_t now_ns = duration_cast<nanoseconds>(now.time_since_epoch()).count();
  if (seats_ == nullptr || !has_seat(now_ns)) return std::nullopt;
  const int64_t fresh_ns = std::min(kFreshIntervals * own.interval.count(), kForgottenNs);
  own_->host.store(host_, kRelaxed);
  own_->limit.store(own.limit, kRelaxed);
  own_->max_limit.store(own.max_limit, kRelaxed);
  own_->request_bytes.store(own.request_bytes, kRelaxed);
  own_->is_busy.store(own.is_busy, kRelaxed);
  own_->told_at_ns.store(now_ns, kRelaxed);
  own_->fresh_until_ns.store(now_ns + fresh_ns, kRelaxed);
  const int64_t latest_ns = now_ns + kForgottenNs;
  double sum = own.limit;
  int count = 1;
  bool is_busy = own.is_busy;
  for (const Seat& seat : std::span(seats_, kMostProcesses)) {
    if (seat.owner.load(kRelaxed) == 0 || &seat == own_) continue;
    if (seat.host.load(kRelaxed) != host_) continue;
    const int64_t fresh_until_ns = seat.fresh_until_ns.load(kRelaxed);
    if (fresh_until_ns < now_ns || fresh_until_ns > latest_ns) continue;
    if (seat.max_limit.load(kRelaxed) != own.max_limit) continue;
    if (!is_like(seat.request_bytes.load(kRelaxed), own.request_bytes)) continue;
    sum += std::min(seat.limit.load(kRelaxed), own.max_limit);
    ++count;
    is_busy = is_busy || seat.is_busy.load(kRelaxed);
  }
  if (count == 1 || !is_busy) return std::nullopt;
  return sum / count;
}

}  // namespace headrace
