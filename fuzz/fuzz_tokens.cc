// Any bytes are refused, or are a header whose parts lie within them; no beginning of a good one is
// taken for a whole one, and what is written is read back.
#include <algorithm>
#include <string>

#include "fuzz/check.h"
#include "headrace/format/megatron_index.h"
#include "headrace/format/npy.h"

using namespace headrace;
using fuzz::check;

namespace {

bool is_refusal(const Error& error) {
  return error.code() == Code::kCorrupt || error.code() == Code::kInvalidArgument;
}

void check_npy(std::string_view text, fuzz::Choices& choices) {
  const std::span<const std::byte> bytes = fuzz::as_bytes(text);
  const Result<NpyHeader> parsed = parse_npy_header(bytes);
  if (!parsed) {
    check(is_refusal(parsed.error()));
    return;
  }
  check(parsed->data_begin <= bytes.size() && parsed->data_begin >= kNpyLengthBytes);
  check(npy_header_bytes(bytes.first(kNpyLengthBytes)).value() == parsed->data_begin);
  check(!parse_npy_header(bytes.first(choices() % parsed->data_begin)).has_value());
  check(parse_npy_header(bytes.first(parsed->data_begin)).value() == *parsed);

  std::string written = "{'shape': (";
  for (const uint64_t each : parsed->shape) written += cat(each, ",");
  written += cat("), 'fortran_order': ", parsed->fortran_order ? "True" : "False");
  const char quote = parsed->descr.contains('\'') ? '"' : '\'';
  written += cat(", 'descr': ") + quote + parsed->descr + quote + "}";
  std::string file = std::string("\x93NUMPY\2\0", 8);
  for (size_t i = 0; i < 4; ++i) file += static_cast<char>(written.size() >> 8 * i);
  file += written;
  const NpyHeader again = parse_npy_header(fuzz::as_bytes(file)).value();
  check(again.descr == parsed->descr && again.shape == parsed->shape);
  check(again.fortran_order == parsed->fortran_order && again.data_begin == file.size());
}

void check_megatron(std::string_view text, fuzz::Choices& choices) {
  const std::span<const std::byte> bytes = fuzz::as_bytes(text);
  const Result<MegatronIndex> parsed = MegatronIndex::parse(bytes);
  if (!parsed) {
    check(is_refusal(parsed.error()));
    return;
  }
  check(parsed->item_bytes() > 0 && parsed->sequence_count() * 12 < bytes.size());
  uint64_t end = 0, sum = 0;
  for (size_t i = 0; i < parsed->sequence_count(); ++i) {
    check(parsed->begin(i) % parsed->item_bytes() == 0);
    end = std::max(end, parsed->begin(i) + parsed->length(i) * parsed->item_bytes());
    sum += parsed->length(i) * parsed->item_bytes();
  }
  check(end == parsed->end());
  check(!parsed->is_contiguous() || sum == end);
  for (size_t i = 0; i < parsed->document_count(); ++i) {
    check(parsed->first_sequence(i) <= parsed->first_sequence(i + 1));
  }
  check(parsed->first_sequence(parsed->document_count()) <= parsed->sequence_count());
  // Without the modes of sequences it is a whole one, too.
  const size_t cut = choices() % bytes.size();
  const Result<MegatronIndex> shorter = MegatronIndex::parse(bytes.first(cut));
  check(!shorter || bytes.size() - cut == parsed->sequence_count());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  check_npy(text, choices);
  check_megatron(text, choices);
  return 0;
}
