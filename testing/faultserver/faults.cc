#include "faults.h"

#include <algorithm>

#include "text.h"

namespace faultserver {

std::string Faults::read_action(const Json& action, Fault& fault) {
  // "reset" alone means {"reset": true}.
  if (action.is_string()) return read_action(Json::Object{{action.text(), true}}, fault);
  if (!action.is_object() || action.object().empty()) return "action is a name or an object";
  const auto bytes = [](const Json& value) {
    return std::optional<uint64_t>(static_cast<uint64_t>(value.integer()));
  };
  for (const auto& [name, value] : action.object()) {
    if (name == "refuse") {
      fault.refuse = value.boolean(true);
    } else if (name == "reset") {
      fault.reset = value.boolean(true);
    } else if (name == "lost_answer") {
      fault.lost_answer = value.boolean(true);
    } else if (name == "stall_head") {
      fault.stall_head = value.boolean(true);
    } else if (name == "perform") {
      fault.perform = value.boolean(true);
    } else if (name == "early") {
      fault.early = value.boolean(true);
    } else if (name == "no_continue") {
      fault.no_continue = value.boolean(true);
    } else if (name == "reset_after_bytes") {
      fault.reset_after_bytes = bytes(value);
    } else if (name == "cut_after_bytes") {
      fault.cut_after_bytes = bytes(value);
    } else if (name == "stall_after_bytes") {
      fault.stall_after_bytes = bytes(value);
    } else if (name == "cut_request_after_bytes") {
      fault.cut_request_after_bytes = bytes(value);
    } else if (name == "delay_ms") {
      fault.delay_s = value.number() / 1000;
    } else if (name == "drip") {
      fault.drip_bytes = std::max<uint64_t>(1, *bytes(value["bytes"]));
      fault.drip_every_s = value["every_ms"].number() / 1000;
    } else if (name == "wrong_length") {
      fault.wrong_length = value.integer();
    } else if (name == "wrong_checksum") {
      fault.wrong_checksum = value.boolean(true);
    } else if (name == "no_hash") {
      fault.no_hash = value.boolean(true);
    } else if (name == "flip_byte") {
      fault.flip_byte = bytes(value);
    } else if (name == "flip_sent_byte") {
      fault.flip_sent_byte = bytes(value);
    } else if (name == "status") {
      fault.status = static_cast<int>(value.integer());
      if (fault.status < 100 || fault.status > 999) return "status is not a status";
    } else if (name == "body") {
      fault.body = value.is_string() ? value.text() : value.dump();
    } else if (name == "reason") {
      fault.reason = value.text();
    } else if (name == "message") {
      fault.message = value.text();
    } else if (name == "headers") {
      for (const auto& [key, text] : value.object()) fault.headers.emplace_back(key, text.text());
    } else if (name == "retry_after_s") {
      fault.retry_after_s = value.number();
    } else if (name == "retry_after_date_s") {
      fault.retry_after_date_s = value.number();
    } else if (name == "close_after") {
      fault.announce_close = value.text() == "announced";
      fault.close_after = fault.announce_close || value.boolean(true);
    } else if (name == "chunked") {
      fault.chunked = value.boolean(true);
    } else if (name == "no_close_notify") {
      fault.no_close_notify = true;
    } else if (name == "garbage_head") {
      fault.garbage_head = true;
      fault.garbage = value.text("HTTP/1.1 two-hundred fine\r\nno colon in this line\r\n\r\n");
    } else if (name == "huge_head") {
      fault.huge_head_bytes = value.is_number() ? *bytes(value) : (uint64_t{1} << 20);
    } else if (name == "pad_body") {
      fault.pad_body_bytes = *bytes(value);
    } else if (name == "wrong_range") {
      fault.wrong_range = true;
      fault.range_text = value.text();
    } else if (name == "ignore_range") {
      fault.ignore_range = value.boolean(true);
    } else if (name == "old_generation_then_new") {
      fault.replace_object = value.boolean(true);
    } else {
      return "no such action: " + name;
    }
  }
  return {};
}

std::string Faults::set_rules(const Json& rules) {
  const Json::Array& list = rules.is_array() ? rules.array() : rules["rules"].array();
  std::vector<Rule> fresh;
  for (const Json& spec : list) {
    Rule rule;
    for (const auto& [name, value] : spec.object()) {
      if (name == "from") {
        rule.from = static_cast<uint64_t>(value.integer(1));
      } else if (name == "count") {
        if (!value.is_null()) rule.count = static_cast<uint64_t>(value.integer());
      } else if (name == "every") {
        rule.every = static_cast<uint64_t>(value.integer());
      } else if (name == "fraction") {
        rule.fraction = value.number();
      } else if (name == "seed") {
        rule.seed = static_cast<uint64_t>(value.integer());
      } else if (name == "action") {
        const std::string wrong = read_action(value, rule.fault);
        if (!wrong.empty()) return wrong;
      } else if (name != "match") {
        return "no such member of a rule: " + name;
      }
    }
    if (!spec.has("action")) return "a rule needs an action";
    for (const auto& [name, value] : spec["match"].object()) {
      if (name == "method") {
        rule.method = value.text();
      } else if (name == "path_contains") {
        rule.path_contains = value.text();
      } else if (name == "target_contains") {
        rule.target_contains = value.text();
      } else if (name == "kind") {
        if (value.is_string()) rule.kinds.insert(value.text());
        for (const Json& kind : value.array()) rule.kinds.insert(kind.text());
      } else if (name == "has_range") {
        rule.has_range = value.boolean();
      } else if (name == "node") {
        rule.at_target = value.text() == "target";
        if (!rule.at_target && !value.is_number()) return "node is a number or \"target\"";
        if (!rule.at_target) rule.node = static_cast<uint32_t>(value.integer());
      } else if (name == "header") {
        rule.header_name = value["name"].text();
        rule.header_contains = value["contains"].text();
      } else {
        return "no such matcher: " + name;
      }
    }
    rule.fault.rule = fresh.size();
    fresh.push_back(std::move(rule));
  }
  rules_ = std::move(fresh);
  return {};
}

Json Faults::to_json() const {
  Json::Array out;
  for (const Rule& rule : rules_) {
    out.push_back(Json::Object{{"matched", rule.matched}, {"fired", rule.fired}});
  }
  return out;
}

bool Faults::Rule::matches(const Request& request, const Route& route) const {
  if (!method.empty() && method != request.method) return false;
  if (!kinds.empty() && !kinds.contains(kind_name(route.kind))) return false;
  if (node && *node != request.node) return false;
  if (at_target && request.at_proxy) return false;
  if (has_range && *has_range != !request.header("range").empty()) return false;
  if (!header_name.empty() && (!has_header(request.headers, header_name) ||
                               !request.header(header_name).contains(header_contains))) {
    return false;
  }
  // Both as sent and decoded, so that a rule can name an object with slashes as it is.
  const auto contains = [](std::string_view text, std::string_view part) {
    return text.contains(part) || percent_decode(text, /*plus_is_space=*/false).contains(part);
  };
  const std::string_view target = request.target;
  return contains(target.substr(0, target.find('?')), path_contains) &&
         contains(target, target_contains);
}

bool Faults::Rule::fires() {
  ++matched;
  if (matched < from || matched - from >= count) return false;
  if (every > 0 && (matched - from + 1) % every != 0) return false;
  if (fraction) {
    const double draw = static_cast<double>(mix(seed ^ mix(matched)) >> 11) * 0x1p-53;
    if (draw >= *fraction) return false;
  }
  ++fired;
  return true;
}

std::optional<Fault> Faults::next(const Request& request, const Route& route) {
  std::optional<Fault> chosen;
  for (Rule& rule : rules_) {
    // The first rule that fires wins, and the ones after it do not see the request.
    if (!chosen && !rule.fault.refuse && rule.matches(request, route) && rule.fires()) {
      chosen = rule.fault;
    }
  }
  return chosen;
}

bool Faults::refuses_connection() {
  for (Rule& rule : rules_) {
    if (rule.fault.refuse && rule.fires()) return true;
  }
  return false;
}

}  // namespace faultserver
