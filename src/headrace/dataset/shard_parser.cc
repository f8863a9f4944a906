#include "headrace/dataset/shard_parser.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headrace {
namespace {

constexpr uint64_t kEndBytes = 1024;  // the blocks of zeros

}  // namespace

uint64_t ShardSample::size_bytes() const {
  uint64_t size_bytes = 0;
  for (const Field& field : fields) size_bytes += field.block.size_bytes();
  return size_bytes;
}

ShardParser::ShardParser(std::shared_ptr<BlockPool> pool, Options options)
    : pool_(std::move(pool)),
      options_(std::move(options)),
      tar_({}, options_.offset),
      number_(options_.number),
      awaits_key_(!options_.first_key.empty()),
      total_bytes_(options_.offset) {}

Result<void> ShardParser::take(std::span<const std::byte> bytes, std::vector<ShardSample>& out) {
  total_bytes_ += bytes.size();
  sparse_bytes_ = 0;
  while (true) {
    if (!wants_data_) {
      const uint64_t passed =
          std::min<uint64_t>(tar_.next_header_offset() - tar_.offset(), bytes.size());
      tar_.skip(passed);
      bytes = bytes.subspan(passed);
    }
    const Result<TarReader::Step> step = tar_.next(bytes);
    if (!step) return std::unexpected(step.error());
    bytes = bytes.subspan(step->consumed);
    switch (step->event) {
      case TarReader::Event::kMoreNeeded: return {};
      case TarReader::Event::kData: take_data(step->data); continue;
      case TarReader::Event::kMember:
        if (Result<void> taken = take_member(out); !taken) return taken;
        continue;
      case TarReader::Event::kEnd:
        has_more_ = has_more_ ||
                    std::ranges::any_of(bytes, [](std::byte each) { return each != std::byte{}; });
        return end_sample(tar_.offset() - kEndBytes, out);
    }
  }
}

Result<void> ShardParser::finish(std::vector<ShardSample>& out) {
  if (total_bytes_ == 0) return corrupt("it is empty, which no tar is");
  if (Result<void> finished = tar_.finish(); !finished) return finished;
  if (awaits_key_) {
    return invalid_argument("there is no sample '", options_.first_key, "' behind byte ",
                            options_.offset, ": its index is of another version");
  }
  return end_sample(tar_.offset(), out);
}

std::vector<std::string> ShardParser::warnings() const {
  std::vector<std::string> out;
  // Who began at the end has seen no more than that.
  if (!tar_.has_end() && total_bytes_ > options_.offset) {
    out.push_back(told_of_missing_end(total_bytes_));
  }
  if (has_more_) out.push_back(told_of_more_behind(tar_.offset()));
  return out;
}

Result<void> ShardParser::take_member(std::vector<ShardSample>& out) {
  const TarMember& member = tar_.member();
  wants_data_ = false;
  const bool is_link = member.type == TarType::kHardLink;
  if (is_link && (passed_.contains(member.link_name))) {
    passed_.insert(member.name);
    leave_out(member.name);
    return {};
  }
  // Of a file that it is given twice, tar makes a link to itself.
  if (is_link && member.name == member.link_name) return {};
  if (!is_link && member.type != TarType::kFile) {
    if (Result<void> checked = check_within(member, options_.tar_bytes); !checked) return checked;
    if (member.type != TarType::kDirectory && member.type != TarType::kOther) {
      passed_.insert(member.name);
    }
    return {};
  }
  if (!passed_.empty()) passed_.erase(member.name);
  const Result<ShardNames::Place> place = names_.add(member.name);
  if (!place) return std::unexpected(place.error());
  if (!place->has_key) {
    leave_out(member.name);
    return check_within(member, options_.tar_bytes);
  }
  if (awaits_key_ && names_.key() != options_.first_key) return {};
  if (place->begins_sample) {
    awaits_key_ = false;
    if (Result<void> ended = end_sample(member.header_offset, out); !ended) return ended;
    in_sample_ = true;
    sample_.key = names_.key();
  }
  if (Result<void> checked = check_within(member, options_.tar_bytes); !checked) return checked;
  if (number_ < options_.first) return {};
  const bool is_wanted = options_.fields.empty() ||
                         std::ranges::find(options_.fields, place->field) != options_.fields.end();
  if (!is_wanted) return {};
  return is_link ? link_field(place->field) : begin_field(place->field);
}

Result<void> ShardParser::begin_field(std::string_view name) {
  const TarMember& member = tar_.member();
  const uint64_t most = std::max<uint64_t>(options_.max_sample_bytes, sample_bytes_);
  if (member.size_bytes > most - sample_bytes_) {
    return fail(Code::kExhausted, told_of(member), " has ", member.size_bytes,
                " bytes, and a sample may have ", options_.max_sample_bytes,
                ", the memory budget: raise memory_budget_bytes if this is no mistake");
  }
  if (member.is_sparse) {
    // It is as large as it says, however few bytes of the tar it takes.
    if (member.size_bytes > options_.max_sample_bytes - sparse_bytes_) {
      return fail(Code::kExhausted, told_of(member), " and the sparse members beside it take more ",
                  "than ", options_.max_sample_bytes, " bytes, the memory budget");
    }
    sparse_bytes_ += member.size_bytes;
  }
  sample_bytes_ += member.size_bytes;
  Block block = pool_->allocate(member.size_bytes);
  if (block.size_bytes() != member.size_bytes) {
    return fail(Code::kExhausted, "the system has no memory for the ", member.size_bytes,
                " bytes of the member '", member.name, "'");
  }
  if (member.is_sparse && member.size_bytes > 0) std::memset(block.data(), 0, member.size_bytes);
  sample_.fields.push_back({.name = std::string(name), .block = std::move(block)});
  members_.push_back(member.name);
  wants_data_ = true;
  filled_bytes_ = part_ = 0;
  return {};
}

Result<void> ShardParser::link_field(std::string_view name) {
  const TarMember& member = tar_.member();
  const auto at = std::ranges::find(members_, member.link_name);
  if (at == members_.end()) {
    return invalid_argument(told_of(member), " is a hard link to '", member.link_name,
                            "', which is not in the same sample, or is not read: pack files "
                            "instead of links");
  }
  const auto target = static_cast<size_t>(at - members_.begin());
  sample_.fields.push_back(
      {.name = std::string(name), .same_as = sample_.fields[target].same_as.value_or(target)});
  members_.push_back(member.name);
  return {};
}

void ShardParser::take_data(std::span<const std::byte> data) {
  if (!wants_data_) return;
  const TarMember& member = tar_.member();
  std::byte* const into = sample_.fields.back().block.data();
  if (!member.is_sparse) {
    std::ranges::copy(data, into + filled_bytes_);
    filled_bytes_ += data.size();
    return;
  }
  // `filled_bytes_` is of the part.
  while (!data.empty()) {
    const ByteRange& part = member.parts[part_];
    const uint64_t count = std::min<uint64_t>(data.size(), part.size_bytes() - filled_bytes_);
    std::ranges::copy(data.first(count), into + part.begin + filled_bytes_);
    data = data.subspan(count);
    filled_bytes_ += count;
    if (filled_bytes_ == part.size_bytes()) {
      ++part_;
      filled_bytes_ = 0;
    }
  }
}

Result<void> ShardParser::end_sample(uint64_t next_offset, std::vector<ShardSample>& out) {
  if (!std::exchange(in_sample_, false)) return {};
  ShardSample sample = std::exchange(sample_, {});
  members_.clear();
  sample_bytes_ = 0;
  wants_data_ = false;
  sample.number = number_++;
  if (sample.number < options_.first) return {};
  sample.next_offset = tar_.has_global_header() ? 0 : next_offset;
  for (size_t i = 0; i < options_.fields.size(); ++i) {
    const auto at = std::ranges::find(sample.fields, options_.fields[i], &ShardSample::Field::name);
    if (at == sample.fields.end()) {
      return invalid_argument("the sample '", sample.key, "' has no field '", options_.fields[i],
                              "'");
    }
  }
  out.push_back(std::move(sample));
  return {};
}

void ShardParser::leave_out(std::string_view name) {
  if (left_out_count_++ == 0) first_left_out_ = name;
}

}  // namespace headrace
