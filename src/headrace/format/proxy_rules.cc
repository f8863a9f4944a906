#include "headrace/format/proxy_rules.h"

#include <arpa/inet.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

struct Address {
  std::array<std::byte, 16> bytes{};
  unsigned bit_count = 0;  // 32 or 128
};

std::optional<Address> parse_address(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  const std::string terminated(text);
  Address address;
  if (inet_pton(AF_INET, terminated.c_str(), address.bytes.data()) == 1) {
    address.bit_count = 32;
    return address;
  }
  if (inet_pton(AF_INET6, terminated.c_str(), address.bytes.data()) == 1) {
    address.bit_count = 128;
    return address;
  }
  return std::nullopt;
}

bool shares_prefix(const Address& a, const Address& b, unsigned bit_count) {
  if (a.bit_count != b.bit_count) return false;
  for (unsigned bit = 0; bit < bit_count; ++bit) {
    const std::byte mask{static_cast<unsigned char>(0x80u >> (bit % 8))};
    if (((a.bytes[bit / 8] ^ b.bytes[bit / 8]) & mask) != std::byte{0}) return false;
  }
  return true;
}

bool covers(std::string_view rule, std::string_view host,
            const std::optional<Address>& host_address, uint16_t port) {
  if (rule == "*") return true;
  if (const size_t slash = rule.find('/'); slash != std::string_view::npos) {
    const std::optional<Address> network = parse_address(rule.substr(0, slash));
    const std::optional<unsigned> bit_count = parse_number<unsigned>(rule.substr(slash + 1));
    return network && bit_count && *bit_count <= network->bit_count && host_address &&
           shares_prefix(*network, *host_address, *bit_count);
  }
  std::optional<Address> address = parse_address(rule);
  // An IPv6 address without brackets is full of colons, so a port is looked for only behind what
  // is not an address as a whole.
  if (const size_t colon = rule.rfind(':'); !address && colon != std::string_view::npos) {
    if (parse_number<uint16_t>(rule.substr(colon + 1)) != port) return false;
    rule = rule.substr(0, colon);
    if (rule == "*") return true;
    address = parse_address(rule);
  }
  if (address) return host_address && shares_prefix(*address, *host_address, address->bit_count);
  if (host_address) return false;

  if (rule.starts_with("*.")) rule.remove_prefix(1);
  if (rule.starts_with('.')) rule.remove_prefix(1);
  if (rule.ends_with('.')) rule.remove_suffix(1);
  if (rule.empty()) return false;
  if (same_ignoring_case(rule, host)) return true;
  if (host.size() <= rule.size()) return false;
  const size_t tail = host.size() - rule.size();
  return host[tail - 1] == '.' && same_ignoring_case(rule, host.substr(tail));
}

}  // namespace

bool bypasses_proxy(std::string_view no_proxy, std::string_view host, uint16_t port) {
  const std::optional<Address> host_address = parse_address(host);
  if (host.ends_with('.')) host.remove_suffix(1);
  while (!no_proxy.empty()) {
    const size_t end = no_proxy.find_first_of(", \t");
    const std::string_view rule = no_proxy.substr(0, end);
    no_proxy.remove_prefix(end == std::string_view::npos ? no_proxy.size() : end + 1);
    if (!rule.empty() && covers(rule, host, host_address, port)) return true;
  }
  return false;
}

}  // namespace headrace
