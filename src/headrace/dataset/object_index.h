// What a listing found, kept small: the names, sizes and versions of a data set's objects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/dataset/columns.h"
#include "headrace/dataset/glob.h"
#include "headrace/dataset/shared_bytes.h"
#include "headrace/format/object_info.h"

namespace headrace {

// Objects in a fixed order. Every field of ObjectInfo is kept; one that all objects share costs
// nothing, and names share their beginnings (columns.h), so that a name of 37 bytes with size,
// generation and CRC32C takes about 25 bytes, all in. Everything lies in one image, which is also
// what a manifest holds and what other processes map.
// Thread: any (immutable).
class ObjectIndex {
 public:
  // What ObjectIndexBuilder made, or what image() was written to a manifest.
  // Errors: kCorrupt unless it is whole and of a version that is known.
  static Result<std::shared_ptr<const ObjectIndex>> open(SharedBytes image);

  size_t size() const { return size_; }
  ObjectInfo info(size_t i) const;
  // Append to `out`, which a caller reuses: nothing is allocated for each object.
  void append_name(size_t i, std::string& out) const { names_.append_to(i, out); }
  void append_generation(size_t i, std::string& out) const;
  uint64_t size_bytes(size_t i) const { return sizes_[i]; }
  std::optional<Crc32c> crc32c(size_t i) const;

  uint64_t total_size_bytes() const { return total_size_bytes_; }
  // The size of every object, if it is the same; none for an empty index.
  std::optional<uint64_t> common_size_bytes() const;

  // Where the objects were listed: the store's URL and the prefix; "" if nobody said.
  const std::string& store_url() const { return store_url_; }
  const std::string& prefix() const { return prefix_; }

  // 32 hexadecimal digits that follow from names, sizes and generations in their order, and from
  // nothing else: the same on every machine and in every version. Reads everything.
  std::string fingerprint() const;

  const SharedBytes& image() const { return image_; }

 private:
  // Texts of which there are few: each object says which.
  struct Dictionary {
    TextColumn texts;
    PackedColumn ids;
    std::string at(size_t i) const { return texts.at(ids[i]); }
  };

  ObjectIndex() = default;
  Result<void> read_image();

  SharedBytes image_;
  size_t size_ = 0;
  uint64_t total_size_bytes_ = 0;
  std::string store_url_, prefix_;
  TextColumn names_;
  PackedColumn sizes_;
  PackedColumn generation_numbers_;  // 0: none, or a text; else the number, plus one
  TextColumn generation_texts_;      // none where all generations are numbers
  PackedColumn crc32cs_;             // 0: none; else the sum, plus one
  PackedColumn updated_, component_counts_, metagenerations_;
  Dictionary content_types_, content_encodings_, storage_classes_;
};

// Which objects of an index: those that everything here holds for.
struct IndexFilter {
  std::vector<std::string> suffixes = {};  // one of them; none: any
  std::optional<Glob> glob = {};
  uint64_t min_size_bytes = 0, max_size_bytes = UINT64_MAX;  // both included
};

// Their positions, in order.
std::vector<size_t> filter(const ObjectIndex& index, const IndexFilter& filter);

// Collects objects; several threads fill one each, and the first takes in the others'.
// Thread: confined.
class ObjectIndexBuilder {
 public:
  ObjectIndexBuilder() = default;
  ObjectIndexBuilder(ObjectIndexBuilder&&) = default;
  ObjectIndexBuilder& operator=(ObjectIndexBuilder&&) = default;

  void set_source(std::string store_url, std::string prefix) {
    store_url_ = std::move(store_url);
    prefix_ = std::move(prefix);
  }
  void add(const ObjectInfo& object);
  // Behind what is there; copies no objects.
  void append(ObjectIndexBuilder&& other);
  size_t size() const { return size_; }

  // Errors: kInvalidArgument for an object without a name; kExhausted.
  Result<std::shared_ptr<const ObjectIndex>> build() const;

 private:
  static constexpr size_t kSegmentRows = 8192;
  enum Word : uint8_t { kContentType, kContentEncoding, kStorageClass, kWordCount };

  struct Row {
    uint64_t size_bytes, generation_number, updated, metageneration;
    uint64_t crc32c;  // as in the index
    uint32_t name_size, generation_size, component_count;
    std::array<uint32_t, kWordCount> words;
  };
  // Many of these, not one vector: joining builders moves no rows, and growing moves few.
  struct Segment {
    std::vector<Row> rows;
    std::string text;  // of each row its name, then its generation unless that is a number
  };
  class Words {
   public:
    uint32_t id_of(std::string_view text);
    const std::vector<std::string>& texts() const { return texts_; }

   private:
    std::vector<std::string> texts_;
    std::unordered_map<std::string, uint32_t> ids_;
    uint32_t last_ = 0;
  };

  template <class Get>
  void write_column(ImageWriter& writer, Get get) const;
  template <class Visit>
  void each(Visit visit) const;

  std::vector<Segment> segments_;
  std::array<Words, kWordCount> words_;
  size_t size_ = 0;
  std::string store_url_, prefix_;
};

}  // namespace headrace
