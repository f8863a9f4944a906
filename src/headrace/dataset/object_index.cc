#include "headrace/dataset/object_index.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include "headrace/dataset/image_numbers.h"
#include "headrace/dataset/name_table.h"
#include "headrace/dataset/roots.h"

namespace headrace {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_, EVP_sha256(), nullptr); }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view bytes) { EVP_DigestUpdate(context_, bytes.data(), bytes.size()); }
  std::string hex(size_t digits) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
    EVP_DigestFinal_ex(context_, sum.data(), nullptr);
    std::string out;
    for (size_t i = 0; i < digits; ++i) {
      out += "0123456789abcdef"[sum[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    }
    return out;
  }

 private:
  EVP_MD_CTX* const context_;
};

void append_number(std::string& out, uint64_t value) {
  for (size_t i = 0; i < sizeof(value); ++i) out += static_cast<char>(value >> 8 * i);
}

void append_sum(std::string& out, const Checksum& sum) {
  out += static_cast<char>(sum.kind());
  for (const std::byte each : sum.bytes()) out += static_cast<char>(each);
}

// Of the positions of what is gathered, those that every column needs.
template <class Visit>
void for_positions(size_t count, std::span<const size_t> entries, bool all, Visit visit) {
  if (all) {
    for (size_t i = 0; i < count; ++i) visit(i);
  } else {
    for (const size_t entry : entries) visit(entry);
  }
}

}  // namespace

ObjectIndex::ObjectIndex() = default;
ObjectIndex::~ObjectIndex() { delete table_.load(std::memory_order_relaxed); }

// ── Opening ──────────────────────────────────────────────────────────────────────────────────

Result<std::shared_ptr<const ObjectIndex>> ObjectIndex::open(SharedBytes image,
                                                             ImageReader::Known known) {
  std::shared_ptr<ObjectIndex> index(new ObjectIndex());
  index->image_ = std::move(image);
  if (Result<void> good = index->read_image(known); !good) {
    return std::unexpected(std::move(good.error()));
  }
  return index;
}

void ObjectIndex::read_sums(ImageReader& reader, size_t count, Sums& sums) {
  sums.kinds = reader.column(count);
  sums.numbers = reader.column(count);
  const bool with_digests = reader.number() != 0;
  sums.digests = reader.fixed_column(with_digests ? count : 0);
}

// In the order in which ObjectIndexBuilder::build() writes.
Result<void> ObjectIndex::read_image(ImageReader::Known known) {
  ImageReader reader(image_.bytes(), known);
  const uint64_t count = reader.number();
  const uint64_t root_count = reader.number(), object_count = reader.number();
  // Each group of names has a byte at least. A count that is out of all proportion ends here.
  const auto is_possible = [this](uint64_t texts) {
    return texts / TextColumn::kGroup <= image_.bytes().size() && texts < UINT32_MAX;
  };
  reader.require(is_possible(object_count) && is_possible(root_count) && count < uint64_t{1} << 63,
                 "the object index says that it has more objects than it can have");
  // No two are equal, so hardly one takes no byte. All are copied.
  reader.require(root_count <= image_.bytes().size(),
                 "the object index says that it has more roots than it can have");
  reader.require(root_count > 0, "the object index has no root");
  const TextColumn roots = reader.text_column(root_count);
  object_roots_ = reader.column(object_count);
  names_ = reader.text_column(object_count);
  sizes_ = reader.column(object_count);
  generation_numbers_ = reader.column(object_count);
  const bool with_texts = reader.number() != 0;
  generation_texts_ = reader.text_column(with_texts ? object_count : 0);
  read_sums(reader, object_count, sums_);
  updated_ = reader.column(object_count);
  component_counts_ = reader.column(object_count);
  metagenerations_ = reader.column(object_count);
  for (Dictionary& each : words_) {
    const uint64_t text_count = reader.number();
    reader.require(text_count <= object_count, "the object index has more words than objects");
    each.texts = reader.text_column(text_count);
    each.ids = reader.column(object_count);
  }
  has_ranges_ = reader.number() != 0;
  if (has_ranges_) {
    const uint64_t run_count = reader.number();
    reader.require(run_count <= count && run_count / TextColumn::kGroup <= image_.bytes().size(),
                   "the object index has more runs than it can have");
    runs_.objects = reader.column(run_count);
    runs_.firsts = reader.column(run_count);
    runs_.begins = reader.column(run_count);
    runs_.lengths = reader.column(run_count);
    runs_.strides = reader.column(run_count);
    runs_.one_each = run_count == count;
    read_sums(reader, count, entry_sums_);
  } else {
    reader.require(count == object_count, "the object index has entries without an object");
  }
  const uint64_t column_count = reader.number();
  reader.require(is_possible(column_count), "the object index has too many columns");
  column_names_ = reader.text_column(column_count);
  for (uint64_t i = 0; i < column_count; ++i) {
    const uint64_t kind = reader.number();
    reader.require(kind < kColumnKindCount, "the object index has a column of an unknown kind");
    Column column{.kind = static_cast<ColumnKind>(kind % kColumnKindCount)};
    const bool has_texts = column.kind == ColumnKind::kText || column.kind == ColumnKind::kBytes;
    if (has_texts) {
      column.in_dictionary = reader.number() != 0;
      const uint64_t text_count = column.in_dictionary ? reader.number() : count;
      reader.require(is_possible(text_count), "the object index has too many texts in a column");
      column.texts = reader.text_column(text_count);
    }
    if (!has_texts || column.in_dictionary) column.numbers = reader.column(count);
    // A header that ends early must not make many columns of nothing.
    if (!reader.good()) break;
    columns_.push_back(column);
  }
  total_size_bytes_ = reader.number();
  if (Result<void> good = reader.finish(); !good) return good;

  size_ = count;
  object_count_ = object_count;
  for (uint64_t i = 0; i < root_count; ++i) roots_.push_back(roots.at(i));
  if (known == ImageReader::Known::kGood) return {};
  if (Result<void> good = check_objects(); !good) return good;
  if (has_ranges_) {
    if (Result<void> good = check_runs(); !good) return good;
  }
  if (Result<void> good = check_columns(); !good) return good;
  return check_total();
}

Result<void> ObjectIndex::check_total() const {
  const size_t run_count = has_ranges_ ? runs_.objects.count() : size_;
  const bool one_each = !has_ranges_ || runs_.one_each;
  std::optional<uint64_t> total = 0;
  for (size_t run = 0; total && run < run_count; ++run) {
    const size_t first = one_each ? run : runs_.firsts[run];
    const size_t next = one_each ? run + 1 : run + 1 == run_count ? size_ : runs_.firsts[run + 1];
    const uint64_t each_bytes = size_bytes(first);
    total = sum_of(*total, each_bytes, next - first);
    if (!total && each_bytes != kUnknownSize) {
      return corrupt("the sizes in the object index add up to more than 2^64 bytes");
    }
  }
  if (total_size_bytes_ != total.value_or(kUnknownSize) + 1) {
    return corrupt("the sizes in the object index do not add up");
  }
  return {};
}

Result<void> ObjectIndex::check_sums(const Sums& sums, size_t count) {
  // What takes no bytes can stand for any number of entries, and is looked at once.
  if (sums.kinds.all_equal() && sums.numbers.all_equal()) count = std::min<size_t>(count, 1);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t kind = sums.kinds[i];
    if (kind >= kChecksumKindCount) {
      return corrupt("the object index has a checksum of a kind that this headrace does not know");
    }
    const size_t size = checksum_size(static_cast<ChecksumKind>(kind));
    const bool fits = size > sizeof(uint64_t)   ? size <= sums.digests.width_bytes()
                      : size < sizeof(uint64_t) ? sums.numbers[i] >> 8 * size == 0
                                                : true;
    if (!fits) return corrupt("checksum ", i, " of the object index is impossible");
  }
  return {};
}

Result<void> ObjectIndex::check_objects() const {
  for (size_t i = 0; i < object_count_; ++i) {
    bool good = names_.size(i) > 0 && component_counts_[i] <= UINT32_MAX &&
                object_roots_[i] < roots_.size();
    for (const Dictionary& each : words_) good = good && each.ids[i] < each.texts.count();
    if (!good) return corrupt("object ", i, " of the object index is impossible");
  }
  return check_sums(sums_, object_count_);
}

Result<void> ObjectIndex::check_runs() const {
  const size_t run_count = runs_.objects.count();
  if (run_count == 0 && size_ > 0) return corrupt("the object index has entries without a run");
  for (size_t run = 0; run < run_count; ++run) {
    const uint64_t first = runs_.one_each ? run : runs_.firsts[run];
    const uint64_t next = runs_.one_each         ? run + 1
                          : run + 1 == run_count ? size_
                                                 : runs_.firsts[run + 1];
    bool good = (run > 0 || first == 0) && first < next && next <= size_ &&
                runs_.objects[run] < object_count_;
    if (good && runs_.lengths[run] == 0) {
      good = runs_.begins[run] == 0 && runs_.strides[run] == 0;
    } else if (good) {
      const uint64_t object_size = sizes_[runs_.objects[run]] - 1;
      good = range_fits(runs_.begins[run], runs_.lengths[run] - 1, runs_.strides[run], next - first,
                        object_size);
    }
    if (!good) return corrupt("run ", run, " of the object index is impossible");
  }
  return check_sums(entry_sums_, size_);
}

Result<void> ObjectIndex::check_columns() const {
  for (const Column& column : columns_) {
    if (!column.in_dictionary) continue;
    const size_t count = column.numbers.all_equal() ? std::min<size_t>(size_, 1) : size_;
    for (size_t i = 0; i < count; ++i) {
      if (column.numbers[i] >= column.texts.count()) {
        return corrupt("value ", i, " of a column of the object index is impossible");
      }
    }
  }
  return {};
}

// ── Entries ──────────────────────────────────────────────────────────────────────────────────

Checksum ObjectIndex::Sums::at(size_t i) const {
  const auto kind = static_cast<ChecksumKind>(kinds[i]);
  if (checksum_size(kind) > sizeof(uint64_t)) return {kind, digests[i]};
  return {kind, numbers[i]};
}

size_t ObjectIndex::run_of(size_t i) const {
  if (runs_.one_each) return i;
  size_t begin = 0, end = runs_.objects.count();
  while (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    (runs_.firsts[middle] <= i ? begin : end) = middle;
  }
  return begin;
}

std::optional<ByteRange> ObjectIndex::range(size_t i) const {
  if (!has_ranges_) return {};
  const size_t run = run_of(i);
  const uint64_t length = runs_.lengths[run];
  if (length == 0) return {};
  const uint64_t in_run = runs_.one_each ? 0 : i - runs_.firsts[run];
  const uint64_t begin = runs_.begins[run] + in_run * runs_.strides[run];
  return ByteRange{begin, begin + length - 1};
}

ObjectIndex::Spacing ObjectIndex::spacing(size_t i) const {
  if (!has_ranges_ || runs_.one_each || !entry_sums_.kinds.all_equal() ||
      entry_sums_.kinds[0] != static_cast<uint64_t>(ChecksumKind::kNone)) {
    return {};
  }
  const size_t run = run_of(i);
  const size_t end = run + 1 == runs_.objects.count() ? size_ : runs_.firsts[run + 1];
  return {.count = end - i, .stride_bytes = runs_.strides[run]};
}

uint64_t ObjectIndex::size_bytes(size_t i) const {
  if (!has_ranges_) return sizes_[i] - 1;
  const size_t run = run_of(i);
  const uint64_t length = runs_.lengths[run];
  return length == 0 ? sizes_[runs_.objects[run]] - 1 : length - 1;
}

Checksum ObjectIndex::checksum(size_t i) const {
  if (!has_ranges_ || runs_.lengths[run_of(i)] == 0) return object_checksum(i);
  return entry_sums_.at(i);
}

void ObjectIndex::append_generation(size_t i, std::string& out) const {
  const size_t object = object_of(i);
  if (const uint64_t number = generation_numbers_[object]; number != 0) {
    std::array<char, 20> digits{};
    const auto [end, error] = std::to_chars(digits.begin(), digits.end(), number - 1);
    out.append(digits.begin(), end);
  } else if (generation_texts_.count() != 0) {
    generation_texts_.append_to(object, out);
  }
}

std::optional<uint64_t> ObjectIndex::total_size_bytes() const {
  if (total_size_bytes_ == 0) return {};
  return total_size_bytes_ - 1;
}

std::optional<uint64_t> ObjectIndex::common_size_bytes() const {
  if (size_ == 0) return {};
  const bool whole = !has_ranges_ || (runs_.lengths.all_equal() && runs_.lengths[0] == 0);
  if (whole ? !sizes_.all_equal() : !runs_.lengths.all_equal()) return {};
  const uint64_t common = size_bytes(0);
  if (common == kUnknownSize) return {};
  return common;
}

ObjectInfo ObjectIndex::info(size_t i) const {
  ObjectInfo out;
  read_info(i, out);
  return out;
}

void ObjectIndex::read_info(size_t i, ObjectInfo& out) const {
  const size_t object = object_of(i);
  out.name.clear();
  names_.append_to(object, out.name);
  out.size_bytes = sizes_[object] - 1;
  out.generation.clear();
  append_generation(i, out.generation);
  out.checksum = object_checksum(i);
  std::string* const words[] = {&out.content_type, &out.content_encoding, &out.storage_class};
  for (size_t word = 0; word < words_.size(); ++word) {
    words[word]->clear();
    words_[word].texts.append_to(words_[word].ids[object], *words[word]);
  }
  out.updated = time_of(updated_[object]);
  out.component_count = static_cast<uint32_t>(component_counts_[object]);
  out.metageneration = metagenerations_[object];
}

std::string ObjectIndex::url(size_t i) const {
  return url_below(roots_[root(i)], names_.at(object_of(i)));
}

// ── Names ────────────────────────────────────────────────────────────────────────────────────

const NameTable& ObjectIndex::table() const {
  const NameTable* found = table_.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  // Without a lock, which a fork could leave taken: of two that are made at the same time, one
  // goes.
  const auto* made = new NameTable(*this);
  if (table_.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

std::optional<ObjectIndex::Found> ObjectIndex::find(std::string_view name, uint32_t root) const {
  const NameTable& names = table();
  std::optional<Found> out;
  names.find(name, [&](uint64_t object) {
    if (root != kAnyRoot && object_roots_[object] != root) return true;
    const std::optional<size_t> entry = names.entry_of(object);
    if (!entry) return true;
    if (out) {
      ++out->other_roots;
    } else {
      out = Found{.entry = *entry};
    }
    return root == kAnyRoot;
  });
  return out;
}

std::vector<size_t> ObjectIndex::find_all(std::string_view name) const {
  std::vector<size_t> out;
  const NameTable& names = table();
  names.find(name, [&](uint64_t object) {
    if (const std::optional<size_t> entry = names.entry_of(object)) out.push_back(*entry);
    return true;
  });
  return out;
}

// ── Columns ──────────────────────────────────────────────────────────────────────────────────

std::optional<size_t> ObjectIndex::column(std::string_view name) const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (column_names_.equals(i, name)) return i;
  }
  return {};
}

ColumnValues ObjectIndex::gathered(size_t column, std::span<const size_t> entries, bool all) const {
  const Column& from = columns_[column];
  const size_t count = all ? size_ : entries.size();
  switch (from.kind) {
    case ColumnKind::kInt64: {
      std::vector<int64_t> out;
      out.reserve(count);
      for_positions(size_, entries, all,
                    [&](size_t i) { out.push_back(integer_of(from.numbers[i])); });
      return out;
    }
    case ColumnKind::kFloat64: {
      std::vector<double> out;
      out.reserve(count);
      for_positions(size_, entries, all,
                    [&](size_t i) { out.push_back(std::bit_cast<double>(from.numbers[i])); });
      return out;
    }
    case ColumnKind::kBool: {
      std::vector<bool> out;
      out.reserve(count);
      for_positions(size_, entries, all, [&](size_t i) { out.push_back(from.numbers[i] != 0); });
      return out;
    }
    case ColumnKind::kText:
    case ColumnKind::kBytes: break;
  }
  TextValues out{.is_bytes = from.kind == ColumnKind::kBytes};
  out.ends.reserve(count);
  for_positions(size_, entries, all, [&](size_t i) {
    from.texts.append_to(from.in_dictionary ? from.numbers[i] : i, out.text);
    out.ends.push_back(out.text.size());
  });
  return out;
}

// ── What is made of it ───────────────────────────────────────────────────────────────────────

struct Fingerprint::State {
  Sha256 sum = {};
  std::string bytes = {};  // not yet in it
  size_t taken = 0;
};

Fingerprint::Fingerprint(const ObjectIndex& index)
    : index_(index), state_(std::make_unique<State>()) {}
Fingerprint::~Fingerprint() = default;

bool Fingerprint::take(size_t count) {
  constexpr size_t kEnough = 64 * 1024;
  std::string& bytes = state_->bytes;
  const size_t end = state_->taken + std::min(count, index_.size() - state_->taken);
  for (size_t& i = state_->taken; i < end;) {
    const ObjectIndex::Spacing alike = index_.spacing(i);
    const size_t object = index_.object_of(i);
    // Lengths before texts: no two lists of entries give the same bytes.
    append_number(bytes, index_.names_.size(object));
    index_.names_.append_to(object, bytes);
    append_number(bytes, index_.sizes_[object]);
    append_sum(bytes, index_.sums_.at(object));
    const std::optional<ByteRange> part = index_.range(i);
    bytes += static_cast<char>((part ? 1 : 0) + (alike.count > 1 ? 2 : 0));
    if (part) {
      append_number(bytes, part->begin);
      append_number(bytes, part->end);
      append_sum(bytes, index_.entry_sums_.at(i));
    }
    if (alike.count > 1) {
      append_number(bytes, alike.count);
      append_number(bytes, alike.stride_bytes);
    }
    i += alike.count;
    if (bytes.size() >= kEnough) {
      state_->sum.add(bytes);
      bytes.clear();
    }
  }
  return state_->taken == index_.size();
}

std::string Fingerprint::finish() && {
  constexpr size_t kDigits = 32;
  state_->sum.add(state_->bytes);
  return state_->sum.hex(kDigits);
}

std::string ObjectIndex::fingerprint() const {
  Fingerprint made(*this);
  made.take(size_);
  return std::move(made).finish();
}

namespace {

bool is_folder_marker(std::string_view name, uint64_t size_bytes) {
  return size_bytes == 0 && (name.ends_with('/') || name.ends_with("_$folder$"));
}

bool is_hidden_part(std::string_view part, std::string_view marks) {
  if (part == "__MACOSX" && !marks.empty()) return true;
  if (part.empty() || !marks.contains(part.front())) return false;
  return part.front() != '_' || !part.contains('=');
}

bool is_hidden(std::string_view below, std::string_view marks) {
  while (true) {
    const size_t end = below.find('/');
    if (is_hidden_part(below.substr(0, end), marks)) return true;
    if (end == std::string_view::npos) return false;
    below.remove_prefix(end + 1);
  }
}

}  // namespace

std::vector<size_t> filter(const ObjectIndex& index, const IndexFilter& filter) {
  std::vector<size_t> out;
  std::string name;
  const bool any_size = filter.min_size_bytes == 0 && filter.max_size_bytes == UINT64_MAX;
  // The length of its last folder, or 0.
  const size_t below = filter.prefix.rfind('/') + 1;
  // Entries of one rule are of one object and of one length.
  size_t count = 0;
  for (size_t i = 0; i < index.size(); i += count) {
    count = index.spacing(i).count;
    if (!any_size) {
      const uint64_t size_bytes = index.size_bytes(i);
      if (size_bytes == kUnknownSize || size_bytes < filter.min_size_bytes ||
          size_bytes > filter.max_size_bytes) {
        continue;
      }
    }
    name.clear();
    index.append_name(i, name);
    if (!name.starts_with(filter.prefix)) continue;
    const auto ends_name = [&name](const std::string& suffix) { return name.ends_with(suffix); };
    if (!filter.suffixes.empty() && std::ranges::none_of(filter.suffixes, ends_name)) continue;
    if (filter.glob && !filter.glob->matches(name)) continue;
    if (filter.leave_out && (is_folder_marker(name, index.size_bytes(i)) ||
                             is_hidden(std::string_view(name).substr(below), *filter.leave_out))) {
      continue;
    }
    for (size_t each = i; each < i + count; ++each) out.push_back(each);
  }
  return out;
}

}  // namespace headrace
