// One page of a listing, by columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/format/object_info.h"

namespace headrace {

// What a listing says about a thousand objects, without an allocation for each: a million names may
// pass through here on their way into an index. Thread: confined.
class ColumnPage {
 public:
  // Services tell a thousand at a time; a page with more objects, or more prefixes, is refused: it
  // would take several times its size in memory.
  static constexpr size_t kMaxEntries = 100'000;

  struct Row {
    uint64_t size_bytes = 0;
    uint64_t metageneration = 0;
    std::chrono::system_clock::time_point updated{};
    Checksum checksum;
    uint32_t component_count = 0;
    // Texts: the name followed by the generation. The other fields have few distinct values.
    uint32_t text_begin = 0, name_size = 0, generation_size = 0;
    uint32_t content_type = 0, content_encoding = 0, storage_class = 0;
  };

  std::vector<std::string> prefixes;  // common prefixes, when a delimiter was asked for
  std::string next_page_token;        // "" on the last page
  // Objects that have the name of the store's root itself, and were left out: 0 or 1.
  uint32_t placeholders = 0;

  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  void reserve(size_t rows, size_t text_bytes) {
    rows_.reserve(rows);
    text_.reserve(text_bytes);
  }
  // Adds a row with these texts, whose other fields the caller sets. Valid until the next call.
  Row& add(std::string_view name, std::string_view generation);
  void add(const ObjectInfo& info);
  void add(const ColumnPage& from, size_t i);
  // For the fields of Row that refer to one of a few texts.
  uint32_t word(std::string_view text);

  std::string_view name(size_t i) const { return text(rows_[i].text_begin, rows_[i].name_size); }
  std::string_view generation(size_t i) const {
    return text(rows_[i].text_begin + rows_[i].name_size, rows_[i].generation_size);
  }
  const Row& row(size_t i) const { return rows_[i]; }
  std::string_view word_at(uint32_t index) const { return words_[index]; }
  // Overwrites `info`, reusing its memory.
  void read(size_t i, ObjectInfo& info) const;
  ObjectInfo info(size_t i) const {
    ObjectInfo info;
    read(i, info);
    return info;
  }
  std::vector<ObjectInfo> objects() const;
  uint64_t text_bytes() const { return text_.size(); }
  uint64_t memory_bytes() const { return rows_.capacity() * sizeof(Row) + text_.capacity(); }
  // Keeps only rows [begin, end).
  void keep(size_t begin, size_t end);
  // Removes the rows whose names satisfy `is_unwanted`, and returns how many.
  template <class Predicate>
  size_t erase_if(const Predicate& is_unwanted) {
    return std::erase_if(
        rows_, [&](const Row& row) { return is_unwanted(text(row.text_begin, row.name_size)); });
  }
  // Removes the first `bytes` bytes of every name; no name may be shorter.
  void cut_names(size_t bytes) {
    for (Row& row : rows_) {
      row.text_begin += static_cast<uint32_t>(bytes);
      row.name_size -= static_cast<uint32_t>(bytes);
    }
  }

 private:
  std::string_view text(size_t begin, size_t size) const {
    return std::string_view(text_).substr(begin, size);
  }
  std::vector<Row> rows_;
  std::string text_;
  std::vector<std::string> words_ = {""};
};

}  // namespace headrace
