// Rules that say which request goes wrong, and how.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "http.h"
#include "json.h"
#include "route.h"

namespace faultserver {

// What goes wrong with one answer. Members that are unset leave it alone; they combine.
struct Fault {
  bool refuse = false;  // Of connections, not requests.
  bool reset = false, lost_answer = false, stall_head = false, perform = false;
  bool early = false;        // Answer before the request's body has come.
  bool no_continue = false;  // Do not ask for it.
  std::optional<uint64_t> reset_after_bytes, cut_after_bytes, stall_after_bytes;
  std::optional<uint64_t> cut_request_after_bytes;
  double delay_s = 0;
  uint64_t drip_bytes = 0;
  double drip_every_s = 0;
  int64_t wrong_length = 0;
  bool wrong_checksum = false, no_hash = false;
  std::optional<uint64_t> flip_byte, flip_sent_byte;
  int status = 0;
  std::optional<std::string> body;
  std::string reason, message;
  Headers headers;
  std::optional<double> retry_after_s, retry_after_date_s;
  bool close_after = false, announce_close = false;
  bool chunked = false;
  bool garbage_head = false, no_close_notify = false;
  std::string garbage;
  uint64_t huge_head_bytes = 0, pad_body_bytes = 0;
  bool wrong_range = false, ignore_range = false, replace_object = false;
  std::string range_text;
  uint64_t rule = 0;  // Which rule this is of, counted from 0.
};

// Thread: confined (the server's lock guards it).
class Faults {
 public:
  // A sentence in place of the rules when they are wrong; then the old ones stay.
  std::string set_rules(const Json& rules);
  void clear() { rules_.clear(); }
  Json to_json() const;

  // Counts the request and gives what is to go wrong with it.
  std::optional<Fault> next(const Request& request, const Route& route);
  // Whether the connection just accepted is to be refused.
  bool refuses_connection();

 private:
  struct Rule {
    std::string method, path_contains, target_contains, header_name, header_contains;
    std::set<std::string, std::less<>> kinds;
    std::optional<bool> has_range;
    std::optional<uint32_t> node;
    bool at_target = false;  // At any node but a proxy.
    uint64_t from = 1, count = UINT64_MAX, every = 0;
    std::optional<double> fraction;
    uint64_t seed = 1;
    Fault fault;
    uint64_t matched = 0, fired = 0;

    bool matches(const Request& request, const Route& route) const;
    bool fires();  // Counts one match.
  };
  static std::string read_action(const Json& action, Fault& fault);

  std::vector<Rule> rules_;
};

}  // namespace faultserver
