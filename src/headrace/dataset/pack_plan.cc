#include "headrace/dataset/pack_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "headrace/dataset/shard_names.h"
#include "headrace/dataset/shard_samples.h"
#include "headrace/format/tar_blocks.h"
#include "headrace/format/tar_writer.h"

namespace headrace {
namespace {

// What is asked of an index at a time.
constexpr size_t kSliceEntries = 4096;
constexpr size_t kNoSample = SIZE_MAX;

// The name of the label beside a member of its sample.
std::string label_beside(std::string_view member) {
  return cat(split_member_name(member).key, ".cls");
}

}  // namespace

void PackPlan::Gathered::add(const Gathered& more, size_t sample_count) {
  const size_t entry_count = sample_count == 0 ? 0 : more.ends[sample_count - 1];
  const size_t begin = entries.size();
  entries.insert(entries.end(), more.entries.begin(),
                 more.entries.begin() + static_cast<ptrdiff_t>(entry_count));
  for (size_t i = 0; i < sample_count; ++i) {
    ends.push_back(begin + more.ends[i]);
    if (!more.labels.empty()) labels.push_back(more.labels[i]);
  }
  if (more.names.size() == 0) return;
  for (size_t i = 0; i < entry_count; ++i) names.add(more.names[i]);
}

PackPlan::PackPlan(std::shared_ptr<const ObjectIndex> index, const PackRules& rules)
    : index_(std::move(index)), rules_(rules) {
  // A user's own column may be called the same.
  if (index_->has_ranges()) member_column_ = index_->column(kMemberColumn);
}

Result<PackPlan> PackPlan::make(std::shared_ptr<const ObjectIndex> index, PackRules rules) {
  PackPlan plan(std::move(index), rules);
  if (Result<void> found = plan.find_label(); !found) return std::unexpected(found.error());
  plan.group();
  plan.order_ = Order(plan.sample_count(), rules.seed, 0, rules.shuffle);
  if (Result<void> done = plan.cut(); !done) return std::unexpected(done.error());
  return plan;
}

Result<void> PackPlan::find_label() {
  if (!rules_.label) return {};
  label_column_ = index_->column(*rules_.label);
  if (!label_column_) {
    return invalid_argument("the index has no column '", *rules_.label, "' of labels");
  }
  if (std::holds_alternative<std::vector<double>>(index_->values(*label_column_, {}))) {
    return invalid_argument("the column '", *rules_.label,
                            "' has floating-point numbers; labels are integers or texts");
  }
  return {};
}

TextValues PackPlan::names_of(std::span<const size_t> entries) const {
  if (member_column_) return std::get<TextValues>(index_->values(*member_column_, entries));
  TextValues names;
  for (const size_t entry : entries) {
    index_->append_name(entry, names.text);
    names.ends.push_back(names.text.size());
  }
  return names;
}

void PackPlan::group() {
  const size_t count = index_->size();
  if (rules_.documents) {
    entries_.resize(count);
    std::iota(entries_.begin(), entries_.end(), size_t{0});
    sample_ends_.resize(count);
    std::iota(sample_ends_.begin(), sample_ends_.end(), size_t{1});
    return;
  }
  std::vector<size_t> sample_of(count, kNoSample);
  std::vector<size_t> first_entries;
  std::unordered_map<size_t, size_t> by_hash;  // samples
  // Of one sample: its root, the shard that it was in, and its key.
  const auto identity = [this](size_t entry, std::string_view key) {
    std::string out = cat(index_->root(entry), " ");
    if (member_column_) {
      index_->append_name(entry, out);
      out += '\0';
    }
    return out += key;
  };
  const auto identity_of = [&](size_t entry) {
    const TextValues names = names_of(std::span(&entry, 1));
    return identity(entry, split_member_name(names[0]).key);
  };
  std::vector<size_t> slice;
  std::string last;
  size_t last_sample = kNoSample;
  for (size_t begin = 0; begin < count; begin += kSliceEntries) {
    slice.resize(std::min(kSliceEntries, count - begin));
    std::iota(slice.begin(), slice.end(), begin);
    const TextValues names = names_of(slice);
    for (const size_t entry : slice) {
      const MemberName name = split_member_name(names[entry - begin]);
      if (!name.has_key) {
        if (left_out_count_++ == 0) first_left_out_ = names[entry - begin];
        continue;
      }
      std::string own = identity(entry, name.key);
      if (last_sample == kNoSample || own != last) {
        // Another sample may have the same hash: then the next number is tried.
        for (size_t hash = std::hash<std::string>()(own);; ++hash) {
          const auto [at, is_new] = by_hash.try_emplace(hash, first_entries.size());
          if (is_new) first_entries.push_back(entry);
          last_sample = at->second;
          if (is_new || identity_of(first_entries[last_sample]) == own) break;
        }
        last = std::move(own);
      }
      sample_of[entry] = last_sample;
    }
  }
  sample_ends_.resize(first_entries.size());
  for (const size_t sample : sample_of) {
    if (sample != kNoSample) ++sample_ends_[sample];
  }
  std::vector<size_t> next(sample_ends_.size());
  std::exclusive_scan(sample_ends_.begin(), sample_ends_.end(), next.begin(), size_t{0});
  std::inclusive_scan(sample_ends_.begin(), sample_ends_.end(), sample_ends_.begin());
  entries_.resize(count - left_out_count_);
  for (size_t entry = 0; entry < count; ++entry) {
    if (sample_of[entry] != kNoSample) entries_[next[sample_of[entry]]++] = entry;
  }
}

Result<void> PackPlan::cut() {
  ShardNames names;
  uint64_t shard_bytes = kTarEndBytes;
  size_t shard_begin = 0;
  std::string label_name;
  for (size_t begin = 0; begin < sample_count(); begin += kSliceEntries) {
    const Samples slice{.begin = begin, .end = std::min(begin + kSliceEntries, sample_count())};
    const Gathered gathered = gather(slice);
    for (size_t i = 0, at = 0; i < slice.size(); ++i) {
      const size_t position = begin + i, first = at;
      const auto refuse = [this, &gathered](size_t which, const Error& error) {
        return std::unexpected(Error(error).with_url(index_->url(gathered.entries[which])));
      };
      uint64_t sample_bytes = 0;
      for (; at < gathered.ends[i]; ++at) {
        const uint64_t size_bytes = index_->size_bytes(gathered.entries[at]);
        if (size_bytes == kUnknownSize) {
          return refuse(at, Error(Code::kInvalidArgument, "its size is not known"));
        }
        sample_bytes += size_bytes;
        if (rules_.documents) continue;
        const Result<size_t> header_bytes = tar_header_bytes(gathered.names[at], size_bytes);
        if (!header_bytes) return refuse(at, header_bytes.error());
        sample_bytes += *header_bytes + tar_padding_bytes(size_bytes);
      }
      if (label_column_ && !rules_.documents) {
        label_name = label_beside(gathered.names[first]);
        const uint64_t size_bytes = gathered.labels[i].size();
        const Result<size_t> header_bytes = tar_header_bytes(label_name, size_bytes);
        if (!header_bytes) return refuse(first, header_bytes.error());
        sample_bytes += *header_bytes + tar_padded_bytes(size_bytes);
      }
      const bool is_full = shard_bytes > rules_.max_shard_bytes ||
                           sample_bytes > rules_.max_shard_bytes - shard_bytes ||
                           position - shard_begin >= rules_.max_shard_samples;
      if (position > shard_begin && is_full) {
        shard_ends_.push_back(position);
        shard_begin = position;
        shard_bytes = kTarEndBytes;
        names.begin_shard();
      }
      shard_bytes += sample_bytes;
      if (rules_.documents) continue;
      // Beside each other, two samples of one key would be one.
      if (position > shard_begin && split_member_name(gathered.names[first]).key == names.key()) {
        return refuse(first, Error(Code::kInvalidArgument,
                                   cat("the sample '", names.key(),
                                       "' would be in its shard twice: keys must differ from "
                                       "source to source, or from shard to shard")));
      }
      for (size_t field = first; field < at; ++field) {
        const Result<ShardNames::Place> place = names.add(gathered.names[field]);
        if (!place) return refuse(field, place.error());
      }
      if (label_column_) {
        const Result<ShardNames::Place> place = names.add(label_name);
        if (!place) return refuse(first, place.error());
      }
    }
  }
  if (shard_begin < sample_count()) shard_ends_.push_back(sample_count());
  return {};
}

std::span<const size_t> PackPlan::entries(size_t sample) const {
  const size_t begin = sample == 0 ? 0 : sample_ends_[sample - 1];
  return std::span(entries_).subspan(begin, sample_ends_[sample] - begin);
}

PackPlan::Gathered PackPlan::gather(Samples samples) const {
  Gathered out;
  std::vector<size_t> firsts;
  for (size_t position = samples.begin; position < samples.end; ++position) {
    const std::span<const size_t> own = entries(order_.index(position));
    firsts.push_back(own.front());
    out.entries.insert(out.entries.end(), own.begin(), own.end());
    out.ends.push_back(out.entries.size());
  }
  if (!rules_.documents) out.names = names_of(out.entries);
  if (label_column_) {
    const ColumnValues values = index_->values(*label_column_, firsts);
    for (size_t i = 0; i < firsts.size(); ++i) {
      if (const auto* const numbers = std::get_if<std::vector<int64_t>>(&values)) {
        out.labels.push_back(cat((*numbers)[i]));
      } else if (const auto* const booleans = std::get_if<std::vector<bool>>(&values)) {
        out.labels.emplace_back((*booleans)[i] ? "1" : "0");
      } else {
        out.labels.emplace_back(std::get<TextValues>(values)[i]);
      }
    }
  }
  return out;
}

// Calls `visit` with the number of the sample among these; with the entry, or with none and the
// text of a label; with the name of the member; and with the bytes of its headers and of its data.
template <class Visit>
void PackPlan::each_member(const Gathered& gathered, Visit visit) const {
  std::string name;
  for (size_t i = 0, at = 0; i < gathered.ends.size(); ++i) {
    const size_t first = at;
    for (; at < gathered.ends[i]; ++at) {
      const size_t entry = gathered.entries[at];
      const uint64_t size_bytes = index_->size_bytes(entry);
      if (rules_.documents) {
        visit(i, std::optional(entry), std::string_view(), std::string_view(), size_t{0},
              size_bytes);
        continue;
      }
      visit(i, std::optional(entry), std::string_view(), gathered.names[at],
            tar_header_bytes(gathered.names[at], size_bytes).value(), size_bytes);
    }
    if (!label_column_ || rules_.documents) continue;
    const std::string_view text = gathered.labels[i];
    name = label_beside(gathered.names[first]);
    visit(i, std::optional<size_t>(), text, std::string_view(name),
          tar_header_bytes(name, text.size()).value(), uint64_t{text.size()});
  }
}

uint64_t PackPlan::source_bytes(Samples samples) const {
  uint64_t sum = 0;
  for (size_t position = samples.begin; position < samples.end; ++position) {
    for (const size_t entry : entries(order_.index(position))) sum += index_->size_bytes(entry);
  }
  return sum;
}

PackPlan::Piece PackPlan::piece(Samples samples, uint64_t max_bytes) const {
  constexpr size_t kSamplesAtATime = 64;
  Piece out{.samples = {.begin = samples.begin, .end = samples.begin}};
  for (bool is_full = false; !is_full && out.samples.end < samples.end;) {
    const Gathered slice =
        gather({.begin = out.samples.end,
                .end = std::min(out.samples.end + kSamplesAtATime, samples.end)});
    size_t taken = 0;
    for (const uint64_t sample_bytes : packed_bytes(slice)) {
      const uint64_t room_bytes = max_bytes - std::min(max_bytes, out.size_bytes);
      is_full = out.samples.size() > 0 && sample_bytes > room_bytes;
      if (is_full) break;
      out.size_bytes += sample_bytes;
      ++out.samples.end;
      ++taken;
    }
    out.gathered.add(slice, taken);
  }
  return out;
}

std::vector<uint64_t> PackPlan::packed_bytes(const Gathered& gathered) const {
  std::vector<uint64_t> out(gathered.ends.size());
  each_member(gathered, [this, &out](size_t sample, std::optional<size_t>, std::string_view,
                                     std::string_view, size_t header_bytes, uint64_t size_bytes) {
    out[sample] += header_bytes + (rules_.documents ? size_bytes : tar_padded_bytes(size_bytes));
  });
  return out;
}

Result<PackPlan::Layout> PackPlan::lay_out(const Piece& piece, std::span<std::byte> into) const {
  Layout out;
  uint64_t offset = 0;
  bool fits = true;
  each_member(piece.gathered, [&](size_t, std::optional<size_t> entry, std::string_view text,
                                  std::string_view name, size_t header_bytes, uint64_t size_bytes) {
    const uint64_t padding_bytes = rules_.documents ? 0 : tar_padding_bytes(size_bytes);
    const uint64_t room_bytes = into.size() - offset;
    fits =
        fits && size_bytes <= room_bytes && header_bytes + padding_bytes <= room_bytes - size_bytes;
    if (!fits) return;
    if (header_bytes > 0) {
      write_tar_headers(name, size_bytes, into.subspan(offset, header_bytes));
      offset += header_bytes;
    }
    if (entry) {
      out.entries.push_back(*entry);
      out.places.push_back(offset);
    } else {
      std::ranges::copy(std::as_bytes(std::span(text)), into.subspan(offset).begin());
    }
    offset += size_bytes;
    std::ranges::fill(into.subspan(offset, padding_bytes), std::byte{0});
    offset += padding_bytes;
  });
  if (!fits) return fail(Code::kInternal, "the buffer is too small for the samples");
  return out;
}

void PackPlan::add_files(const Piece& piece, uint64_t begin, TarFiles& files) const {
  each_member(piece.gathered,
              [&files, &begin](size_t, std::optional<size_t>, std::string_view,
                               std::string_view name, size_t header_bytes, uint64_t size_bytes) {
                begin += header_bytes;
                files.add(name, {.begin = begin, .end = begin + size_bytes});
                begin += tar_padded_bytes(size_bytes);
              });
}

std::vector<PackPlan::Sample> PackPlan::describe(const Piece& piece) const {
  const Gathered& gathered = piece.gathered;
  std::vector<Sample> out(piece.samples.size());
  for (size_t i = 0, at = 0; i < out.size(); ++i) {
    for (; at < gathered.ends[i]; ++at) {
      if (rules_.documents) {
        out[i].fields.emplace_back();
        continue;
      }
      const MemberName name = split_member_name(gathered.names[at]);
      out[i].key = name.key;
      out[i].fields.emplace_back(name.field);
    }
    if (label_column_) out[i].label = gathered.labels[i];
  }
  return out;
}

}  // namespace headrace
