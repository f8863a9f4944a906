// What must happen in a forked child, where only the forking thread lives on.
#pragma once

#include <cstdint>

namespace headrace {

// How many forks lie between this process and the one that loaded the library. Everything that a
// thread or a lock stands behind remembers the epoch it was made in and is left alone in another.
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
