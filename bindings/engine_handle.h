#pragma once

#include "headrace/engine.h"
#include "this_process.h"
#include "waiting.h"

namespace headrace::python {

// Thread: confined (the GIL).
class EngineHandle {
 public:
  explicit EngineHandle(const EngineOptions& options)
      : engine_(std::shared_ptr<Engine>(new Engine(options), &stop_and_delete)) {}

  bool usable() const { return engine_.usable(); }
  const std::shared_ptr<Engine>& shared() const { return engine_.shared(); }
  Engine& engine() const { return *engine_; }

 private:
  // Joining threads takes a moment; other threads may run Python meanwhile.
  static void stop_and_delete(Engine* engine) {
    without_gil([engine](MayBlock) { delete engine; });
  }
  OfThisProcess<Engine> engine_;
};

}  // namespace headrace::python
