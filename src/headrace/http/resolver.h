// Host names to addresses.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/result.h"
#include "headrace/http/asio.h"

namespace headrace {

// Looks names up on threads of its own, because getaddrinfo blocks and cannot be interrupted; one
// look-up a name at a time, answers kept for a minute. A look-up that outlives its waiters is left
// behind: nobody joins it.
// Thread: any.
class Resolver {
 public:
  using Addresses = std::vector<asio::ip::address>;

  Resolver();
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // The addresses if they are known now (also for literals); else null, and `on_change` is called
  // once when asking again makes sense.
  // Errors: kUnavailable for names that do not resolve.
  Result<std::shared_ptr<const Addresses>> resolve(const std::string& host,
                                                   std::function<void()> on_change);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace headrace
