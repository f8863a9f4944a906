#include "headrace/dataset/entry_rows.h"

#include <utility>

namespace headrace {

void EntryRows::pack() {
  // Column by column: rows are read once, not twice for each number.
  scratch_.resize(kEntryNumberCount * rows_.size());
  const auto column_of = [this](size_t which) {
    return std::span(scratch_).subspan(which * rows_.size(), rows_.size());
  };
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (size_t which = 0; which < kEntryNumberCount; ++which) {
      column_of(which)[i] = rows_[i][static_cast<EntryNumber>(which)];
    }
  }
  ImageWriter writer;
  for (size_t which = 0; which < kEntryNumberCount; ++which) writer.column(column_of(which));
  writer.text_column(rows_.size(), [this](const ImageWriter::TextSink& put) {
    std::string_view rest = text_;
    for (const EntryNumbers& row : rows_) {
      const size_t text_size = Entry(row, rest).text_size();
      put(rest.substr(0, text_size));
      rest.remove_prefix(text_size);
    }
  });
  Packed packed;
  packed.size = rows_.size();
  packed.image = std::move(writer).finish();
  ImageReader reader(packed.image, ImageReader::Known::kGood);
  for (PackedColumn& column : packed.numbers) column = reader.column(packed.size);
  packed.texts = reader.text_column(packed.size);
  packed_.push_back(std::move(packed));  // its columns refer to memory that does not move
  rows_.clear();
  text_.clear();
}

void EntryRows::add(EntryNumbers numbers, const Texts& texts) {
  if (rows_.size() == kPackedRows) pack();
  numbers[EntryNumber::kNameSize] = texts.name.size();
  numbers[EntryNumber::kGenerationSize] = texts.generation.size();
  rows_.push_back(numbers);
  text_.append(texts.name).append(texts.generation);
  for (const std::span<const std::byte> digest : {texts.digest, texts.range_digest}) {
    text_.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
}

}  // namespace headrace
