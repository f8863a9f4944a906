#include "headrace/dataset/shard_samples.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "headrace/dataset/shard_names.h"

namespace headrace {
namespace {

// So many values of a column are taken out of an index at a time.
constexpr size_t kSliceEntries = 4096;
// A sample whose range has more than this, and more than its fields, between them is refused.
constexpr uint64_t kMostBetweenBytes = 1 * kMiB;

// The texts of a column, entry after entry.
// Thread: confined. Borrows the index.
class ColumnTexts {
 public:
  ColumnTexts(const ObjectIndex& index, size_t column) : index_(index), column_(column) {}
  std::string_view operator[](size_t i) {
    if (i < begin_ || i >= begin_ + texts_.size()) {
      std::vector<size_t> entries;
      for (size_t at = i; at < std::min(i + kSliceEntries, index_.size()); ++at) {
        entries.push_back(at);
      }
      begin_ = i;
      texts_ = std::get<TextValues>(index_.values(column_, entries));
    }
    return texts_[i - begin_];
  }

 private:
  const ObjectIndex& index_;
  const size_t column_;
  size_t begin_ = 0;
  TextValues texts_;
};

Result<size_t> text_column(const ObjectIndex& index, std::string_view name, std::string_view of) {
  const std::optional<size_t> column = index.column(name);
  if (!column || !std::holds_alternative<TextValues>(index.values(*column, {}))) {
    return invalid_argument("this is no index of ", of, ": it has no column '", name, "' of texts");
  }
  return *column;
}

void append_number(uint64_t number, std::string& out) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  out += static_cast<char>(number);
}

std::optional<uint64_t> take_number(std::string_view& bytes) {
  uint64_t number = 0;
  for (int shift = 0; shift < 63 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return number;
  }
  return {};
}

template <class... What>
std::unexpected<Error> refuse_at(std::string url, const What&... what) {
  return std::unexpected(Error(Code::kInvalidArgument, cat(what...)).with_url(std::move(url)));
}

struct Field {
  std::string name;
  ByteRange range;  // in the shard
};

// The roots of an index in another one, which has those alone that have entries.
class Roots {
 public:
  Roots(const ObjectIndex& from, ObjectIndexBuilder& into)
      : from_(from), into_(into), numbers_(from.roots().size()) {}
  // Of an entry of `from`.
  uint32_t operator[](size_t entry) {
    const uint32_t root = from_.root(entry);
    if (!numbers_[root]) numbers_[root] = into_.add_root(from_.roots()[root]);
    return *numbers_[root];
  }

 private:
  const ObjectIndex& from_;
  ObjectIndexBuilder& into_;
  std::vector<std::optional<uint32_t>> numbers_;
};

ByteRange whole_of(std::span<const Field> fields) {
  ByteRange whole = fields.front().range;
  for (const Field& field : fields) {
    whole.begin = std::min(whole.begin, field.range.begin);
    whole.end = std::max(whole.end, field.range.end);
  }
  return whole;
}

// Collects samples, which are kept or dropped together. Thread: confined.
class SampleWriter {
 public:
  explicit SampleWriter(const ObjectIndex& from) : from_(from), roots_(from, builder_) {
    places_.is_bytes = true;
  }
  SampleWriter(const SampleWriter&) = delete;
  SampleWriter& operator=(const SampleWriter&) = delete;

  // `entry`: of `from`, which is in the same shard.
  void add(size_t entry, std::string_view key, std::span<const Field> fields) {
    const ByteRange whole = whole_of(fields);
    names_.clear();
    numbers_.clear();
    for (const Field& field : fields) {
      if (&field != &fields.front()) names_ += '/';
      names_ += field.name;
      append_number(field.range.begin - whole.begin, numbers_);
      append_number(field.range.size_bytes(), numbers_);
    }
    added_.push_back({.entry = entry, .range = whole});
    keys_.add(key);
    fields_.add(names_);
    places_.add(numbers_);
  }
  // What was added since the last call of either.
  void keep() {
    for (const Added& each : added_) {
      from_.read_info(each.entry, info_);
      builder_.add(info_, {.root = roots_[each.entry], .range = each.range});
    }
    added_.clear();
  }
  void drop() {
    added_.clear();
    for (TextValues* column : {&keys_, &fields_, &places_}) {
      column->ends.resize(builder_.size());
      column->text.resize(column->ends.empty() ? 0 : column->ends.back());
    }
  }

  Result<std::shared_ptr<const ObjectIndex>> build() && {
    keep();
    builder_.set_column(std::string(kKeyColumn), std::move(keys_));
    builder_.set_column(std::string(kFieldsColumn), std::move(fields_));
    builder_.set_column(std::string(kPlacesColumn), std::move(places_));
    return std::move(builder_).build();
  }

 private:
  struct Added {
    size_t entry;
    ByteRange range;
  };

  const ObjectIndex& from_;
  ObjectIndexBuilder builder_;
  std::vector<Added> added_;
  Roots roots_;
  TextValues keys_, fields_, places_;
  std::string names_, numbers_;
  ObjectInfo info_;
};

// The samples of one shard after the other. Thread: confined.
class Grouping {
 public:
  Grouping(const ObjectIndex& members, bool skip_errors)
      : members_(members), skip_errors_(skip_errors), writer_(members) {}

  Result<SampleIndex> run(size_t column) {
    ColumnTexts names(members_, column);
    for (size_t i = 0; i < members_.size(); ++i) {
      const std::string_view name = names[i];
      if (begins_shard(i, name)) {
        if (Result<void> ended = end_shard(); !ended) return std::unexpected(ended.error());
        begin_shard(i, name);
      }
      if (is_left_out_) continue;
      if (Result<void> left_out = leave_out(add(i, name)); !left_out) {
        return std::unexpected(left_out.error());
      }
    }
    if (Result<void> ended = end_shard(); !ended) return std::unexpected(ended.error());
    Result<std::shared_ptr<const ObjectIndex>> index = std::move(writer_).build();
    if (!index) return std::unexpected(std::move(index.error()));
    out_.index = std::move(*index);
    return std::move(out_);
  }

 private:
  // A shard that comes twice in a row begins again with its first member.
  bool begins_shard(size_t i, std::string_view name) {
    shard_.clear();
    members_.append_name(i, shard_);
    return i == 0 || shard_ != known_shard_ || members_.root(i) != root_ ||
           (name == first_name_ && members_.range(i) == first_range_);
  }

  void begin_shard(size_t i, std::string_view name) {
    std::swap(shard_, known_shard_);
    root_ = members_.root(i);
    first_name_ = name;
    first_range_ = members_.range(i);
    names_.begin_shard();
    is_left_out_ = false;
  }

  Result<void> end_shard() {
    if (is_left_out_) return {};
    if (Result<void> left_out = leave_out(end_sample()); !left_out) return left_out;
    writer_.keep();
    return {};
  }

  // Leaves out the shard of an error, or returns the error.
  Result<void> leave_out(Result<void> added) {
    if (added || !skip_errors_) return added;
    out_.errors.push_back(std::move(added.error()));
    writer_.drop();
    fields_.clear();
    is_left_out_ = true;
    return {};
  }

  Result<void> add(size_t i, std::string_view name) {
    Result<ShardNames::Place> place = names_.add(name);
    if (!place) {
      return std::unexpected(std::move(place.error()).with_url(members_.url(i)));
    }
    if (!place->has_key) {
      if (out_.left_out++ == 0) out_.first_left_out = cat(members_.url(i), ": ", name);
      return {};
    }
    const std::optional<ByteRange> range = members_.range(i);
    if (!range) return refuse(i, "the entry '", name, "' is a whole object, and no member");
    if (place->begins_sample) {
      if (Result<void> ended = end_sample(); !ended) return ended;
      key_ = names_.key();
      first_ = i;
    }
    fields_.push_back({.name = std::string(place->field), .range = *range});
    return {};
  }

  Result<void> end_sample() {
    if (fields_.empty()) return {};
    uint64_t of_fields = 0;
    for (const Field& field : fields_) of_fields += field.range.size_bytes();
    const uint64_t whole_bytes = whole_of(fields_).size_bytes();
    if (whole_bytes > of_fields + std::max(of_fields, kMostBetweenBytes)) {
      return refuse(first_, "the fields of the sample '", key_, "', which have ", of_fields,
                    " bytes, are scattered over ", whole_bytes,
                    ": pack the shard sample by sample");
    }
    writer_.add(first_, key_, fields_);
    fields_.clear();
    return {};
  }

  template <class... What>
  std::unexpected<Error> refuse(size_t i, const What&... what) const {
    return refuse_at(members_.url(i), what...);
  }

  const ObjectIndex& members_;
  const bool skip_errors_;
  SampleWriter writer_;
  SampleIndex out_;
  std::string shard_, known_shard_;
  uint32_t root_ = 0;
  std::string first_name_;  // of the shard's members
  std::optional<ByteRange> first_range_;
  bool is_left_out_ = false;  // the shard
  ShardNames names_;
  std::string key_;
  std::vector<Field> fields_;
  size_t first_ = 0;
};

}  // namespace

Result<std::shared_ptr<const ObjectIndex>> member_index(const ObjectIndex& shards,
                                                        std::span<const TarFiles* const> files,
                                                        std::span<const std::string> generations) {
  ObjectIndexBuilder builder;
  Roots roots(shards, builder);
  TextValues names;
  ObjectInfo info;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    if (files[shard] == nullptr) continue;
    shards.read_info(shard, info);
    // What reading needs, so that it does not matter whether shards were listed or asked for.
    info = {.name = std::move(info.name),
            .size_bytes = info.size_bytes,
            .generation = generations[shard],
            .checksum = info.checksum};
    for (size_t i = 0; i < files[shard]->size(); ++i) {
      builder.add(info, {.root = roots[shard], .range = files[shard]->range(i)});
      names.add(files[shard]->name(i));
    }
  }
  builder.set_column(std::string(kMemberColumn), std::move(names));
  return std::move(builder).build();
}

Result<SampleIndex> sample_index(const ObjectIndex& members, bool skip_errors) {
  const Result<size_t> column = text_column(members, kMemberColumn, "members");
  if (!column) return std::unexpected(column.error());
  return Grouping(members, skip_errors).run(*column);
}

Result<std::shared_ptr<const ObjectIndex>> with_fields(const ObjectIndex& samples,
                                                       std::span<const std::string> fields) {
  SampleWriter writer(samples);
  std::vector<Field> chosen;
  for (size_t i = 0; i < samples.size(); ++i) {
    Result<SampleFields> all = sample_fields(samples, i);
    if (!all) return std::unexpected(std::move(all.error()));
    const uint64_t begin = samples.range(i)->begin;
    chosen.clear();
    for (const std::string& wanted : fields) {
      std::string_view rest = all->names;
      for (const ByteRange& place : all->places) {
        const std::string_view name = rest.substr(0, rest.find('/'));
        rest.remove_prefix(std::min(rest.size(), name.size() + 1));
        if (name != wanted) continue;
        chosen.push_back({.name = wanted, .range = {begin + place.begin, begin + place.end}});
      }
      if (chosen.empty() || chosen.back().name != wanted) {
        return refuse_at(samples.url(i), "the sample '", all->key, "' has no field '", wanted,
                         "'; it has '", all->names, "'");
      }
    }
    writer.add(i, all->key, chosen);
    if (i % kSliceEntries == 0) writer.keep();
  }
  return std::move(writer).build();
}

Result<SampledShards> shards_of_samples(const ObjectIndex& samples) {
  const Result<size_t> column = text_column(samples, kKeyColumn, "samples");
  if (!column) return std::unexpected(column.error());
  ObjectIndexBuilder builder;
  Roots roots(samples, builder);
  SampledShards out;
  ColumnTexts keys(samples, *column);
  std::string name, last_name, first_key;
  ObjectInfo info;
  for (size_t i = 0; i < samples.size(); ++i) {
    name.clear();
    samples.append_name(i, name);
    const std::string_view key = keys[i];
    // A shard that comes twice in a row begins again with its first sample.
    const bool begins =
        i == 0 || name != last_name || samples.root(i) != samples.root(i - 1) || key == first_key;
    if (!begins) continue;
    first_key = key;
    samples.read_info(i, info);
    info.checksum = samples.object_checksum(i);
    builder.add(info, {.root = roots[i]});
    out.firsts.push_back(static_cast<int64_t>(i));
    std::swap(name, last_name);
  }
  Result<std::shared_ptr<const ObjectIndex>> index = std::move(builder).build();
  if (!index) return std::unexpected(std::move(index.error()));
  out.index = std::move(*index);
  return out;
}

Result<SampleFields> sample_fields(const ObjectIndex& samples, size_t i) {
  SampleFields out;
  std::string places;
  const std::span<const size_t> entry(&i, 1);
  for (const auto& [name, into] :
       {std::pair(kKeyColumn, &out.key), std::pair(kFieldsColumn, &out.names),
        std::pair(kPlacesColumn, &places)}) {
    const std::optional<size_t> column = samples.column(name);
    if (!column)
      return invalid_argument("this is no index of samples: it has no column '", name, "'");
    const ColumnValues values = samples.values(*column, entry);
    const auto* const texts = std::get_if<TextValues>(&values);
    if (texts == nullptr) return invalid_argument("the column '", name, "' has no texts");
    into->assign((*texts)[0]);
  }
  const std::optional<ByteRange> range = samples.range(i);
  std::string_view rest = places;
  while (range && !rest.empty()) {
    const std::optional<uint64_t> begin = take_number(rest), size_bytes = take_number(rest);
    if (!begin || !size_bytes || *begin > range->size_bytes() ||
        *size_bytes > range->size_bytes() - *begin) {
      break;
    }
    out.places.push_back({*begin, *begin + *size_bytes});
  }
  const auto names = static_cast<size_t>(std::ranges::count(out.names, '/')) + 1;
  if (!range || !rest.empty() || names != out.places.size()) {
    return corrupt("entry ", i, " of the index is no sample: its fields are in no place of it");
  }
  return out;
}

}  // namespace headrace
