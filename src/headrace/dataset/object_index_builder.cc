#include <algorithm>
#include <bit>
#include <numeric>
#include <type_traits>
#include <utility>

#include "headrace/base/as_text.h"
#include "headrace/dataset/image_numbers.h"
#include "headrace/dataset/object_index.h"
#include "headrace/dataset/roots.h"

namespace headrace {
namespace {

size_t size_of(const ColumnValues& values) {
  return std::visit([](const auto& each) { return each.size(); }, values);
}

// Which of few texts each value is; nothing where they are too many for that to save anything.
struct Dictionary {
  std::vector<std::string_view> texts = {};
  std::vector<uint64_t> ids = {};

  static std::optional<Dictionary> of(const TextValues& values) {
    Dictionary out;
    out.ids.reserve(values.size());
    std::unordered_map<std::string_view, uint64_t> known;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto [found, is_new] = known.try_emplace(values[i], out.texts.size());
      if (is_new) out.texts.push_back(values[i]);
      if (out.texts.size() > values.size() / 4 + 1) return {};
      out.ids.push_back(found->second);
    }
    return out;
  }
};

// Of an entry, and of those after it that are computed by the same rule.
EntryDetails details_of(const ObjectIndex& index, size_t i) {
  const ObjectIndex::Spacing alike = index.spacing(i);
  EntryDetails out{.root = index.root(i),
                   .range = index.range(i),
                   .count = alike.count,
                   .stride_bytes = alike.stride_bytes};
  if (out.range) out.range_checksum = index.checksum(i);
  return out;
}

// In the order in which ObjectIndex reads. Each of the three calls its argument with each checksum:
// its kind, its number, and the digest that is none.
template <class EachKind, class EachNumber, class EachDigest>
void write_sums(ImageWriter& writer, EachKind each_kind, EachNumber each_number,
                EachDigest each_digest) {
  size_t width_bytes = 0;
  each_kind([&width_bytes](uint64_t kind) {
    const size_t size = checksum_size(static_cast<ChecksumKind>(kind));
    if (size > sizeof(uint64_t)) width_bytes = std::max(width_bytes, size);
  });
  writer.column_of(each_kind);
  writer.column_of(each_number);
  writer.number(width_bytes > 0 ? 1 : 0);
  writer.fixed_column(width_bytes, each_digest);
}

}  // namespace

// ── Collecting ───────────────────────────────────────────────────────────────────────────────

uint32_t ObjectIndexBuilder::Words::id_of(std::string_view text) {
  if (last_ < texts_.size() && texts_[last_] == text) return last_;
  const auto [found, is_new] =
      ids_.try_emplace(std::string(text), static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.emplace_back(text);
  return last_ = found->second;
}

uint32_t ObjectIndexBuilder::add_root(std::string_view root) {
  const auto found = std::ranges::find(roots_, root);
  if (found == roots_.end()) {
    roots_.emplace_back(root);
    return static_cast<uint32_t>(roots_.size() - 1);
  }
  return static_cast<uint32_t>(found - roots_.begin());
}

void ObjectIndexBuilder::add(const ObjectInfo& object, const EntryDetails& details) {
  add(ObjectView{.name = object.name,
                 .generation = object.generation,
                 .content_type = object.content_type,
                 .content_encoding = object.content_encoding,
                 .storage_class = object.storage_class,
                 .size_bytes = object.size_bytes,
                 .metageneration = object.metageneration,
                 .updated = object.updated,
                 .checksum = object.checksum,
                 .component_count = object.component_count},
      details);
}

void ObjectIndexBuilder::add(const ColumnPage& page, size_t i) {
  static const EntryDetails whole;
  const ColumnPage::Row& row = page.row(i);
  add(ObjectView{.name = page.name(i),
                 .generation = page.generation(i),
                 .content_type = page.word_at(row.content_type),
                 .content_encoding = page.word_at(row.content_encoding),
                 .storage_class = page.word_at(row.storage_class),
                 .size_bytes = row.size_bytes,
                 .metageneration = row.metageneration,
                 .updated = row.updated,
                 .checksum = row.checksum,
                 .component_count = row.component_count},
      whole);
}

void ObjectIndexBuilder::add(const ObjectView& object, const EntryDetails& details) {
  EntryNumbers numbers;
  EntryRows::Texts texts{.name = object.name};
  const auto add_sum = [&numbers](const Checksum& sum, EntryNumber kind, EntryNumber number,
                                  std::span<const std::byte>& digest) {
    numbers[kind] = static_cast<uint64_t>(sum.kind());
    if (sum.is_number()) {
      numbers[number] = sum.number();
    } else {
      digest = sum.bytes();
    }
  };
  numbers[EntryNumber::kSizeBytes] = object.size_bytes;
  numbers[EntryNumber::kGeneration] = number_of_generation(object.generation);
  if (numbers[EntryNumber::kGeneration] == 0) texts.generation = object.generation;
  numbers[EntryNumber::kUpdated] = number_of_time(object.updated);
  numbers[EntryNumber::kMetageneration] = object.metageneration;
  numbers[EntryNumber::kComponentCount] = object.component_count;
  numbers[EntryNumber::kRoot] = details.root;
  numbers[EntryNumber::kContentType] = words_[kContentType].id_of(object.content_type);
  numbers[EntryNumber::kContentEncoding] = words_[kContentEncoding].id_of(object.content_encoding);
  numbers[EntryNumber::kStorageClass] = words_[kStorageClass].id_of(object.storage_class);
  add_sum(object.checksum, EntryNumber::kSumKind, EntryNumber::kSum, texts.digest);
  numbers[EntryNumber::kCount] = details.count;
  numbers[EntryNumber::kStride] = details.stride_bytes;
  if (const std::optional<ByteRange>& range = details.range) {
    // A range that ends before it begins is longer than any object: check() refuses it.
    numbers[EntryNumber::kRangeBegin] = range->begin;
    numbers[EntryNumber::kRangeLength] =
        range->end < range->begin ? UINT64_MAX : range->size_bytes() + 1;
    add_sum(details.range_checksum, EntryNumber::kRangeSumKind, EntryNumber::kRangeSum,
            texts.range_digest);
  }
  rows_.add(numbers, texts);
  has_ranges_ = has_ranges_ || details.range || details.count > 1;
  size_ += details.count;
}

void ObjectIndexBuilder::add(const ObjectIndex& from, size_t begin, size_t end,
                             std::span<const uint32_t> roots) {
  while (begin < end) {
    from.read_info(begin, scratch_);
    EntryDetails details = details_of(from, begin);
    details.root = roots[details.root];
    details.count = std::min<uint64_t>(details.count, end - begin);
    add(scratch_, details);
    begin += details.count;
  }
}

void ObjectIndexBuilder::set_column(std::string name, ColumnValues values) {
  for (auto& [known, old] : columns_) {
    if (known != name) continue;
    old = std::move(values);
    return;
  }
  columns_.emplace_back(std::move(name), std::move(values));
}

// ── Building ─────────────────────────────────────────────────────────────────────────────────

Result<uint64_t> ObjectIndexBuilder::check() const {
  std::optional<Error> error;
  std::optional<uint64_t> total = 0;
  const auto refuse = [&error](const auto&... what) {
    if (!error) error = Error(Code::kInvalidArgument, cat(what...));
  };
  const size_t root_count = std::max<size_t>(roots_.size(), 1);
  const auto add_up = [&](uint64_t size_bytes, uint64_t count) {
    if (!total) return;
    total = sum_of(*total, size_bytes, count);
    if (!total && size_bytes != kUnknownSize) {
      refuse("the sizes of the objects add up to more than 2^64 bytes");
    }
  };
  bool well_named = true, with_roots = true;
  rows_.each(EntryNumber::kNameSize, [&](uint64_t size) { well_named = well_named && size > 0; });
  rows_.each(EntryNumber::kRoot,
             [&](uint64_t root) { with_roots = with_roots && root < root_count; });
  if (!has_ranges_) {
    rows_.each(EntryNumber::kSizeBytes, [&](uint64_t size_bytes) { add_up(size_bytes, 1); });
  }
  if (!well_named) refuse("an object's name must not be empty");
  if (!with_roots || has_ranges_) {
    rows_.each([&](const EntryRows::Entry& entry) {
      if (entry[EntryNumber::kRoot] >= root_count) refuse(entry.name(), ": there is no such root");
      if (!has_ranges_) return;
      const uint64_t object_bytes = entry[EntryNumber::kSizeBytes];
      const uint64_t length = entry[EntryNumber::kRangeLength];
      const uint64_t begin = entry[EntryNumber::kRangeBegin];
      const uint64_t count = entry[EntryNumber::kCount];
      const uint64_t size_bytes = length > 0 ? length - 1 : object_bytes;
      if (length > 0 &&
          !range_fits(begin, size_bytes, entry[EntryNumber::kStride], count, object_bytes)) {
        refuse(entry.name(), ": the range [", begin, ", ", begin + size_bytes,
               ") lies outside of the object",
               object_bytes == kUnknownSize ? "" : cat(", which has ", object_bytes, " bytes"));
      }
      add_up(size_bytes, count);
    });
  }
  for (const auto& [name, values] : columns_) {
    if (name.empty()) refuse("a column's name must not be empty");
    if (size_of(values) != size_) {
      refuse("the column '", name, "' has ", size_of(values), " values for ", size_, " entries");
    }
  }
  if (size_ >= UINT32_MAX && !has_ranges_) refuse("an index has fewer than 2^32 - 1 objects");
  if (size_ >> 63 != 0) refuse("an index has fewer than 2^63 entries");
  if (error) return std::unexpected(std::move(*error));
  return total.value_or(kUnknownSize) + 1;
}

ObjectIndexBuilder::Objects ObjectIndexBuilder::find_objects() const {
  if (!has_ranges_) return {.count = size_};
  Objects out;
  std::unordered_map<std::string, size_t> known;
  std::string key, key_before;
  rows_.each([&](const EntryRows::Entry& entry) {
    key.clear();
    for (const EntryNumber which :
         {EntryNumber::kSizeBytes, EntryNumber::kGeneration, EntryNumber::kUpdated,
          EntryNumber::kMetageneration, EntryNumber::kComponentCount, EntryNumber::kRoot,
          EntryNumber::kContentType, EntryNumber::kContentEncoding, EntryNumber::kStorageClass,
          EntryNumber::kSumKind, EntryNumber::kSum, EntryNumber::kNameSize,
          EntryNumber::kGenerationSize}) {
      const uint64_t number = entry[which];
      key.append(reinterpret_cast<const char*>(&number), sizeof(number));
    }
    key.append(entry.name()).append(entry.generation()).append(as_text(entry.digest()));
    // Ranges of one object usually come in a row: only the first of them is looked up.
    if (!out.of_row.empty() && key == key_before) {
      out.of_row.push_back(out.of_row.back());
      out.is_first.push_back(false);
      return;
    }
    const auto [found, is_new] = known.try_emplace(key, known.size());
    out.of_row.push_back(found->second);
    out.is_first.push_back(is_new);
    key.swap(key_before);
  });
  out.count = known.size();
  return out;
}

// In the order in which ObjectIndex::read_image() reads.
void ObjectIndexBuilder::write_objects(ImageWriter& writer, const Objects& objects) const {
  using Sink = ImageWriter::TextSink;
  // Leaves out what is not of the first row of an object.
  const auto of_objects = [&objects](auto visit) {
    return [&objects, visit, row = size_t{0}](const auto& of_row) mutable {
      if (objects.is_first.empty() || objects.is_first[row]) visit(of_row);
      ++row;
    };
  };
  const auto each_object = [&](auto visit) { rows_.each(of_objects(visit)); };
  const auto numbers = [&](EntryNumber which) {
    return [&, which](auto visit) { rows_.each(which, of_objects(visit)); };
  };
  writer.column_of(numbers(EntryNumber::kRoot));
  writer.text_column(objects.count, [&](const Sink& put) {
    each_object([&put](const EntryRows::Entry& entry) { put(entry.name()); });
  });
  writer.column_of([&](auto put) {
    numbers(EntryNumber::kSizeBytes)([&put](uint64_t size_bytes) { put(size_bytes + 1); });
  });
  writer.column_of(numbers(EntryNumber::kGeneration));
  bool with_texts = false;
  numbers(EntryNumber::kGenerationSize)(
      [&](uint64_t size) { with_texts = with_texts || size > 0; });
  writer.number(with_texts ? 1 : 0);
  writer.text_column(with_texts ? objects.count : 0, [&](const Sink& put) {
    if (!with_texts) return;
    each_object([&put](const EntryRows::Entry& entry) { put(entry.generation()); });
  });
  write_sums(writer, numbers(EntryNumber::kSumKind), numbers(EntryNumber::kSum),
             [&](const ImageWriter::BytesSink& put) {
               each_object([&put](const EntryRows::Entry& entry) { put(entry.digest()); });
             });
  writer.column_of(numbers(EntryNumber::kUpdated));
  writer.column_of(numbers(EntryNumber::kComponentCount));
  writer.column_of(numbers(EntryNumber::kMetageneration));
  for (size_t word = 0; word < kWordCount; ++word) {
    const std::vector<std::string>& texts = words_[word].texts();
    // Of a selection's words some may be nobody's; there are never more of them than objects.
    constexpr uint64_t kNobodys = UINT64_MAX;
    std::vector<uint64_t> number_of(texts.size(), kNobodys);
    std::vector<std::string_view> used;
    numbers(kWordNumbers[word])([&](uint64_t id) {
      if (number_of[id] != kNobodys) return;
      number_of[id] = used.size();
      used.emplace_back(texts[id]);
    });
    writer.number(used.size());
    writer.text_column(used.size(), [&used](const Sink& put) {
      for (const std::string_view text : used) put(text);
    });
    writer.column_of(
        [&](auto put) { numbers(kWordNumbers[word])([&](uint64_t id) { put(number_of[id]); }); });
  }
}

// Runs on their way into an image: entries as they come; those that follow a rule are joined. The
// same entries make the same runs, in whatever portions they come.
class ObjectIndexBuilder::RunColumns {
 public:
  void add(uint64_t object, const EntryRows::Entry& entry) {
    const uint64_t entry_count = entry[EntryNumber::kCount];
    const uint64_t length = entry[EntryNumber::kRangeLength];
    const uint64_t stride = entry[EntryNumber::kStride];
    for (uint64_t taken = 0; taken < entry_count;) {
      // The first of them show whether they continue what was there before.
      const uint64_t begin = entry[EntryNumber::kRangeBegin] + taken * stride;
      const bool is_rest = in_run_ > 1 && strides_.back() == stride;
      const uint64_t count = is_rest ? entry_count - taken : 1;
      if (!continues(object, begin, length)) {
        begin_run(object, begin, length);
        ++taken;
        continue;
      }
      if (in_run_ == 1) strides_.back() = begin - begins_.back();
      in_run_ += count;
      entries_ += count;
      taken += count;
    }
  }
  // In the order in which ObjectIndex reads. Where there is no rule, each entry is a run.
  void write(ImageWriter& writer) && {
    if (objects_.size() > entries_ / 2) spread();
    writer.number(objects_.size());
    for (const std::vector<uint64_t>* column :
         {&objects_, &firsts_, &begins_, &lengths_, &strides_}) {
      writer.column(*column);
    }
  }

 private:
  bool continues(uint64_t object, uint64_t begin, uint64_t length) const {
    if (in_run_ == 0 || objects_.back() != object || lengths_.back() != length ||
        begin < begins_.back()) {
      return false;
    }
    return in_run_ == 1 || begin - begins_.back() == strides_.back() * in_run_;
  }

  void begin_run(uint64_t object, uint64_t begin, uint64_t length) {
    objects_.push_back(object);
    firsts_.push_back(entries_);
    begins_.push_back(begin);
    lengths_.push_back(length);
    strides_.push_back(0);
    in_run_ = 1;
    ++entries_;
  }

  void spread() {
    RunColumns each;
    for (size_t run = 0; run < objects_.size(); ++run) {
      const uint64_t end = run + 1 < objects_.size() ? firsts_[run + 1] : entries_;
      for (uint64_t i = 0; i < end - firsts_[run]; ++i) {
        each.begin_run(objects_[run], begins_[run] + i * strides_[run], lengths_[run]);
      }
    }
    each.firsts_.assign(each.objects_.size(), 0);
    *this = std::move(each);
  }

  std::vector<uint64_t> objects_, firsts_, begins_, lengths_, strides_;
  uint64_t in_run_ = 0, entries_ = 0;
};

void ObjectIndexBuilder::write_runs(ImageWriter& writer, const Objects& objects) const {
  writer.number(has_ranges_ ? 1 : 0);
  if (!has_ranges_) return;
  RunColumns runs;
  size_t row = 0;
  rows_.each([&](const EntryRows::Entry& entry) { runs.add(objects.of_row[row++], entry); });
  std::move(runs).write(writer);
  bool with_sums = false;
  rows_.each(EntryNumber::kRangeSumKind, [&with_sums](uint64_t kind) {
    with_sums = with_sums || static_cast<ChecksumKind>(kind) != ChecksumKind::kNone;
  });
  // A column of nothing takes no bytes, for any number of entries.
  const auto numbers = [&](EntryNumber which) {
    return [this, with_sums, which](auto visit) {
      if (with_sums) rows_.each_entry(which, visit);
    };
  };
  write_sums(writer, numbers(EntryNumber::kRangeSumKind), numbers(EntryNumber::kRangeSum),
             [this](const ImageWriter::BytesSink& put) {
               rows_.each([&put](const EntryRows::Entry& entry) {
                 const uint64_t count = entry[EntryNumber::kCount];
                 for (uint64_t i = 0; i < count; ++i) put(entry.range_digest());
               });
             });
}

void ObjectIndexBuilder::write_columns(ImageWriter& writer) const {
  using Sink = ImageWriter::TextSink;
  writer.number(columns_.size());
  writer.text_column(columns_.size(), [this](const Sink& put) {
    for (const auto& [name, values] : columns_) put(name);
  });
  const auto write = [&writer](ObjectIndex::ColumnKind kind) {
    writer.number(static_cast<uint64_t>(kind));
  };
  const auto write_numbers = [&writer](const auto& values, auto number_of) {
    writer.column_of([&](auto put) {
      for (const auto value : values) put(number_of(value));
    });
  };
  for (const auto& [name, values] : columns_) {
    if (const auto* integers = std::get_if<std::vector<int64_t>>(&values)) {
      write(ObjectIndex::ColumnKind::kInt64);
      write_numbers(*integers, &number_of_integer);
    } else if (const auto* floats = std::get_if<std::vector<double>>(&values)) {
      write(ObjectIndex::ColumnKind::kFloat64);
      write_numbers(*floats, [](double value) { return std::bit_cast<uint64_t>(value); });
    } else if (const auto* booleans = std::get_if<std::vector<bool>>(&values)) {
      write(ObjectIndex::ColumnKind::kBool);
      write_numbers(*booleans, [](bool value) { return uint64_t{value}; });
    } else {
      const auto& texts = std::get<TextValues>(values);
      write(texts.is_bytes ? ObjectIndex::ColumnKind::kBytes : ObjectIndex::ColumnKind::kText);
      const std::optional<Dictionary> few = Dictionary::of(texts);
      writer.number(few ? 1 : 0);
      if (few) {
        writer.number(few->texts.size());
        writer.text_column(few->texts.size(), [&few](const Sink& put) {
          for (const std::string_view text : few->texts) put(text);
        });
        writer.column(few->ids);
      } else {
        writer.text_column(texts.size(), [&texts](const Sink& put) {
          for (size_t i = 0; i < texts.size(); ++i) put(texts[i]);
        });
      }
    }
  }
}

Result<std::shared_ptr<const ObjectIndex>> ObjectIndexBuilder::build() && {
  const Result<uint64_t> total_size_bytes = check();
  if (!total_size_bytes) return std::unexpected(total_size_bytes.error());
  Objects objects = find_objects();
  ImageWriter writer;
  writer.number(size_);
  writer.number(std::max<size_t>(roots_.size(), 1));
  writer.number(objects.count);
  writer.text_column(std::max<size_t>(roots_.size(), 1), [this](const ImageWriter::TextSink& put) {
    for (const std::string& root : roots_) put(root);
    if (roots_.empty()) put("");
  });
  write_objects(writer, objects);
  write_runs(writer, objects);
  write_columns(writer);
  writer.number(*total_size_bytes);
  objects = {};
  *this = {};  // before the image is there twice
  Result<SharedBytes> image = SharedBytes::copy_of(writer.parts());
  if (!image) return std::unexpected(std::move(image.error()));
  return ObjectIndex::open(std::move(*image), ImageReader::Known::kGood);
}

// ── Indexes made of others ───────────────────────────────────────────────────────────────────

namespace {

std::vector<uint32_t> add_roots(ObjectIndexBuilder& builder, std::span<const std::string> roots) {
  std::vector<uint32_t> numbers;
  numbers.reserve(roots.size());
  for (const std::string& root : roots) numbers.push_back(builder.add_root(root));
  return numbers;
}

// Roots below which nothing is left go; but where objects were is told to the last.
std::vector<uint32_t> add_used_roots(ObjectIndexBuilder& builder,
                                     std::span<const std::string> roots,
                                     const std::vector<bool>& used) {
  std::vector<uint32_t> numbers(used.size());
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) numbers[i] = builder.add_root(roots[i]);
  }
  return numbers;
}

// The same entries, each changed by `change(info, details)`.
template <class Change>
Result<std::shared_ptr<const ObjectIndex>> changed(const ObjectIndex& index,
                                                   ObjectIndexBuilder& builder, Change change) {
  ObjectInfo info;
  for (size_t i = 0; i < index.size();) {
    index.read_info(i, info);
    EntryDetails details = details_of(index, i);
    change(info, details);
    builder.add(info, details);
    i += details.count;
  }
  for (size_t i = 0; i < index.column_count(); ++i) {
    builder.set_column(index.column_name(i), index.values(i));
  }
  return std::move(builder).build();
}

void append_values(ColumnValues& to, const ColumnValues& from) {
  std::visit(
      [&from](auto& out) {
        using Values = std::remove_reference_t<decltype(out)>;
        const auto& more = std::get<Values>(from);
        if constexpr (std::is_same_v<Values, TextValues>) {
          for (size_t i = 0; i < more.size(); ++i) out.add(more[i]);
        } else {
          out.insert(out.end(), more.begin(), more.end());
        }
      },
      to);
}

// As Python calls them.
std::string_view type_name(const ColumnValues& values) {
  if (const auto* texts = std::get_if<TextValues>(&values))
    return texts->is_bytes ? "bytes" : "str";
  if (std::holds_alternative<std::vector<bool>>(values)) return "bool";
  return std::holds_alternative<std::vector<int64_t>>(values) ? "int" : "float";
}

}  // namespace

Result<std::shared_ptr<const ObjectIndex>> select(const ObjectIndex& index,
                                                  std::span<const size_t> positions) {
  ObjectIndexBuilder builder;
  std::vector<bool> used(index.roots().size(), positions.empty());
  for (const size_t position : positions) used[index.root(position)] = true;
  const std::vector<uint32_t> roots = add_used_roots(builder, index.roots(), used);
  // Neighbours together, so that what is computed by a rule stays computed.
  for (size_t begin = 0, end = 0; begin < positions.size(); begin = end) {
    end = begin + 1;
    while (end < positions.size() && positions[end] == positions[end - 1] + 1) ++end;
    builder.add(index, positions[begin], positions[end - 1] + 1, roots);
  }
  for (size_t i = 0; i < index.column_count(); ++i) {
    builder.set_column(index.column_name(i), index.values(i, positions));
  }
  return std::move(builder).build();
}

Result<std::shared_ptr<const ObjectIndex>> slice(const ObjectIndex& index, size_t begin,
                                                 size_t end) {
  ObjectIndexBuilder builder;
  std::vector<bool> used(index.roots().size(), begin == end);
  for (size_t i = begin; i < end; i += index.spacing(i).count) used[index.root(i)] = true;
  builder.add(index, begin, end, add_used_roots(builder, index.roots(), used));
  if (index.column_count() == 0) return std::move(builder).build();
  std::vector<size_t> positions(end - begin);
  std::iota(positions.begin(), positions.end(), begin);
  for (size_t i = 0; i < index.column_count(); ++i) {
    builder.set_column(index.column_name(i), index.values(i, positions));
  }
  return std::move(builder).build();
}

Result<std::shared_ptr<const ObjectIndex>> windows(const ObjectIndex& index, uint64_t window_bytes,
                                                   uint64_t stride_bytes,
                                                   std::span<const ByteRange> parts) {
  if (window_bytes == 0 || stride_bytes == 0) {
    return invalid_argument("windows of ", window_bytes, " bytes every ", stride_bytes,
                            " bytes: both must be at least 1");
  }
  if (!parts.empty() && parts.size() != index.size()) {
    return invalid_argument("there are ", parts.size(), " parts of ", index.size(), " entries");
  }
  ObjectIndexBuilder builder;
  const std::vector<uint32_t> roots = add_roots(builder, index.roots());
  ObjectInfo info;
  for (size_t i = 0; i < index.size(); ++i) {
    const uint64_t size_bytes = index.size_bytes(i);
    if (size_bytes == kUnknownSize) {
      return invalid_argument(index.url(i), ": its size is not known, so nobody knows how many ",
                              "windows it has");
    }
    const ByteRange part = parts.empty() ? ByteRange{0, size_bytes} : parts[i];
    if (part.begin > part.end || part.end > size_bytes) {
      return invalid_argument(index.url(i), ": the part [", part.begin, ", ", part.end,
                              ") lies outside of entry ", i, ", which has ", size_bytes, " bytes");
    }
    if (part.size_bytes() < window_bytes) continue;
    const uint64_t begin = index.range(i).value_or(ByteRange{}).begin + part.begin;
    index.read_info(i, info);
    builder.add(info, {.root = roots[index.root(i)],
                       .range = ByteRange{begin, begin + window_bytes},
                       .count = (part.size_bytes() - window_bytes) / stride_bytes + 1,
                       .stride_bytes = stride_bytes});
  }
  return std::move(builder).build();
}

Result<std::shared_ptr<const ObjectIndex>> concat(
    std::span<const std::shared_ptr<const ObjectIndex>> indexes) {
  ObjectIndexBuilder builder;
  std::vector<std::pair<std::string, ColumnValues>> columns;
  for (size_t at = 0; at < indexes.size(); ++at) {
    const ObjectIndex& index = *indexes[at];
    const std::vector<uint32_t> roots = add_roots(builder, index.roots());
    builder.add(index, 0, index.size(), roots);
    if (at == 0) {
      for (size_t i = 0; i < index.column_count(); ++i) {
        columns.emplace_back(index.column_name(i), index.values(i));
      }
      continue;
    }
    for (size_t i = 0; i < index.column_count(); ++i) {
      const std::string name = index.column_name(i);
      if (std::ranges::none_of(columns, [&](const auto& each) { return each.first == name; })) {
        return invalid_argument("index ", at, " has a column '", name,
                                "', which those before it do not have");
      }
    }
    for (auto& [name, values] : columns) {
      const std::optional<size_t> column = index.column(name);
      if (!column) {
        return invalid_argument("index ", at, " has no column '", name,
                                "', which those before it have");
      }
      const ColumnValues more = index.values(*column);
      if (type_name(values) != type_name(more)) {
        return invalid_argument("the column '", name, "' of index ", at, " holds ", type_name(more),
                                ", of those before it ", type_name(values));
      }
      append_values(values, more);
    }
  }
  for (auto& [name, values] : columns) builder.set_column(name, std::move(values));
  return std::move(builder).build();
}

Result<std::shared_ptr<const ObjectIndex>> at_roots(const ObjectIndex& index,
                                                    std::span<const std::string> roots,
                                                    bool keep_generations) {
  ObjectIndexBuilder builder;
  const std::vector<uint32_t> numbers = add_roots(builder, roots);
  return changed(index, builder, [&](ObjectInfo& info, EntryDetails& details) {
    details.root = numbers[details.root];
    if (keep_generations) return;
    info.generation.clear();
    info.metageneration = 0;
  });
}

namespace {

// How a name below one root becomes one below another.
struct Move {
  std::string added = {};  // before the name
  std::string taken = {};  // what names begin with that can be moved
  bool outside = false;    // no name of this root lies below the other one
};

Move move_between(const std::string& from, std::string_view to) {
  if (from.empty() || from == to) return {};
  if (const auto below = name_below(to, from)) return {.added = cat(*below, "/")};
  if (const auto above = name_below(from, to)) return {.taken = cat(*above, "/")};
  return {.outside = true};
}

}  // namespace

Result<std::shared_ptr<const ObjectIndex>> rebased(std::shared_ptr<const ObjectIndex> index,
                                                   std::string_view root) {
  if (index->roots().size() == 1 && index->roots()[0] == root) return index;
  std::vector<Move> moves;
  for (const std::string& from : index->roots()) {
    if (!from.empty() && bucket_of(from) != bucket_of(root)) {
      return invalid_argument("the index is of objects at ", from, ", and this is ", root,
                              ": if the same objects lie there, index.at('", root, "') says so");
    }
    moves.push_back(move_between(from, root));
  }
  size_t outside_count = 0, example = 0;
  std::string name;
  for (size_t i = 0, count = 0; i < index->size(); i += count) {
    count = index->spacing(i).count;
    name.clear();
    index->append_name(i, name);
    const Move& move = moves[index->root(i)];
    // What is called as the root itself has no name there.
    if (!move.outside && name.starts_with(move.taken) && name.size() > move.taken.size()) continue;
    if (outside_count == 0) example = i;
    outside_count += count;
  }
  if (outside_count > 0) {
    return invalid_argument(outside_count, " of the ", index->size(),
                            " entries of the index lie outside of ", root, ", such as ",
                            index->url(example), ": read them from a store that holds them all, ",
                            "or select those that lie inside");
  }
  ObjectIndexBuilder builder;
  builder.add_root(root);
  return changed(*index, builder, [&moves](ObjectInfo& info, EntryDetails& details) {
    const Move& move = moves[details.root];
    info.name = cat(move.added, std::string_view(info.name).substr(move.taken.size()));
    details.root = 0;
  });
}

Result<std::shared_ptr<const ObjectIndex>> with_columns(
    const ObjectIndex& index, std::vector<std::pair<std::string, ColumnValues>> columns,
    std::span<const std::string> dropped) {
  ObjectIndexBuilder builder;
  const std::vector<uint32_t> roots = add_roots(builder, index.roots());
  builder.add(index, 0, index.size(), roots);
  for (size_t i = 0; i < index.column_count(); ++i) {
    std::string name = index.column_name(i);
    if (std::ranges::find(dropped, name) != dropped.end()) continue;
    builder.set_column(std::move(name), index.values(i));
  }
  for (auto& [name, values] : columns) builder.set_column(name, std::move(values));
  return std::move(builder).build();
}

}  // namespace headrace
