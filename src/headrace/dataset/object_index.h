// What a listing found, stored compactly: the names, sizes and versions of a dataset's objects.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/dataset/columns.h"
#include "headrace/dataset/entry_rows.h"
#include "headrace/dataset/glob.h"
#include "headrace/dataset/shared_bytes.h"
#include "headrace/format/checksum.h"
#include "headrace/format/column_page.h"
#include "headrace/format/object_info.h"

namespace headrace {

class NameTable;

// Texts one after another, as many as `ends` has values.
struct TextValues {
  std::string text = {};
  std::vector<uint64_t> ends = {};
  bool is_bytes = false;  // not Unicode text

  size_t size() const { return ends.size(); }
  std::string_view operator[](size_t i) const {
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(text).substr(begin, ends[i] - begin);
  }
  void add(std::string_view value) {
    text += value;
    ends.push_back(text.size());
  }
  bool operator==(const TextValues&) const = default;
};

// A column added by the user, with one value per entry.
using ColumnValues =
    std::variant<std::vector<int64_t>, std::vector<double>, TextValues, std::vector<bool>>;

// Entries in a fixed order: each is an object below one of the index' roots, or a range of one.
// Every field of ObjectInfo is kept. A field with the same value for all objects costs nothing, and
// names share prefixes (columns.h), so that a name of 37 bytes with size, generation and CRC32C
// takes about 25 bytes in total. Regularly spaced ranges are computed. Everything is in one image,
// which is also what a saved index contains and what other processes map.
// Thread: any (immutable, except for the table of find(), which synchronises itself).
class ObjectIndex {
 public:
  // `image` was made by ObjectIndexBuilder, or is a saved image(). `known`: as in columns.h.
  // Errors: kCorrupt unless it is complete and of a known version.
  static Result<std::shared_ptr<const ObjectIndex>> open(
      SharedBytes image, ImageReader::Known known = ImageReader::Known::kNothing);
  ~ObjectIndex();
  ObjectIndex(const ObjectIndex&) = delete;
  ObjectIndex& operator=(const ObjectIndex&) = delete;

  // The number of entries.
  size_t size() const { return size_; }
  // Of the object that entry `i` is, or is a range of.
  ObjectInfo info(size_t i) const;
  void read_info(size_t i, ObjectInfo& out) const;  // whose memory is reused
  // Append to `out`, which callers reuse so that nothing is allocated per object.
  void append_name(size_t i, std::string& out) const { names_.append_to(object_of(i), out); }
  void append_generation(size_t i, std::string& out) const;
  // Of the whole object; kUnknownSize if not known.
  uint64_t object_bytes(size_t i) const { return sizes_[object_of(i)] - 1; }
  // The range of entry `i`, unless it is the whole object.
  std::optional<ByteRange> range(size_t i) const;
  // Of this range, or of the object; kUnknownSize if not known.
  uint64_t size_bytes(size_t i) const;
  // Of the entry: of its range if it is one, otherwise of the object.
  Checksum checksum(size_t i) const;
  Checksum object_checksum(size_t i) const { return sums_.at(object_of(i)); }

  bool has_ranges() const { return has_ranges_; }
  // How many entries from `i` on are computed by one rule: of one object and of one length, without
  // checksums of their own, each `stride_bytes` behind the one before. Without a rule, 1.
  struct Spacing {
    uint64_t count = 1, stride_bytes = 0;
  };
  Spacing spacing(size_t i) const;
  // None if any size is not known.
  std::optional<uint64_t> total_size_bytes() const;
  // The common size of all entries, if they have one and it is known; none for an empty index.
  std::optional<uint64_t> common_size_bytes() const;

  // What names are relative to: URLs as roots.h writes them; "" if not known.
  const std::vector<std::string>& roots() const { return roots_; }
  uint32_t root(size_t i) const { return static_cast<uint32_t>(object_roots_[object_of(i)]); }
  std::string url(size_t i) const;

  // The first entry that has this name below this root (any: below the first root that has it),
  // and how many other roots have it, too. The first call makes a table of 5 to 11 bytes for each
  // object (8.4 for a million), in memory of this process and of those that it forks later.
  struct Found {
    size_t entry = 0;
    uint32_t other_roots = 0;
  };
  static constexpr uint32_t kAnyRoot = UINT32_MAX;
  std::optional<Found> find(std::string_view name, uint32_t root = kAnyRoot) const;
  // The entries that find() could return: one for each root that has the name.
  std::vector<size_t> find_all(std::string_view name) const;

  // The user's columns, in the order in which they were added.
  size_t column_count() const { return columns_.size(); }
  std::string column_name(size_t column) const { return column_names_.at(column); }
  std::optional<size_t> column(std::string_view name) const;
  // The values of these entries.
  ColumnValues values(size_t column, std::span<const size_t> entries) const {
    return gathered(column, entries, false);
  }
  ColumnValues values(size_t column) const { return gathered(column, {}, true); }

  // 32 hexadecimal digits computed only from names, ranges, sizes and checksums, in order: the same
  // on every machine, at every root and in every version. Reads everything; entries that follow a
  // rule count as that rule.
  std::string fingerprint() const;

  const SharedBytes& image() const { return image_; }

 private:
  friend class Fingerprint;
  friend class NameTable;
  // A few distinct texts; each object refers to one.
  struct Dictionary {
    TextColumn texts;
    PackedColumn ids;
  };
  struct Sums {
    PackedColumn kinds;
    PackedColumn numbers;  // of kinds of up to eight bytes
    FixedColumn digests;   // of longer kinds; empty if there are none
    Checksum at(size_t i) const;
  };
  enum class ColumnKind : uint8_t { kInt64 = 0, kFloat64 = 1, kText = 2, kBytes = 3, kBool = 4 };
  static constexpr uint64_t kColumnKindCount = 5;
  struct Column {
    ColumnKind kind = ColumnKind::kInt64;
    PackedColumn numbers = {};  // or the number of the text
    TextColumn texts = {};
    bool in_dictionary = false;  // otherwise each entry has its own text
  };
  // Consecutive entries in one object, evenly spaced.
  struct Runs {
    PackedColumn objects, firsts, begins, strides;
    PackedColumn lengths;  // plus one; 0: the whole object
    bool one_each = false;
  };

  ObjectIndex();
  Result<void> read_image(ImageReader::Known known);
  Result<void> check_objects() const;
  Result<void> check_runs() const;
  Result<void> check_columns() const;
  Result<void> check_total() const;
  static void read_sums(ImageReader& reader, size_t count, Sums& sums);
  static Result<void> check_sums(const Sums& sums, size_t count);
  size_t run_of(size_t i) const;
  size_t object_of(size_t i) const { return has_ranges_ ? runs_.objects[run_of(i)] : i; }
  const NameTable& table() const;
  ColumnValues gathered(size_t column, std::span<const size_t> entries, bool all) const;

  friend class ObjectIndexBuilder;

  SharedBytes image_;
  size_t size_ = 0, object_count_ = 0;
  uint64_t total_size_bytes_ = 0;  // plus one; 0: not known
  std::vector<std::string> roots_;
  PackedColumn object_roots_;
  TextColumn names_;
  PackedColumn sizes_;               // plus one; 0: not known
  PackedColumn generation_numbers_;  // 0: none, or a text; else the number, plus one
  TextColumn generation_texts_;      // empty if all generations are numbers
  Sums sums_;
  PackedColumn updated_, component_counts_, metagenerations_;
  std::array<Dictionary, 3> words_;  // content type, content encoding, storage class
  bool has_ranges_ = false;
  Runs runs_;
  Sums entry_sums_;  // of ranges
  TextColumn column_names_;
  std::vector<Column> columns_;
  mutable std::atomic<const NameTable*> table_ = nullptr;  // owned
};

// Computes ObjectIndex::fingerprint() step by step, for a caller that may have to stop before the
// end. Thread: confined. Borrows the index.
class Fingerprint {
 public:
  explicit Fingerprint(const ObjectIndex& index);
  ~Fingerprint();
  Fingerprint(const Fingerprint&) = delete;
  Fingerprint& operator=(const Fingerprint&) = delete;

  // Takes in the next `count` entries, or more if they follow a rule. True: that was all of them.
  bool take(size_t count);
  std::string finish() &&;

 private:
  struct State;
  const ObjectIndex& index_;
  const std::unique_ptr<State> state_;
};

// Selects the entries of an index that satisfy all of these.
struct IndexFilter {
  std::string prefix = {};
  std::vector<std::string> suffixes = {};  // one of them; none: any
  std::optional<Glob> glob = {};
  // Inclusive. An entry of unknown size is selected only if neither is set.
  uint64_t min_size_bytes = 0, max_size_bytes = UINT64_MAX;
  // Set: neither the markers of folders (empty objects that end with "/" or "_$folder$") nor hidden
  // names: those with a part, below the last folder of `prefix`, that is __MACOSX or begins with
  // one of these characters. A part such as _day=1 is a partition's folder, and not hidden.
  std::optional<std::string> leave_out = {};
};

// The positions of the selected entries, in order.
std::vector<size_t> filter(const ObjectIndex& index, const IndexFilter& filter);

// What an index knows about an entry besides its object.
struct EntryDetails {
  uint32_t root = 0;
  std::optional<ByteRange> range = {};
  Checksum range_checksum = {};
  // So many entries, each so far behind the one before; only without a checksum of the range.
  uint64_t count = 1, stride_bytes = 0;
};

// Collects entries.
// Thread: confined.
class ObjectIndexBuilder {
 public:
  ObjectIndexBuilder() = default;
  ObjectIndexBuilder(ObjectIndexBuilder&&) = default;
  ObjectIndexBuilder& operator=(ObjectIndexBuilder&&) = default;

  // Returns its number, always the same for the same root. If none is added, there is one root, "".
  uint32_t add_root(std::string_view root);
  void add(const ObjectInfo& object, const EntryDetails& details = {});
  // Adds row `i` of a page of a listing of the first root.
  void add(const ColumnPage& page, size_t i);
  // Adds these entries of another index; `roots` maps its roots to the numbers of ours. What it
  // computes by a rule stays computed.
  void add(const ObjectIndex& from, size_t begin, size_t end, std::span<const uint32_t> roots);
  // Adds a column with one value per entry, once all entries have been added. A column of the same
  // name is replaced.
  void set_column(std::string name, ColumnValues values);
  size_t size() const { return size_; }

  // Errors: kInvalidArgument for an object without a name, a range outside its object, or a column
  // of another length; kExhausted.
  Result<std::shared_ptr<const ObjectIndex>> build() &&;

 private:
  // An object by views of its texts.
  struct ObjectView {
    std::string_view name, generation, content_type, content_encoding, storage_class;
    uint64_t size_bytes, metageneration;
    std::chrono::system_clock::time_point updated;
    Checksum checksum;
    uint32_t component_count;
  };

  enum Word : uint8_t { kContentType, kContentEncoding, kStorageClass, kWordCount };
  static constexpr std::array<EntryNumber, kWordCount> kWordNumbers = {
      EntryNumber::kContentType, EntryNumber::kContentEncoding, EntryNumber::kStorageClass};

  class RunColumns;
  class Words {
   public:
    uint32_t id_of(std::string_view text);
    const std::vector<std::string>& texts() const { return texts_; }

   private:
    std::vector<std::string> texts_;
    std::unordered_map<std::string, uint32_t> ids_;
    uint32_t last_ = 0;
  };
  // The rows that stand for objects: the first row of each object. Without ranges, all rows, of
  // which each is one entry.
  struct Objects {
    std::vector<size_t> of_row = {};
    std::vector<bool> is_first = {};
    size_t count = 0;
  };

  void add(const ObjectView& object, const EntryDetails& details);
  Objects find_objects() const;
  // The bytes of all entries, plus one; 0 if any size is not known.
  Result<uint64_t> check() const;
  void write_objects(ImageWriter& writer, const Objects& objects) const;
  void write_runs(ImageWriter& writer, const Objects& objects) const;
  void write_columns(ImageWriter& writer) const;

  EntryRows rows_;
  std::array<Words, kWordCount> words_;
  size_t size_ = 0;  // entries; rows are fewer where one stands for several
  bool has_ranges_ = false;
  std::vector<std::string> roots_;
  std::vector<std::pair<std::string, ColumnValues>> columns_;
  ObjectInfo scratch_;
};

// ── Indexes made of others ───────────────────────────────────────────────────────────────────

// The entries at these positions, in this order, with their columns.
Result<std::shared_ptr<const ObjectIndex>> select(const ObjectIndex& index,
                                                  std::span<const size_t> positions);
// The entries [begin, end), with their columns.
Result<std::shared_ptr<const ObjectIndex>> slice(const ObjectIndex& index, size_t begin,
                                                 size_t end);
// Of each entry the ranges of `window_bytes` that begin every `stride_bytes` and fit into it, by a
// rule: they take no memory. Columns are left out. `parts`: what of each entry they are to lie in,
// such as that behind a header; none: all of it.
// Errors: kInvalidArgument for windows or strides of 0 bytes, for an entry of unknown size, and for
// a part that lies outside of its entry.
Result<std::shared_ptr<const ObjectIndex>> windows(const ObjectIndex& index, uint64_t window_bytes,
                                                   uint64_t stride_bytes,
                                                   std::span<const ByteRange> parts = {});
// All entries of all indexes, one index after another.
// Errors: kInvalidArgument unless all have the same columns.
Result<std::shared_ptr<const ObjectIndex>> concat(
    std::span<const std::shared_ptr<const ObjectIndex>> indexes);
// The same entries below `roots`, which have copies of the objects, one for each present root.
// Copies have other generations, so generations are dropped unless `keep_generations`.
Result<std::shared_ptr<const ObjectIndex>> at_roots(const ObjectIndex& index,
                                                    std::span<const std::string> roots,
                                                    bool keep_generations);
// The same objects with names relative to another root of the same bucket. An index that does not
// know where its objects are is assumed to be relative to `root`.
// Errors: kInvalidArgument, saying how many entries are outside it.
Result<std::shared_ptr<const ObjectIndex>> rebased(std::shared_ptr<const ObjectIndex> index,
                                                   std::string_view root);
// Adds the given columns, replacing those of the same name.
Result<std::shared_ptr<const ObjectIndex>> with_columns(
    const ObjectIndex& index, std::vector<std::pair<std::string, ColumnValues>> columns,
    std::span<const std::string> dropped);

}  // namespace headrace
