#include "headrace/format/megatron_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace headrace {
namespace {

constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);

template <class Value>
Value number_at(std::span<const std::byte> bytes, size_t i) {
  Value out = 0;
  std::memcpy(&out, bytes.data() + i * sizeof(Value), sizeof(Value));
  return out;
}

struct ItemType {
  std::string_view name;
  size_t bytes;
};
// By their codes; there is none of code 0.
constexpr std::array<ItemType, 9> kTypes = {{{"", 0},
                                             {"uint8", 1},
                                             {"int8", 1},
                                             {"int16", 2},
                                             {"int32", 4},
                                             {"int64", 8},
                                             {"float64", 8},
                                             {"float32", 4},
                                             {"uint16", 2}}};

template <class... Args>
std::unexpected<Error> torn_megatron(const Args&... args) {
  return std::unexpected(Error(Code::kCorrupt, cat("the Megatron index ", args...)));
}

}  // namespace

Result<MegatronIndex> MegatronIndex::parse(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!kMegatronMagic.starts_with(text.substr(0, kMegatronMagic.size()))) {
    return std::unexpected(
        Error(Code::kCorrupt, "this is no index of Megatron-Core: it begins otherwise"));
  }
  if (file.size() < kHeadBytes) return torn_megatron("is cut");
  const auto version = number_at<uint64_t>(file.subspan(9), 0);
  if (version != 1) return torn_megatron("is of version ", version, "; only 1 is known");
  const auto code = static_cast<uint8_t>(file[17]);
  if (code == 0 || code >= kTypes.size()) {
    return torn_megatron("has items of the type ", unsigned{code}, ", which is unknown");
  }
  const auto sequences = number_at<uint64_t>(file.subspan(18), 0);
  const auto documents = number_at<uint64_t>(file.subspan(26), 0);
  const std::span<const std::byte> rest = file.subspan(kHeadBytes);
  // Divided, not multiplied: the counts may be anything.
  if (sequences > rest.size() / 12 || documents > (rest.size() - sequences * 12) / 8) {
    return torn_megatron("is cut: it says that it has ", sequences, " sequences and ", documents,
                         " documents");
  }
  const size_t used = sequences * 12 + documents * 8;
  // Multimodal data have a mode for each sequence, of one byte.
  if (rest.size() != used && rest.size() != used + sequences) {
    return torn_megatron("is ", rest.size() - used, " bytes longer than it says");
  }
  if (documents == 0) return torn_megatron("has no documents");
  MegatronIndex out;
  out.item_type_ = kTypes[code].name;
  out.item_bytes_ = kTypes[code].bytes;
  out.sequence_count_ = sequences;
  out.document_count_ = documents - 1;
  out.lengths_ = rest.first(sequences * 4);
  out.begins_ = rest.subspan(sequences * 4, sequences * 8);
  out.documents_ = rest.subspan(sequences * 12, documents * 8);
  if (Result<void> good = out.check(); !good) return std::unexpected(std::move(good.error()));
  return out;
}

Result<void> MegatronIndex::check() {
  for (size_t i = 0; i < sequence_count_; ++i) {
    const auto length = number_at<int32_t>(lengths_, i);
    const auto begin = number_at<int64_t>(begins_, i);
    if (length < 0 || begin < 0 || static_cast<uint64_t>(begin) % item_bytes_ != 0 ||
        begin > INT64_MAX / 2) {
      return torn_megatron("has an impossible sequence ", i, ": ", length, " items at byte ",
                           begin);
    }
    is_contiguous_ = is_contiguous_ && static_cast<uint64_t>(begin) == end_;
    end_ =
        std::max(end_, static_cast<uint64_t>(begin) + static_cast<uint64_t>(length) * item_bytes_);
  }
  uint64_t last = 0;
  for (size_t i = 0; i <= document_count_; ++i) {
    const uint64_t first = first_sequence(i);
    if ((i == 0 && first != 0) || first < last || first > sequence_count_) {
      return torn_megatron("says that document ", i, " begins with sequence ", first, " of ",
                           sequence_count_);
    }
    last = first;
  }
  return {};
}

uint64_t MegatronIndex::length(size_t sequence) const {
  return number_at<uint32_t>(lengths_, sequence);
}

uint64_t MegatronIndex::begin(size_t sequence) const {
  return number_at<uint64_t>(begins_, sequence);
}

uint64_t MegatronIndex::first_sequence(size_t document) const {
  return number_at<uint64_t>(documents_, document);
}

}  // namespace headrace
