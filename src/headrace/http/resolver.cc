#include "headrace/http/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

namespace headrace {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::seconds kAnswerLife{60};
constexpr std::chrono::seconds kFailureLife{1};

Result<Resolver::Addresses> look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (status != 0) {
    return fail(Code::kUnavailable, "cannot resolve host ", host, ": ", ::gai_strerror(status));
  }
  Resolver::Addresses v6, v4;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ai_addr);
      asio::ip::address_v6::bytes_type bytes;
      std::memcpy(bytes.data(), &address->sin6_addr, bytes.size());
      v6.push_back(asio::ip::address_v6(bytes, address->sin6_scope_id));
    } else if (entry->ai_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ai_addr);
      v4.push_back(asio::ip::address_v4(ntohl(address->sin_addr.s_addr)));
    }
  }
  ::freeaddrinfo(found);
  // Families alternate (RFC 8305, section 4): a broken one costs one connect time-out, not many.
  Resolver::Addresses both;
  for (size_t i = 0; i < std::max(v6.size(), v4.size()); ++i) {
    if (i < v6.size()) both.push_back(v6[i]);
    if (i < v4.size()) both.push_back(v4[i]);
  }
  if (both.empty()) return fail(Code::kUnavailable, "host ", host, " has no address");
  return both;
}

}  // namespace

struct Resolver::Shared {
  struct Entry {
    bool looking = false;
    steady_clock::time_point valid_until{};
    std::shared_ptr<const Addresses> addresses;
    std::optional<Error> error;
    std::vector<std::function<void()>> waiters;
  };
  Mutex mutex;
  std::map<std::string, Entry> entries HEADRACE_GUARDED_BY(mutex);
};

Resolver::Resolver() : shared_(std::make_shared<Shared>()) {}
Resolver::~Resolver() = default;

Result<std::shared_ptr<const Resolver::Addresses>> Resolver::resolve(
    const std::string& host, std::function<void()> on_change) {
  boost::system::error_code not_a_literal;
  const asio::ip::address literal = asio::ip::make_address(host, not_a_literal);
  if (!not_a_literal) return std::make_shared<const Addresses>(Addresses{literal});

  const Lock lock(shared_->mutex);
  Shared::Entry& entry = shared_->entries[host];
  if (!entry.looking && steady_clock::now() < entry.valid_until) {
    if (entry.error) return std::unexpected(*entry.error);
    return entry.addresses;
  }
  entry.waiters.push_back(std::move(on_change));
  if (!entry.looking) {
    entry.looking = true;
    std::thread([shared = shared_, host] {
      Result<Addresses> answer = look_up(host);
      std::vector<std::function<void()>> waiters;
      {
        const Lock relock(shared->mutex);
        Shared::Entry& done = shared->entries[host];
        done.looking = false;
        done.valid_until = steady_clock::now() + (answer ? kAnswerLife : kFailureLife);
        done.error.reset();
        if (answer) {
          done.addresses = std::make_shared<const Addresses>(std::move(*answer));
        } else {
          done.error = std::move(answer.error());
        }
        waiters.swap(done.waiters);
      }
      for (const auto& waiter : waiters) waiter();
    }).detach();
  }
  return std::shared_ptr<const Addresses>();
}

}  // namespace headrace
