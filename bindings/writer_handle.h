#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "convert.h"
#include "headrace/engine.h"
#include "headrace/store/object_writer.h"
#include "headrace/store/part_body.h"
#include "this_process.h"
#include "waiting.h"

namespace headrace::python {

// A local file that can be read again while it is sent. The engine keeps it open, not Python.
// Thread: any.
class FileSourceHandle {
 public:
  // Of a descriptor, which stays the caller's.
  explicit FileSourceHandle(int descriptor);
  const std::shared_ptr<const PartSource>& source() const { return source_; }

 private:
  std::shared_ptr<const PartSource> source_;
};

// An object that is being written, with the buffers lent for it. Python counts their references, so
// none is released on an I/O thread.
// Thread: confined (the GIL).
class WriterHandle {
 public:
  WriterHandle(std::shared_ptr<Engine> engine, std::shared_ptr<ObjectWriter> writer)
      : engine_(std::move(engine)), writer_(std::move(writer)), url_(writer_->url()) {}
  WriterHandle(WriterHandle&&) noexcept = default;
  WriterHandle& operator=(WriterHandle&&) = delete;
  ~WriterHandle();

  size_t write(nb::handle data);
  size_t write_lent(nb::handle data);
  uint64_t write_from(const FileSourceHandle& file, uint64_t begin_bytes, uint64_t most_bytes);
  ObjectInfo close();
  // Waits up to `patience_s` for temporary objects to be removed; their removal continues
  // regardless.
  void abort(double patience_s);
  uint64_t size_bytes() const;
  uint32_t crc32c() const;
  const std::string& url() const { return url_; }
  std::optional<std::string> left_behind() const { return left_behind_; }

 private:
  // Two threads at once would interleave their bytes.
  class Busy {
   public:
    explicit Busy(WriterHandle& handle);
    ~Busy() { handle_.busy_ = false; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    WriterHandle& handle_;
  };
  // The engine releases `token` once it no longer needs the buffer.
  struct Lent {
    std::weak_ptr<const void> token;
    std::unique_ptr<HeldBuffer> buffer;
  };
  ObjectWriter& writer() const;
  void append(std::span<const std::byte> bytes, const std::shared_ptr<const void>& token);
  void wait_for_room(ObjectWriter& to);
  [[noreturn]] size_t write_after_end() const;
  void drop_returned();
  void abort_and_settle();
  void wait_cleaned(steady_clock::duration patience);
  // The outcome is kept here; the engine's writer is released.
  void let_go();

  OfThisProcess<Engine> engine_;  // outlives the writer
  OfThisProcess<ObjectWriter> writer_;
  std::deque<Lent> lent_;
  std::string url_;
  uint64_t size_bytes_ = 0;
  uint32_t crc32c_ = 0;
  std::optional<Result<ObjectInfo>> outcome_;
  std::optional<std::string> left_behind_;
  bool busy_ = false;  // a thread is inside, perhaps without the GIL
};

}  // namespace headrace::python
