// One page of a listing, by columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/format/object_info.h"

namespace headrace {

// What a listing tells of a thousand objects, without an allocation for each: a million names pass
// through here on their way into an index. Thread: confined.
class ColumnPage {
 public:
  struct Row {
    uint64_t size_bytes = 0;
    uint64_t metageneration = 0;
    std::chrono::system_clock::time_point updated{};
    std::optional<Crc32c> crc32c;
    uint32_t component_count = 0;
    // Texts: the name and the generation one after the other; of the others there are few.
    uint32_t text_begin = 0, name_size = 0, generation_size = 0;
    uint32_t content_type = 0, content_encoding = 0, storage_class = 0;
  };

  std::vector<std::string> prefixes;  // common prefixes, when a delimiter was asked for
  std::string next_page_token;        // "" on the last page
  uint32_t placeholders = 0;          // as in ObjectPage

  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  void reserve(size_t rows, size_t text_bytes) {
    rows_.reserve(rows);
    text_.reserve(text_bytes);
  }
  // A row with these texts, whose other fields the caller sets. Valid until the next.
  Row& add(std::string_view name, std::string_view generation);
  void add(const ObjectInfo& info);
  // For the fields of Row that stand for one of few texts.
  uint32_t word(std::string_view text);

  std::string_view name(size_t i) const { return text(rows_[i].text_begin, rows_[i].name_size); }
  std::string_view generation(size_t i) const {
    return text(rows_[i].text_begin + rows_[i].name_size, rows_[i].generation_size);
  }
  const Row& row(size_t i) const { return rows_[i]; }
  std::string_view word_at(uint32_t index) const { return words_[index]; }
  // Writes over `info`, whose memory is used again.
  void read(size_t i, ObjectInfo& info) const;
  ObjectInfo info(size_t i) const {
    ObjectInfo info;
    read(i, info);
    return info;
  }
  uint64_t memory_bytes() const { return rows_.capacity() * sizeof(Row) + text_.capacity(); }
  // Leaves rows [begin, end) only.
  void keep(size_t begin, size_t end);
  // Takes off the rows whose names `is_unwanted` is true for, and says how many.
  template <class Predicate>
  size_t erase_if(const Predicate& is_unwanted) {
    return std::erase_if(
        rows_, [&](const Row& row) { return is_unwanted(text(row.text_begin, row.name_size)); });
  }
  // Takes the first `bytes` off every name; none is shorter.
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
