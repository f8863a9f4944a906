// Memory for batches, as Python has it.
#pragma once

#include <memory>
#include <new>

#include "headrace/base/block_pool.h"

namespace headrace::python {

// Shared by Python's object and by the tensors that lie in it.
// Thread: confined (the GIL).
class BatchMemoryHandle {
 public:
  // Throws std::bad_alloc if there is none, and for zero bytes.
  BatchMemoryHandle(BlockPool& pool, uint64_t size_bytes)
      : memory_(std::make_shared<BatchMemory>(pool, size_bytes)) {
    if (memory_->bytes().empty()) throw std::bad_alloc();
  }
  BatchMemory& memory() const { return *memory_; }
  const std::shared_ptr<BatchMemory>& shared() const { return memory_; }

 private:
  std::shared_ptr<BatchMemory> memory_;
};

}  // namespace headrace::python
