// An archive in pieces is the archive at once, also where data passes the reader by; what is told
// of a member lies within the archive; each member is found again at its header.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/tar_headers.h"
#include "headrace/format/tar.h"
#include "headrace/format/tar_test_support.h"

using namespace headrace;
using fuzz::check;

namespace {

constexpr TarLimits kLimits{.max_name_bytes = 2000, .max_pax_bytes = 3000, .max_parts = 50};

struct Found {
  std::string name, link_name, data;
  TarType type = TarType::kFile;
  uint64_t size_bytes = 0, stored_bytes = 0, header_offset = 0, data_offset = 0;
  std::vector<ByteRange> parts;
  bool operator==(const Found&) const = default;
};

struct Outcome {
  std::vector<Found> members;
  bool failed = false, complete = false, has_end = false;
  bool operator==(const Outcome&) const = default;
};

Found found(const TarMember& member) {
  return {.name = member.name,
          .link_name = member.link_name,
          .data = {},
          .type = member.type,
          .size_bytes = member.size_bytes,
          .stored_bytes = member.stored_bytes,
          .header_offset = member.header_offset,
          .data_offset = member.data_offset,
          .parts = member.parts};
}

Outcome read(std::string_view in, fuzz::Choices* choices) {
  Outcome outcome;
  TarReader reader(kLimits);
  std::string_view rest = in;
  while (true) {
    const uint64_t left = reader.data_left_bytes();
    if (choices != nullptr && left > 0 && (*choices)() % 3 == 0) {
      const auto count = static_cast<size_t>(std::min<uint64_t>(left, rest.size()));
      outcome.members.back().data += rest.substr(0, count);
      reader.skip(count);
      rest.remove_prefix(count);
    }
    const std::string_view piece =
        rest.substr(0, choices == nullptr ? rest.size() : 1 + (*choices)() % 700);
    const auto step = reader.next(fuzz::as_bytes(piece));
    if (!step) {
      outcome.failed = true;
      check(!reader.finish().has_value());
      return outcome;
    }
    check(step->consumed <= piece.size() && step->data.size() <= step->consumed);
    rest.remove_prefix(step->consumed);
    if (step->event == TarReader::Event::kMember) {
      const TarMember& member = reader.member();
      check(member.header_offset < member.data_offset);
      check(member.data_offset == reader.offset() && member.data_offset <= in.size());
      check(reader.data_left_bytes() == member.stored_bytes);
      uint64_t end = 0, stored_bytes = 0;
      for (const ByteRange& part : member.parts) {
        check(part.begin >= end && part.begin < part.end && part.end <= member.size_bytes);
        end = part.end;
        stored_bytes += part.size_bytes();
      }
      check(stored_bytes == (member.is_sparse ? member.stored_bytes : 0));
      outcome.members.push_back(found(member));
    } else if (step->event == TarReader::Event::kData) {
      outcome.members.back().data.append(reinterpret_cast<const char*>(step->data.data()),
                                         step->data.size());
    } else if (step->event == TarReader::Event::kEnd) {
      check(reader.finish().has_value());
      outcome.complete = outcome.has_end = true;
      return outcome;
    } else if (rest.empty()) {
      outcome.complete = reader.finish().has_value();
      outcome.has_end = reader.has_end();
      return outcome;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string in(fuzz::as_text(data, size));
  fuzz::Choices choices(in);
  fuzz::correct_sums(in, choices);

  const Outcome at_once = read(in, nullptr);
  check(read(in, &choices) == at_once);
  for (const Found& each : at_once.members) {
    TarReader alone(kLimits, each.header_offset);
    const auto step = alone.next(fuzz::as_bytes(in).subspan(each.header_offset));
    // A global header before it may say otherwise.
    if (step && step->event == TarReader::Event::kMember) {
      check(alone.member().header_offset == each.header_offset);
    }
  }

  const std::string_view text = fuzz::as_text(data, size);
  const std::string name(text.substr(0, text.find('\0')).substr(0, choices() % 300));
  const Outcome back = read(tar_file(name, text) + tar_file("next", "x") + tar_end(), &choices);
  check(!back.failed && back.complete && back.has_end && back.members.size() == 2);
  check(back.members[0].name == name && back.members[0].data == text);
  return 0;
}
