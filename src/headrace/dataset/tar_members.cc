#include "headrace/dataset/tar_members.h"

namespace headrace {

Result<std::vector<TarMember>> tar_members(std::span<const std::byte> archive) {
  std::vector<TarMember> members;
  TarReader reader;
  for (;;) {
    const Result<TarReader::Step> step = reader.next(archive);
    if (!step) return std::unexpected(step.error());
    archive = archive.subspan(step->consumed);
    if (step->event == TarReader::Event::kEnd) return members;
    if (step->event == TarReader::Event::kMoreNeeded) break;
    if (step->event == TarReader::Event::kMember) members.push_back(reader.member());
  }
  if (const Result<void> end = reader.finish(); !end) return std::unexpected(end.error());
  return members;
}

}  // namespace headrace
