#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "waiting.h"
#include "writer_handle.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

namespace headrace::python {

FileSourceHandle::FileSourceHandle(int descriptor) {
  const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
  source_ = std::make_shared<FileSource>(own);
}

// A writer that is no longer wanted is aborted. The buffers lent to it go with it.
WriterHandle::~WriterHandle() {
  if (!writer_.usable()) return;
  if (lent_.empty()) {
    without_gil([this](MayBlock) { writer_->abort(); });
  } else {
    abort_and_settle();
  }
}

ObjectWriter& WriterHandle::writer() const {
  if (!writer_.usable()) {
    raise(Error(Code::kCancelled, "it was opened before a fork, in the parent process")
              .with_url(url_));
  }
  return *writer_;
}

WriterHandle::Busy::Busy(WriterHandle& handle) : handle_(handle) {
  if (handle.busy_) {
    raise(Error(Code::kInvalidArgument, "two threads use its writer at the same time")
              .with_url(handle.url_));
  }
  handle.busy_ = true;
}

void WriterHandle::append(std::span<const std::byte> bytes,
                          const std::shared_ptr<const void>& token) {
  ObjectWriter& to = writer();
  while (!bytes.empty()) {
    const Result<size_t> taken =
        without_gil([&](MayBlock) { return to.append_some(bytes, token); });
    if (!taken) raise(taken.error());
    bytes = bytes.subspan(*taken);
    if (bytes.empty()) break;
    wait_for_room(to);
  }
}

void WriterHandle::wait_for_room(ObjectWriter& to) {
  // A stream that lacks a piece is worthless, so Ctrl-C here aborts the object.
  wait_interruptibly([&to](steady_clock::time_point until,
                           MayBlock permit) { return to.wait_for_room(until, permit); },
                     [&to] { to.abort(); });
}

size_t WriterHandle::write(nb::handle data) {
  const Busy busy(*this);
  if (outcome_) return write_after_end();
  const HeldBuffer buffer(data, /*writable=*/false);
  append(buffer.bytes(), nullptr);
  drop_returned();
  return buffer.bytes().size();
}

size_t WriterHandle::write_lent(nb::handle data) {
  const Busy busy(*this);
  if (outcome_) return write_after_end();
  auto buffer = std::make_unique<HeldBuffer>(data, /*writable=*/false);
  const std::span<const std::byte> bytes = buffer->bytes();
  {
    const std::shared_ptr<const void> token = std::make_shared<char>();
    lent_.push_back({.token = token, .buffer = std::move(buffer)});
    append(bytes, token);
  }
  drop_returned();
  return bytes.size();
}

uint64_t WriterHandle::write_from(const FileSourceHandle& file, uint64_t begin_bytes,
                                  uint64_t most_bytes) {
  const Busy busy(*this);
  if (outcome_) return write_after_end();
  ObjectWriter& to = writer();
  uint64_t total_bytes = 0;
  while (total_bytes < most_bytes) {
    const Result<ObjectWriter::Taken> taken = without_gil([&](MayBlock) {
      return to.append_some(file.source(), begin_bytes + total_bytes, most_bytes - total_bytes);
    });
    if (!taken) raise(taken.error());
    total_bytes += taken->size_bytes;
    if (taken->at_end) break;
    if (total_bytes < most_bytes) wait_for_room(to);
  }
  drop_returned();
  return total_bytes;
}

size_t WriterHandle::write_after_end() const {
  if (!*outcome_) raise(outcome_->error());
  raise(Error(Code::kInvalidArgument, "it was closed, and takes no more bytes").with_url(url_));
}

void WriterHandle::drop_returned() {
  while (!lent_.empty() && lent_.front().token.expired()) lent_.pop_front();
}

ObjectInfo WriterHandle::close() {
  const Busy busy(*this);
  if (!outcome_) {
    ObjectWriter& to = writer();
    without_gil([&to](MayBlock) { to.begin_close(); });
    // After Ctrl-C only lent memory makes us wait for requests in progress.
    bool interrupted = false;
    wait_interruptibly(
        [&](steady_clock::time_point until, MayBlock permit) {
          return (interrupted && lent_.empty()) || to.wait_until_settled(until, permit);
        },
        [&] {
          to.abort();
          interrupted = true;
        });
    wait_cleaned(ObjectWriter::kCleaningTimeout);
    let_go();
  }
  return value_or_raise(Result<ObjectInfo>(*outcome_));
}

void WriterHandle::abort(double patience_s) {
  if (outcome_) return;
  ObjectWriter& to = writer();
  if (busy_) {  // by another thread, which comes back soon, with the error
    without_gil([&to](MayBlock) { to.abort(); });
    return;
  }
  const Busy busy(*this);
  const auto patience = std::chrono::duration_cast<steady_clock::duration>(
      std::chrono::duration<double>(std::clamp(patience_s, 0.0, 60.0)));
  const auto until = steady_clock::now() + patience;
  without_gil([&to, until](MayBlock permit) {
    to.abort();
    static_cast<void>(to.wait_until_settled(until, permit));
  });
  if (!lent_.empty()) abort_and_settle();
  wait_cleaned(until - steady_clock::now());
  let_go();
}

void WriterHandle::abort_and_settle() {
  without_gil([this](MayBlock permit) {
    writer_->abort();
    while (!writer_->wait_until_settled(steady_clock::now() + std::chrono::hours(1), permit)) {
    }
  });
}

void WriterHandle::wait_cleaned(steady_clock::duration patience) {
  const auto end = steady_clock::now() + patience;
  wait_interruptibly(
      [this, end](steady_clock::time_point until, MayBlock permit) {
        return writer_->wait_cleaned(std::min(until, end), permit) || steady_clock::now() >= end;
      },
      [] {});
}

void WriterHandle::let_go() {
  outcome_ = writer_->outcome();
  size_bytes_ = writer_->size_bytes();
  crc32c_ = writer_->crc32c().value();
  if (const std::optional<Error> left = writer_->cleaning_error()) {
    left_behind_ = left->message();
  }
  without_gil([this](MayBlock) { writer_ = {}; });
  lent_.clear();
}

uint64_t WriterHandle::size_bytes() const {
  return writer_.usable() ? writer_->size_bytes() : size_bytes_;
}

uint32_t WriterHandle::crc32c() const {
  return writer_.usable() ? writer_->crc32c().value() : crc32c_;
}

void bind_writer(Module& module) {
  Class<FileSourceHandle>(module, "FileSource").def(nb::init<int>(), "descriptor"_a);
  module.def(
      "write_from",
      [](WriterHandle& writer, const FileSourceHandle& file, uint64_t begin, uint64_t most_bytes) {
        return writer.write_from(file, begin, most_bytes);
      },
      "writer"_a, "file"_a, "begin"_a, "most_bytes"_a);
  Class<WriterHandle>(module, "ObjectWriter")
      .def("write", &WriterHandle::write, "data"_a)
      .def("write_lent", &WriterHandle::write_lent, "data"_a)
      .def("close", &WriterHandle::close)
      .def("abort", &WriterHandle::abort, nb::kw_only(), "patience_s"_a = 5.0)
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__exit__",
          [](WriterHandle& self, nb::handle type, nb::handle, nb::handle) {
            if (type.is_none()) {
              self.close();
            } else {
              self.abort(5.0);
            }
          },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none())
      .def_prop_ro("size_bytes", &WriterHandle::size_bytes)
      .def_prop_ro("crc32c", &WriterHandle::crc32c)
      .def_prop_ro("url", &WriterHandle::url)
      .def_prop_ro("left_behind", &WriterHandle::left_behind);
}

}  // namespace headrace::python
