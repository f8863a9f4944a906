// A shard in pieces has the samples that it has at once; a reader that begins behind any of them
// finds the others; one that passes some over finds the same.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/tar_headers.h"
#include "headrace/dataset/shard_parser.h"

using namespace headrace;
using fuzz::check;

namespace {

constexpr uint64_t kMostSampleBytes = 1 << 20;

struct Found {
  std::string key, fields;
  uint64_t number = 0, next_offset = 0;
  bool operator==(const Found&) const = default;
};

struct Outcome {
  std::vector<Found> samples;
  bool failed = false;
  bool operator==(const Outcome&) const = default;
};

Found found(const ShardSample& sample) {
  Found out{
      .key = sample.key, .fields = {}, .number = sample.number, .next_offset = sample.next_offset};
  for (const ShardSample::Field& field : sample.fields) {
    if (field.same_as) check(*field.same_as < sample.fields.size());
    const Block& block = field.same_as ? sample.fields[*field.same_as].block : field.block;
    out.fields += field.name + '=';
    out.fields.append(reinterpret_cast<const char*>(block.data()), block.size_bytes());
    out.fields += '\n';
  }
  return out;
}

Outcome read(const std::shared_ptr<BlockPool>& pool, std::string_view in, uint64_t first,
             uint64_t offset, fuzz::Choices* choices) {
  Outcome out;
  std::vector<ShardSample> samples;
  ShardParser parser(pool, {.tar_bytes = in.size(),
                            .number = offset > 0 ? first : 0,
                            .offset = offset,
                            .first = first,
                            .max_sample_bytes = kMostSampleBytes});
  std::string_view rest = in.substr(offset);
  while (!rest.empty() && !out.failed) {
    const std::string_view piece =
        rest.substr(0, choices == nullptr ? rest.size() : 1 + (*choices)() % 700);
    rest.remove_prefix(piece.size());
    out.failed = !parser.take(fuzz::as_bytes(piece), samples).has_value();
  }
  out.failed = out.failed || !parser.finish(samples).has_value();
  for (const ShardSample& each : samples) {
    check(each.next_offset <= in.size() && each.number >= first);
    out.samples.push_back(found(each));
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<BlockPool> pool = BlockPool::create(64 * kMiB);
  std::string in(fuzz::as_text(data, size));
  fuzz::Choices choices(in);
  fuzz::correct_sums(in, choices);
  const Outcome whole = read(pool, in, 0, 0, nullptr);
  check(read(pool, in, 0, 0, &choices) == whole);
  for (size_t i = 0; i < whole.samples.size(); ++i) {
    const uint64_t next = whole.samples[i].number + 1;
    const std::vector<Found> others(whole.samples.begin() + static_cast<ptrdiff_t>(i) + 1,
                                    whole.samples.end());
    const Outcome passed = read(pool, in, next, 0, &choices);
    check(passed.samples == others && passed.failed == whole.failed);
    const uint64_t offset = whole.samples[i].next_offset;
    // A key or a link that came before is not known there, and cannot be wrong.
    if (offset == 0 || whole.failed) continue;
    check(read(pool, in, next, offset, &choices).samples == others);
  }
  check(pool->live_bytes() == 0);
  return 0;
}
