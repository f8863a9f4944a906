// Random numbers of the kernel, for seeds and names that must differ between processes.
#pragma once

#include <cstdint>

namespace headrace {

// 64 bits of getrandom(2). std::random_device would call arc4random, which glibc has since 2.36,
// and the wheel runs on 2.34.
// Thread: any, also after fork(). Costs a system call, and blocks only early in the boot of the
// machine, before the kernel has seeded its generator.
uint64_t random_number();

}  // namespace headrace
