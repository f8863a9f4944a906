// Finds the files in a tar by reading little more than its headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "headrace/base/result.h"
#include "headrace/base/units.h"
#include "headrace/format/tar.h"

namespace headrace {

// The files in an archive, in its order: their names, and where their contents are.
class TarFiles {
 public:
  size_t size() const { return ranges_.size(); }
  std::string_view name(size_t i) const {
    const size_t begin = i == 0 ? 0 : name_ends_[i - 1];
    return std::string_view(names_).substr(begin, name_ends_[i] - begin);
  }
  ByteRange range(size_t i) const { return ranges_[i]; }
  void add(std::string_view name, ByteRange range) {
    names_ += name;
    name_ends_.push_back(names_.size());
    ranges_.push_back(range);
  }

 private:
  std::string names_;
  std::vector<size_t> name_ends_;
  std::vector<ByteRange> ranges_;
};

// Says which range of an archive to read next, is given its bytes, and so on until all files are
// found. No I/O.
//
// What lies between two headers is read along with them if it is short, since a request would cost
// more than these bytes, and left out if it is long. A *run* is a part of the archive whose headers
// are close to each other: one header where files are large, three where a small file or two stand
// beside each large one, the whole archive where all are small. Runs tend to be alike, so a run is
// read by one request that is about as long as the ones before it were, and if it turns out to be
// longer, by more, each three times as long as all before it together.
//
// A hard link is the file that it leads to. Directories, symbolic links and devices are passed
// over, and so are hard links to these, and of a file to itself. Thread: confined. Errors:
// kCorrupt: it is no tar, it is cut, or a member ends behind the archive. kInvalidArgument: it is
// compressed, or has a sparse file, whose contents are in no range. After one, it is finished.
class TarScan {
 public:
  // `size_bytes`: of the archive.
  explicit TarScan(uint64_t size_bytes, const TarLimits& limits = {});

  // What to read next; none once all files are found. Its begin never decreases.
  std::optional<ByteRange> wanted() const { return wanted_; }
  // Takes all the bytes of wanted().
  Result<void> take(std::span<const std::byte> bytes);

  const TarFiles& files() const { return files_; }
  // Once all files are found: why there may be more than were found, a sentence each.
  std::vector<std::string> warnings() const;
  TarFiles take_files() && { return std::move(files_); }

 private:
  Result<void> take_window(std::span<const std::byte> bytes, uint64_t end);
  Result<void> take_blocks(std::span<const std::byte>& bytes);
  Result<void> add_member();
  void end_run(uint64_t end);
  void plan();
  void plan_rest(uint64_t begin);

  const uint64_t size_bytes_;
  TarReader reader_;
  TarFiles files_;
  std::optional<ByteRange> wanted_;
  bool ended_ = false;     // the blocks of zeros have come
  bool has_more_ = false;  // and bytes other than zeros behind them
  uint64_t run_begin_ = 0;
  uint64_t usual_run_bytes_ = 0;  // 0: none has ended
  // Where files are by their names, once there is a hard link.
  std::optional<std::unordered_map<std::string, size_t>> by_name_;
  // The names of links and devices that were passed over.
  std::unordered_set<std::string> passed_;
  size_t passed_hard_links_ = 0;
  std::string first_passed_hard_link_;
};

}  // namespace headrace
