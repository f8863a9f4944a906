#include "headrace/store/ais/ais_batch_gets.h"

#include <vector>

#include "headrace/format/ais_batch.h"

namespace headrace {
namespace {

// What the paths of requests about buckets begin with.
constexpr std::string_view kBuckets = "/v1/buckets/";

AisBatchEntry full_entry(const Root& root, const BatchGetEntry& entry) {
  return {.name = root.full_name(entry.name), .member = entry.member, .range = entry.range};
}

}  // namespace

bool AisBatchGets::can_name(const BatchGetEntry& entry) const {
  return AisPaths::wrong_with(entry.name).empty();
}

void AisBatchGets::build_get(HttpRequest& request, std::span<const BatchGetEntry> entries) const {
  paths_.begin_bucket(request, "GET");
  request.target.replace(0, kBuckets.size(), "/v1/ml/moss/");
  std::vector<AisBatchEntry> full;
  full.reserve(entries.size());
  for (const BatchGetEntry& entry : entries) full.push_back(full_entry(root_, entry));
  request.own_body(ais_batch_body(full));
  request.add_header("Content-Type", "application/json");
}

std::string AisBatchGets::member_name(const BatchGetEntry& entry) const {
  return ais_batch_member_name(full_entry(root_, entry));
}

std::string AisBatchGets::missing_name(const BatchGetEntry& entry) const {
  return ais_batch_missing_name(full_entry(root_, entry));
}

bool AisBatchGets::is_absent(const Error& refusal) const {
  return is_ais_batch_unknown(refusal.http_status(), refusal.message());
}

}  // namespace headrace
