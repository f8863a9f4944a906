// The attempt that asks for the map of a cluster.
#pragma once

#include <memory>
#include <string>

#include "headrace/store/placement.h"
#include "headrace/store/transfer/attempt.h"

namespace headrace {

class MapAttempt final : public TextAttempt {
 public:
  using TextAttempt::TextAttempt;
  void build(HttpRequest& request) override { protocol().placement()->build_map(request); }
  std::string url() const override { return protocol().url_of(""); }
  bool asks_for_map() const override { return true; }
  Result<std::shared_ptr<const HostMap>> result;

 private:
  Result<Verdict> finish() override {
    result = protocol().placement()->parse_map(response());
    if (!result) return std::unexpected(result.error());
    return Verdict::kDone;
  }
};

}  // namespace headrace
