#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "batch_handle.h"
#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/packed_sequences.h"
#include "headrace/dataset/roots.h"
#include "headrace/dataset/shard_samples.h"
#include "headrace/format/url.h"
#include "headrace/store/object_store.h"
#include "headrace/store/reading/scan_tars.h"
#include "object_index.h"
#include "shard_handle.h"
#include "waiting.h"

namespace headrace::python {
namespace {

void require_room(const ObjectIndex& index, const std::vector<size_t>& positions,
                  size_t room_bytes) {
  uint64_t left = room_bytes;
  bool fits = true;
  for (const size_t position : positions) {
    const uint64_t size_bytes = index.size_bytes(position);
    if (size_bytes == kUnknownSize) {
      raise(Error(Code::kInvalidArgument,
                  "its size is not known: read it without `into`, or into an index with its size")
                .with_url(index.url(position)));
    }
    fits = fits && size_bytes <= left;
    left -= std::min(left, size_bytes);
  }
  if (fits && left == 0) return;
  raise(Error(Code::kInvalidArgument, cat("`into` has ", room_bytes, " bytes, which is ",
                                          fits ? cat(left, " more than") : "less than", " the ",
                                          positions.size(), " objects have together")));
}

// Where in `room` each of these entries belongs. Those places may be anywhere, but not outside.
std::vector<std::span<std::byte>> placed(const ObjectIndex& index,
                                         const std::vector<size_t>& positions, nb::handle places,
                                         std::span<std::byte> room) {
  const HeldBuffer held(places, /*writable=*/false);
  const std::span<const int64_t> begins = held.values<int64_t>();
  if (begins.size() != positions.size()) {
    raise(Error(Code::kInternal, "there is not a place for each entry"));
  }
  std::vector<std::span<std::byte>> out;
  for (size_t i = 0; i < positions.size(); ++i) {
    const uint64_t size_bytes = index.size_bytes(positions[i]);
    const auto begin = static_cast<uint64_t>(begins[i]);
    if (begin > room.size() || size_bytes > room.size() - begin) {
      raise(Error(Code::kInternal, "a place lies outside of `into`"));
    }
    out.push_back(room.subspan(begin, size_bytes));
  }
  return out;
}

// The ranges of the file behind these entries, which are windows of its packed sequences; returns
// the entry of each range.
std::vector<size_t> spread(const ObjectIndex& index, const std::vector<size_t>& positions,
                           const PackedSequences& packed, std::vector<ByteRange>& parts) {
  std::vector<size_t> entries;
  for (const size_t position : positions) {
    const ByteRange window = index.range(position).value_or(ByteRange{});
    if (window.end > packed.size_bytes()) {
      raise(Error(Code::kInternal, "an entry lies behind the packed sequences"));
    }
    packed.append_ranges(window, parts);
    entries.resize(parts.size(), position);
  }
  return entries;
}

// Reads the entries of one index, each from the store of its root.
// Thread: confined (the GIL).
class IndexReader {
 public:
  IndexReader(nb::handle_t<IndexHandle> index, const nb::object& stores)
      : index_(nb::borrow(index)) {
    const ObjectIndex& entries = *nb::inst_ptr<IndexHandle>(index_)->index;
    const nb::object sequence = sequence_of(stores, "stores must be a sequence of StoreHandles");
    for (const nb::handle each : nb::iter(sequence)) {
      const OpenStore store = opened_store(each);
      handles_.push_back(nb::borrow(each));
      require_root(entries, store.url_prefix);
    }
    if (handles_.size() != entries.roots().size()) {
      raise(Error(Code::kInvalidArgument,
                  cat("there are ", handles_.size(), " stores for an index of ",
                      entries.roots().size(), " roots")));
    }
  }

  nb::object start(nb::handle indices, const nb::object& into, const PackedSequences* packed,
                   const nb::object& places) const {
    return start_entries(stores(), index_, indices, into, packed, places);
  }

  // The members of the entries, which are whole objects; the errors of entries without members; and
  // warnings about others.
  nb::tuple members(bool skip_errors, nb::handle on_progress) const {
    const ObjectIndex& shards = *nb::inst_ptr<IndexHandle>(index_)->index;
    const std::vector<OpenStore> opened = stores();
    std::vector<std::shared_ptr<ObjectStore>> each_store;
    each_store.reserve(opened.size());
    for (const OpenStore& each : opened) each_store.push_back(each.store);
    std::vector<TarToScan> tars;
    tars.reserve(shards.size());
    for (size_t i = 0; i < shards.size(); ++i) {
      TarToScan tar{.store = shards.root(i), .size_bytes = shards.object_bytes(i)};
      shards.append_name(i, tar.name);
      shards.append_generation(i, tar.generation);
      if (shards.range(i) || tar.size_bytes == kUnknownSize) {
        raise(Error(Code::kInvalidArgument, "a shard is a whole object whose size is known")
                  .with_url(shards.url(i)));
      }
      tars.push_back(std::move(tar));
    }
    const auto done = std::make_shared<std::atomic<size_t>>(0);
    const auto scans =
        scan_tars(std::move(each_store), std::move(tars), skip_errors, useful_in_flight(), done);
    bool ended = false;
    while (!ended) {
      wait_interruptibly(
          [&](steady_clock::time_point until, MayBlock permit) {
            ended = scans->wait_until(until, permit);
            return ended || !on_progress.is_none();
          },
          [&scans] { scans->cancel(); });
      if (!on_progress.is_none()) report(on_progress, done->load(), *scans);
    }
    std::vector<Result<ScannedTar>> answers =
        value_or_raise(without_gil([&](MayBlock permit) { return scans->take(permit); }));
    if (!skip_errors) raise_first(answers);
    std::vector<const TarFiles*> files;
    std::vector<std::string> generations;
    nb::list errors, warnings;
    for (size_t i = 0; i < answers.size(); ++i) {
      Result<ScannedTar>& answer = answers[i];
      for (const std::string& each : answer ? answer->warnings : std::vector<std::string>()) {
        warnings.append(to_str(cat(shards.url(i), ": ", each)));
      }
      if (!answer) errors.append(to_exception(answer.error()));
      files.push_back(answer ? &answer->files : nullptr);
      generations.push_back(answer ? std::move(answer->generation) : "");
    }
    return nb::make_tuple(to_python(value_or_raise(without_gil(
                              [&](MayBlock) { return member_index(shards, files, generations); }))),
                          errors, warnings);
  }

  // The samples `first` to `end` of an entry, which is a shard.
  nb::object start_shard(size_t entry, uint64_t first, uint64_t offset, std::string_view first_key,
                         std::optional<uint64_t> end, std::optional<uint64_t> count,
                         const nb::object& fields, uint64_t seed, uint64_t epoch, bool verify,
                         bool asks_checksum, std::optional<uint64_t> likely_end_offset,
                         uint64_t piece_bytes, const PieceWindowHandle& window,
                         uint64_t max_ready_bytes) const {
    const ObjectIndex& shards = *nb::inst_ptr<IndexHandle>(index_)->index;
    const size_t at = checked_position(static_cast<int64_t>(entry), shards.size());
    ShardToRead shard{.verify = verify,
                      .asks_checksum = asks_checksum,
                      .first = first,
                      .offset = offset,
                      .first_key = std::string(first_key),
                      .end = end.value_or(UINT64_MAX),
                      .count = count.value_or(UINT64_MAX),
                      .likely_end_offset = likely_end_offset.value_or(UINT64_MAX),
                      .piece_bytes = std::max<uint64_t>(piece_bytes, 1),
                      .window = window.window,
                      .max_ready_bytes = max_ready_bytes};
    for_each(fields, [&](nb::handle field) { shard.fields.emplace_back(utf8_of(field)); });
    return python::start_shard(stores()[shards.root(at)], index_, at, std::move(shard), seed,
                               epoch);
  }

  // An average of the known ones, so that a store of large objects counts.
  uint64_t expected_object_bytes() const {
    uint64_t most = 0;
    for (const OpenStore& each : stores()) {
      most = std::max(most, each.store->expected_object_bytes());
    }
    return most;
  }

  // Stores of one provider are assumed to share a host, whose limit applies to all of them.
  uint64_t useful_in_flight() const { return sum_of_hosts(&ObjectStore::useful_in_flight); }
  uint64_t useful_ahead() const { return sum_of_hosts(&ObjectStore::useful_ahead); }

 private:
  uint64_t sum_of_hosts(uint64_t (ObjectStore::*number)() const) const {
    std::array<uint64_t, 4> most{};
    for (const OpenStore& each : stores()) {
      const Result<Url> url = parse_url(utf8_of(each.url_prefix));
      const size_t scheme = url ? static_cast<size_t>(url->scheme) % most.size() : 0;
      most[scheme] = std::max(most[scheme], (*each.store.*number)());
    }
    uint64_t sum = 0;
    for (const uint64_t each : most) sum += each;
    return sum;
  }

  std::vector<OpenStore> stores() const {
    std::vector<OpenStore> out;
    out.reserve(handles_.size());
    for (const nb::object& each : handles_) out.push_back(opened_store(each));
    return out;
  }

  // An exception of the callback ends the scans.
  static void report(nb::handle on_progress, size_t done_count,
                     Pending<std::vector<Result<ScannedTar>>>& scans) {
    try {
      const nb::int_ number(done_count);
      in_python([&] { return on_progress(number); });
    } catch (...) {
      without_gil([&scans](MayBlock permit) {
        scans.cancel();
        static_cast<void>(scans.take(permit));
      });
      throw;
    }
  }

  // One that was cancelled with the rest says less than the reason why.
  static void raise_first(const std::vector<Result<ScannedTar>>& answers) {
    const Error* first = nullptr;
    for (const Result<ScannedTar>& answer : answers) {
      if (answer) continue;
      if (first == nullptr || first->code() == Code::kCancelled) first = &answer.error();
    }
    if (first != nullptr) raise(*first);
  }

  // An entry must not be read from a store that does not have it.
  void require_root(const ObjectIndex& entries, const nb::object& url_prefix) const {
    const size_t at = handles_.size() - 1;
    if (at >= entries.roots().size() || entries.roots()[at].empty()) return;
    const std::string root = value_or_raise(normal_root(utf8_of(url_prefix)));
    if (root == entries.roots()[at]) return;
    raise(Error(Code::kInvalidArgument,
                cat("root ", at, " of the index is ", entries.roots()[at], ", and the store is ",
                    root, ": index.rebased() and index.at() give one that fits")));
  }

  nb::object index_;
  std::vector<nb::object> handles_;
};

}  // namespace

nb::object start_entries(std::vector<OpenStore> stores, nb::handle index, nb::handle indices,
                         const nb::object& into, const PackedSequences* packed,
                         const nb::object& places) {
  const ObjectIndex& entries = *nb::inst_ptr<IndexHandle>(index)->index;
  Origins origins{.index = nb::borrow(index), .positions = to_positions(indices, entries.size())};
  if (stores.size() < entries.roots().size()) {
    raise(Error(Code::kInvalidArgument, cat("the index has ", entries.roots().size(),
                                            " roots, and one store cannot read them all")));
  }
  std::vector<std::shared_ptr<HeldBuffer>> buffers;
  std::span<std::byte> room;
  std::vector<std::span<std::byte>> into_places;
  if (!into.is_none()) {
    buffers.push_back(std::make_shared<HeldBuffer>(into, /*writable=*/true));
    room = buffers[0]->bytes();
    if (places.is_none()) {
      require_room(entries, origins.positions, room.size());
    } else {
      into_places = placed(entries, origins.positions, places, room);
    }
  }
  std::vector<ByteRange> parts;
  if (packed != nullptr) origins.positions = spread(entries, origins.positions, *packed, parts);
  const size_t count = origins.positions.size();
  std::shared_ptr<ReadBatch> batch = ReadBatch::create(count, count * 64);
  std::vector<uint32_t> store_of;
  if (stores.size() > 1) store_of.reserve(count);
  std::string name, generation;
  for (size_t i = 0; i < count; ++i) {
    const size_t position = origins.positions[i];
    name.clear();
    entries.append_name(position, name);
    generation.clear();
    entries.append_generation(position, generation);
    ReadTarget target{
        .name = name, .generation = generation, .size_bytes = entries.object_bytes(position)};
    if (packed != nullptr) {
      target.range = parts[i];
    } else if (entries.has_ranges()) {
      target.range = entries.range(position);
    }
    (target.range ? target.range_checksum : target.checksum) = entries.checksum(position);
    if (!into_places.empty()) {
      target.into = into_places[i];
      target.has_into = true;
    } else if (!buffers.empty()) {
      const uint64_t size_bytes =
          packed != nullptr ? parts[i].size_bytes() : entries.size_bytes(position);
      target.into = room.first(size_bytes);
      target.has_into = true;
      room = room.subspan(size_bytes);
    }
    if (stores.size() > 1) store_of.push_back(entries.root(position));
    batch->add(target);
  }
  return start_batch(std::move(stores), std::move(store_of), std::move(batch), std::move(origins),
                     std::move(buffers));
}

void bind_index_reader(Module& module) {
  Class<IndexReader>(module, "IndexReader")
      .def(nb::init<nb::handle_t<IndexHandle>, const nb::object&>(), "index"_a, "stores"_a)
      .def("start", &IndexReader::start, "indices"_a, "into"_a = nb::none(),
           "packed"_a.none() = nb::none(), "places"_a = nb::none())
      .def("members", &IndexReader::members, "skip_errors"_a, "on_progress"_a.none() = nb::none())
      .def("start_shard", &IndexReader::start_shard, "entry"_a, nb::kw_only(), "first"_a,
           "offset"_a, "first_key"_a, "end"_a.none(), "count"_a.none(), "fields"_a, "seed"_a,
           "epoch"_a, "verify"_a, "asks_checksum"_a, "likely_end_offset"_a.none(), "piece_bytes"_a,
           "window"_a, "max_ready_bytes"_a)
      .def_prop_ro("expected_object_bytes", &IndexReader::expected_object_bytes)
      .def_prop_ro("useful_ahead", &IndexReader::useful_ahead)
      .def_prop_ro("useful_in_flight", &IndexReader::useful_in_flight);
}

}  // namespace headrace::python
