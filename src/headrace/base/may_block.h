// The permit to wait.
#pragma once

namespace headrace {

// A function that blocks takes a MayBlock. Only `without_gil()` in the bindings, C++ programs' own
// threads and tests make one, so nobody waits on an I/O thread or while holding the GIL.
class MayBlock {
 public:
  static MayBlock on_this_thread() { return MayBlock(); }

 private:
  MayBlock() = default;
};

}  // namespace headrace
