// Tar archives, read: ustar, GNU and pax.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/object_info.h"
#include "headrace/format/tar_blocks.h"

namespace headrace {

enum class TarType : uint8_t {
  kFile,
  kHardLink,
  kSymLink,
  kCharacterDevice,
  kBlockDevice,
  kDirectory,
  kPipe,
  kOther,  // of a type that only its writer knows
};

// What the headers of one member say.
struct TarMember {
  std::string name = {};       // as it was written: a directory's may end with '/'
  std::string link_name = {};  // of links
  TarType type = TarType::kFile;
  uint64_t size_bytes = 0;     // once it is unpacked
  uint64_t stored_bytes = 0;   // in the archive, at `data_offset`
  uint64_t header_offset = 0;  // of the first of its headers, where a reader may begin
  uint64_t data_offset = 0;
  bool is_sparse = false;
  // Of a sparse file: where its stored bytes belong, in order. Zeros are between them.
  std::vector<ByteRange> parts = {};
};

// How messages begin that are about a member.
std::string told_of(const TarMember& member);
// Errors: kCorrupt: the member ends beyond its archive of `archive_bytes`.
Result<void> check_within(const TarMember& member, uint64_t archive_bytes);
// The warnings that an archive has no end mark, and that something follows its end.
std::string told_of_missing_end(uint64_t archive_bytes);
std::string told_of_more_behind(uint64_t end_offset);

// What a reader takes before it calls an archive bad.
struct TarLimits {
  uint64_t max_name_bytes = 64 * kKiB;  // of a name in a header of its own
  uint64_t max_pax_bytes = 1 * kMiB;    // of one extended header
  uint64_t max_parts = 1 << 20;         // of a sparse file
};

// Reads an archive from its bytes, which may come in pieces that are cut anywhere. It
// gives views of a member's data. A caller that does not need the data may skip() it: an index of
// an archive needs its headers alone. Memory is taken for names, extended headers and sparse files,
// and reused.
//
// An archive ends with two blocks of zeros. Some writers forget one or both.
// Thread: confined. Owns no bytes of data.
// Errors: kCorrupt, with the offset of what is wrong; after one, the reader is finished.
class TarReader {
 public:
  enum class Event : uint8_t {
    kMoreNeeded,  // all bytes were taken
    kMember,      // the headers of a member have come: see member()
    kData,        // some of its data: see Step::data
    kEnd,         // the end of the archive: what follows does not belong to it
  };
  struct Step {
    Event event = Event::kMoreNeeded;
    size_t consumed = 0;                   // bytes taken from `bytes`
    std::span<const std::byte> data = {};  // the last ones of them
  };

  // `offset`: of the first byte that it is given, which begins a header.
  explicit TarReader(const TarLimits& limits = {}, uint64_t offset = 0)
      : limits_(limits), offset_(offset) {}

  // Continues until something can be told.
  Result<Step> next(std::span<const std::byte> bytes);
  // The bytes end here. Errors: the archive ends inside of a member, or of its headers.
  Result<void> finish() const;

  // The last one that was told of. Valid until the next call.
  const TarMember& member() const { return member_; }
  // How many bytes of its data follow next, one after the other.
  uint64_t data_left_bytes() const { return state_ == State::kData ? data_left_bytes_ : 0; }
  // Where the header after it begins.
  uint64_t next_header_offset() const {
    return state_ == State::kData ? offset_ + data_left_bytes_ + padding_left_bytes_ : offset_;
  }
  // Tells the reader that it was not shown the next `size_bytes`, up to next_header_offset().
  void skip(uint64_t size_bytes);

  // Of the next byte that it wants.
  uint64_t offset() const { return offset_; }
  // Whether the blocks of zeros have been seen: without them, members may be missing.
  bool has_end() const { return state_ == State::kZeros || state_ == State::kEnd; }
  // Whether a header spoke for all members behind it: a reader that begins later misses it.
  bool has_global_header() const { return has_global_header_; }

 private:
  enum class State : uint8_t {
    kHeader,         // a block of a header
    kText,           // what an extended header or a long name says
    kSparseHeaders,  // blocks that continue the map of a sparse file (GNU)
    kSparseText,     // the map of a sparse file, before its data (pax)
    kData,
    kZeros,  // one block of zeros has come
    kEnd,
    kFailed,
  };
  // Values that an extended header gives. Their strings keep their memory.
  struct Pax {
    std::string path = {}, link_path = {}, sparse_name = {};
    bool has_path = false, has_link_path = false, has_sparse_name = false;
    std::optional<uint64_t> size_bytes = {}, real_bytes = {}, sparse_major = {}, sparse_minor = {};
    std::vector<uint64_t> sparse_numbers = {};  // offset, size, offset, size, ...
    bool has_map = false;

    void clear();
  };

  Result<std::optional<Event>> take_block(std::span<const std::byte, kTarBlockBytes> block);
  Result<std::optional<Event>> take_header(std::string_view block);
  Result<std::optional<Event>> take_text();
  Result<std::optional<Event>> take_sparse_header(std::string_view block);
  Result<std::optional<Event>> take_sparse_text(std::string_view block);
  Result<void> begin_text(std::string_view block, char type);
  Result<void> parse_pax(Pax& into);
  Result<void> set_pax(Pax& into, std::string_view key, std::string_view value);
  Result<void> take_member(std::string_view block, char type);
  Result<void> add_old_sparse(std::string_view entries, size_t count);
  Result<Event> begin_member();
  std::unexpected<Error> bad(std::string_view what);

  const TarLimits limits_;
  uint64_t offset_;
  State state_ = State::kHeader;
  std::array<std::byte, kTarBlockBytes> block_{};  // one that has come in part
  size_t filled_ = 0;
  TarMember member_;
  uint64_t data_left_bytes_ = 0, padding_left_bytes_ = 0;

  // Of the next member:
  std::optional<uint64_t> first_header_;  // where its headers have begun
  char text_type_ = 0;
  std::string text_;
  std::string long_name_, long_link_name_;
  bool has_long_name_ = false, has_long_link_name_ = false;
  Pax local_, global_;
  bool has_global_header_ = false;
  std::vector<uint64_t> sparse_numbers_;
  // The map before the data: how many numbers it has, and the one that is being read.
  std::optional<uint64_t> sparse_count_;
  uint64_t sparse_number_ = 0;
  bool in_number_ = false;
};

}  // namespace headrace
