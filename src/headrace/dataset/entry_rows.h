// What an ObjectIndexBuilder collects: numbers and texts of entries, packed as they come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset/columns.h"
#include "headrace/format/checksum.h"

namespace headrace {

// Of an entry, or of several that are computed by one rule.
enum class EntryNumber : uint8_t {
  // Of its object.
  kSizeBytes,
  kGeneration,  // 0: none, or a text; else the number, plus one
  kUpdated,
  kMetageneration,
  kComponentCount,
  kRoot,
  kContentType,  // these are numbers of words
  kContentEncoding,
  kStorageClass,
  kSumKind,
  kSum,  // if it is a number
  // Of its range.
  kRangeBegin,
  kRangeLength,  // plus one; 0: the whole object
  kCount,        // entries, each so far behind the one before:
  kStride,
  kRangeSumKind,
  kRangeSum,
  // Of its texts.
  kNameSize,
  kGenerationSize,
};
inline constexpr size_t kEntryNumberCount = static_cast<size_t>(EntryNumber::kGenerationSize) + 1;

class EntryNumbers {
 public:
  uint64_t& operator[](EntryNumber which) { return values_[static_cast<size_t>(which)]; }
  uint64_t operator[](EntryNumber which) const { return values_[static_cast<size_t>(which)]; }

 private:
  std::array<uint64_t, kEntryNumberCount> values_{};
};

// Rows that are packed, some thousand at a time, like the columns of an image: what is equal takes
// nothing, and names share prefixes. A listing of millions of names thus takes about as much memory
// while it comes as its index takes then.
// Thread: confined.
class EntryRows {
 public:
  struct Texts {
    std::string_view name, generation = {};
    std::span<const std::byte> digest = {}, range_digest = {};  // sums that are no numbers
  };
  class Entry;

  EntryRows() = default;
  EntryRows(EntryRows&&) = default;
  EntryRows& operator=(EntryRows&&) = default;

  // The sizes of the texts are filled in.
  void add(EntryNumbers numbers, const Texts& texts);

  // Calls `visit` with this number of each row.
  template <class Visit>
  void each(EntryNumber which, Visit visit) const {
    for (const Packed& packed : packed_) {
      const PackedColumn& column = packed.numbers[static_cast<size_t>(which)];
      for (size_t i = 0; i < packed.size; ++i) visit(column[i]);
    }
    for (const EntryNumbers& row : rows_) visit(row[which]);
  }
  // The same for each entry: as often for a row as it stands for entries.
  template <class Visit>
  void each_entry(EntryNumber which, Visit visit) const {
    const auto repeat = [&visit](uint64_t number, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) visit(number);
    };
    for (const Packed& packed : packed_) {
      const PackedColumn& column = packed.numbers[static_cast<size_t>(which)];
      const PackedColumn& counts = packed.numbers[static_cast<size_t>(EntryNumber::kCount)];
      for (size_t i = 0; i < packed.size; ++i) repeat(column[i], counts[i]);
    }
    for (const EntryNumbers& row : rows_) repeat(row[which], row[EntryNumber::kCount]);
  }
  // Calls `visit` with each row, an Entry, which is valid until it returns.
  template <class Visit>
  void each(Visit visit) const;

 private:
  static constexpr size_t kPackedRows = 2048;

  struct Packed {
    Packed() = default;
    Packed(Packed&&) = default;
    Packed& operator=(Packed&&) = default;

    size_t size = 0;
    std::vector<std::byte> image;
    std::array<PackedColumn, kEntryNumberCount> numbers;
    TextColumn texts;
  };

  void pack();

  std::vector<Packed> packed_;
  // Behind those, the newest.
  std::vector<EntryNumbers> rows_;
  std::string text_;  // of all of them: name, generation, digest, range's digest
  std::vector<uint64_t> scratch_;
};

// Borrows the row.
class EntryRows::Entry {
 public:
  Entry(const Packed& packed, size_t i, std::string_view text)
      : packed_(&packed), i_(i), text_(text) {}
  Entry(const EntryNumbers& row, std::string_view text) : row_(&row), text_(text) {}

  uint64_t operator[](EntryNumber which) const {
    return row_ != nullptr ? (*row_)[which] : packed_->numbers[static_cast<size_t>(which)][i_];
  }
  ChecksumKind sum_kind() const { return kind(EntryNumber::kSumKind); }
  ChecksumKind range_sum_kind() const { return kind(EntryNumber::kRangeSumKind); }
  std::string_view name() const { return text_.substr(0, name_size()); }
  std::string_view generation() const { return text_.substr(name_size(), generation_size()); }
  std::span<const std::byte> digest() const {
    return bytes(name_size() + generation_size(), digest_size(sum_kind()));
  }
  std::span<const std::byte> range_digest() const {
    const size_t before = name_size() + generation_size() + digest_size(sum_kind());
    return bytes(before, digest_size(range_sum_kind()));
  }
  // All of them.
  size_t text_size() const {
    return name_size() + generation_size() + digest_size(sum_kind()) +
           digest_size(range_sum_kind());
  }

 private:
  static size_t digest_size(ChecksumKind kind) {
    const size_t size = checksum_size(kind);
    return size > sizeof(uint64_t) ? size : 0;
  }
  ChecksumKind kind(EntryNumber which) const { return static_cast<ChecksumKind>((*this)[which]); }
  size_t name_size() const { return (*this)[EntryNumber::kNameSize]; }
  size_t generation_size() const { return (*this)[EntryNumber::kGenerationSize]; }
  std::span<const std::byte> bytes(size_t begin, size_t size) const {
    return std::as_bytes(std::span(text_.substr(begin, size)));
  }

  const EntryNumbers* row_ = nullptr;  // or else
  const Packed* packed_ = nullptr;
  size_t i_ = 0;
  std::string_view text_;
};

template <class Visit>
void EntryRows::each(Visit visit) const {
  std::string unpacked;
  for (const Packed& packed : packed_) {
    for (size_t i = 0; i < packed.size; ++i) {
      unpacked.clear();
      packed.texts.append_to(i, unpacked);
      visit(Entry(packed, i, unpacked));
    }
  }
  std::string_view rest = text_;
  for (const EntryNumbers& row : rows_) {
    const Entry entry(row, rest);
    visit(entry);
    rest.remove_prefix(entry.text_size());
  }
}

}  // namespace headrace
