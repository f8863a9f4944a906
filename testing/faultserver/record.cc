#include "record.h"

#include <algorithm>

#include "text.h"

namespace faultserver {
namespace {

constexpr size_t kMaxConnections = 20'000;

}  // namespace

uint64_t Record::begin(Entry entry) {
  entry.n = next_n_++;
  ++by_kind_[static_cast<size_t>(entry.kind)];
  ++counts_of(entry.node).requests;
  ++in_flight_;
  max_in_flight_ = std::max(max_in_flight_, in_flight_);
  if (entry.throttled) ++throttled_;
  if (Connection* const connection = find_connection(entry.connection)) ++connection->requests;
  const uint64_t n = entry.n;
  entries_.push_back(std::move(entry));
  if (entries_.size() > capacity_) {
    if (entries_.front().end_s < 0) --in_flight_;
    entries_.pop_front();
  }
  return n;
}

void Record::finish(uint64_t n, const Finish& result) {
  // A request that began before the record was cleared is nobody's business any more.
  if (entries_.empty() || n < entries_.front().n || n >= next_n_) return;
  Entry& entry = entries_[n - entries_.front().n];
  if (entry.end_s >= 0) return;
  --in_flight_;
  entry.status = result.status;
  entry.bytes_received = result.bytes_received;
  entry.bytes_sent = result.bytes_sent;
  entry.end_s = result.end_s;
  entry.end = result.end;
  ++by_status_[result.status];
  if (const auto at = by_end_.find(result.end); at != by_end_.end()) {
    ++at->second;
  } else {
    by_end_.emplace(result.end, 1);
  }
  bytes_in_ += result.bytes_received;
  bytes_out_ += result.bytes_sent;
  NodeCounts& counts = counts_of(entry.node);
  counts.bytes_received += result.bytes_received;
  counts.bytes_sent += result.bytes_sent;
  if (result.status < 200 || result.status >= 400 || result.end != "done") return;
  for (const auto& [name, value] : entry.headers) {
    if (equal_ignoring_case(name, "user-agent")) ++success_by_agent_[value];
    if (equal_ignoring_case(name, "x-test-client")) ++success_by_client_[value];
  }
}

Record::NodeCounts& Record::counts_of(uint32_t node) {
  if (by_node_.size() <= node) by_node_.resize(node + 1);
  return by_node_[node];
}

Record::Connection* Record::find_connection(uint64_t id) {
  const auto at = std::ranges::lower_bound(connection_log_, id, {}, &Connection::id);
  return at != connection_log_.end() && at->id == id ? &*at : nullptr;
}

void Record::connection_opened(uint64_t id) {
  ++opened_;
  ++open_;
  const auto at = std::ranges::lower_bound(connection_log_, id, {}, &Connection::id);
  connection_log_.insert(at, Connection{.id = id});
  if (connection_log_.size() > kMaxConnections) connection_log_.pop_front();
}

void Record::connection_closed(uint64_t id, std::string_view end, uint64_t bytes_in,
                               uint64_t bytes_out) {
  --open_;
  ++connections_[std::string(end)];
  if (Connection* const connection = find_connection(id)) {
    connection->end = end;
    connection->bytes_in = bytes_in;
    connection->bytes_out = bytes_out;
  }
}

void Record::handshake_done(uint64_t id, bool resumed) {
  ++(resumed ? resumed_ : handshakes_);
  if (Connection* const connection = find_connection(id)) connection->tls_resumed = resumed;
}

std::string Record::log_json(uint64_t since, uint64_t limit) const {
  std::string out = "[";
  uint64_t taken = 0;
  for (const Entry& entry : entries_) {
    if (entry.n <= since) continue;
    if (taken++ == limit) break;
    Json::Object headers;
    for (const auto& [name, value] : entry.headers) headers.emplace_back(lower(name), value);
    Json::Object line = {{"n", entry.n},
                         {"connection", entry.connection},
                         {"node", uint64_t{entry.node}},
                         {"method", entry.method},
                         {"target", entry.target},
                         {"absolute_form", entry.absolute_form},
                         {"kind", kind_name(entry.kind)},
                         {"status", entry.status},
                         {"end", entry.end},
                         {"bytes_received", entry.bytes_received},
                         {"bytes_sent", entry.bytes_sent},
                         {"throttled", entry.throttled},
                         {"headers", std::move(headers)},
                         {"t_start_s", entry.start_s}};
    line.emplace_back("fault", entry.fault < 0 ? Json() : Json(entry.fault));
    line.emplace_back("t_end_s", entry.end_s < 0 ? Json() : Json(entry.end_s));
    if (out.size() > 1) out += ",\n";
    Json(std::move(line)).append_to(out);
  }
  return out + "]";
}

Json Record::stats() const {
  Json::Object kinds;
  for (size_t i = 0; i < by_kind_.size(); ++i) {
    if (by_kind_[i] > 0) {
      kinds.emplace_back(kind_name(static_cast<Kind>(i)), by_kind_[i]);
    }
  }
  Json::Object statuses;
  for (const auto& [status, count] : by_status_) {
    statuses.emplace_back(std::to_string(status), count);
  }
  const auto copied = [](const auto& counts) {
    Json::Object out;
    for (const auto& [name, count] : counts) out.emplace_back(name, count);
    return out;
  };
  const auto closed = [this](std::string_view end) {
    const auto at = connections_.find(end);
    return at == connections_.end() ? uint64_t{0} : at->second;
  };
  Json::Array connections;
  for (const Connection& connection : connection_log_) {
    if (connection.requests == 0) continue;
    connections.push_back(Json::Object{{"id", connection.id},
                                       {"requests", connection.requests},
                                       {"bytes_in", connection.bytes_in},
                                       {"bytes_out", connection.bytes_out},
                                       {"tls_resumed", connection.tls_resumed},
                                       {"end", connection.end}});
  }
  Json::Array nodes;
  for (const NodeCounts& counts : by_node_) {
    nodes.push_back(Json::Object{{"requests", counts.requests},
                                 {"body_bytes_in", counts.bytes_received},
                                 {"body_bytes_unread", counts.bytes_unread},
                                 {"body_bytes_out", counts.bytes_sent}});
  }
  return Json::Object{{"requests", next_n_ - 1},
                      {"in_flight", in_flight_},
                      {"max_in_flight", max_in_flight_},
                      {"throttled", throttled_},
                      {"by_kind", std::move(kinds)},
                      {"by_node", std::move(nodes)},
                      {"by_status", std::move(statuses)},
                      {"by_end", copied(by_end_)},
                      {"body_bytes_in", bytes_in_},
                      {"body_bytes_out", bytes_out_},
                      {"connections_opened", opened_},
                      {"connections_open", open_},
                      {"connections_client_fin", closed("client_fin")},
                      {"connections_client_rst", closed("client_rst")},
                      {"connections_closed_by", copied(connections_)},
                      {"tls_handshakes_full", handshakes_},
                      {"tls_handshakes_resumed", resumed_},
                      {"success_by_user_agent", copied(success_by_agent_)},
                      {"success_by_client", copied(success_by_client_)},
                      {"connections", std::move(connections)}};
}

void Record::clear() {
  // Numbers go on rising, so that a request from before cannot be taken for one from after.
  const uint64_t open = open_;
  const uint64_t next_n = next_n_;
  std::deque<Connection> alive;
  for (const Connection& connection : connection_log_) {
    if (connection.end == "open") alive.push_back({.id = connection.id});
  }
  *this = Record(capacity_);
  open_ = open;
  next_n_ = next_n;
  connection_log_ = std::move(alive);
}

}  // namespace faultserver
