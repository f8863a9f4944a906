// The proxy sends clients to the target that an object belongs to.
#include <algorithm>
#include <array>

#include "ais/ais.h"
#include "ais/placement.h"
#include "digest.h"
#include "text.h"

namespace faultserver::ais {
namespace {

// Nobody but this process has to know it.
constexpr std::string_view kSecret = "of the cluster";

std::string base36(uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string out;
  do {
    out.insert(out.begin(), kDigits[value % 36]);
    value /= 36;
  } while (value != 0);
  return out;
}

// What may stand in the path of a URL, as Go writes it.
std::string escaped_path(std::string_view path) {
  constexpr std::string_view kKept = "-_.~$&+,/:;=@";
  std::string out;
  for (const char c : path) {
    const bool is_kept = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                         (c >= 'A' && c <= 'Z') || kKept.contains(c);
    out += is_kept ? std::string(1, c) : percent_encode(std::string_view(&c, 1));
  }
  return out;
}

// As Go writes a URL that nobody has encoded into a header: bytes that are not ASCII by their
// number, and nothing else.
std::string hex_escaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x80) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&#34;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += c;
    }
  }
  return out;
}

// Of the request as the target must get it.
std::string signature(const Request& request, std::string_view pid, std::string_view map_version,
                      std::string_view nonce) {
  std::string covered = request.method;
  for (const std::string& each :
       {percent_decode(request.path, /*plus_is_space=*/false), std::string(pid),
        std::string(map_version),
        std::to_string(parse_u64(request.header("content-length")).value_or(0)),
        std::string(nonce)}) {
    covered += '\0' + each;
  }
  const std::string sum = hmac_sha256(kSecret, covered);
  std::string text = base64_encode(sum + hmac_sha256(kSecret, sum));
  std::erase(text, '=');
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  return text;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string joined(const Pairs& pairs) {
  std::string out;
  for (const auto& [name, value] : pairs) {
    if (!out.empty()) out += '&';
    out += percent_encode(name) + "=" + percent_encode(value);
  }
  return out;
}

// What the proxy adds to the query.
Pairs proof(const Call& call, const std::string& path) {
  const auto now_ns = static_cast<uint64_t>(now_us()) * 1000;
  const std::string& own = call.node().id;
  Pairs out = {{"pid", own}, {"utm", call.is_a() ? std::to_string(now_ns) : base36(now_ns)}};
  if (call.world.ais.signs_redirects) {
    Request asked = call.request;
    asked.path = path;
    const std::string map_version = base36(call.world.cluster.map_version);
    const std::string nonce = base36(++call.world.ais.last_number);
    out.emplace_back("vpams", map_version);
    out.emplace_back("x", nonce);
    out.emplace_back("u", signature(asked, own, map_version, nonce));
    std::ranges::sort(out);
  }
  return out;
}

Pairs pairs_of(std::string_view query) {
  Pairs out;
  for (const std::string_view piece : split(query, '&')) {
    if (piece.empty()) continue;
    const size_t equals = piece.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : piece.substr(equals + 1);
    out.emplace_back(percent_decode(piece.substr(0, equals), /*plus_is_space=*/true),
                     percent_decode(value, /*plus_is_space=*/true));
  }
  return out;
}

std::string location(const Call& call, size_t target, const std::string& encoded_path) {
  const std::string& base = call.world.cluster.nodes[target].address().url;
  const std::string path = percent_decode(encoded_path, /*plus_is_space=*/false);
  const std::string& query = call.request.query;
  const Pairs added = proof(call, encoded_path);
  if (!call.is_a() && path.find_first_of("%?# +") != std::string::npos) {
    Pairs all = pairs_of(query);
    all.insert(all.end(), added.begin(), added.end());
    std::ranges::sort(all);
    return base + escaped_path(path) + "?" + joined(all);
  }
  return base + path + "?" + (query.empty() ? "" : query + "&") + joined(added);
}

// A header cannot hold these, and what the server writes has a space in their place.
std::string without_control(std::string text) {
  for (char& c : text) {
    if (c == '\r' || c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

size_t owner(const Call& call, Bucket& bucket, std::string_view object) {
  const Cluster& cluster = call.world.cluster;
  return owner_among(cluster.nodes, eligible_targets(cluster),
                     unique_prefix_of(bucket) + std::string(object));
}

size_t place(const World& world, Bucket& bucket, const Object& object) {
  if (object.ais.node != 0 && object.ais.placement == world.ais.placement) return object.ais.node;
  std::vector<size_t> homes = world.ais.homes;
  if (homes.empty()) {
    for (size_t k = 1; k < world.cluster.nodes.size(); ++k) {
      if (!world.cluster.nodes[k].is_proxy) homes.push_back(k);
    }
  }
  return owner_among(world.cluster.nodes, homes, unique_prefix_of(bucket) + object.name);
}

Response redirect_to(const Call& call, size_t target, const std::string& path, int status) {
  if (target == 0) {
    return error(call.request, 503, "ErrNoNodes",
                 "no targets in " + node_name(call.request.node, true) + "'s map");
  }
  const std::string where = location(call, target, path);
  Response response{.status = status};
  const bool shows_page = call.request.method == "GET" || call.request.method == "HEAD";
  if (shows_page) response.headers.emplace_back("Content-Type", "text/html; charset=utf-8");
  response.headers.emplace_back("Location", without_control(hex_escaped(where)));
  if (call.request.method == "GET") {
    const std::string text(reason_phrase(status));
    response.body = Body("<a href=\"" + html_escaped(where) + "\">" + text + "</a>.\n\n");
  }
  if (call.request.method == "HEAD") response.without_length = true;
  return response;
}

Response redirect(const Call& call, size_t target) {
  return redirect_to(call, target, call.request.path, call.request.method == "GET" ? 301 : 307);
}

bool is_redirected(const Request& request) {
  return !request.parameter("pid").empty() && !request.parameter("utm").empty();
}

std::optional<Response> failed_proof(const Call& call) {
  const Request& request = call.request;
  const AisState& state = call.world.ais;
  const bool has_proof = is_redirected(request);
  const bool reads = request.method == "GET" || request.method == "HEAD";
  const auto expected = [&](int status) {
    std::string_view tail;
    if (call.is_a() && request.method == "PUT") tail = " or replicated";
    const std::string what =
        call.is_a() && request.method == "POST" ? "POST-rename-obj" : request.method;
    return error(request, status, "",
                 node_name(request.node) + ": " + what + "(obj) is expected to be redirected" +
                     std::string(tail));
  };
  if (state.signs_redirects) {
    if (!has_proof) return error(request, 401, "", "direct target access denied");
    if (request.parameter("u") != signature(request, request.parameter("pid"),
                                            request.parameter("vpams"), request.parameter("x"))) {
      return error(request, 401, "", "signature verification failed");
    }
    return std::nullopt;
  }
  if (has_proof) return std::nullopt;
  if (state.refuses_direct) return error(request, 401, "", "direct target access denied");
  if (!reads) return expected(400);
  return std::nullopt;
}

}  // namespace faultserver::ais
