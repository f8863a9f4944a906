// What proves who we are, renewed before it expires.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/may_block.h"
#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/store/credential.h"

namespace headrace {

class Credentials;

// Where identities wait for new credentials. The thread that calls next() makes them, never an I/O
// thread, so that a refresh may block for any length of time. Thread: any.
class CredentialsQueue {
 public:
  // Blocks until an identity needs a new credential. Null when `until` is reached, or after stop().
  std::shared_ptr<Credentials> next(std::chrono::steady_clock::time_point until, MayBlock);
  void stop();

 private:
  friend class Credentials;
  void push(std::shared_ptr<Credentials> credentials);
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Credentials>> waiting_ HEADRACE_GUARDED_BY(mutex_);
  bool stopped_ HEADRACE_GUARDED_BY(mutex_) = false;
};

// The credential of one identity. While none is valid, requests that need one are parked until
// their own deadlines.
// Thread: any.
class Credentials : public std::enable_shared_from_this<Credentials> {
 public:
  // A credential that never changes.
  static std::shared_ptr<Credentials> fixed(Credential credential);
  // Credentials made by the thread that serves `queue` (in Python: the credentials thread).
  static std::shared_ptr<Credentials> from_queue(std::shared_ptr<CredentialsQueue> queue,
                                                 uint64_t id);
  // Credentials made by `fetch`, on a thread of its own, started when first needed (for C++
  // programs).
  static std::shared_ptr<Credentials> from_callback(std::function<Result<Credential>()> fetch);
  ~Credentials();

  uint64_t id() const { return id_; }

  // The maker's end.
  void provide(Credential credential);
  void fail(Error error);

  // The engine's end. `version` names the credential that was used, for reject().
  struct Current {
    std::shared_ptr<const Credential> credential;  // null: wait; on_change will be called
    uint64_t version = 0;
    // Until then, and as long as version() stays the same, the caller need not ask again.
    std::chrono::steady_clock::time_point fresh_until = {};
    std::optional<Error> error;  // fetching failed, and no valid credential is left
  };
  Current current(std::chrono::steady_clock::time_point now, std::function<void()> on_change);
  // The server refused the credential of this version: ask for a new one, once per version.
  void reject(uint64_t version);
  // Changes with every provide() and reject(); lets a thread keep its copy without a lock.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  Credentials();
  void ask() HEADRACE_REQUIRES(mutex_);

  const uint64_t epoch_;  // its thread is no forked child's
  std::shared_ptr<CredentialsQueue> queue_;
  uint64_t id_ = 0;
  std::atomic<uint64_t> version_ = 1;
  Mutex mutex_;
  std::shared_ptr<const Credential> credential_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<std::chrono::steady_clock::time_point> refresh_at_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Error> error_ HEADRACE_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point failed_at_ HEADRACE_GUARDED_BY(mutex_);
  bool asked_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> waiters_ HEADRACE_GUARDED_BY(mutex_);
  std::thread fetcher_;
};

}  // namespace headrace
