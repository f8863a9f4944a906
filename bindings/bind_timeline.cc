#include <chrono>

#include "bind.h"
#include "convert.h"
#include "headrace/store/timeline/timeline.h"

namespace headrace::python {
namespace {

int64_t nanoseconds(AttemptRecord::TimePoint time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

nb::dict to_python(const AttemptRecord& record) {
  nb::dict out;
  out["queued_ns"] = nanoseconds(record.queued);
  out["begun_ns"] = nanoseconds(record.begun);
  out["connected_ns"] = nanoseconds(record.connected);
  out["sent_ns"] = nanoseconds(record.sent);
  out["first_byte_ns"] = nanoseconds(record.first_byte);
  out["last_byte_ns"] = nanoseconds(record.last_byte);
  out["ended_ns"] = nanoseconds(record.ended);
  out["bytes"] = record.bytes;
  out["request"] = record.number;
  out["attempt"] = record.attempt;
  out["io_thread"] = record.thread;
  out["status"] = record.status;
  out["end"] = to_str(to_string(record.end));
  if (record.end == AttemptEnd::kFailed) out["error"] = to_str(to_string(record.code));
  out["is_hedge"] = record.is_hedge;
  out["was_hedged"] = record.was_hedged;
  out["method"] = to_str(record.method.view());
  out["host"] = to_str(record.host.view());
  out["target"] = to_str(record.target.view());
  return out;
}

}  // namespace

void bind_timeline(Module& module) {
  module.def("begin_timeline", &begin_timeline, "attempts_per_thread"_a);
  module.def("end_timeline", [] {
    const Timeline timeline = end_timeline();
    nb::list attempts;
    for (const AttemptRecord& record : timeline.attempts) attempts.append(to_python(record));
    return nb::make_tuple(attempts, timeline.dropped);
  });
}

}  // namespace headrace::python
