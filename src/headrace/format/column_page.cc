#include "headrace/format/column_page.h"

#include <algorithm>

namespace headrace {

ColumnPage::Row& ColumnPage::add(std::string_view name, std::string_view generation) {
  Row& row = rows_.emplace_back();
  row.text_begin = static_cast<uint32_t>(text_.size());
  row.name_size = static_cast<uint32_t>(name.size());
  row.generation_size = static_cast<uint32_t>(generation.size());
  text_.append(name).append(generation);
  return row;
}

void ColumnPage::add(const ObjectInfo& info) {
  const uint32_t content_type = word(info.content_type);
  const uint32_t content_encoding = word(info.content_encoding);
  const uint32_t storage_class = word(info.storage_class);
  Row& row = add(info.name, info.generation);
  row.size_bytes = info.size_bytes;
  row.metageneration = info.metageneration;
  row.updated = info.updated;
  row.checksum = info.checksum;
  row.component_count = info.component_count;
  row.content_type = content_type;
  row.content_encoding = content_encoding;
  row.storage_class = storage_class;
}

void ColumnPage::add(const ColumnPage& from, size_t i) {
  Row row = from.rows_[i];
  row.content_type = word(from.word_at(row.content_type));
  row.content_encoding = word(from.word_at(row.content_encoding));
  row.storage_class = word(from.word_at(row.storage_class));
  const auto text_begin = static_cast<uint32_t>(text_.size());
  text_.append(from.text(row.text_begin, row.name_size + row.generation_size));
  row.text_begin = text_begin;
  rows_.push_back(row);
}

uint32_t ColumnPage::word(std::string_view text) {
  // As a rule it is one of two or three; where there are many, they are not worth the search.
  constexpr size_t kSearched = 32;
  const auto end = words_.begin() + static_cast<ptrdiff_t>(std::min(words_.size(), kSearched));
  const auto found = std::find(words_.begin(), end, text);
  if (found != end) return static_cast<uint32_t>(found - words_.begin());
  words_.emplace_back(text);
  return static_cast<uint32_t>(words_.size() - 1);
}

void ColumnPage::read(size_t i, ObjectInfo& info) const {
  const Row& row = rows_[i];
  info.name.assign(name(i));
  info.generation.assign(generation(i));
  info.size_bytes = row.size_bytes;
  info.metageneration = row.metageneration;
  info.updated = row.updated;
  info.checksum = row.checksum;
  info.component_count = row.component_count;
  info.content_type.assign(word_at(row.content_type));
  info.content_encoding.assign(word_at(row.content_encoding));
  info.storage_class.assign(word_at(row.storage_class));
}

void ColumnPage::keep(size_t begin, size_t end) {
  rows_.erase(rows_.begin() + static_cast<ptrdiff_t>(end), rows_.end());
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<ptrdiff_t>(begin));
}

std::vector<ObjectInfo> ColumnPage::objects() const {
  std::vector<ObjectInfo> objects(size());
  for (size_t i = 0; i < size(); ++i) read(i, objects[i]);
  return objects;
}

}  // namespace headrace
