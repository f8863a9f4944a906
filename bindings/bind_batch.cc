#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "batch_handle.h"
#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/store/object_store.h"
#include "headrace/store/reading/split_read.h"
#include "sample.h"
#include "this_process.h"
#include "waiting.h"

namespace headrace::python {
namespace {

// A batch in progress, with everything that must live until no I/O thread uses it any more.
// Thread: confined (the GIL).
class BatchHandle {
 public:
  BatchHandle(std::vector<OpenStore> stores, std::vector<uint32_t> store_of,
              std::shared_ptr<ReadBatch> batch, Origins origins,
              std::vector<std::shared_ptr<HeldBuffer>> buffers)
      : engine_(stores.front().engine),
        batch_(std::move(batch)),
        store_of_(std::move(store_of)),
        origins_(std::move(origins)),
        buffers_(std::move(buffers)) {
    for (OpenStore& each : stores) {
      stores_.emplace_back(std::move(each.store));
      url_prefixes_.push_back(std::move(each.url_prefix));
    }
  }
  BatchHandle(BatchHandle&&) noexcept = default;
  BatchHandle& operator=(BatchHandle&&) = delete;
  // A batch that is no longer wanted is cancelled and waited for, since its buffers go with it.
  ~BatchHandle() {
    if (batch_.usable() && !batch_->done()) drain();
  }

  void cancel() {
    if (batch_.usable()) without_gil([this](MayBlock) { batch_->cancel(); });
  }
  // Cancels and waits without checking for signals, since this is quick.
  void drain() {
    if (!batch_.usable()) return;
    without_gil([this](MayBlock permit) {
      batch_->cancel();
      while (!batch_->wait_until(steady_clock::now() + std::chrono::hours(1), permit)) {
      }
    });
  }
  // Waits; raises the first error.
  void wait() {
    wait_until_done();
    warn();
    raise_first();
  }
  // Waits for at most `at_most_s`, and no longer than a signal may be kept waiting.
  bool poll(double at_most_s) {
    require_usable();
    const auto most = std::min<std::chrono::duration<double>>(
        std::chrono::duration<double>(std::max(0.0, at_most_s)), kWaitSlice);
    const auto until =
        steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(most);
    return without_gil(
        [this, until](MayBlock permit) { return batch_->wait_until(until, permit); });
  }
  bool done() const { return batch_.usable() && batch_->done(); }
  // The CRC of each item, of the kind that start() was asked for; None if the store computes none.
  nb::list sums() {
    wait_until_done();
    nb::list out;
    for (size_t i = 0; i < batch_->size(); ++i) out.append(crc_or_none(batch_->slot(i).sum()));
    return out;
  }
  // The CRC of each place of each item; only for a batch of start_scattered().
  nb::list place_sums() {
    wait_until_done();
    nb::list out;
    for (size_t i = 0; i < batch_->size(); ++i) {
      nb::list sums;
      if (const Scatter* scatter = batch_->slot(i).into.scatter()) {
        for (const Checksum& sum : scatter->sums) sums.append(crc_or_none(sum));
      }
      out.append(std::move(sums));
    }
    return out;
  }

  // Waits, then returns a sample for each object, or its stand-in. Not for scattered ones.
  nb::list take(bool return_errors) {
    wait_until_done();
    if (batch_->size() > 0 && batch_->slot(0).into.scatter()) {
      throw nb::value_error("what is read into several places is no sample");
    }
    if (taken_) throw nb::value_error("the batch was taken already");
    warn();
    taken_ = true;
    if (!return_errors) raise_first();
    const nb::handle sample_type = nb::type<Sample>();
    nb::list out = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(batch_->size())));
    if (!out.is_valid()) throw nb::python_error();
    for (size_t i = 0; i < batch_->size(); ++i) {
      ReadSlot& slot = batch_->slot(i);
      nb::object item = slot.error ? to_exception(*slot.error) : make_sample(sample_type, i, slot);
      PyList_SetItem(out.ptr(), static_cast<Py_ssize_t>(i), item.release().ptr());
    }
    buffers_.clear();  // the samples' now
    return out;
  }

 private:
  void wait_until_done() {
    require_usable();
    wait_interruptibly([this](steady_clock::time_point until,
                              MayBlock permit) { return batch_->wait_until(until, permit); },
                       [this] { batch_->cancel(); });
  }
  static nb::object crc_or_none(const Checksum& sum) {
    return sum.empty() ? nb::none() : nb::object(nb::int_(sum.number()));
  }
  // Passes the engine's warnings to Python's, on a thread that runs Python.
  void warn() const {
    for (const std::string& text : engine_->take_warnings()) {
      const auto warn = [&text] { return PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1); };
      if (in_python(warn) != 0) throw nb::python_error();
    }
  }
  void require_usable() const {
    if (batch_.usable()) return;
    raise(Error(Code::kCancelled, "this read was started before a fork, in the parent process"));
  }

  // No error is dropped silently: a note says how many there were besides the one raised.
  void raise_first() {
    const ReadSlot* first = nullptr;
    size_t failed = 0;
    for (size_t i = 0; i < batch_->size(); ++i) {
      if (!batch_->slot(i).error) continue;
      ++failed;
      // An error with a cause of its own says more than one that was cancelled with the rest.
      if (first == nullptr) first = &batch_->slot(i);
    }
    if (first == nullptr) return;
    const nb::object exception = to_exception(*first->error);
    if (failed > 1) {
      exception.attr("add_note")(cat(failed - 1, failed == 2 ? " other object" : " other objects",
                                     " of the ", batch_->size(),
                                     " that were read together failed, too"));
    }
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
  }

  nb::object make_sample(nb::handle type, size_t index, ReadSlot& slot) {
    nb::object item = nb::inst_alloc(type);
    const bool indexed = origins_.index.is_valid();
    auto* sample = new (nb::inst_ptr<Sample>(item))
        Sample(url_prefixes_[store_of_.empty() ? 0 : store_of_[index]],
               indexed ? origins_.index : std::move(origins_.items[index]),
               indexed ? origins_.positions[index] : kNoPosition, slot.found_generation);
    nb::inst_mark_ready(item);
    if (slot.into.is_callers()) {
      sample->hold(buffers_[indexed ? 0 : index], slot.into);
    } else {
      sample->own(std::move(slot.into.block()));
    }
    return item;
  }

  OfThisProcess<Engine> engine_;  // outlives the stores, which outlive the batch
  std::vector<OfThisProcess<ObjectStore>> stores_;
  OfThisProcess<ReadBatch> batch_;
  std::vector<nb::object> url_prefixes_;  // of the stores
  std::vector<uint32_t> store_of_;        // of each slot; empty: all are in the first
  Origins origins_;
  std::vector<std::shared_ptr<HeldBuffer>> buffers_;  // one each, or with an index one for all
  bool taken_ = false;
};

}  // namespace

nb::object start_batch(std::vector<OpenStore> stores, std::vector<uint32_t> store_of,
                       std::shared_ptr<ReadBatch> batch, Origins origins,
                       std::vector<std::shared_ptr<HeldBuffer>> buffers) {
  std::vector<std::shared_ptr<ObjectStore>> readers;
  readers.reserve(stores.size());
  for (const OpenStore& each : stores) readers.push_back(each.store);
  nb::object handle = nb::cast(
      BatchHandle(std::move(stores), store_of, batch, std::move(origins), std::move(buffers)));
  split_read(readers, store_of, std::move(batch));
  return handle;
}

void bind_batch(Module& module) {
  Class<BatchHandle>(module, "Batch")
      .def("cancel", &BatchHandle::cancel)
      .def("drain", &BatchHandle::drain)
      .def("wait", &BatchHandle::wait)
      .def("done", &BatchHandle::done)
      .def("poll", &BatchHandle::poll, "at_most_s"_a)
      .def("sums", &BatchHandle::sums)
      .def("place_sums", &BatchHandle::place_sums)
      .def("take", &BatchHandle::take, nb::kw_only(), "return_errors"_a);
}

}  // namespace headrace::python
