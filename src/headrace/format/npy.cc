#include "headrace/format/npy.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "headrace/base/as_text.h"

namespace headrace {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kMostDimensions = 64;  // NumPy's own limit

// The few kinds of Python literals that NumPy writes.
class Literals {
 public:
  explicit Literals(std::string_view text) : text_(text) {}

  bool take(char wanted) {
    skip_space();
    if (!text_.starts_with(wanted)) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool at(char wanted) {
    skip_space();
    return text_.starts_with(wanted);
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  // Neither NumPy's types nor its keys have a quote or a backslash in them.
  std::optional<std::string_view> text() {
    skip_space();
    if (!text_.starts_with('\'') && !text_.starts_with('"')) return {};
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return {};
    const std::string_view out = text_.substr(1, end - 1);
    if (out.contains('\\')) return {};
    text_.remove_prefix(end + 1);
    return out;
  }
  std::optional<uint64_t> number() {
    skip_space();
    uint64_t out = 0;
    const char* const begin = text_.data();
    const auto [end, error] = std::from_chars(begin, begin + text_.size(), out);
    if (error != std::errc()) return {};
    text_.remove_prefix(static_cast<size_t>(end - begin));
    take_word("L");  // Python 2's
    return out;
  }
  std::optional<std::vector<uint64_t>> numbers() {
    if (!take('(')) return {};
    std::vector<uint64_t> out;
    while (!take(')')) {
      const std::optional<uint64_t> next = number();
      if (!next || out.size() == kMostDimensions) return {};
      out.push_back(*next);
      if (!take(',') && !at(')')) return {};
    }
    return out;
  }
  bool at_end() {
    skip_space();
    return text_.empty();
  }

 private:
  void skip_space() {
    const size_t end = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end);
  }

  std::string_view text_;
};

Error torn_npy(std::string_view what) { return {Code::kCorrupt, cat("the .npy header ", what)}; }

}  // namespace

Result<size_t> npy_header_bytes(std::span<const std::byte> beginning) {
  const std::string_view text = as_text(beginning);
  if (!kNpyMagic.starts_with(text.substr(0, kNpyMagic.size()))) {
    return std::unexpected(Error(Code::kCorrupt, "this is no .npy file: it begins otherwise"));
  }
  if (beginning.size() < kNpyLengthBytes) return std::unexpected(torn_npy("is cut"));
  const auto major = static_cast<uint8_t>(beginning[6]);
  if (major < 1 || major > 3) {
    return std::unexpected(torn_npy(cat("is of version ", unsigned{major}, "; known are 1 to 3")));
  }
  const size_t width = major == 1 ? 2 : 4;
  size_t length = 0;
  for (size_t i = 0; i < width; ++i) length |= static_cast<size_t>(beginning[8 + i]) << 8 * i;
  const size_t size = 8 + width + length;
  if (size > kMostNpyHeaderBytes) {
    return std::unexpected(torn_npy(cat("says that it has ", size, " bytes; that is too many")));
  }
  return size;
}

Result<NpyHeader> parse_npy_header(std::span<const std::byte> header) {
  const Result<size_t> size =
      npy_header_bytes(header.first(std::min(header.size(), kNpyLengthBytes)));
  if (!size) return std::unexpected(size.error());
  if (*size > header.size()) return std::unexpected(torn_npy("is cut"));
  const size_t begin = static_cast<uint8_t>(header[6]) == 1 ? 10 : 12;
  if (*size < begin) return std::unexpected(torn_npy("is cut"));
  Literals literals(as_text(header.first(*size).subspan(begin)));
  NpyHeader out{.data_begin = *size};
  bool has_descr = false, has_order = false, has_shape = false;
  if (!literals.take('{')) return std::unexpected(torn_npy("has no dictionary"));
  while (!literals.take('}')) {
    const std::optional<std::string_view> key = literals.text();
    if (!key || !literals.take(':')) return std::unexpected(torn_npy("has a key that is none"));
    if (*key == "descr" && !has_descr) {
      if (literals.at('[')) {
        return std::unexpected(
            Error(Code::kInvalidArgument, "the .npy file holds records of several fields"));
      }
      const std::optional<std::string_view> descr = literals.text();
      if (!descr) return std::unexpected(torn_npy("has no type of items"));
      out.descr = *descr;
      has_descr = true;
    } else if (*key == "fortran_order" && !has_order) {
      out.fortran_order = literals.take_word("True");
      if (!out.fortran_order && !literals.take_word("False")) {
        return std::unexpected(torn_npy("has no order of items"));
      }
      has_order = true;
    } else if (*key == "shape" && !has_shape) {
      std::optional<std::vector<uint64_t>> shape = literals.numbers();
      if (!shape) return std::unexpected(torn_npy("has no shape"));
      out.shape = std::move(*shape);
      has_shape = true;
    } else {
      return std::unexpected(torn_npy(cat("has the key '", *key, "' too many")));
    }
    if (!literals.take(',') && !literals.at('}')) {
      return std::unexpected(torn_npy("has something behind a value"));
    }
  }
  if (!literals.at_end()) return std::unexpected(torn_npy("has something behind its dictionary"));
  if (!has_descr || !has_order || !has_shape) {
    return std::unexpected(torn_npy("does not tell type, order and shape"));
  }
  return out;
}

}  // namespace headrace
