// Which target of an AIStore cluster has an object.
#pragma once

#include <memory>
#include <optional>

#include "headrace/store/ais/ais_paths.h"
#include "headrace/store/placement.h"
#include "headrace/store/protocol.h"

namespace headrace {

// Thread: any (immutable). Borrows the paths.
class AisPlacement final : public Placement {
 public:
  // `tls`: the endpoint speaks it. No request then goes where it is not spoken, since the token
  // would go there, too.
  AisPlacement(const AisPaths& paths, bool tls, bool direct)
      : paths_(paths), tls_(tls), direct_(direct) {}

  void build_map(HttpRequest& request) const override;
  Result<std::shared_ptr<const HostMap>> parse_map(const Response& response) const override;
  std::optional<size_t> owner(const HostMap& map, std::string_view name) const override;
  std::optional<size_t> send_to(const HostMap& map, const HttpRequest& request) const override;

 private:
  const AisPaths& paths_;
  const bool tls_;
  const bool direct_;  // otherwise the map only tells when the cluster changes
};

}  // namespace headrace
