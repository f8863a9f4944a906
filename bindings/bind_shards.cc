// Members and samples of shards.
#include <algorithm>
#include <vector>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/sample_seeds.h"
#include "headrace/dataset/shard_samples.h"
#include "headrace/shards/shard_read.h"
#include "object_index.h"
#include "sample.h"
#include "shard_handle.h"
#include "this_process.h"
#include "waiting.h"

namespace headrace::python {
namespace {

nb::tuple sample_index_of(const IndexHandle& members, bool skip_errors) {
  SampleIndex samples = value_or_raise(
      without_gil([&](MayBlock) { return sample_index(*members.index, skip_errors); }));
  nb::list errors;
  for (const Error& error : samples.errors) errors.append(to_exception(error));
  return nb::make_tuple(to_python(std::move(samples.index)), errors, samples.left_out,
                        to_str(samples.first_left_out));
}

nb::object with_fields_of(const IndexHandle& samples, const nb::object& fields) {
  std::vector<std::string> names;
  for_each(fields, [&names](nb::handle field) { names.emplace_back(utf8_of(field)); });
  return to_python(
      value_or_raise(without_gil([&](MayBlock) { return with_fields(*samples.index, names); })));
}

nb::tuple shards_of_samples_in(const IndexHandle& samples) {
  SampledShards shards =
      value_or_raise(without_gil([&](MayBlock) { return shards_of_samples(*samples.index); }));
  nb::list firsts;
  for (const int64_t first : shards.firsts) firsts.append(first);
  return nb::make_tuple(to_python(std::move(shards.index)), firsts);
}

nb::list sample_seeds(uint64_t seed, uint64_t epoch, uint64_t begin, uint64_t end) {
  const SampleSeeds seeds(seed, epoch);
  nb::list out;
  for (uint64_t position = begin; position < end; ++position) out.append(seeds.at(position));
  return out;
}

// A store that reads changed objects anew (on_change="reread") gives other bytes of the same range.
void require_version(const ObjectIndex& index, size_t i, std::string_view found) {
  std::string indexed;
  index.append_generation(i, indexed);
  if (found.empty() || indexed.empty() || found == indexed) return;
  raise(
      Error(Code::kPreconditionFailed,
            cat("has changed since it was indexed, and its samples are elsewhere now: generation ",
                indexed, " then, ", found, " now"))
          .with_url(index.url(i)));
}

nb::dict split_sample(nb::handle_t<Sample> whole) {
  Sample& sample = *nb::inst_ptr<Sample>(whole);
  if (!sample.position() || !nb::isinstance<IndexHandle>(sample.origin())) {
    raise(Error(Code::kInvalidArgument, "it was read by no index of samples"));
  }
  const ObjectIndex& index = *nb::inst_ptr<IndexHandle>(sample.origin())->index;
  require_version(index, *sample.position(), sample.generation());
  const SampleFields fields = value_or_raise(sample_fields(index, *sample.position()));
  nb::dict out;
  out["__key__"] = to_str(fields.key);
  out["__url__"] = sample.url();
  std::string_view names = fields.names;
  for (const ByteRange& place : fields.places) {
    const std::string_view name = names.substr(0, names.find('/'));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    if (place.end > sample.bytes().size()) {
      raise(Error(Code::kCorrupt, cat("the field '", name, "' of the sample '", fields.key,
                                      "' ends behind the bytes that were read"))
                .with_url(index.url(*sample.position())));
    }
    nb::object part = nb::inst_alloc(nb::type<Sample>());
    new (nb::inst_ptr<Sample>(part))
        Sample(sample, nb::borrow(whole), sample.bytes().subspan(place.begin, place.size_bytes()));
    nb::inst_mark_ready(part);
    out[to_str(name)] = part;
  }
  return out;
}

// The samples of one shard, while it is read. Thread: confined (the GIL).
class ShardReadHandle {
 public:
  ShardReadHandle(OpenStore store, nb::object index, size_t entry, ShardToRead shard,
                  const SampleSeeds& seeds)
      : engine_(std::move(store.engine)),
        store_(shard.store),
        read_(ShardRead::start(std::move(shard))),
        url_prefix_(std::move(store.url_prefix)),
        index_(std::move(index)),
        entry_(entry),
        seeds_(seeds),
        url_(to_str(nb::inst_ptr<IndexHandle>(index_)->index->url(entry))) {}
  ShardReadHandle(ShardReadHandle&&) noexcept = default;
  ShardReadHandle& operator=(ShardReadHandle&&) = delete;
  ~ShardReadHandle() { close(); }

  // Ends it, and waits until the engine is done with it. A thread that waits in take() ends, too.
  void close() {
    if (!read_.usable()) return;
    OfThisProcess<ShardRead> read = std::exchange(read_, {});
    without_gil([&read](MayBlock permit) {
      read->close(permit);
      read = {};
    });
  }
  void cancel() {
    if (read_.usable()) without_gil([read = read_.shared()](MayBlock) { read->cancel(); });
  }

  nb::list take() {
    require_usable();
    // Another thread may close this one's handle while it waits.
    const std::shared_ptr<ShardRead> read = read_.shared();
    wait_interruptibly([&read](steady_clock::time_point until,
                               MayBlock permit) { return read->wait_until(until, permit); },
                       [&read] { read->cancel(); });
    std::vector<ShardSample> samples =
        value_or_raise(without_gil([&read](MayBlock) { return read->take(); }));
    nb::list out;
    for (ShardSample& sample : samples) out.append(to_tuple(*read, sample));
    return out;
  }

  nb::list warnings() {
    require_usable();
    nb::list out;
    for (const std::string& each : read_->warnings())
      out.append(to_str(cat(url_.c_str(), ": ", each)));
    return out;
  }

 private:
  void require_usable() const {
    if (read_.usable()) return;
    raise(Error(Code::kCancelled,
                "this shard was closed, or was opened before a fork, in the parent process"));
  }

  nb::tuple to_tuple(const ShardRead& read, ShardSample& sample) {
    const uint64_t seed = seeds_.at(uint64_t{entry_} << 32 | sample.number);
    std::vector<nb::object> made(sample.fields.size());
    for (size_t i = 0; i < sample.fields.size(); ++i) {
      ShardSample::Field& field = sample.fields[i];
      made[i] = nb::inst_alloc(nb::type<Sample>());
      auto* const into = nb::inst_ptr<Sample>(made[i]);
      if (field.same_as) {
        const nb::object& whole = made[*field.same_as];
        const Sample& from = *nb::inst_ptr<Sample>(whole);
        new (into) Sample(from, whole, from.bytes());
      } else {
        new (into) Sample(url_prefix_, index_, entry_, read.generation());
        into->own(std::move(field.block));
        into->set_seed(seed);
      }
      nb::inst_mark_ready(made[i]);
    }
    nb::dict fields;
    fields["__key__"] = to_str(sample.key);
    fields["__url__"] = url_;
    const std::vector<std::string>& wanted = read.shard().fields;
    for (size_t i = 0; wanted.empty() && i < made.size(); ++i) {
      fields[to_str(sample.fields[i].name)] = made[i];
    }
    for (const std::string& name : wanted) {
      const auto at = std::ranges::find(sample.fields, name, &ShardSample::Field::name);
      fields[to_str(name)] = made[static_cast<size_t>(at - sample.fields.begin())];
    }
    return nb::make_tuple(sample.number, sample.next_offset, seed, fields);
  }

  OfThisProcess<Engine> engine_;  // outlives the store, which outlives the read
  OfThisProcess<ObjectStore> store_;
  OfThisProcess<ShardRead> read_;
  nb::object url_prefix_, index_;
  size_t entry_;
  SampleSeeds seeds_;
  nb::str url_;
};

}  // namespace

nb::object start_shard(OpenStore store, nb::handle index, size_t entry, ShardToRead shard,
                       uint64_t seed, uint64_t epoch) {
  const ObjectIndex& shards = *nb::inst_ptr<IndexHandle>(index)->index;
  shard.store = store.store;
  shards.append_name(entry, shard.name);
  shards.append_generation(entry, shard.generation);
  shard.size_bytes = shards.object_bytes(entry);
  shard.checksum = shards.object_checksum(entry);
  if (shard.size_bytes == kUnknownSize) {
    raise(Error(Code::kInvalidArgument, "the size of the shard is not known")
              .with_url(shards.url(entry)));
  }
  return nb::cast(ShardReadHandle(std::move(store), nb::borrow(index), entry, std::move(shard),
                                  SampleSeeds(seed, epoch)));
}

void bind_shards(Module& module) {
  Class<PieceWindowHandle>(module, "PieceWindow")
      .def(
          "__init__",
          [](PieceWindowHandle* self, uint64_t max_bytes) {
            new (self) PieceWindowHandle{std::make_shared<PieceWindow>(max_bytes)};
          },
          "max_bytes"_a);
  Class<ShardReadHandle>(module, "ShardRead")
      .def("take", &ShardReadHandle::take)
      .def("warnings", &ShardReadHandle::warnings)
      .def("cancel", &ShardReadHandle::cancel)
      .def("close", &ShardReadHandle::close);
  module.def("sample_index", &sample_index_of, "members"_a, "skip_errors"_a);
  module.def("shards_of_samples", &shards_of_samples_in, "samples"_a);
  module.def("sample_seeds", &sample_seeds, "seed"_a, "epoch"_a, "begin"_a, "end"_a);
  module.def("with_fields", &with_fields_of, "samples"_a, "fields"_a);
  module.def("split_sample", &split_sample, "sample"_a);
}

}  // namespace headrace::python
