// An image is refused, or every entry in it can be read and found by its name, and an index of
// these is the same again.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "headrace/dataset/object_index.h"

using namespace headrace;
using fuzz::check;

namespace {

using Index = std::shared_ptr<const ObjectIndex>;

Result<Index> open(std::span<const std::byte> image) {
  return ObjectIndex::open(SharedBytes::copy_of(image).value());
}

// The sums that a writer would have put there: else hardly an input gets past them.
std::vector<std::byte> with_sums(std::span<const std::byte> image) {
  std::vector<std::byte> out(image.begin(), image.end());
  constexpr size_t kSumAt = 12, kSizeAt = 16;
  if (out.size() < kSizeAt + sizeof(uint64_t)) return out;
  const uint64_t size = out.size();
  std::memcpy(out.data() + kSizeAt, &size, sizeof(size));
  const uint32_t sum = Crc32c().extended(std::span(out).subspan(kSizeAt)).value();
  std::memcpy(out.data() + kSumAt, &sum, sizeof(sum));
  return out;
}

struct Entry {
  ObjectInfo object = {};
  EntryDetails details = {};
};

std::vector<Entry> entries_of(const ObjectIndex& index) {
  std::vector<Entry> out;
  for (size_t i = 0; i < index.size(); ++i) {
    Entry entry{.object = index.info(i), .details = {.root = index.root(i)}};
    entry.details.range = index.range(i);
    if (entry.details.range) entry.details.range_checksum = index.checksum(i);
    out.push_back(std::move(entry));
  }
  return out;
}

Result<Index> try_built(const std::vector<Entry>& entries, const std::vector<std::string>& roots) {
  ObjectIndexBuilder builder;
  for (const std::string& root : roots) builder.add_root(root);
  for (const Entry& entry : entries) builder.add(entry.object, entry.details);
  return std::move(builder).build();
}

Index with_same_columns(const ObjectIndex& to, const ObjectIndex& from) {
  std::vector<std::pair<std::string, ColumnValues>> columns;
  for (size_t i = 0; i < from.column_count(); ++i) {
    columns.emplace_back(from.column_name(i), from.values(i));
  }
  return with_columns(to, std::move(columns), {}).value();
}

void check_same(const ObjectIndex& index, const std::vector<Entry>& entries) {
  check(index.size() == entries.size());
  std::string name, generation;
  std::optional<uint64_t> total_bytes = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [object, details] = entries[i];
    check(index.info(i) == object);
    name.clear();
    index.append_name(i, name);
    generation.clear();
    index.append_generation(i, generation);
    check(name == object.name && generation == object.generation);
    check(index.root(i) == details.root && index.range(i) == details.range);
    if (details.range) {
      check(index.checksum(i) == details.range_checksum);
      check(index.size_bytes(i) == details.range->size_bytes());
      check(details.range->begin <= details.range->end);
      check(object.size_bytes == kUnknownSize || details.range->end <= object.size_bytes);
    } else {
      check(index.size_bytes(i) == object.size_bytes);
    }
    const auto found = index.find(name, details.root);
    check(found.has_value() && index.root(found->entry) == details.root);
    check(index.info(found->entry).name == name);
    if (index.size_bytes(i) == kUnknownSize) total_bytes.reset();
    if (total_bytes) *total_bytes += index.size_bytes(i);
  }
  check(total_bytes == index.total_size_bytes());
  if (const auto common = index.common_size_bytes()) {
    check(*common * index.size() == total_bytes);
  }
}

void check_image(std::span<const std::byte> image, fuzz::Choices& choices) {
  const Result<Index> index = open(image);
  if (!index) {
    check(index.error().code() == Code::kCorrupt);
    return;
  }
  // Bytes can stand for more bytes, but not for any number of them.
  size_t copied_bytes = 0;
  for (const std::string& root : (*index)->roots()) copied_bytes += root.size();
  check(copied_bytes <= TextColumn::kGroup * image.size());
  check((*index)->roots().size() <= image.size());
  // A few bytes can stand for many entries that are all alike.
  constexpr size_t kMostEntries = 500;
  if ((*index)->size() > kMostEntries) {
    const size_t last = (*index)->size() - 1;
    check(!(*index)->info(last).name.empty());
    check((*index)->range(last).value_or(ByteRange{}).end <= (*index)->object_bytes(last));
    return;
  }
  const std::vector<Entry> entries = entries_of(**index);
  check_same(**index, entries);
  // What was made by hand may be written in other ways than ours, and may say things twice; from
  // then on it is one.
  const std::vector<std::string>& roots = (*index)->roots();
  std::vector<std::string> unique;
  for (const std::string& root : roots) {
    if (std::ranges::find(unique, root) == unique.end()) unique.push_back(root);
  }
  if (unique.size() != roots.size()) return;
  const Index plain = try_built(entries, roots).value();
  check_same(*plain, entries);
  check((*index)->fingerprint() == plain->fingerprint());
  for (size_t i = 0; i < (*index)->column_count(); ++i) {
    if ((*index)->column((*index)->column_name(i)) != i) return;
    if ((*index)->column_name(i).empty()) return;
  }
  const Index again = with_same_columns(*plain, **index);
  check_same(*again, entries);
  for (size_t i = 0; i < again->column_count(); ++i) {
    // A float may be no number, which is not equal to itself.
    if (std::holds_alternative<std::vector<double>>(again->values(i))) continue;
    check(again->values(i) == (*index)->values(i));
  }
  const auto bytes = again->image().bytes();
  const Index reopened = open(bytes).value();
  check_same(*reopened, entries);
  check(std::ranges::equal(
      with_same_columns(*try_built(entries, roots).value(), *reopened)->image().bytes(), bytes));
  // No beginning of an image is an image, and no image with a bit changed.
  check(!open(bytes.first(choices() % bytes.size())).has_value());
  std::vector<std::byte> flipped(bytes.begin(), bytes.end());
  flipped[choices() % flipped.size()] ^= static_cast<std::byte>(1 << choices() % 8);
  check(!open(flipped).has_value());
}

// Entries whose fields are pieces of the input.
void check_entries(std::string_view text, fuzz::Choices& choices) {
  const auto piece = [&](size_t most) {
    const std::string_view out =
        text.substr(0, std::min<size_t>(choices() % (most + 1), text.size()));
    text.remove_prefix(out.size());
    return std::string(out);
  };
  const std::vector<std::string> roots = {"gs://bucket", "file:///" + piece(3)};
  std::vector<Entry> entries;
  std::vector<int64_t> integers;
  std::vector<bool> booleans;
  TextValues texts;
  const bool with_ranges = choices() % 2 == 0;
  while (!text.empty()) {
    Entry entry{.details = {.root = choices() % 2}};
    ObjectInfo& object = entry.object;
    object.name = "n" + piece(choices() % 4 == 0 ? 20 : 2);
    object.size_bytes = choices() % 8 == 0 ? kUnknownSize : choices() >> choices() % 32;
    object.generation = choices() % 2 == 0 ? std::to_string(choices()) : piece(6);
    if (choices() % 3 != 0) object.checksum = Crc32c(choices());
    object.content_type = piece(choices() % 2);
    object.updated += std::chrono::nanoseconds(choices());
    object.metageneration = choices() >> choices() % 32;
    // The same object again, in part: by a rule, or by none.
    const uint32_t times = with_ranges ? choices() % 5 : 1;
    const uint64_t size = object.size_bytes == kUnknownSize ? 1 << 20 : object.size_bytes;
    for (uint32_t i = 0; i < times; ++i) {
      entry.details.range.reset();
      if (with_ranges && choices() % 8 != 0) {
        const uint64_t begin = choices() % 2 == 0 ? size / times * i : choices() % (size + 1);
        const uint64_t length = choices() % 2 == 0 ? size / times : choices() % (size - begin + 1);
        entry.details.range = ByteRange{begin, std::min(size, begin + length)};
      }
      entry.details.range_checksum = {};
      if (entry.details.range && choices() % 2 == 0) {
        std::array<std::byte, Checksum::kMostBytes> sum{};
        sum.fill(static_cast<std::byte>(choices()));
        const auto kind = static_cast<ChecksumKind>(choices() % kChecksumKindCount);
        entry.details.range_checksum = {kind, std::span(sum).first(checksum_size(kind))};
      }
      entries.push_back(entry);
      integers.push_back(static_cast<int64_t>(choices()) << choices() % 32);
      booleans.push_back(choices() % 2 == 0);
      texts.add(choices() % 2 == 0 ? "" : object.name);
    }
  }
  const Index plain = try_built(entries, roots).value();
  const Index index =
      with_columns(*plain, {{"i", integers}, {"t", texts}, {"b", booleans}}, {}).value();
  check(index->values(0) == ColumnValues(integers) && index->values(1) == ColumnValues(texts) &&
        index->values(2) == ColumnValues(booleans));
  check_same(*index, entries);
  check_same(*open(index->image().bytes()).value(), entries);
  const std::shared_ptr<const ObjectIndex> both[] = {index, index};
  check(concat(both).value()->size() == 2 * index->size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  check_image(fuzz::as_bytes(text), choices);
  check_image(with_sums(fuzz::as_bytes(text)), choices);
  check_entries(text, choices);
  return 0;
}
