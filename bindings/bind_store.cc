#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>
#include <vector>

#include "batch_handle.h"
#include "bind.h"
#include "convert.h"
#include "engine_handle.h"
#include "errors.h"
#include "headrace/format/url.h"
#include "headrace/store/object_store.h"
#include "headrace/store/reading/stat_many.h"
#include "headrace/store/upload_sums.h"
#include "listing_handle.h"
#include "object_index.h"
#include "sample.h"
#include "store_options.h"
#include "this_process.h"
#include "waiting.h"
#include "writer_handle.h"

namespace headrace::python {
namespace {

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
  // An item as a target of a read. Borrows the text.
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

  // Reads entries of an index, without a Python object for each. `into` is one buffer,
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
    const ColumnPage page = wait_and_take(store().list({.prefix = prefix,
                                                        .delimiter = delimiter,
                                                        .page_token = page_token,
                                                        .start_offset = start_offset,
                                                        .end_offset = end_offset,
                                                        .max_results = max_results}));
    nb::list objects, prefixes;
    for (ObjectInfo& info : page.objects()) objects.append(nb::cast(std::move(info)));
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
  // A store inherited by a forked child posts to threads that do not exist there, and would never
  // answer.
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
            Error(
                Code::kInvalidArgument,
                "its size, generation and CRC-32C must be known before it is composed with others")
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

void bind_store(Module& module) {
  Class<StoreHandle>(module, "StoreHandle")
      .def(nb::init<const EngineHandle&, std::string_view, const nb::dict&>(), "engine"_a, "url"_a,
           "options"_a)
      .def("start", &StoreHandle::start, "items"_a, "into"_a = nb::none(), "ranges"_a = nb::none(),
           "sum_kind"_a = "")
      .def("start_members", &StoreHandle::start_members, "members"_a)
      .def("start_scattered", &StoreHandle::start_scattered, "items"_a, "places"_a, nb::kw_only(),
           "sum_kind"_a)
      .def("start_indexed", &StoreHandle::start_indexed, "index"_a, "indices"_a,
           "into"_a = nb::none())
      .def("list_page", &StoreHandle::list_page, nb::kw_only(), "prefix"_a, "delimiter"_a,
           "page_token"_a, "start_offset"_a, "end_offset"_a, "max_results"_a)
      .def("start_listing", &StoreHandle::start_listing, nb::kw_only(), "prefix"_a,
           "start_offset"_a, "end_offset"_a, "only_for_reading"_a, "eager"_a,
           "max_pages_in_flight"_a)
      .def("expect_reads", &StoreHandle::expect_reads, "count"_a)
      .def("stat", &StoreHandle::stat, "name"_a)
      .def("stat_many", &StoreHandle::stat_many, "names"_a, "missing_ok"_a)
      .def("write", &StoreHandle::write, "name"_a, "data"_a, nb::kw_only(),
           "if_generation"_a.none(), "content_type"_a, "content_encoding"_a)
      .def("open_writer", &StoreHandle::open_writer, "name"_a, nb::kw_only(),
           "if_generation"_a.none(), "content_type"_a, "content_encoding"_a, "part_bytes"_a.none(),
           "expected_size_bytes"_a.none(), "max_parts_in_flight"_a, "upload"_a)
      .def("list_uploads", &StoreHandle::list_uploads, "prefix"_a)
      .def("abort_upload", &StoreHandle::abort_upload, "name"_a, "upload_id"_a)
      .def("remove", &StoreHandle::remove, "name"_a, nb::kw_only(), "if_generation"_a.none())
      .def("copy", &StoreHandle::copy, "source_name"_a, "source_generation"_a, "name"_a,
           nb::kw_only(), "if_generation"_a.none())
      .def("rename", &StoreHandle::rename, "source_name"_a, "source_generation"_a, "name"_a,
           nb::kw_only(), "if_generation"_a.none())
      .def("compose", &StoreHandle::compose, "sources"_a, "name"_a, nb::kw_only(), "content_type"_a,
           "if_generation"_a.none())
      .def("presigned_url", &StoreHandle::presigned_url, "name"_a, nb::kw_only(), "method"_a,
           "expires_s"_a)
      .def("not_compared", &StoreHandle::not_compared, "name"_a, "kind"_a)
      .def("url_of", &StoreHandle::url_of, "name"_a)
      .def("written_sums", &StoreHandle::written_sums, "in_parts"_a)
      .def_prop_ro("tells_sums", &StoreHandle::tells_sums)
      .def_prop_ro("expected_object_bytes", &StoreHandle::expected_object_bytes)
      .def_prop_ro("useful_ahead", &StoreHandle::useful_ahead)
      .def_prop_ro("useful_in_flight", &StoreHandle::useful_in_flight);

  module.def("expected_bytes", &expected_bytes, "items"_a, "unknown_bytes"_a);
}

}  // namespace headrace::python
