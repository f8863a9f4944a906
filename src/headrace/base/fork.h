// What must happen in a forked child, where only the forking thread survives.
#pragma once

#include <cstdint>

namespace headrace {

// How many forks separate this process from the one that loaded the library. Objects that depend on
// threads or locks remember the epoch they were made in, and are not touched in any other.
// Thread: any; lock-free.
uint64_t fork_epoch();

// Descriptors that a forked child must not share with its parent: sockets (else the server sees no
// FIN while the child lives), epoll, event and timer descriptors. The child closes them by close()
// alone, before fork() returns there: an epoll_ctl or a TLS shutdown would act on the parent.
// Thread: any; lock-free. Descriptors above the table's end (2^20) are not tracked.
void close_in_child(int descriptor);
void forget_in_child(int descriptor);  // call before close()

uint64_t tracked_descriptor_count();  // for tests and metrics

// While one lives no thread of this process can fork: fork() waits. For calls into a library that
// takes locks of its own, which nobody would ever release in the child. Short calls only, none that
// may wait for another thread or for Python. They may be nested.
// Thread: any; the one that made it ends it.
class [[nodiscard]] HoldsOffForks {
 public:
  HoldsOffForks();
  ~HoldsOffForks();
  HoldsOffForks(const HoldsOffForks&) = delete;
  HoldsOffForks& operator=(const HoldsOffForks&) = delete;
};

}  // namespace headrace
