// Many objects of AIStore by one request (GetBatch).
#pragma once

#include <span>
#include <string>

#include "headrace/store/ais/ais_paths.h"
#include "headrace/store/batch_gets.h"
#include "headrace/store/protocol.h"

namespace headrace {

// Thread: any (immutable). Borrows its arguments.
class AisBatchGets final : public BatchGets {
 public:
  AisBatchGets(const AisPaths& paths, const Root& root) : paths_(paths), root_(root) {}

  bool can_name(const BatchGetEntry& entry) const override;
  void build_get(HttpRequest& request, std::span<const BatchGetEntry> entries) const override;
  std::string member_name(const BatchGetEntry& entry) const override;
  std::string missing_name(const BatchGetEntry& entry) const override;
  bool is_absent(const Error& refusal) const override;

 private:
  const AisPaths& paths_;
  const Root& root_;
};

}  // namespace headrace
