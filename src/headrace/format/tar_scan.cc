#include "headrace/format/tar_scan.h"

#include <algorithm>
#include <utility>

#include "headrace/format/compression.h"
#include "headrace/format/tar_blocks.h"

namespace headrace {
namespace {

// What lies between two headers is left out if it is longer than this.
constexpr uint64_t kLongGapBytes = 64 * kKiB;
constexpr uint64_t kMostWindowBytes = 1 * kMiB;
// The first window is a small archive, or a thousandth of it within these bounds. The least holds
// the headers of one member with an extended header.
constexpr uint64_t kLeastFirstBytes = 3 * kTarBlockBytes, kMostFirstBytes = 32 * kKiB;
// Most writers fill the end up to a multiple of this; two blocks of zeros are enough to know it.
constexpr uint64_t kRecordBytes = 10 * kKiB;

bool has_other_than_zeros(std::span<const std::byte> bytes) {
  return std::ranges::any_of(bytes, [](std::byte each) { return each != std::byte{0}; });
}

// Says of bytes that begin no tar what they may be instead.
Error told_of_compression(std::span<const std::byte> head, Error error) {
  const Compression compression = compression_of(head);
  if (compression == Compression::kNone) return error;
  return Error(Code::kInvalidArgument, cat("it is compressed by ", to_string(compression),
                                           ", so that a file in it is in no range of "
                                           "it: store it as a plain tar"));
}

}  // namespace

TarScan::TarScan(uint64_t size_bytes, const TarLimits& limits)
    : size_bytes_(size_bytes), reader_(limits) {
  const uint64_t first_bytes =
      size_bytes <= kLongGapBytes
          ? size_bytes
          : tar_padded_bytes(std::clamp(size_bytes / 1024, kLeastFirstBytes, kMostFirstBytes));
  wanted_ = ByteRange{0, first_bytes};
}

Result<void> TarScan::take(std::span<const std::byte> bytes) {
  if (!wanted_ || bytes.size() != wanted_->size_bytes()) {
    wanted_.reset();
    return fail(Code::kInternal, "a scan of a tar was given bytes that it had not asked for");
  }
  const bool is_first = wanted_->begin == 0;
  const uint64_t end = wanted_->end;
  wanted_.reset();
  if (ended_) {
    has_more_ = has_other_than_zeros(bytes);
    return {};
  }
  if (is_first && bytes.empty()) return corrupt("it is empty, which no tar is");
  Result<void> taken = take_window(bytes, end);
  // The name of a first member may begin as a compressed file does.
  if (taken || !is_first || files_.size() > 0) return taken;
  return std::unexpected(told_of_compression(bytes, std::move(taken.error())));
}

Result<void> TarScan::take_window(std::span<const std::byte> bytes, uint64_t end) {
  if (Result<void> taken = take_blocks(bytes); !taken) return taken;
  if (ended_) {
    has_more_ = has_other_than_zeros(bytes);
    if (!has_more_) plan_rest(end);
    return {};
  }
  // Of the data that follow, nothing is wanted.
  reader_.skip(reader_.next_header_offset() - reader_.offset());
  // At the end of the archive, the reader may still hold a part of a block.
  if (end == size_bytes_ || reader_.offset() >= size_bytes_) return reader_.finish();
  plan();
  return {};
}

Result<void> TarScan::take_blocks(std::span<const std::byte>& bytes) {
  while (true) {
    const Result<TarReader::Step> step = reader_.next(bytes);
    if (!step) return std::unexpected(step.error());
    bytes = bytes.subspan(step->consumed);
    if (step->event == TarReader::Event::kMoreNeeded) return {};
    if (step->event == TarReader::Event::kEnd) {
      ended_ = true;
      return {};
    }
    if (step->event != TarReader::Event::kMember) continue;
    if (Result<void> added = add_member(); !added) return added;
    const uint64_t data_bytes = reader_.next_header_offset() - reader_.offset();
    if (data_bytes > kLongGapBytes) end_run(reader_.offset());
    const auto passed = static_cast<size_t>(std::min<uint64_t>(data_bytes, bytes.size()));
    reader_.skip(passed);
    bytes = bytes.subspan(passed);
    if (bytes.empty()) return {};
  }
}

std::vector<std::string> TarScan::warnings() const {
  std::vector<std::string> out;
  if (!reader_.has_end()) {
    out.push_back(told_of_missing_end(size_bytes_));
  }
  if (has_more_) {
    out.push_back(told_of_more_behind(reader_.offset()));
  }
  if (passed_hard_links_ > 0) {
    out.push_back(
        cat("hard links that lead to links or devices are left out: '", first_passed_hard_link_,
            "'", passed_hard_links_ == 1 ? "" : cat(" and ", passed_hard_links_ - 1, " more")));
  }
  return out;
}

Result<void> TarScan::add_member() {
  const TarMember& member = reader_.member();
  const auto told = [&member] { return told_of(member); };
  if (Result<void> checked = check_within(member, size_bytes_); !checked) return checked;
  if (member.type == TarType::kHardLink) {
    if (passed_.contains(member.link_name)) {
      if (passed_hard_links_++ == 0) first_passed_hard_link_ = member.name;
      passed_.insert(member.name);
      return {};
    }
    if (!by_name_) {
      by_name_.emplace();
      for (size_t i = 0; i < files_.size(); ++i) {
        by_name_->insert_or_assign(std::string(files_.name(i)), i);
      }
    }
    const auto target = by_name_->find(member.link_name);
    if (target == by_name_->end()) {
      return corrupt(told(), " is a hard link to '", member.link_name,
                     "', and no file of this name comes before it");
    }
    // Of a file that it is given twice, tar makes a link to itself.
    if (member.name == member.link_name) return {};
    files_.add(member.name, files_.range(target->second));
  } else if (member.type == TarType::kFile) {
    if (member.is_sparse) {
      return invalid_argument(told(),
                              " is a sparse file, whose contents are in no range: pack it "
                              "without --sparse");
    }
    files_.add(member.name, {member.data_offset, member.data_offset + member.stored_bytes});
  } else {
    if (member.type != TarType::kDirectory && member.type != TarType::kOther) {
      passed_.insert(member.name);
    }
    return {};
  }
  if (!passed_.empty()) passed_.erase(member.name);
  if (by_name_) by_name_->insert_or_assign(member.name, files_.size() - 1);
  return {};
}

void TarScan::end_run(uint64_t end) {
  const uint64_t run_bytes = std::min(end - run_begin_, kMostWindowBytes);
  // Bytes that are read in vain cost less than another request.
  usual_run_bytes_ = run_bytes > usual_run_bytes_
                         ? run_bytes
                         : tar_padded_bytes((usual_run_bytes_ + run_bytes) / 2);
  run_begin_ = reader_.next_header_offset();
}

// Behind the end, zeros fill up a record. Where there is more than that, another tar may follow.
void TarScan::plan_rest(uint64_t begin) {
  const uint64_t records = (reader_.offset() + kRecordBytes - 1) / kRecordBytes;
  if (size_bytes_ <= records * kRecordBytes || begin == size_bytes_) return;
  wanted_ = ByteRange{begin, std::min(begin + kMostWindowBytes, size_bytes_)};
}

void TarScan::plan() {
  const uint64_t begin = reader_.offset();
  const uint64_t left_bytes = size_bytes_ - begin;
  uint64_t window_bytes =
      begin == run_begin_ ? usual_run_bytes_ : tar_padded_bytes(3 * (begin - run_begin_));
  if (left_bytes <= kRecordBytes) window_bytes = std::max(window_bytes, 2 * kTarBlockBytes);
  window_bytes = std::clamp(window_bytes, kTarBlockBytes, kMostWindowBytes);
  wanted_ = ByteRange{begin, begin + std::min(window_bytes, left_bytes)};
}

}  // namespace headrace
