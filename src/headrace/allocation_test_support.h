// What the program of engine_allocation_test.cc can do with malloc, whose place it takes.
#pragma once

#include <cstdint>

namespace headrace {

// As many allocations of this thread succeed, less one; the next one fails, once. 0: none fails.
extern thread_local uint64_t allocations_to_failure;

}  // namespace headrace
