// NO_PROXY: which hosts are reached without the proxy.
#pragma once

#include <cstdint>
#include <string_view>

namespace headrace {

// `no_proxy` is a list with commas or spaces of: `*`; a name, with or without a leading dot or
// "*.", that covers itself and all names below it; an address (IPv6 with or without brackets); a
// network in CIDR notation. Names and addresses may carry ":port". Malformed entries cover nothing.
// `host` is a name or an address, without brackets.
bool bypasses_proxy(std::string_view no_proxy, std::string_view host, uint16_t port);

}  // namespace headrace
