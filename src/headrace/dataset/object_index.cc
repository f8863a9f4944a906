#include "headrace/dataset/object_index.h"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace headrace {
namespace {

using std::chrono::system_clock;

// A number that is written in just one way, so that it can be written again; 0 for anything else.
uint64_t number_of(std::string_view generation) {
  if (generation.empty() || (generation.front() == '0' && generation.size() > 1)) return 0;
  uint64_t value = 0;
  const char* const begin = generation.data();
  const char* const end = begin + generation.size();
  const auto [parsed, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || parsed != end || value == UINT64_MAX) return 0;
  return value + 1;
}

// In nanoseconds. Times order like the numbers, so that their differences stay small.
constexpr uint64_t kTimeBias = uint64_t{1} << 63;
uint64_t number_of(system_clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch());
  return static_cast<uint64_t>(since.count()) + kTimeBias;
}
system_clock::time_point time_of(uint64_t number) {
  const std::chrono::nanoseconds since(static_cast<int64_t>(number - kTimeBias));
  return system_clock::time_point(std::chrono::duration_cast<system_clock::duration>(since));
}

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

}  // namespace

// ── The index ────────────────────────────────────────────────────────────────────────────────

Result<std::shared_ptr<const ObjectIndex>> ObjectIndex::open(SharedBytes image) {
  std::shared_ptr<ObjectIndex> index(new ObjectIndex());
  index->image_ = std::move(image);
  if (Result<void> good = index->read_image(); !good) {
    return std::unexpected(std::move(good.error()));
  }
  return index;
}

// In the order in which ObjectIndexBuilder::build() writes.
Result<void> ObjectIndex::read_image() {
  ImageReader reader(image_.bytes());
  const uint64_t count = reader.number();
  // Each group of names has a byte at least. A count that is out of all proportion ends here.
  reader.require(count / TextColumn::kGroup <= image_.bytes().size(),
                 "the object index says that it has more objects than it can have");
  const TextColumn source = reader.text_column(2);
  names_ = reader.text_column(count);
  sizes_ = reader.column(count);
  generation_numbers_ = reader.column(count);
  const bool with_texts = reader.number() != 0;
  generation_texts_ = reader.text_column(with_texts ? count : 0);
  crc32cs_ = reader.column(count);
  updated_ = reader.column(count);
  component_counts_ = reader.column(count);
  metagenerations_ = reader.column(count);
  for (Dictionary* each : {&content_types_, &content_encodings_, &storage_classes_}) {
    const uint64_t text_count = reader.number();
    reader.require(text_count <= count, "the object index has more words than objects");
    each->texts = reader.text_column(text_count);
    each->ids = reader.column(count);
  }
  if (Result<void> good = reader.finish(); !good) return good;

  size_ = count;
  store_url_ = source.at(0);
  prefix_ = source.at(1);
  for (size_t i = 0; i < size_; ++i) {
    const uint64_t bytes = sizes_[i];
    bool good = names_.size(i) > 0 && bytes <= UINT64_MAX - total_size_bytes_ &&
                crc32cs_[i] <= uint64_t{1} << 32 && component_counts_[i] <= UINT32_MAX;
    for (const Dictionary* each : {&content_types_, &content_encodings_, &storage_classes_}) {
      good = good && each->ids[i] < each->texts.count();
    }
    if (!good) return corrupt("object ", i, " of the object index is impossible");
    total_size_bytes_ += bytes;
  }
  return {};
}

void ObjectIndex::append_generation(size_t i, std::string& out) const {
  if (const uint64_t number = generation_numbers_[i]; number != 0) {
    std::array<char, 20> digits{};
    const auto [end, error] = std::to_chars(digits.begin(), digits.end(), number - 1);
    out.append(digits.begin(), end);
  } else if (generation_texts_.count() != 0) {
    generation_texts_.append_to(i, out);
  }
}

std::optional<Crc32c> ObjectIndex::crc32c(size_t i) const {
  const uint64_t number = crc32cs_[i];
  if (number == 0) return {};
  return Crc32c(static_cast<uint32_t>(number - 1));
}

std::optional<uint64_t> ObjectIndex::common_size_bytes() const {
  if (size_ == 0 || !sizes_.all_equal()) return {};
  return sizes_[0];
}

ObjectInfo ObjectIndex::info(size_t i) const {
  ObjectInfo out{.name = names_.at(i),
                 .size_bytes = sizes_[i],
                 .crc32c = crc32c(i),
                 .content_type = content_types_.at(i),
                 .content_encoding = content_encodings_.at(i),
                 .updated = time_of(updated_[i]),
                 .storage_class = storage_classes_.at(i),
                 .component_count = static_cast<uint32_t>(component_counts_[i]),
                 .metageneration = metagenerations_[i]};
  append_generation(i, out.generation);
  return out;
}

std::string ObjectIndex::fingerprint() const {
  constexpr size_t kDigits = 32, kEnough = 64 * 1024;
  Sha256 sum;
  std::string bytes, generation;
  for (size_t i = 0; i < size_; ++i) {
    generation.clear();
    append_generation(i, generation);
    // Lengths before texts: no two lists of objects give the same bytes.
    append_number(bytes, names_.size(i));
    names_.append_to(i, bytes);
    append_number(bytes, sizes_[i]);
    append_number(bytes, generation.size());
    bytes += generation;
    if (bytes.size() >= kEnough) {
      sum.add(bytes);
      bytes.clear();
    }
  }
  sum.add(bytes);
  return sum.hex(kDigits);
}

std::vector<size_t> filter(const ObjectIndex& index, const IndexFilter& filter) {
  std::vector<size_t> out;
  std::string name;
  for (size_t i = 0; i < index.size(); ++i) {
    const uint64_t size_bytes = index.size_bytes(i);
    if (size_bytes < filter.min_size_bytes || size_bytes > filter.max_size_bytes) continue;
    name.clear();
    index.append_name(i, name);
    const auto ends_name = [&name](const std::string& suffix) { return name.ends_with(suffix); };
    if (!filter.suffixes.empty() && std::ranges::none_of(filter.suffixes, ends_name)) continue;
    if (filter.glob && !filter.glob->matches(name)) continue;
    out.push_back(i);
  }
  return out;
}

// ── The builder ──────────────────────────────────────────────────────────────────────────────

uint32_t ObjectIndexBuilder::Words::id_of(std::string_view text) {
  if (last_ < texts_.size() && texts_[last_] == text) return last_;
  const auto [found, is_new] =
      ids_.try_emplace(std::string(text), static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.emplace_back(text);
  return last_ = found->second;
}

void ObjectIndexBuilder::add(const ObjectInfo& object) {
  if (segments_.empty() || segments_.back().rows.size() == kSegmentRows) segments_.emplace_back();
  Segment& segment = segments_.back();
  const uint64_t generation_number = number_of(object.generation);
  const std::string_view generation =
      generation_number == 0 ? std::string_view(object.generation) : std::string_view();
  segment.rows.push_back({.size_bytes = object.size_bytes,
                          .generation_number = generation_number,
                          .updated = number_of(object.updated),
                          .metageneration = object.metageneration,
                          .crc32c = object.crc32c ? uint64_t{object.crc32c->value()} + 1 : 0,
                          .name_size = static_cast<uint32_t>(object.name.size()),
                          .generation_size = static_cast<uint32_t>(generation.size()),
                          .component_count = object.component_count,
                          .words = {words_[kContentType].id_of(object.content_type),
                                    words_[kContentEncoding].id_of(object.content_encoding),
                                    words_[kStorageClass].id_of(object.storage_class)}});
  segment.text.append(object.name).append(generation);
  ++size_;
}

void ObjectIndexBuilder::append(ObjectIndexBuilder&& other) {
  std::array<std::vector<uint32_t>, kWordCount> ids;
  bool same = true;
  for (size_t word = 0; word < kWordCount; ++word) {
    for (const std::string& text : other.words_[word].texts()) {
      same = words_[word].id_of(text) == ids[word].size() && same;
      ids[word].push_back(words_[word].id_of(text));
    }
  }
  for (Segment& segment : other.segments_) {
    for (size_t row = 0; !same && row < segment.rows.size(); ++row) {
      for (size_t word = 0; word < kWordCount; ++word) {
        uint32_t& id = segment.rows[row].words[word];
        id = ids[word][id];
      }
    }
    segments_.push_back(std::move(segment));
  }
  size_ += other.size_;
  other = {};
}

// Calls `visit` with each row, its name, and its generation unless that is a number.
template <class Visit>
void ObjectIndexBuilder::each(Visit visit) const {
  for (const Segment& segment : segments_) {
    std::string_view text = segment.text;
    for (const Row& row : segment.rows) {
      visit(row, text.substr(0, row.name_size), text.substr(row.name_size, row.generation_size));
      text.remove_prefix(row.name_size + row.generation_size);
    }
  }
}

template <class Get>
void ObjectIndexBuilder::write_column(ImageWriter& writer, Get get) const {
  std::vector<uint64_t> values;
  values.reserve(size_);
  for (const Segment& segment : segments_) {
    for (const Row& row : segment.rows) values.push_back(get(row));
  }
  writer.column(values);
}

Result<std::shared_ptr<const ObjectIndex>> ObjectIndexBuilder::build() const {
  bool with_texts = false;
  uint64_t total_bytes = 0;
  for (const Segment& segment : segments_) {
    for (const Row& row : segment.rows) {
      if (row.name_size == 0) return invalid_argument("an object's name must not be empty");
      if (row.size_bytes > UINT64_MAX - total_bytes) {
        return invalid_argument("the sizes of the objects add up to more than 2^64 bytes");
      }
      total_bytes += row.size_bytes;
      with_texts = with_texts || row.generation_size != 0;
    }
  }
  ImageWriter writer;
  writer.number(size_);
  using Sink = ImageWriter::TextSink;
  writer.text_column(2, [this](const Sink& put) {
    put(store_url_);
    put(prefix_);
  });
  writer.text_column(size_, [this](const Sink& put) {
    each([&put](const Row&, std::string_view name, std::string_view) { put(name); });
  });
  write_column(writer, [](const Row& row) { return row.size_bytes; });
  write_column(writer, [](const Row& row) { return row.generation_number; });
  writer.number(with_texts ? 1 : 0);
  writer.text_column(with_texts ? size_ : 0, [this, with_texts](const Sink& put) {
    if (!with_texts) return;
    each([&put](const Row&, std::string_view, std::string_view generation) { put(generation); });
  });
  write_column(writer, [](const Row& row) { return row.crc32c; });
  write_column(writer, [](const Row& row) { return row.updated; });
  write_column(writer, [](const Row& row) { return uint64_t{row.component_count}; });
  write_column(writer, [](const Row& row) { return row.metageneration; });
  for (size_t word = 0; word < kWordCount; ++word) {
    const std::vector<std::string>& texts = words_[word].texts();
    writer.number(texts.size());
    writer.text_column(texts.size(), [&texts](const Sink& put) {
      for (const std::string& text : texts) put(text);
    });
    write_column(writer, [word](const Row& row) { return uint64_t{row.words[word]}; });
  }
  Result<SharedBytes> image = SharedBytes::copy_of(std::move(writer).finish());
  if (!image) return std::unexpected(std::move(image.error()));
  return ObjectIndex::open(std::move(*image));
}

}  // namespace headrace
