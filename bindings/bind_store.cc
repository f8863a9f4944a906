#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include "batch_handle.h"
#include "engine_handle.h"
#include "headrace/format/url.h"
#include "headrace/store/object_store.h"
#include "headrace/store/reading/split_read.h"
#include "headrace/store/reading/stat_many.h"
#include "headrace/store/upload_sums.h"
#include "listing_handle.h"
#include "object_index.h"
#include "sample.h"
#include "store_options.h"
#include "writer_handle.h"

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
  // Waits at most so long, and no longer than a signal may be kept waiting.
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
  // The same of each place of each item, of a batch that start_scattered() returned.
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

using PyRange = std::pair<uint64_t, std::optional<uint64_t>>;
using PyPlace = std::tuple<uint64_t, uint64_t, nb::object>;  // begin, end and memory

// A sequence of names and ObjectInfos, which it keeps. Raises TypeError for anything else.
class Items {
 public:
  explicit Items(const nb::object& items) {
    const nb::object sequence =
        sequence_of(items, "names must be a sequence of names and ObjectInfos");
    // Taking a buffer may run Python code, which could change a list.
    tuple_ = nb::steal(in_python([&] { return PySequence_Tuple(sequence.ptr()); }));
    if (!tuple_.is_valid()) throw nb::python_error();
  }

  size_t size() const { return static_cast<size_t>(PyTuple_Size(tuple_.ptr())); }
  nb::handle operator[](size_t i) const {
    return PyTuple_GetItem(tuple_.ptr(), static_cast<Py_ssize_t>(i));
  }
  // What its name, or its ObjectInfo, says. Borrows the text.
  ReadTarget target(size_t i) const {
    const nb::handle item = (*this)[i];
    if (PyUnicode_Check(item.ptr())) return {.name = utf8_of(item)};
    if (!nb::handle(item.type()).is(nb::type<ObjectInfo>())) {
      raise_type_error("a name or an ObjectInfo is needed, not %.100s", type_name_of(item).c_str());
    }
    const ObjectInfo& info = *nb::inst_ptr<ObjectInfo>(item);
    return {.name = info.name,
            .generation = info.generation,
            .size_bytes = info.size_bytes,
            .checksum = info.checksum};
  }

 private:
  nb::object tuple_;
};

// Thread: confined (the GIL).
class StoreHandle {
 public:
  StoreHandle(const EngineHandle& engine, std::string_view url, const nb::dict& options)
      : engine_(engine.shared()) {
    const Url parsed = value_or_raise(parse_url(url));
    const StoreOptions store_options = to_store_options(options);
    store_ = OfThisProcess(value_or_raise(
        without_gil([&](MayBlock) { return engine_->open(parsed, store_options); })));
    url_prefix_ = to_str(store().url_of(""));
  }

  // `ranges` is None, or a (begin, end) for each item. An end of None means the end of the object.
  nb::object start(const nb::object& items, const nb::object& into,
                   const std::optional<std::vector<PyRange>>& ranges,
                   std::string_view sum_kind) const {
    const Items all(items);
    const size_t count = all.size();
    std::vector<std::shared_ptr<HeldBuffer>> buffers = hold_buffers(into, count);
    if (ranges && ranges->size() != count) {
      raise(Error(Code::kInvalidArgument,
                  cat("there are ", ranges->size(), " ranges for ", count, " objects")));
    }
    Origins origins;
    origins.items.reserve(count);
    std::shared_ptr<ReadBatch> batch = ReadBatch::create(count, count * 64);
    for (size_t i = 0; i < count; ++i) {
      ReadTarget target = all.target(i);
      if (ranges) {
        const auto& [begin, end] = (*ranges)[i];
        target.range = ByteRange{begin, end.value_or(kUnknownSize)};
        target.wanted_sum = checksum_kind(sum_kind).value_or(ChecksumKind::kNone);
      }
      if (!buffers.empty()) {
        target.into = buffers[i]->bytes();
        target.has_into = true;
      }
      batch->add(target);
      origins.items.push_back(nb::borrow(all[i]));
    }
    return start_batch({opened()}, {}, std::move(batch), std::move(origins), std::move(buffers));
  }

  // Reads members of shards: the names of both, pair by pair.
  nb::object start_members(const std::vector<std::pair<Text, Text>>& members) const {
    Origins origins;
    origins.items.reserve(members.size());
    std::shared_ptr<ReadBatch> batch = ReadBatch::create(members.size(), members.size() * 64);
    for (const auto& [shard, member] : members) {
      const std::string shard_name = shard, member_name = member;
      batch->add({.name = shard_name, .member = member_name});
      origins.items.push_back(to_str(cat(shard_name, "/", member_name)));
    }
    return start_batch({opened()}, {}, std::move(batch), std::move(origins), {});
  }

  // Reads one range of each item, into places in the order of the object.
  nb::object start_scattered(const nb::object& items,
                             const std::vector<std::vector<PyPlace>>& places,
                             std::string_view sum_kind) const {
    const Items all(items);
    if (places.size() != all.size()) {
      raise(Error(Code::kInvalidArgument,
                  cat("there are places for ", places.size(), " of ", all.size(), " objects")));
    }
    std::vector<std::shared_ptr<HeldBuffer>> buffers;
    std::shared_ptr<ReadBatch> batch = ReadBatch::create(all.size(), all.size() * 64);
    std::vector<Place> filled;
    for (size_t i = 0; i < all.size(); ++i) {
      filled.clear();
      for (const auto& [begin, end, memory] : places[i]) {
        buffers.push_back(std::make_shared<HeldBuffer>(memory, /*writable=*/true));
        filled.push_back({.begin = begin, .into = buffers.back()->bytes()});
        if (filled.back().end() != end) {
          raise(
              Error(Code::kInvalidArgument, cat("the place for the bytes [", begin, ", ", end,
                                                ") holds ", filled.back().into.size(), " bytes")));
        }
      }
      ReadTarget target = all.target(i);
      target.range = value_or_raise(range_of(filled));
      target.places = filled;
      target.wanted_sum = checksum_kind(sum_kind).value_or(ChecksumKind::kNone);
      batch->add(target);
    }
    return start_batch({opened()}, {}, std::move(batch), {}, std::move(buffers));
  }

  // The same for entries of an index, without a Python object for each. `into` is one buffer,
  // filled entry after entry.
  nb::object start_indexed(nb::handle_t<IndexHandle> index, nb::handle indices,
                           const nb::object& into) const {
    return start_entries({opened()}, index, indices, into);
  }

  OpenStore opened() const {
    store();
    return {engine_.shared(), store_.shared(), url_prefix_};
  }

  nb::tuple list_page(Text prefix, Text delimiter, Text page_token, Text start_offset,
                      Text end_offset, uint32_t max_results) const {
    ObjectPage page = wait_and_take(store().list({.prefix = prefix,
                                                  .delimiter = delimiter,
                                                  .page_token = page_token,
                                                  .start_offset = start_offset,
                                                  .end_offset = end_offset,
                                                  .max_results = max_results}));
    nb::list objects, prefixes;
    for (ObjectInfo& info : page.objects) objects.append(nb::cast(std::move(info)));
    for (const std::string& each : page.prefixes) prefixes.append(to_str(each));
    return nb::make_tuple(objects, prefixes, to_str(page.next_page_token), page.placeholders);
  }

  ListingHandle start_listing(Text prefix, Text start_offset, Text end_offset,
                              bool only_for_reading, bool eager,
                              uint32_t max_pages_in_flight) const {
    store();
    return {engine_.shared(),
            Listing::start(store_.shared(),
                           {.prefix = prefix,
                            .start_offset = start_offset,
                            .end_offset = end_offset,
                            .fields = only_for_reading ? ListFields::kReading : ListFields::kAll},
                           {.max_pages_in_flight = max_pages_in_flight, .eager = eager})};
  }

  void expect_reads(uint32_t count) const { store().expect_reads(count); }

  ObjectInfo stat(Text name) const { return wait_and_take(store().stat(name)); }

  nb::list stat_many(const nb::object& names, bool missing_ok) const {
    store();
    const nb::object sequence = sequence_of(names, "names must be a sequence of str");
    std::vector<std::string> wanted;
    for (const nb::handle name : nb::iter(sequence)) wanted.push_back(Text{name});
    // Enough to keep as many in flight as the host tolerates, with the next ones at hand.
    std::vector<Result<ObjectInfo>> found = wait_and_take(headrace::stat_many(
        store_.shared(), std::move(wanted), missing_ok, 2 * store().useful_in_flight()));
    nb::list out;
    const Error* first = nullptr;
    for (Result<ObjectInfo>& each : found) {
      if (each) {
        out.append(nb::cast(std::move(*each)));
        continue;
      }
      out.append(nb::none());
      if (missing_ok && each.error().code() == Code::kNotFound) continue;
      // A request that was never sent says less than the reason why.
      if (first == nullptr || first->code() == Code::kCancelled) first = &each.error();
    }
    if (first != nullptr) raise(*first);
    return out;
  }

  ObjectInfo write(Text name, nb::handle data, std::optional<std::string> if_generation,
                   std::string content_type, std::string content_encoding) const {
    const HeldBuffer buffer(data, /*writable=*/false);
    return wait_and_take(store().write({.name = name,
                                        .content_type = std::move(content_type),
                                        .content_encoding = std::move(content_encoding),
                                        .precondition = {std::move(if_generation)}},
                                       buffer.bytes()));
  }

  void remove(Text name, std::optional<std::string> if_generation) const {
    wait_and_take(store().remove(name, {std::move(if_generation)}));
  }

  ObjectInfo copy(Text source_name, std::string source_generation, Text name,
                  std::optional<std::string> if_generation) const {
    return wait_and_take(store().copy({.source_name = source_name,
                                       .source_generation = std::move(source_generation),
                                       .name = name,
                                       .precondition = {std::move(if_generation)}}));
  }

  ObjectInfo rename(Text source_name, std::string source_generation, Text name,
                    std::optional<std::string> if_generation) const {
    return wait_and_take(store().rename({.source_name = source_name,
                                         .source_generation = std::move(source_generation),
                                         .name = name,
                                         .precondition = {std::move(if_generation)}}));
  }

  ObjectInfo compose(const std::vector<ObjectInfo>& sources, Text name, std::string content_type,
                     std::optional<std::string> if_generation) const {
    return wait_and_take(store().compose({.sources = to_compose_sources(sources),
                                          .name = name,
                                          .content_type = std::move(content_type),
                                          .precondition = {std::move(if_generation)}}));
  }

  WriterHandle open_writer(Text name, std::optional<std::string> if_generation,
                           std::string content_type, std::string content_encoding,
                           std::optional<uint64_t> part_bytes,
                           std::optional<uint64_t> expected_size_bytes,
                           uint32_t max_parts_in_flight, std::string_view upload) const {
    store();
    std::string text = name;
    UploadMethod method = UploadMethod::kDefault;
    for (const UploadMethod each :
         {UploadMethod::kParts, UploadMethod::kMultipart, UploadMethod::kResumable}) {
      if (upload == to_string(each)) method = each;
    }
    return {
        engine_.shared(), value_or_raise(without_gil([&](MayBlock) {
          return store().open_writer({.object = {.name = std::move(text),
                                                 .content_type = std::move(content_type),
                                                 .content_encoding = std::move(content_encoding),
                                                 .precondition = {std::move(if_generation)}},
                                      .method = method,
                                      .part_bytes = part_bytes.value_or(0),
                                      .expected_size_bytes = expected_size_bytes,
                                      .max_parts_in_flight = max_parts_in_flight});
        }))};
  }

  nb::list list_uploads(Text given) const {
    const std::string prefix = given;
    nb::list uploads;
    UploadsPage page;
    do {
      UploadsPage next =
          wait_and_take(store().list_multipart(prefix, page.next_name, page.next_upload_id));
      if (!next.next_name.empty() && next.next_name == page.next_name &&
          next.next_upload_id == page.next_upload_id) {
        raise(Error(Code::kCorrupt, "a page of unfinished uploads is followed by itself")
                  .with_url(store().url_of("")));
      }
      page = std::move(next);
      for (const UnfinishedUpload& each : page.uploads) {
        uploads.append(
            nb::make_tuple(to_str(each.name), to_str(each.upload_id), to_str(each.initiated)));
      }
    } while (!page.next_name.empty());
    return uploads;
  }

  bool abort_upload(Text name, std::string upload_id) const {
    return wait_and_take(store().abort_multipart(name, std::move(upload_id)));
  }

  nb::str presigned_url(Text name, std::string method, uint32_t expires_s) const {
    return to_str(
        wait_and_take(store().presigned_url({.name = name,
                                             .method = std::move(method),
                                             .valid_for = std::chrono::seconds(expires_s)})));
  }

  void not_compared(Text name, std::string_view kind) const {
    store().not_compared(std::string(name), checksum_kind(kind).value_or(ChecksumKind::kNone));
  }
  nb::str url_of(Text name) const { return to_str(store().url_of(std::string(name))); }
  std::optional<std::string_view> written_sums(bool in_parts) const {
    const std::optional<SumLevel> level = store().written_sums(in_parts);
    return level ? std::optional(to_string(*level)) : std::nullopt;
  }
  bool tells_sums() const { return store().tells_sums(); }
  uint64_t expected_object_bytes() const { return store().expected_object_bytes(); }
  uint64_t useful_in_flight() const { return store().useful_in_flight(); }
  uint64_t useful_ahead() const { return store().useful_ahead(); }

 private:
  // What a forked child inherits posts to threads that do not exist there, so no answer would ever
  // come.
  ObjectStore& store() const {
    if (!store_.usable()) {
      raise(Error(Code::kCancelled, "it was opened before a fork, in the parent process"));
    }
    return *store_;
  }

  std::vector<ComposeSource> to_compose_sources(const std::vector<ObjectInfo>& infos) const {
    std::vector<ComposeSource> sources;
    sources.reserve(infos.size());
    for (const ObjectInfo& info : infos) {
      if (info.generation.empty() || !info.crc32c() || info.size_bytes == kUnknownSize) {
        raise(
            Error(Code::kInvalidArgument,
                  "its size, generation and CRC-32C must be known before it is joined with others")
                .with_url(store().url_of(info.name)));
      }
      sources.push_back({.name = info.name,
                         .generation = info.generation,
                         .size_bytes = info.size_bytes,
                         .crc32c = *info.crc32c()});
    }
    return sources;
  }

  static std::vector<std::shared_ptr<HeldBuffer>> hold_buffers(const nb::object& into,
                                                               size_t count) {
    std::vector<std::shared_ptr<HeldBuffer>> buffers;
    if (into.is_none()) return buffers;
    buffers.reserve(count);
    for_each(into, [&buffers](nb::handle each) {
      buffers.push_back(std::make_shared<HeldBuffer>(each, /*writable=*/true));
    });
    if (buffers.size() != count) {
      raise(Error(Code::kInvalidArgument,
                  cat("`into` has ", buffers.size(), " buffers for ", count, " objects")));
    }
    return buffers;
  }

  OfThisProcess<Engine> engine_;  // outlives the store
  OfThisProcess<ObjectStore> store_;
  nb::object url_prefix_;
};

// How many bytes reading `items` will bring: listed sizes, plus `unknown_bytes` for each plain
// name.
uint64_t expected_bytes(const nb::object& items, uint64_t unknown_bytes) {
  const nb::handle info_type = nb::type<ObjectInfo>();
  uint64_t total = 0;
  for (const nb::handle item : nb::iter(items)) {
    const uint64_t size_bytes = nb::handle(item.type()).is(info_type)
                                    ? nb::inst_ptr<ObjectInfo>(item)->size_bytes
                                    : kUnknownSize;
    total += size_bytes == kUnknownSize ? unknown_bytes : size_bytes;
  }
  return total;
}

}  // namespace

OpenStore opened_store(nb::handle store_handle) {
  if (!nb::isinstance<StoreHandle>(store_handle)) {
    raise_type_error("a StoreHandle is needed, not %.100s", type_name_of(store_handle).c_str());
  }
  return nb::inst_ptr<StoreHandle>(store_handle)->opened();
}

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

void bind_store(nb::module_& module) {
  nb::class_<BatchHandle>(module, "Batch", "Objects that are being read together.")
      .def("cancel", &BatchHandle::cancel, "Asks for an early end.")
      .def("drain", &BatchHandle::drain, "Cancels, and waits until the engine is done with it.")
      .def("wait", &BatchHandle::wait, "Waits; raises the first error.")
      .def("done", &BatchHandle::done)
      .def(
          "poll", &BatchHandle::poll, nb::arg("at_most_s"),
          "Waits at most so long, and at most 50 ms; whether all is done. Signals are the caller's "
          "business.")
      .def("sums", &BatchHandle::sums, nb::sig("def sums(self) -> list[int | None]"),
           "Waits; the CRC of the bytes that came for each range.")
      .def("place_sums", &BatchHandle::place_sums,
           nb::sig("def place_sums(self) -> list[list[int | None]]"),
           "Waits; the CRC of the bytes that came for each place of each range.")
      .def("take", &BatchHandle::take, nb::kw_only(), nb::arg("return_errors"),
           nb::sig("def take(self, *, return_errors: bool) -> list[Sample]"),
           "Waits; a sample for each object. Raises the first error, or returns errors in place.");

  nb::class_<StoreHandle>(module, "StoreHandle", "A store of one engine.")
      .def(nb::init<const EngineHandle&, std::string_view, const nb::dict&>(), nb::arg("engine"),
           nb::arg("url"), nb::arg("options"),
           nb::sig("def __init__(self, engine: Engine, url: str, "
                   "options: dict[str, typing.Any]) -> None"))
      .def("start", &StoreHandle::start, nb::arg("items"), nb::arg("into") = nb::none(),
           nb::arg("ranges") = nb::none(), nb::arg("sum_kind") = "",
           nb::sig("def start(self, items: collections.abc.Sequence[str | ObjectInfo], "
                   "into: collections.abc.Sequence[typing_extensions.Buffer] | None = None, "
                   "ranges: collections.abc.Sequence[tuple[int, int | None]] | None = None, "
                   "sum_kind: str = '') -> Batch"),
           "Starts reading; the engine sums ranges by a CRC of this kind, for `Batch.sums`.")
      .def("start_members", &StoreHandle::start_members, nb::arg("members"),
           nb::sig("def start_members(self, members: collections.abc.Sequence[tuple[str, str]]) "
                   "-> Batch"),
           "Starts reading members of shards, each named by the shard's name and its own.")
      .def("start_scattered", &StoreHandle::start_scattered, nb::arg("items"), nb::arg("places"),
           nb::kw_only(), nb::arg("sum_kind"),
           nb::sig("def start_scattered(self, "
                   "items: collections.abc.Sequence[str | ObjectInfo], "
                   "places: collections.abc.Sequence["
                   "collections.abc.Sequence[tuple[int, int, typing_extensions.Buffer]]], *, "
                   "sum_kind: str) -> Batch"),
           "Starts reading one range of each, into places that are given as begin, end and memory; "
           "the engine sums each by a CRC of this kind, for `Batch.place_sums`.")
      .def("start_indexed", &StoreHandle::start_indexed, nb::arg("index"), nb::arg("indices"),
           nb::arg("into") = nb::none(),
           nb::sig("def start_indexed(self, index: ObjectIndex, "
                   "indices: collections.abc.Sequence[int] | typing_extensions.Buffer, "
                   "into: typing_extensions.Buffer | None = None) -> Batch"),
           "Starts reading these objects; `into` is filled object after object, exactly.")
      .def("list_page", &StoreHandle::list_page, nb::kw_only(), nb::arg("prefix"),
           nb::arg("delimiter"), nb::arg("page_token"), nb::arg("start_offset"),
           nb::arg("end_offset"), nb::arg("max_results"),
           nb::sig("def list_page(self, *, prefix: str, delimiter: str, page_token: str, "
                   "start_offset: str, end_offset: str, max_results: int) "
                   "-> tuple[list[ObjectInfo], list[str], str, int]"))
      .def("start_listing", &StoreHandle::start_listing, nb::kw_only(), nb::arg("prefix"),
           nb::arg("start_offset"), nb::arg("end_offset"), nb::arg("only_for_reading"),
           nb::arg("eager"), nb::arg("max_pages_in_flight"))
      .def("expect_reads", &StoreHandle::expect_reads, nb::arg("count"),
           "So many reads are about to come: opens connections for them; see `Store`.")
      .def("stat", &StoreHandle::stat, nb::arg("name"))
      .def("stat_many", &StoreHandle::stat_many, nb::arg("names"), nb::arg("missing_ok"),
           nb::sig("def stat_many(self, names: collections.abc.Sequence[str], missing_ok: bool) "
                   "-> list[ObjectInfo | None]"))
      .def("write", &StoreHandle::write, nb::arg("name"), nb::arg("data"), nb::kw_only(),
           nb::arg("if_generation").none(), nb::arg("content_type"), nb::arg("content_encoding"),
           nb::sig("def write(self, name: str, data: typing_extensions.Buffer, *, "
                   "if_generation: str | None, content_type: str, content_encoding: str) "
                   "-> ObjectInfo"))
      .def("open_writer", &StoreHandle::open_writer, nb::arg("name"), nb::kw_only(),
           nb::arg("if_generation").none(), nb::arg("content_type"), nb::arg("content_encoding"),
           nb::arg("part_bytes").none(), nb::arg("expected_size_bytes").none(),
           nb::arg("max_parts_in_flight"), nb::arg("upload"))
      .def("list_uploads", &StoreHandle::list_uploads, nb::arg("prefix"),
           nb::sig("def list_uploads(self, prefix: str) -> list[tuple[str, str, str]]"),
           "Name, id and time of the multipart uploads that are neither completed nor aborted.")
      .def("abort_upload", &StoreHandle::abort_upload, nb::arg("name"), nb::arg("upload_id"),
           "Gives a multipart upload up, with its parts. False if it was not there any more.")
      .def("remove", &StoreHandle::remove, nb::arg("name"), nb::kw_only(),
           nb::arg("if_generation").none())
      .def("copy", &StoreHandle::copy, nb::arg("source_name"), nb::arg("source_generation"),
           nb::arg("name"), nb::kw_only(), nb::arg("if_generation").none())
      .def("rename", &StoreHandle::rename, nb::arg("source_name"), nb::arg("source_generation"),
           nb::arg("name"), nb::kw_only(), nb::arg("if_generation").none())
      .def("compose", &StoreHandle::compose, nb::arg("sources"), nb::arg("name"), nb::kw_only(),
           nb::arg("content_type"), nb::arg("if_generation").none())
      .def("presigned_url", &StoreHandle::presigned_url, nb::arg("name"), nb::kw_only(),
           nb::arg("method"), nb::arg("expires_s"))
      .def("not_compared", &StoreHandle::not_compared, nb::arg("name"), nb::arg("kind"),
           "Logs, once for each host, that an object was read whole and compared with nothing.")
      .def("url_of", &StoreHandle::url_of, nb::arg("name"))
      .def("written_sums", &StoreHandle::written_sums, nb::arg("in_parts"))
      .def_prop_ro("tells_sums", &StoreHandle::tells_sums)
      .def_prop_ro("expected_object_bytes", &StoreHandle::expected_object_bytes)
      .def_prop_ro("useful_ahead", &StoreHandle::useful_ahead)
      .def_prop_ro("useful_in_flight", &StoreHandle::useful_in_flight);

  module.def("expected_bytes", &expected_bytes, nb::arg("items"), nb::arg("unknown_bytes"),
             nb::sig("def expected_bytes(items: collections.abc.Sequence[str | ObjectInfo], "
                     "unknown_bytes: int) -> int"));
}

}  // namespace headrace::python
