#include "headrace/http/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "headrace/base/mutex.h"

namespace headrace {
namespace {

constexpr std::chrono::seconds kAnswerLife{60};
constexpr std::chrono::seconds kFailureLife{1};
constexpr std::chrono::seconds kAddressRest{60};

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
  // Families alternate (RFC 8305, section 4), so that a broken one costs one connect time-out, not
  // many.
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
    Clock::time_point valid_until{};
    Addresses addresses;
    std::optional<Error> error;
    std::vector<std::function<void()>> waiters;
    size_t next = 0;  // the address that the next connection begins with
    // For each address that failed: when a connection may start with it again.
    std::map<asio::ip::address, Clock::time_point> rests_until;

    Addresses in_order(Clock::time_point now);
  };
  Mutex mutex;
  std::map<std::string, Entry> entries HEADRACE_GUARDED_BY(mutex);
};

Resolver::Addresses Resolver::Shared::Entry::in_order(Clock::time_point now) {
  Addresses order, resting;
  const size_t first = next++;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const asio::ip::address& address = addresses[(first + i) % addresses.size()];
    const auto rest = rests_until.find(address);
    if (rest == rests_until.end()) {
      order.push_back(address);
    } else if (order.empty() && now >= rest->second) {
      rest->second = now + kAddressRest;  // for the others, until this connection has tried it
      order.push_back(address);
    } else {
      resting.push_back(address);
    }
  }
  order.insert(order.end(), resting.begin(), resting.end());
  return order;
}

Resolver::Resolver(StartThread start_thread)
    : shared_(std::make_shared<Shared>()), start_thread_(std::move(start_thread)) {}
Resolver::~Resolver() = default;

void Resolver::on_detached_thread(std::function<void()> job) {
  std::thread(std::move(job)).detach();
}

Result<std::optional<Resolver::Addresses>> Resolver::resolve(const std::string& host,
                                                             std::function<void()> on_change,
                                                             Clock::time_point now) {
  boost::system::error_code not_a_literal;
  const asio::ip::address literal = asio::ip::make_address(host, not_a_literal);
  if (!not_a_literal) return Addresses{literal};

  const Lock lock(shared_->mutex);
  Shared::Entry& entry = shared_->entries[host];
  if (!entry.looking && now < entry.valid_until) {
    if (entry.error) return std::unexpected(*entry.error);
    return entry.in_order(now);
  }
  if (!entry.looking) {
    try {
      start_thread_([shared = shared_, host] {
        Result<Addresses> answer = look_up(host);
        std::vector<std::function<void()>> waiters;
        {
          const Lock relock(shared->mutex);
          Shared::Entry& done = shared->entries[host];
          done.looking = false;
          done.valid_until = Clock::now() + (answer ? kAnswerLife : kFailureLife);
          done.error.reset();
          if (answer) {
            done.addresses = std::move(*answer);
            std::erase_if(done.rests_until, [&](const auto& rest) {
              return std::ranges::find(done.addresses, rest.first) == done.addresses.end();
            });
          } else {
            done.error = std::move(answer.error());
          }
          waiters.swap(done.waiters);
        }
        for (const auto& waiter : waiters) waiter();
      });
    } catch (const std::system_error& error) {
      // No look-up is in progress: the next caller starts one.
      return fail(Code::kUnavailable, "cannot resolve host ", host,
                  ": no thread for the look-up: ", error.what());
    }
    entry.looking = true;
  }
  entry.waiters.push_back(std::move(on_change));
  return std::optional<Addresses>();
}

void Resolver::failed(const std::string& host, const asio::ip::address& address,
                      Clock::time_point now) {
  const Lock lock(shared_->mutex);
  // A literal has no entry, and no alternative that could be tried first.
  if (const auto found = shared_->entries.find(host); found != shared_->entries.end()) {
    found->second.rests_until[address] = now + kAddressRest;
  }
}

void Resolver::worked(const std::string& host, const asio::ip::address& address) {
  const Lock lock(shared_->mutex);
  if (const auto found = shared_->entries.find(host); found != shared_->entries.end()) {
    found->second.rests_until.erase(address);
  }
}

}  // namespace headrace
