// What epoll_client.cc does, by io_uring: the yardstick that says what a second reactor would
// bring. One thread, one ring, registered sockets; requests and receives of all objects of a turn
// go in with one io_uring_enter. yardstick.h has its first arguments; its options:
//
//   multishot      one receive for each connection, into buffers that the ring is provided with; an
//                  object is copied from there. Without it: a receive for the head, with what is
//                  behind it, and one for the rest of the body, by MSG_WAITALL into the object.
//   buffer=BYTES   of those buffers, each (4096)
//   defer          IORING_SETUP_SINGLE_ISSUER and IORING_SETUP_DEFER_TASKRUN
//   wait=K         a turn begins with K completions (1) ...
//   min-wait-us=U  ... or, after U microseconds, with fewer (0: not before K)
//   late-us=N      tells how long objects took, and the share of those that took N us or more
//
// `headrace-bench-uring --supported` exits with 3 and says why where the kernel or a sandbox
// forbids io_uring, or where it is older than Linux 6.12, which has all of the above.
//
// The ring is used by system calls alone: Debian 12's liburing (2.3) knows no shortest wait.
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yardstick.h"

namespace headrace::bench {
namespace {

constexpr unsigned kMinTimeout = 1U << 15;  // IORING_FEAT_MIN_TIMEOUT, of Linux 6.12
constexpr size_t kInboxBytes = 4096;
constexpr size_t kProvidedBytes = size_t{8} << 20;
constexpr size_t kMaxProvided = 4096;

struct RingOptions {
  unsigned entries = 256;
  bool defer = false;
  unsigned wait_count = 1;
  unsigned min_wait_us = 0;
};

// The rings of submissions and completions.
class Ring {
 public:
  explicit Ring(const RingOptions& options) : options_(options) {
    io_uring_params params{};
    params.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
    if (options.defer) params.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    params.cq_entries = 16 * options.entries;
    descriptor_ = static_cast<int>(::syscall(__NR_io_uring_setup, options.entries, &params));
    if (descriptor_ < 0) unsupported(std::strerror(errno));
    if ((params.features & kMinTimeout) == 0) unsupported("the kernel is older than Linux 6.12");
    const size_t submissions_end =
        params.sq_off.array + size_t{params.sq_entries} * sizeof(unsigned);
    const size_t completions_end =
        params.cq_off.cqes + size_t{params.cq_entries} * sizeof(io_uring_cqe);
    auto* const rings = static_cast<std::byte*>(
        map(std::max(submissions_end, completions_end), IORING_OFF_SQ_RING));
    entries_ = static_cast<io_uring_sqe*>(
        map(size_t{params.sq_entries} * sizeof(io_uring_sqe), IORING_OFF_SQES));
    entry_count_ = params.sq_entries;
    submissions_head_ = reinterpret_cast<unsigned*>(rings + params.sq_off.head);
    submissions_tail_ = reinterpret_cast<unsigned*>(rings + params.sq_off.tail);
    completions_head_ = reinterpret_cast<unsigned*>(rings + params.cq_off.head);
    completions_tail_ = reinterpret_cast<unsigned*>(rings + params.cq_off.tail);
    completions_ = reinterpret_cast<io_uring_cqe*>(rings + params.cq_off.cqes);
    completion_count_ = params.cq_entries;
    auto* const order = reinterpret_cast<unsigned*>(rings + params.sq_off.array);
    for (unsigned i = 0; i < entry_count_; ++i) order[i] = i;
  }

  void use(const std::vector<int>& sockets) {
    if (::syscall(__NR_io_uring_register, descriptor_, IORING_REGISTER_FILES, sockets.data(),
                  sockets.size()) != 0) {
      die("IORING_REGISTER_FILES");
    }
  }

  void provide(void* buffers, size_t count) {
    io_uring_buf_reg what{};
    what.ring_addr = reinterpret_cast<uint64_t>(buffers);
    what.ring_entries = static_cast<unsigned>(count);
    if (::syscall(__NR_io_uring_register, descriptor_, IORING_REGISTER_PBUF_RING, &what, 1) != 0) {
      die("IORING_REGISTER_PBUF_RING");
    }
  }

  // The next submission, of the socket with this index; it goes in with the next turn.
  io_uring_sqe& submit(uint8_t operation, size_t socket) {
    if (tail_ - load(submissions_head_) == entry_count_) enter(0, 0);
    io_uring_sqe& entry = entries_[tail_++ & (entry_count_ - 1)];
    entry = {};
    entry.opcode = operation;
    entry.flags = IOSQE_FIXED_FILE;
    entry.fd = static_cast<int>(socket);
    entry.user_data = socket;
    return entry;
  }

  // Submits what there is, waits, and gives each completion to `take`.
  template <class Take>
  void turn(Take take) {
    enter(options_.wait_count, IORING_ENTER_GETEVENTS);
    unsigned head = *completions_head_;
    const unsigned tail = load(completions_tail_);
    for (; head != tail; ++head) take(completions_[head & (completion_count_ - 1)]);
    std::atomic_ref(*completions_head_).store(head, std::memory_order_release);
  }

 private:
  [[noreturn]] static void unsupported(const char* why) {
    std::fprintf(stderr, "io_uring: %s\n", why);
    std::exit(3);
  }

  static unsigned load(unsigned* counter) {
    return std::atomic_ref(*counter).load(std::memory_order_acquire);
  }

  void* map(size_t bytes, uint64_t what) const {
    void* const place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                               descriptor_, static_cast<off_t>(what));
    if (place == MAP_FAILED) die("mmap of the ring");
    return place;
  }

  void enter(unsigned wait_count, unsigned flags) {
    std::atomic_ref(*submissions_tail_).store(tail_, std::memory_order_release);
    __kernel_timespec longest{.tv_sec = 1, .tv_nsec = 0};
    io_uring_getevents_arg arguments{};
    arguments.pad = options_.min_wait_us;  // min_wait_usec, since Linux 6.12
    arguments.ts = reinterpret_cast<uint64_t>(&longest);
    ++system_calls;
    const long done =
        ::syscall(__NR_io_uring_enter, descriptor_, tail_ - load(submissions_head_), wait_count,
                  flags | IORING_ENTER_EXT_ARG, &arguments, sizeof arguments);
    if (done < 0 && errno != ETIME && errno != EINTR) die("io_uring_enter");
  }

  const RingOptions options_;
  int descriptor_;
  io_uring_sqe* entries_;
  io_uring_cqe* completions_;
  unsigned entry_count_, completion_count_;
  unsigned *submissions_head_, *submissions_tail_, *completions_head_, *completions_tail_;
  unsigned tail_ = 0;
};

// Buffers that the kernel picks for what multishot receives bring.
class Provided {
 public:
  Provided(Ring& ring, size_t buffer_bytes)
      : buffer_bytes_(buffer_bytes),
        count_(std::min(kMaxProvided, std::bit_floor(kProvidedBytes / buffer_bytes))),
        bytes_(static_cast<char*>(memory(count_ * buffer_bytes))),
        ring_(static_cast<io_uring_buf*>(memory(count_ * sizeof(io_uring_buf)))) {
    ring.provide(ring_, count_);
    for (size_t i = 0; i < count_; ++i) give_back(i);
    publish();
  }

  const char* at(size_t index) const { return bytes_ + index * buffer_bytes_; }

  void give_back(size_t index) {
    io_uring_buf& buffer = ring_[tail_++ & (count_ - 1)];
    buffer.addr = reinterpret_cast<uint64_t>(at(index));
    buffer.len = static_cast<unsigned>(buffer_bytes_);
    buffer.bid = static_cast<uint16_t>(index);
  }

  // The ring's tail lies in its first entry. Not by io_uring_buf_ring: in C++ its entries begin 8
  // bytes too late.
  void publish() { std::atomic_ref(ring_[0].resv).store(tail_, std::memory_order_release); }

 private:
  static void* memory(size_t bytes) {
    void* const place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (place == MAP_FAILED) die("mmap of buffers");
    return place;
  }

  const size_t buffer_bytes_, count_;
  char* const bytes_;
  io_uring_buf* const ring_;
  uint16_t tail_ = 0;
};

struct Connection {
  std::array<char, kInboxBytes> inbox;  // a head that is not yet all here
  size_t inbox_bytes = 0;
  Body body;
  Asked asked;

  // More of the head; returns all of it that has come.
  std::string_view keep(std::string_view came) {
    if (came.size() > inbox.size() - inbox_bytes) fail("a head is too long");
    std::memcpy(inbox.data() + inbox_bytes, came.data(), came.size());
    inbox_bytes += came.size();
    return {inbox.data(), inbox_bytes};
  }
};

class Client {
 public:
  Client(const Arguments& arguments, const RingOptions& options, Objects& objects)
      : objects_(objects), ring_(options), connections_(arguments.connection_count) {
    for (const Wanted& wanted : arguments.wanted) requests_.push_back(request_of(wanted));
    std::vector<int> sockets(connections_.size());
    for (int& socket : sockets) socket = connect_to(arguments.port);
    ring_.use(sockets);
    if (arguments.has("multishot")) provided_.emplace(ring_, arguments.number("buffer", 4096));
    for (size_t i = 0; i < connections_.size(); ++i) {
      if (provided_) receive_all(i);
      ask(i);
    }
  }

  void run(double seconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < until) {
      ring_.turn([this](const io_uring_cqe& completion) {
        provided_ ? take_provided(completion) : take(completion);
      });
      if (provided_) provided_->publish();
    }
  }

 private:
  void ask(size_t index) {
    Connection& connection = connections_[index];
    const size_t next = objects_.next();
    connection.asked = objects_.ask(next);
    io_uring_sqe& send = ring_.submit(IORING_OP_SEND, index);
    send.flags |= IOSQE_CQE_SKIP_SUCCESS;  // all of it, or an error
    send.addr = reinterpret_cast<uint64_t>(requests_[next].data());
    send.len = static_cast<unsigned>(requests_[next].size());
    send.msg_flags = MSG_NOSIGNAL | MSG_WAITALL;
    if (provided_) return;
    receive_head(index);
  }

  void receive_head(size_t index) {
    Connection& connection = connections_[index];
    io_uring_sqe& receive = ring_.submit(IORING_OP_RECV, index);
    receive.ioprio = IORING_RECVSEND_POLL_FIRST;
    receive.addr = reinterpret_cast<uint64_t>(connection.inbox.data() + connection.inbox_bytes);
    receive.len = static_cast<unsigned>(connection.inbox.size() - connection.inbox_bytes);
  }

  void receive_rest(size_t index) {
    const Body& body = connections_[index].body;
    io_uring_sqe& receive = ring_.submit(IORING_OP_RECV, index);
    receive.addr = reinterpret_cast<uint64_t>(body.rest());
    receive.len = static_cast<unsigned>(body.left_bytes());
    receive.msg_flags = MSG_WAITALL;
  }

  void receive_all(size_t index) {
    io_uring_sqe& receive = ring_.submit(IORING_OP_RECV, index);
    receive.ioprio = IORING_RECV_MULTISHOT | IORING_RECVSEND_POLL_FIRST;
    receive.flags |= IOSQE_BUFFER_SELECT;
  }

  static size_t size_of(const io_uring_cqe& completion) {
    if (completion.res > 0) return static_cast<size_t>(completion.res);
    errno = completion.res == 0 ? ECONNRESET : -completion.res;
    die("a completion");
  }

  void take(const io_uring_cqe& completion) {
    const size_t index = completion.user_data;
    const size_t got = size_of(completion);
    Connection& connection = connections_[index];
    Body& body = connection.body;
    if (body.bytes != nullptr) {
      body.add(got);
    } else {
      connection.inbox_bytes += got;
      const std::string_view text(connection.inbox.data(), connection.inbox_bytes);
      const std::optional<Head> head = parse_head(text);
      if (!head) return receive_head(index);
      connection.inbox_bytes = 0;
      body.begin(head->body_bytes);
      body.copy(text.substr(head->head_bytes));
    }
    if (!body.is_whole()) return receive_rest(index);
    objects_.end(body, connection.asked);
    ask(index);
  }

  void take_provided(const io_uring_cqe& completion) {
    const size_t index = completion.user_data;
    if (completion.res == -ENOBUFS) return receive_all(index);
    const size_t got = size_of(completion);
    const size_t buffer = completion.flags >> IORING_CQE_BUFFER_SHIFT;
    Connection& connection = connections_[index];
    Body& body = connection.body;
    std::string_view came(provided_->at(buffer), got);
    if (body.bytes == nullptr) {
      const bool begins = connection.inbox_bytes == 0;
      const std::string_view text = begins ? came : connection.keep(came);
      if (const std::optional<Head> head = parse_head(text)) {
        body.begin(head->body_bytes);
        body.copy(text.substr(head->head_bytes));
        connection.inbox_bytes = 0;
      } else if (begins) {
        connection.keep(came);
      }
    } else {
      body.copy(came);
    }
    provided_->give_back(buffer);
    if ((completion.flags & IORING_CQE_F_MORE) == 0) receive_all(index);
    if (!body.is_whole()) return;
    objects_.end(body, connection.asked);
    ask(index);
  }

  Objects& objects_;
  Ring ring_;
  std::optional<Provided> provided_;
  std::vector<std::string> requests_;
  std::vector<Connection> connections_;
};

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;
  if (argc == 2 && std::string_view(argv[1]) == "--supported") {
    Ring ring({});
    return 0;
  }
  const Arguments arguments = parse_arguments(
      argc, argv, {"multishot", "buffer=", "defer", "wait=", "min-wait-us=", "late-us="});
  const RingOptions options{
      .entries = static_cast<unsigned>(std::bit_ceil(4 * arguments.connection_count)),
      .defer = arguments.has("defer"),
      .wait_count = static_cast<unsigned>(arguments.number("wait", 1)),
      .min_wait_us = static_cast<unsigned>(arguments.number("min-wait-us", 0))};
  Objects objects(arguments.wanted, arguments.kept_count, arguments.number("late-us", 0) > 0);
  Client client(arguments, options, objects);
  measure(arguments, objects, client);
  return 0;
}
