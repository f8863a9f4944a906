// What the yardsticks of this folder share (epoll_client.cc, uring_client.cc, h2_client.cc): their
// arguments, the objects that they read, and what they print.
//
//   PROGRAM PORT PATHS CONNECTIONS SECONDS KEPT [OPTION...]
//
// asks 127.0.0.1:PORT for the paths that the file PATHS has, in turn and over again. A line of it
// is a path and, after a tab, the CRC32C of that object. Every object goes into memory of its own,
// is summed, compared, and kept until KEPT more have come. A quarter of SECONDS warms up. Prints
// JSON as bench/wrk.py does, and the system calls made.
//
// Thread: confined. Errors: a program ends with a message at the first one.
#pragma once

#include <arpa/inet.h>
#include <isa-l/crc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::bench {

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

// The same after a system call.
[[noreturn]] inline void die(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

// Counted by whoever makes one.
inline uint64_t system_calls = 0;

// Open, connected to loopback, without Nagle's wait.
inline int connect_to(uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(descriptor, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) die("connect");
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return descriptor;
}

struct Wanted {
  std::string path;
  uint32_t crc32c;
};

struct Arguments {
  uint16_t port;
  std::vector<Wanted> wanted;
  size_t connection_count;
  double seconds;
  size_t kept_count;
  std::vector<std::string> options;

  // The words after the first five: NAME, or NAME=NUMBER.
  bool has(std::string_view name) const {
    return std::find(options.begin(), options.end(), name) != options.end();
  }
  size_t number(std::string_view name, size_t otherwise) const {
    for (const std::string& option : options) {
      if (option.starts_with(name) && option[name.size()] == '=') {
        return std::strtoull(option.c_str() + name.size() + 1, nullptr, 10);
      }
    }
    return otherwise;
  }
};

// `known`: the options, those with a number as "NAME=".
inline Arguments parse_arguments(int argc, char** argv,
                                 std::initializer_list<std::string_view> known) {
  const auto is_known = [known](std::string_view option) {
    const size_t end = option.find('=');
    const std::string_view name = option.substr(0, end == std::string_view::npos ? end : end + 1);
    return std::find(known.begin(), known.end(), name) != known.end();
  };
  if (argc < 6 || !std::all_of(argv + 6, argv + argc, is_known)) {
    std::fprintf(stderr, "usage: %s PORT PATHS CONNECTIONS SECONDS KEPT", argv[0]);
    for (const std::string_view name : known) {
      std::fprintf(stderr, " [%s]", std::string(name).c_str());
    }
    std::fputs("\n", stderr);
    std::exit(2);
  }
  Arguments arguments{static_cast<uint16_t>(std::atoi(argv[1])), {},
                      static_cast<size_t>(std::atoi(argv[3])),   std::atof(argv[4]),
                      static_cast<size_t>(std::atoi(argv[5])),   {argv + 6, argv + argc}};
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) fail("a line of PATHS has no sum");
    const auto sum = static_cast<uint32_t>(std::strtoul(line.c_str() + tab + 1, nullptr, 10));
    arguments.wanted.push_back({line.substr(0, tab), sum});
  }
  if (arguments.wanted.empty()) fail("PATHS has no line");
  return arguments;
}

inline std::string request_of(const Wanted& wanted) {
  return "GET " + wanted.path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
}

// What a head says: how long it is, and the body after it.
struct Head {
  size_t head_bytes, body_bytes;
};

// None: the end of the head is still to come.
inline std::optional<Head> parse_head(std::string_view text) {
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  if (!text.starts_with("HTTP/1.1 200")) fail("the answer is not 200");
  constexpr std::string_view kLength = "\r\nContent-Length: ";
  const size_t at = text.find(kLength);
  if (at > end) fail("no Content-Length");
  return Head{end + 4, std::strtoull(text.data() + at + kLength.size(), nullptr, 10)};
}

// Asked for, and not yet here.
struct Asked {
  uint32_t crc32c = 0;
  std::chrono::steady_clock::time_point at;
};

// An object that is coming in.
struct Body {
  unsigned char* bytes = nullptr;  // null: none is
  size_t size_bytes = 0, received_bytes = 0;
  uint32_t crc = 0;

  void begin(size_t size) {
    bytes = static_cast<unsigned char*>(std::malloc(size));
    size_bytes = size;
    received_bytes = 0;
    crc = 0xffffffff;
  }
  unsigned char* rest() const { return bytes + received_bytes; }
  size_t left_bytes() const { return size_bytes - received_bytes; }
  // So many have come to `rest()`.
  void add(size_t count) {
    crc = crc32_iscsi(rest(), static_cast<int>(count), crc);
    received_bytes += count;
  }
  // Takes of `came` what belongs to the object; returns how many bytes these are.
  size_t copy(std::string_view came) {
    const size_t count = std::min(came.size(), left_bytes());
    std::memcpy(rest(), came.data(), count);
    add(count);
    return count;
  }
  bool is_whole() const { return bytes != nullptr && left_bytes() == 0; }
};

// The objects that are asked for and those that have come.
class Objects {
 public:
  Objects(const std::vector<Wanted>& wanted, size_t kept_count, bool times)
      : wanted_(wanted), kept_(kept_count), times_(times) {}

  // The next one to ask for, as an index of what is wanted.
  size_t next() { return next_++ % wanted_.size(); }
  Asked ask(size_t index) const {
    Asked asked{.crc32c = wanted_[index].crc32c, .at = {}};
    if (times_) asked.at = std::chrono::steady_clock::now();
    return asked;
  }

  void end(Body& body, const Asked& asked) {
    if (~body.crc != asked.crc32c) fail("an object has another CRC32C");
    ++count;
    bytes += body.size_bytes;
    if (times_) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - asked.at;
      took_s.push_back(took.count());
    }
    unsigned char*& place = kept_[count % kept_.size()];
    std::free(place);
    place = std::exchange(body.bytes, nullptr);
  }

  uint64_t count = 0, bytes = 0;
  std::vector<double> took_s;  // from the request to the last byte, of each object, where asked for

 private:
  const std::vector<Wanted>& wanted_;
  size_t next_ = 0;
  std::vector<unsigned char*> kept_;
  const bool times_;
};

inline double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// For so long, calls `take` with the pointer of each event of an epoll.
template <class Take>
void for_each_event(int epoll, double seconds, const Take& take) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::array<epoll_event, 128> events;
  while (std::chrono::steady_clock::now() < until) {
    ++system_calls;
    const int count = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), 1000);
    for (int i = 0; i < count; ++i) take(events[static_cast<size_t>(i)].data.ptr);
  }
}

// Runs `client.run(seconds)` and prints what it took. The times are those of objects that came
// then, also if they were asked for before.
template <class Client>
void measure(const Arguments& arguments, Objects& objects, Client& client) {
  client.run(arguments.seconds / 4);  // warms up
  objects.took_s.clear();
  const uint64_t count = objects.count, bytes = objects.bytes, calls = system_calls;
  const double cpu = cpu_s();
  const auto began = std::chrono::steady_clock::now();
  client.run(arguments.seconds);
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf(
      "{\"objects\": %llu, \"bytes\": %llu, \"wall_s\": %f, \"cpu_s\": %f, "
      "\"system_calls\": %llu, \"connections\": %zu",
      static_cast<unsigned long long>(objects.count - count),
      static_cast<unsigned long long>(objects.bytes - bytes), wall, cpu_s() - cpu,
      static_cast<unsigned long long>(system_calls - calls), arguments.connection_count);
  std::vector<double>& took_s = objects.took_s;
  if (!took_s.empty()) {
    std::sort(took_s.begin(), took_s.end());
    const auto share = [&took_s](double fraction) {
      return took_s[static_cast<size_t>(static_cast<double>(took_s.size() - 1) * fraction)];
    };
    std::printf(", \"p50_s\": %f, \"p90_s\": %f, \"p99_s\": %f, \"p999_s\": %f", share(0.5),
                share(0.9), share(0.99), share(0.999));
    const auto late_s = static_cast<double>(arguments.number("late-us", 0)) * 1e-6;
    if (late_s > 0) {
      const auto late = took_s.end() - std::lower_bound(took_s.begin(), took_s.end(), late_s);
      std::printf(", \"late_fraction\": %f",
                  static_cast<double>(late) / static_cast<double>(took_s.size()));
    }
  }
  std::puts("}");
}

}  // namespace headrace::bench
