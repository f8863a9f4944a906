#include "headrace/format/tar.h"

#include <algorithm>
#include <utility>

#include "headrace/base/as_text.h"

namespace headrace {
namespace {

// The offsets of an archive, and the sizes in it, are below this, so that sums of two fit.
constexpr uint64_t kMostBytes = uint64_t{1} << 62;

// A field of a header by its offset and size in the block
// (https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html and
// https://www.gnu.org/software/tar/manual/html_node/Standard.html).
struct Field {
  size_t begin, size;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kSum{148, 8}, kLinkName{157, 100}, kMagic{257, 8},
    kPrefix{345, 155}, kRealSize{483, 12};
constexpr size_t kType = 156;
constexpr size_t kSparseEntries = 386, kSparseEntryCount = 4, kSparseIsExtended = 482;
constexpr size_t kMoreSparseEntryCount = 21, kMoreSparseIsExtended = 504;
constexpr size_t kSparseNumberBytes = 12;

std::string_view field(std::string_view block, Field at) { return block.substr(at.begin, at.size); }

// Up to the first NUL.
std::string_view text_of(std::string_view bytes) { return bytes.substr(0, bytes.find('\0')); }

// Octal digits between blanks and NULs, or, if the first bit is set, a big-endian number of two's
// complement (GNU). None: neither of them, negative, or too large.
std::optional<uint64_t> number_of(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes.front());
  if ((first & 0x80) != 0) {
    if ((first & 0x40) != 0) return {};
    uint64_t value = first & 0x3f;
    for (const char c : bytes.substr(1)) {
      if (value >= kMostBytes >> 8) return {};
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  const size_t begin = bytes.find_first_not_of(' ');
  if (begin == std::string_view::npos) return 0;
  bytes.remove_prefix(begin);
  uint64_t value = 0;
  while (!bytes.empty() && bytes.front() >= '0' && bytes.front() <= '7') {
    if (value >= kMostBytes >> 3) return {};
    value = value << 3 | static_cast<uint64_t>(bytes.front() - '0');
    bytes.remove_prefix(1);
  }
  if (!bytes.empty() && bytes.front() != ' ' && bytes.front() != '\0') return {};
  return value;
}

std::optional<uint64_t> decimal_of(std::string_view digits) {
  if (digits.empty()) return {};
  uint64_t value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9' || value > kMostBytes / 10) return {};
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value < kMostBytes ? std::optional(value) : std::nullopt;
}

// The sum of all bytes, in which those of the sum itself count as blanks. Some old writers took
// bytes for signed numbers.
bool has_its_sum(std::string_view block) {
  const std::optional<uint64_t> told = number_of(field(block, kSum));
  if (!told) return false;
  int64_t unsigned_sum = 0, signed_sum = 0;
  for (const char c : block) {
    unsigned_sum += static_cast<unsigned char>(c);
    signed_sum += static_cast<signed char>(c);
  }
  for (const char c : field(block, kSum)) {
    unsigned_sum += ' ' - static_cast<unsigned char>(c);
    signed_sum += ' ' - static_cast<signed char>(c);
  }
  return std::cmp_equal(*told, unsigned_sum) || std::cmp_equal(*told, signed_sum);
}

TarType type_of(char type) {
  switch (type) {
    case '\0':
    case '0':
    case '7':
    case 'S': return TarType::kFile;
    case '1': return TarType::kHardLink;
    case '2': return TarType::kSymLink;
    case '3': return TarType::kCharacterDevice;
    case '4': return TarType::kBlockDevice;
    case '5': return TarType::kDirectory;
    case '6': return TarType::kPipe;
    default: return TarType::kOther;
  }
}

// Other than files, only what is not known may have data.
bool has_data(TarType type) { return type == TarType::kFile || type == TarType::kOther; }

}  // namespace

std::string told_of(const TarMember& member) {
  return cat("the member '", member.name, "', whose header is at byte ", member.header_offset, ",");
}

Result<void> check_within(const TarMember& member, uint64_t archive_bytes) {
  const uint64_t left = archive_bytes - std::min(archive_bytes, member.data_offset);
  if (member.data_offset <= archive_bytes && member.stored_bytes <= left) return {};
  return corrupt(told_of(member), " has ", member.stored_bytes,
                 " bytes, and the archive ends after ", left, " of them");
}

std::string told_of_missing_end(uint64_t archive_bytes) {
  return cat("it ends after ", archive_bytes,
             " bytes without the two blocks of zeros that end a tar: if its writer was stopped, "
             "members are missing");
}

std::string told_of_more_behind(uint64_t end_offset) {
  return cat("more follows behind its end, at byte ", end_offset,
             ", and was not read: several tars in one must be packed anew");
}

void TarReader::Pax::clear() {
  has_path = has_link_path = has_sparse_name = has_map = false;
  size_bytes = real_bytes = sparse_major = sparse_minor = std::nullopt;
  sparse_numbers.clear();
}

std::unexpected<Error> TarReader::bad(std::string_view what) {
  state_ = State::kFailed;
  return corrupt("not a tar archive that can be read: ", what, ", before byte ", offset_);
}

void TarReader::skip(uint64_t size_bytes) {
  const uint64_t of_data = std::min(size_bytes, data_left_bytes_);
  data_left_bytes_ -= of_data;
  padding_left_bytes_ -= std::min(size_bytes - of_data, padding_left_bytes_);
  offset_ += size_bytes;
  if (state_ == State::kData && data_left_bytes_ + padding_left_bytes_ == 0) {
    state_ = State::kHeader;
  }
}

Result<TarReader::Step> TarReader::next(std::span<const std::byte> bytes) {
  Step step;
  const auto rest = [&] { return bytes.subspan(step.consumed); };
  while (true) {
    switch (state_) {
      case State::kFailed: return corrupt("the archive was found to be bad before");
      case State::kEnd: step.event = Event::kEnd; return step;
      case State::kData:
        if (data_left_bytes_ > 0) {
          const auto count =
              static_cast<size_t>(std::min<uint64_t>(rest().size(), data_left_bytes_));
          if (count == 0) return step;
          step.event = Event::kData;
          step.data = rest().first(count);
          step.consumed += count;
          skip(count);
          return step;
        } else {
          const auto count =
              static_cast<size_t>(std::min<uint64_t>(rest().size(), padding_left_bytes_));
          step.consumed += count;
          skip(count);
          if (state_ == State::kData) return step;
        }
        continue;
      case State::kText:
        if (const uint64_t left = data_left_bytes_ + padding_left_bytes_; left > 0) {
          const auto count = static_cast<size_t>(std::min<uint64_t>(rest().size(), left));
          if (count == 0) return step;
          text_.append(as_text(
              rest().first(static_cast<size_t>(std::min<uint64_t>(count, data_left_bytes_)))));
          step.consumed += count;
          skip(count);
          continue;
        }
        if (Result<std::optional<Event>> taken = take_text(); !taken) {
          return std::unexpected(std::move(taken.error()));
        }
        continue;
      case State::kHeader:
      case State::kZeros:
      case State::kSparseHeaders:
      case State::kSparseText: break;
    }
    std::span<const std::byte> block;
    if (filled_ == 0 && rest().size() >= kTarBlockBytes) {
      block = rest().first(kTarBlockBytes);
      step.consumed += kTarBlockBytes;
    } else {
      const size_t count = std::min(rest().size(), kTarBlockBytes - filled_);
      std::ranges::copy(rest().first(count), block_.begin() + static_cast<ptrdiff_t>(filled_));
      filled_ += count;
      step.consumed += count;
      if (filled_ < kTarBlockBytes) return step;
      filled_ = 0;
      block = block_;
    }
    offset_ += kTarBlockBytes;
    Result<std::optional<Event>> told = take_block(block.first<kTarBlockBytes>());
    if (!told) return std::unexpected(std::move(told.error()));
    if (*told) {
      step.event = **told;
      return step;
    }
  }
}

Result<std::optional<TarReader::Event>> TarReader::take_block(
    std::span<const std::byte, kTarBlockBytes> bytes) {
  const std::string_view block = as_text(bytes);
  if (state_ == State::kSparseHeaders) return take_sparse_header(block);
  if (state_ == State::kSparseText) return take_sparse_text(block);
  const bool zeros = std::ranges::all_of(block, [](char c) { return c == '\0'; });
  if (state_ == State::kZeros) {
    if (!zeros) return bad("a lone block of zeros, and then another one that is not");
    state_ = State::kEnd;
    return Event::kEnd;
  }
  if (!zeros) return take_header(block);
  if (first_header_) return bad("it ends between the headers of a member");
  state_ = State::kZeros;
  return std::nullopt;
}

Result<std::optional<TarReader::Event>> TarReader::take_header(std::string_view block) {
  if (!has_its_sum(block)) return bad("a header does not have its checksum");
  const char type = block[kType];
  if (type != 'g' && !first_header_) first_header_ = offset_ - kTarBlockBytes;
  switch (type) {
    case 'L':
    case 'K':
    case 'x':
    case 'X':  // of Solaris
    case 'g':
      if (Result<void> begun = begin_text(block, type); !begun) {
        return std::unexpected(std::move(begun.error()));
      }
      return std::nullopt;
    default: break;
  }
  if (Result<void> taken = take_member(block, type); !taken) {
    return std::unexpected(std::move(taken.error()));
  }
  if (state_ == State::kSparseHeaders || state_ == State::kSparseText) return std::nullopt;
  Result<Event> begun = begin_member();
  if (!begun) return std::unexpected(std::move(begun.error()));
  return *begun;
}

Result<void> TarReader::begin_text(std::string_view block, char type) {
  const std::optional<uint64_t> size_bytes = number_of(field(block, kSize));
  if (!size_bytes) return bad("a header's size is no number");
  const bool is_name = type == 'L' || type == 'K';
  if (*size_bytes > (is_name ? limits_.max_name_bytes : limits_.max_pax_bytes)) {
    return bad(is_name ? "a name is longer than is taken"
                       : "an extended header is longer than is taken");
  }
  text_type_ = type;
  text_.clear();
  data_left_bytes_ = *size_bytes;
  padding_left_bytes_ = tar_padding_bytes(*size_bytes);
  state_ = State::kText;
  return {};
}

Result<std::optional<TarReader::Event>> TarReader::take_text() {
  state_ = State::kHeader;
  Result<void> taken;
  switch (text_type_) {
    case 'L':
      long_name_.assign(text_of(text_));
      has_long_name_ = true;
      break;
    case 'K':
      long_link_name_.assign(text_of(text_));
      has_long_link_name_ = true;
      break;
    case 'g':
      has_global_header_ = true;
      taken = parse_pax(global_);
      break;
    default: taken = parse_pax(local_); break;
  }
  if (!taken) return std::unexpected(std::move(taken.error()));
  return std::nullopt;
}

// Records "LENGTH KEY=VALUE\n", in which the length counts all of the record.
Result<void> TarReader::parse_pax(Pax& into) {
  std::string_view rest = text_;
  while (!rest.empty()) {
    if (rest.front() == '\0') return {};  // some writers fill up with NULs
    const size_t blank = rest.substr(0, 20).find(' ');
    const std::optional<uint64_t> size_bytes =
        blank == std::string_view::npos ? std::nullopt : decimal_of(rest.substr(0, blank));
    const bool fits = size_bytes && *size_bytes > blank + 1 && *size_bytes <= rest.size() &&
                      rest[*size_bytes - 1] == '\n';
    if (!fits) return bad("a record of an extended header does not have the length that it tells");
    const std::string_view record = rest.substr(blank + 1, *size_bytes - blank - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return bad("a record of an extended header has no key");
    }
    if (Result<void> set = set_pax(into, record.substr(0, equals), record.substr(equals + 1));
        !set) {
      return set;
    }
    rest.remove_prefix(*size_bytes);
  }
  return {};
}

Result<void> TarReader::set_pax(Pax& into, std::string_view key, std::string_view value) {
  const auto set_text = [&](std::string& text, bool& has) -> Result<void> {
    if (value.contains('\0')) return bad("a name in an extended header has a NUL");
    if (value.size() > limits_.max_name_bytes) return bad("a name is longer than is taken");
    text.assign(value);
    has = !value.empty();  // an empty value takes back what another header said
    return {};
  };
  const auto set_number = [&](std::optional<uint64_t>& number) -> Result<void> {
    number = decimal_of(value);
    if (!number && !value.empty()) return bad("a number in an extended header is none");
    return {};
  };
  if (key == "path") return set_text(into.path, into.has_path);
  if (key == "linkpath") return set_text(into.link_path, into.has_link_path);
  if (key == "size") return set_number(into.size_bytes);
  constexpr std::string_view kSparse = "GNU.sparse.";
  // One member's map is no other's.
  if (!key.starts_with(kSparse) || &into == &global_) return {};
  key.remove_prefix(kSparse.size());
  if (key == "name") return set_text(into.sparse_name, into.has_sparse_name);
  if (key == "major") return set_number(into.sparse_major);
  if (key == "minor") return set_number(into.sparse_minor);
  if (key == "size" || key == "realsize") return set_number(into.real_bytes);
  if (key == "offset" || key == "numbytes") {
    const bool is_offset = into.sparse_numbers.size() % 2 == 0;
    const std::optional<uint64_t> number = decimal_of(value);
    if (!number || is_offset != (key == "offset")) return bad("the map of a sparse file is none");
    into.has_map = true;
    into.sparse_numbers.push_back(*number);
  }
  if (key == "map") {
    into.has_map = true;
    into.sparse_numbers.clear();
    while (!value.empty()) {
      const std::string_view digits = value.substr(0, value.find(','));
      const std::optional<uint64_t> number = decimal_of(digits);
      if (!number) return bad("the map of a sparse file is none");
      into.sparse_numbers.push_back(*number);
      value.remove_prefix(std::min(value.size(), digits.size() + 1));
    }
  }
  return {};
}

// The header of the member itself, after those that extend it.
Result<void> TarReader::take_member(std::string_view block, char type) {
  const std::string_view magic = field(block, kMagic);
  const bool is_gnu = magic == std::string_view("ustar  \0", 8);
  member_.type = type_of(type);
  member_.header_offset = *std::exchange(first_header_, std::nullopt);
  member_.is_sparse = false;
  member_.parts.clear();

  member_.name.clear();
  if (local_.has_sparse_name) {
    member_.name.assign(local_.sparse_name);
  } else if (local_.has_path) {
    member_.name.assign(local_.path);
  } else if (has_long_name_) {
    member_.name.assign(long_name_);
  } else if (global_.has_path) {
    member_.name.assign(global_.path);
  } else {
    const std::string_view prefix =
        magic.starts_with("ustar") && !is_gnu ? text_of(field(block, kPrefix)) : "";
    if (!prefix.empty()) member_.name.append(prefix).append("/");
    member_.name.append(text_of(field(block, kName)));
  }
  member_.link_name.clear();
  if (local_.has_link_path) {
    member_.link_name.assign(local_.link_path);
  } else if (has_long_link_name_) {
    member_.link_name.assign(long_link_name_);
  } else if (global_.has_link_path) {
    member_.link_name.assign(global_.link_path);
  } else {
    member_.link_name.assign(text_of(field(block, kLinkName)));
  }
  // Before there was a type for directories, their names told.
  if (type == '\0' && member_.name.ends_with('/')) member_.type = TarType::kDirectory;

  std::optional<uint64_t> size_bytes = local_.size_bytes ? local_.size_bytes : global_.size_bytes;
  if (!size_bytes) size_bytes = number_of(field(block, kSize));
  if (!size_bytes) return bad("the size of a member is no number");
  if (!has_data(member_.type)) size_bytes = 0;
  // Both times the rest of a block: the sum must fit, too.
  if (*size_bytes >= kMostBytes - kTarBlockBytes ||
      offset_ >= kMostBytes - kTarBlockBytes - *size_bytes) {
    return bad("a member is larger than any archive");
  }
  member_.size_bytes = member_.stored_bytes = *size_bytes;
  sparse_numbers_.clear();

  if (type == 'S') {
    const std::optional<uint64_t> real_bytes = number_of(field(block, kRealSize));
    if (!real_bytes) return bad("the size of a sparse file is no number");
    member_.is_sparse = true;
    member_.size_bytes = *real_bytes;
    if (Result<void> added = add_old_sparse(block.substr(kSparseEntries), kSparseEntryCount);
        !added) {
      return added;
    }
    if (block[kSparseIsExtended] != '\0') state_ = State::kSparseHeaders;
  } else if (member_.type == TarType::kFile && (local_.has_map || local_.sparse_major == 1)) {
    if (!local_.real_bytes) return bad("a sparse file without its size");
    member_.is_sparse = true;
    member_.size_bytes = *local_.real_bytes;
    if (local_.sparse_major == 1 && local_.sparse_minor.value_or(0) == 0) {
      state_ = State::kSparseText;
      sparse_count_.reset();
      sparse_number_ = 0;
      in_number_ = false;
    } else if (local_.sparse_major.value_or(0) != 0) {
      return bad("a sparse file in a format that is not known");
    } else {
      std::swap(sparse_numbers_, local_.sparse_numbers);
    }
  }
  local_.clear();
  has_long_name_ = has_long_link_name_ = false;
  return {};
}

Result<void> TarReader::add_old_sparse(std::string_view entries, size_t count) {
  for (size_t i = 0; i < count; ++i, entries.remove_prefix(2 * kSparseNumberBytes)) {
    if (entries[kSparseNumberBytes] == '\0') return {};  // not in use, and so are all after it
    if (sparse_numbers_.size() >= 2 * limits_.max_parts) {
      return bad("a sparse file has more parts than are taken");
    }
    for (const size_t at : {size_t{0}, kSparseNumberBytes}) {
      const std::optional<uint64_t> number = number_of(entries.substr(at, kSparseNumberBytes));
      if (!number) return bad("the map of a sparse file is none");
      sparse_numbers_.push_back(*number);
    }
  }
  return {};
}

Result<std::optional<TarReader::Event>> TarReader::take_sparse_header(std::string_view block) {
  if (Result<void> added = add_old_sparse(block, kMoreSparseEntryCount); !added) {
    return std::unexpected(std::move(added.error()));
  }
  if (block[kMoreSparseIsExtended] != '\0') return std::nullopt;
  Result<Event> begun = begin_member();
  if (!begun) return std::unexpected(std::move(begun.error()));
  return *begun;
}

// Decimal numbers, one a line: how many parts there are, then each one's offset and size; filled up
// to a whole block, and counted as data.
Result<std::optional<TarReader::Event>> TarReader::take_sparse_text(std::string_view block) {
  if (member_.stored_bytes < kTarBlockBytes) return bad("the map of a sparse file is cut off");
  member_.stored_bytes -= kTarBlockBytes;
  for (const char c : block) {
    if (c >= '0' && c <= '9' && sparse_number_ < kMostBytes / 10) {
      sparse_number_ = sparse_number_ * 10 + static_cast<uint64_t>(c - '0');
      in_number_ = true;
      continue;
    }
    if (c != '\n' || !in_number_) return bad("the map of a sparse file is none");
    in_number_ = false;
    const uint64_t number = std::exchange(sparse_number_, 0);
    if (!sparse_count_) {
      if (number > limits_.max_parts) return bad("a sparse file has more parts than are taken");
      sparse_count_ = 2 * number;
    } else {
      sparse_numbers_.push_back(number);
    }
    if (sparse_numbers_.size() < *sparse_count_) continue;
    Result<Event> begun = begin_member();
    if (!begun) return std::unexpected(std::move(begun.error()));
    return *begun;
  }
  return std::nullopt;
}

Result<TarReader::Event> TarReader::begin_member() {
  if (sparse_numbers_.size() % 2 != 0) return bad("the map of a sparse file is none");
  uint64_t end = 0, stored_bytes = 0;
  for (size_t i = 0; i < sparse_numbers_.size(); i += 2) {
    const uint64_t begin = sparse_numbers_[i], size_bytes = sparse_numbers_[i + 1];
    if (begin < end || begin > member_.size_bytes || size_bytes > member_.size_bytes - begin) {
      return bad("the parts of a sparse file overlap, or lie beyond its end");
    }
    end = begin + size_bytes;
    stored_bytes += size_bytes;
    if (size_bytes > 0) member_.parts.push_back({begin, end});
  }
  if (member_.is_sparse && stored_bytes != member_.stored_bytes) {
    return bad("the parts of a sparse file are not as long as what is stored of it");
  }
  member_.data_offset = offset_;
  data_left_bytes_ = member_.stored_bytes;
  padding_left_bytes_ = tar_padding_bytes(member_.stored_bytes);
  state_ = data_left_bytes_ > 0 ? State::kData : State::kHeader;
  return Event::kMember;
}

Result<void> TarReader::finish() const {
  const uint64_t at = offset_ + filled_;
  switch (state_) {
    case State::kFailed: return corrupt("the archive was found to be bad before");
    case State::kEnd:
    case State::kZeros: return {};
    case State::kData:
      return corrupt("the archive is torn: it ends at byte ", at, ", in member '", member_.name,
                     "', which goes on for ", data_left_bytes_ + padding_left_bytes_, " bytes");
    case State::kHeader:
      if (filled_ == 0 && !first_header_) return {};
      break;
    case State::kText:
    case State::kSparseHeaders:
    case State::kSparseText: break;
  }
  return corrupt("the archive is torn: it ends at byte ", at, ", inside of a header");
}

}  // namespace headrace
