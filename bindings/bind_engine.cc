#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "batch_memory.h"
#include "bind.h"
#include "convert.h"
#include "engine_handle.h"
#include "errors.h"
#include "headrace/format/url.h"
#include "store_options.h"
#include "this_process.h"
#include "waiting.h"

namespace headrace::python {
namespace {

nb::dict metrics(const EngineHandle& self) {
  const EngineMetrics now = self.engine().metrics();
  nb::dict out;
  const auto set = [&out](std::string_view name, uint64_t value) {
    constexpr std::string_view kNanoseconds = "_ns_total";
    if (name.ends_with(kNanoseconds)) {
      const std::chrono::nanoseconds time(value);
      name.remove_suffix(kNanoseconds.size());
      out[to_str(cat(name, "_s_total"))] = std::chrono::duration<double>(time).count();
    } else {
      out[to_str(name)] = value;
    }
  };
#define HEADRACE_COUNTER(name) set(#name, now.name);
  HEADRACE_COUNTERS(HEADRACE_COUNTER)
#undef HEADRACE_COUNTER
  out["in_flight_limit"] = now.in_flight_limit;
  out["memory_budget_bytes"] = now.memory.budget_bytes;
  out["memory_live_bytes"] = now.memory.live_bytes;
  out["memory_in_flight_bytes"] = now.memory.in_flight_bytes;
  out["memory_cached_bytes"] = now.memory.cached_bytes;
  out["memory_peak_live_bytes"] = now.memory.peak_live_bytes;
  return out;
}

// Cells that processes share: the kernel's memory is the same, and such an exchange takes no lock.
bool exchange_if_equal(nb::handle cells, uint64_t at, int64_t expected, int64_t wanted) {
  const HeldBuffer held(cells, /*writable=*/true);
  const std::span<std::byte> bytes = held.bytes();
  if (at >= bytes.size() / sizeof(int64_t)) throw nb::index_error("there is no such cell");
  static_assert(std::atomic_ref<int64_t>::is_always_lock_free);
  std::atomic_ref<int64_t> cell(*(reinterpret_cast<int64_t*>(bytes.data()) + at));
  return cell.compare_exchange_strong(expected, wanted);
}

nb::tuple split_url(Text text) {
  const Url url = value_or_raise(parse_url(std::string(text)));
  return nb::make_tuple(to_str(url.scheme_text()), to_str(url.authority()), to_str(url.name),
                        to_str(url.to_string()));
}

nb::tuple split_root(Text text) {
  const Url url = value_or_raise(parse_url(std::string(text)));
  std::error_code error;
  std::string directory;
  if (url.scheme == Scheme::kFile && !url.name.starts_with('/')) {
    directory = std::filesystem::current_path(error).string();
    if (error) {
      raise(Error(Code::kNotFound, cat("the working directory: ", error.message())));
    }
  }
  const Url root = root_url(url, directory);
  std::string whole = root.to_string();
  // Without the slash after a bucket's name.
  if (root.scheme != Scheme::kFile && root.name.empty()) whole.pop_back();
  return nb::make_tuple(to_str(root.scheme_text()), to_str(root.authority()), to_str(root.name),
                        to_str(whole));
}

std::string normalized_endpoint(std::string_view text, bool default_tls) {
  const Endpoint endpoint = value_or_raise(parse_endpoint(text, default_tls));
  return cat(endpoint.tls ? "https://" : "http://", endpoint.authority(), endpoint.base_path);
}

nb::list error_codes() {
  nb::list out;
  for (uint8_t i = 0; i <= static_cast<uint8_t>(Code::kInternal); ++i) {
    const auto code = static_cast<Code>(i);
    out.append(nb::make_tuple(to_str(to_string(code)), exception_class_name(code)));
  }
  return out;
}

// An exception like the one that a failing read raises.
nb::object make_exception(uint8_t code, std::string message, std::string url, int http_status,
                          std::string request_id, int attempts) {
  if (code > static_cast<uint8_t>(Code::kInternal)) throw nb::value_error("no such code");
  return to_exception(Error(static_cast<Code>(code), std::move(message))
                          .with_url(std::move(url))
                          .with_http_status(http_status)
                          .with_request_id(std::move(request_id))
                          .with_attempts(attempts));
}

// The log of the newest engine. Needs the GIL.
OfThisProcess<Log>& current_log() {
  static OfThisProcess<Log> log;
  return log;
}

int python_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return 10;
    case LogLevel::kInfo: return 20;
    case LogLevel::kWarning: return 30;
    case LogLevel::kNone: break;
  }
  return 50;
}

}  // namespace

bool log_waits() { return current_log().usable() && current_log()->any(); }

bool pass_on_log() noexcept {
  static bool busy = false;  // with the GIL; a handler may come back here
  if (!current_log().usable() || std::exchange(busy, true)) return true;
  try {
    const std::shared_ptr<Log> log = current_log().shared();
    const nb::object python = imported("headrace._process.log");
    // Summaries are always kept: there are few, and a level may be set at any time.
    const nb::object ask = attribute(python, "debugs"), emit = attribute(python, "emit");
    const nb::object debugs = in_python([&] { return ask(); });
    log->set_least(nb::cast<bool>(debugs) ? LogLevel::kDebug : LogLevel::kInfo);
    for (const LogRecord& record : log->take()) {
      const nb::int_ level(python_level(record.level));
      const nb::str text = to_str(record.text);
      in_python([&] { return emit(level, text); });
    }
  } catch (nb::python_error& error) {
    error.restore();
    busy = false;
    return false;
  } catch (...) {  // out of memory: the log is not worth the caller's work
    busy = false;
    return true;
  }
  busy = false;
  return true;
}

void bind_engine(Module& module) {
  Class<Charge>(module, "Charge").def("release", [](Charge& self) {
    without_gil([&self](MayBlock) { self.release(); });
  });
  Class<EngineHandle>(module, "Engine")
      .def(
          "__init__",
          [](EngineHandle* self, const nb::dict& options) {
            new (self) EngineHandle(to_engine_options(options));
            current_log() = OfThisProcess<Log>(self->engine().log());
            if (!pass_on_log()) throw nb::python_error();  // it takes the level, too
          },
          "options"_a)
      .def("stop",
           [](const EngineHandle& self) {
             without_gil([&self](MayBlock) { self.engine().stop(); });
           })
      .def_prop_ro("usable", &EngineHandle::usable)
      .def_prop_ro("live_bytes",
                   [](const EngineHandle& self) { return self.engine().pool().live_bytes(); })
      .def_prop_ro("budget_bytes",
                   [](const EngineHandle& self) { return self.engine().pool().budget_bytes(); })
      .def(
          "charge",
          [](const EngineHandle& self, uint64_t size_bytes) {
            return Charge(self.engine().pool().shared_from_this(), size_bytes);
          },
          "size_bytes"_a)
      .def(
          "batch_memory",
          [](const EngineHandle& self, uint64_t size_bytes) {
            return BatchMemoryHandle(self.engine().pool(), size_bytes);
          },
          "size_bytes"_a)
      .def("take_warnings",
           [](const EngineHandle& self) {
             nb::list texts;
             for (const std::string& text : self.engine().take_warnings())
               texts.append(to_str(text));
             return texts;
           })
      .def("metrics", &metrics);

  module.def("pass_on_log", [] {
    if (!pass_on_log()) throw nb::python_error();
  });
  module.def("fork_epoch", &fork_epoch);
  module.def("exchange_if_equal", &exchange_if_equal, "cells"_a, "at"_a, "expected"_a, "wanted"_a);
  module.def("begin_exit", &begin_exit, nb::kw_only(), "threads_left"_a);
  module.attr("MIN_RANGE_BYTES") = kMinRangeBytes;
  module.def("default_options", &default_options);
  module.def("split_url", &split_url, "url"_a);
  module.def("split_root", &split_root, "url"_a);
  module.def("normalized_endpoint", &normalized_endpoint, "endpoint"_a, nb::kw_only(),
             "default_tls"_a);
  module.def("error_codes", &error_codes);
  module.def("make_exception", &make_exception, "code"_a, "message"_a, nb::kw_only(), "url"_a = "",
             "http_status"_a = 0, "request_id"_a = "", "attempts"_a = 0);
}

}  // namespace headrace::python
