#include "headrace/store/ais/ais_protocol.h"

#include <chrono>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/ais_batch.h"
#include "headrace/format/ais_checksum.h"
#include "headrace/format/ais_error.h"
#include "headrace/format/ais_list.h"
#include "headrace/format/ais_location.h"
#include "headrace/format/http_date.h"
#include "headrace/format/http_range.h"
#include "headrace/store/ais/ais_list_page.h"
#include "headrace/store/bearer_signer.h"
#include "headrace/store/name_before.h"

namespace headrace {
namespace {

// In page tokens of clouds' buckets, before the name after which the page is to begin.
constexpr char kAfter = '\n';

// Follows the names of a common prefix that is skipped: no name has anything behind it.
constexpr std::string_view kLastCharacter = "\xF4\x8F\xBF\xBF";

constexpr std::string_view kForeign =
    "the answer has none of the headers of AIStore (Ais-*): is the endpoint an AIStore proxy?";

// What a head says about an object.
struct AisFacts {
  bool from_ais = false;  // there is such a header
  std::string_view version, checksum_type, checksum_value;
  std::string_view content_type, content_encoding;
  std::string_view last_use_ns;

  explicit AisFacts(const ResponseHead& head) {
    const auto is = same_ignoring_case;
    for (const HeaderField& field : head.fields()) {
      if (field.name.size() < 4 || !is(field.name.substr(0, 4), "ais-")) continue;
      from_ais = true;
      const std::string_view name = field.name.substr(4);
      if (is(name, "checksum-value")) {
        checksum_value = field.value;
      } else if (is(name, "checksum-type")) {
        checksum_type = field.value;
      } else if (is(name, "version")) {
        version = field.value;
      } else if (is(name, "atime")) {
        last_use_ns = field.value;
      } else if (is(name, "custom-md")) {
        take_custom(field.value);
      }
    }
  }
  // "name=value, name=value", or a header for each.
  void take_custom(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find(", "), text.size());
      const std::string_view pair = text.substr(0, end);
      const size_t equals = std::min(pair.find('='), pair.size());
      const std::string_view value = equals < pair.size() ? pair.substr(equals + 1) : "";
      if (pair.substr(0, equals) == kAisContentType) content_type = value;
      if (pair.substr(0, equals) == kAisContentEncoding) content_encoding = value;
      text.remove_prefix(std::min(end + 2, text.size()));
    }
  }
  Checksum checksum() const { return ais_checksum(checksum_type, checksum_value); }
};

ObjectInfo info_of(const AisFacts& facts) {
  ObjectInfo info;
  info.generation = ais_generation(facts.version, facts.checksum_value);
  info.checksum = facts.checksum();
  info.content_type = ais_plain_value(facts.content_type);
  info.content_encoding = ais_plain_value(facts.content_encoding);
  return info;
}

// AIStore keeps no time of a write, only that of the last use: a read moves it.
LastUse last_use(std::string_view ns) {
  const int64_t since = parse_number<int64_t>(ns).value_or(0);
  if (since <= 0) return {};  // prefetched, and not used yet
  return {.at = std::chrono::system_clock::time_point(
              std::chrono::duration_cast<std::chrono::system_clock::duration>(
                  std::chrono::nanoseconds(since)))};
}

// Makes names with the delimiter common prefixes. `told`: the last one of the page before, or "".
// Returns the last one if the page ends with a name that it stands for.
std::string group(ColumnPage& page, const std::string& prefix, std::string_view delimiter,
                  std::string_view told) {
  const auto common_of = [&](std::string_view name) {
    const size_t at = name.find(delimiter, prefix.size());
    return at == std::string_view::npos ? "" : name.substr(0, at + delimiter.size());
  };
  std::string last = page.empty() ? "" : std::string(common_of(page.name(page.size() - 1)));
  page.erase_if([&](std::string_view name) {
    const std::string_view common = common_of(name);
    if (common.empty()) return false;
    const bool is_new = page.prefixes.empty() || page.prefixes.back() != common;
    if (is_new && common != told) page.prefixes.emplace_back(common);
    return true;
  });
  return last;
}

// Keeps the first `most` objects and prefixes, and returns after which name the rest comes; "" if
// there is no rest.
std::string shorten(ColumnPage& page, size_t most) {
  if (page.size() + page.prefixes.size() <= most) return {};
  size_t objects = 0, prefixes = 0;
  std::string last;
  while (objects + prefixes < most) {
    const bool is_object = prefixes == page.prefixes.size() ||
                           (objects < page.size() && page.name(objects) < page.prefixes[prefixes]);
    last = is_object ? std::string(page.name(objects++))
                     : cat(page.prefixes[prefixes++], kLastCharacter);
  }
  page.keep(0, objects);
  page.prefixes.resize(prefixes);
  return last;
}

// A batch has a path of its own at the target. For everything else the path stays ours.
Result<Elsewhere> elsewhere(std::string_view location) {
  Result<AisLocation> to = parse_ais_location(location);
  if (!to) return std::unexpected(std::move(to.error()));
  Elsewhere place{.endpoint = std::move(to->endpoint), .query = std::move(to->query)};
  if (const std::string_view path = ais_batch_redirect_path(location); !path.empty()) {
    place.target = cat(path, "?", place.query);
  }
  return place;
}

}  // namespace

AisProtocol::AisProtocol(const Url& url, bool tls, const AisOptions& options, Root root)
    : Protocol(std::move(root)),
      paths_(url, options, this->root()),
      placement_(paths_, tls, options.direct),
      multipart_(paths_),
      describing_(paths_),
      appends_(paths_, !url.backend.empty()),
      batch_gets_(paths_, this->root()),
      tls_(tls),
      is_remote_(!url.backend.empty()) {}

std::string AisProtocol::url_of(std::string_view name) const {
  return cat(paths_.bucket_url(), "/", root().text(), name);
}

void AisProtocol::build_read(HttpRequest& request, std::string_view name, std::string_view,
                             std::optional<ByteRange> range) const {
  paths_.begin(request, "GET", name);
  request.target.append(paths_.etl_parameters());
  // What is transformed has no ranges: all of it comes, and the rest is dropped.
  if (!range || transforms()) return;
  request.header_lines.append("Range: ");
  append_range(request.header_lines, *range);
  request.header_lines.append("\r\n");
}

void AisProtocol::build_member_read(HttpRequest& request, std::string_view name,
                                    std::string_view member) const {
  paths_.begin(request, "GET", name);
  AisPaths::append_parameter(request.target, "archpath", member);
  request.target.append(paths_.etl_parameters());
}

ReadFacts AisProtocol::read_facts(const ResponseHead& head) const {
  ReadFacts facts;
  if (transforms()) return facts;
  const AisFacts said(head);
  if (!said.version.empty() && !said.checksum_value.empty()) {
    facts.generation.assign(said.version, '-', said.checksum_value);  // as ais_generation() does
  } else {
    facts.generation.assign(said.checksum_value);
  }
  facts.checksum = said.checksum();
  // A cold object may come before anything is known of it.
  if (!said.from_ais && !is_remote_) facts.foreign = kForeign;
  facts.stored_gzip = said.content_encoding == "gzip";
  return facts;
}

void AisProtocol::build_list(HttpRequest& request, const ListRequest& list,
                             uint32_t page_names) const {
  paths_.begin_bucket(request, "GET");
  const std::string prefix = root().full_name(list.prefix);
  // Its own buckets are walked folder by folder. A prefix that is the name of a folder, too, would
  // give that folder alone, so that the folder around it is asked for, from the prefix on; and
  // where pages are small, names are lost at their ends: "a-b" comes after "a/c", and is taken for
  // told.
  const std::string folder = !is_remote_ ? prefix.substr(0, prefix.rfind('/') + 1) : prefix;
  std::string start_after;
  if (!is_remote_ && list.page_token.empty()) {
    const std::string start =
        std::max(prefix, list.start_offset.empty() ? "" : root().full_name(list.start_offset));
    if (start != folder) start_after = name_before(start);
  }
  AisListQuery query{
      .prefix = folder,
      .page_token = std::string_view(list.page_token).substr(0, list.page_token.find(kAfter)),
      .start_after = start_after,
      .page_size = page_names};
  // A listing that goes on by its uuid has names left over from the page before, which are not in
  // the order in which they are looked up, so that each page begins anew.
  std::string after;
  if (!is_remote_) {
    after = split_ais_page_token(list.page_token).continuation;
    if (!after.empty()) query.page_token = after = cat(" ", after);
  }
  request.own_body(ais_list_body(query));
  request.add_header("Content-Type", "application/json");
  request.add_header("Accept", "application/msgpack");
}

Result<ColumnPage> AisProtocol::parse_entries(const Response& response) const {
  const AisRows rows = is_remote_ ? AisRows::kCloudObjects : AisRows::kObjects;
  const std::string_view type = response.head.find("content-type").value_or("");
  return type.starts_with("application/msgpack") ? parse_ais_list_msgpack(response.body, rows)
                                                 : parse_ais_list(response.body, rows);
}

std::unique_ptr<LongPage> AisProtocol::long_page(const ListRequest& list) const {
  if (is_remote_) return nullptr;
  return std::make_unique<AisListPage>(*this, paths_, list);
}

Result<ColumnPage> AisProtocol::parse_list(const Response& response,
                                           const ListRequest& list) const {
  Result<ColumnPage> page = parse_entries(response);
  if (page) page = shape(std::move(*page), list);
  return page;
}

// Its own buckets go on after any name. Those of clouds have tokens, so that a page which has to go
// on elsewhere says what is to be left out of the page that has a token.
std::string AisProtocol::token_after(std::string_view name, std::string_view page_token) const {
  // The server remembers pages by their id, and begins anew without one.
  if (!is_remote_) return cat(" ", name);
  return cat(page_token.substr(0, page_token.find(kAfter)), std::string_view(&kAfter, 1), name);
}

std::string_view AisProtocol::after(std::string_view page_token) const {
  if (!is_remote_) return split_ais_page_token(page_token).continuation;
  const size_t at = page_token.find(kAfter);
  return at == page_token.npos ? "" : page_token.substr(at + 1);
}

ColumnPage AisProtocol::shape(ColumnPage page, const ListRequest& list) const {
  page.prefixes.clear();
  const std::string prefix = root().full_name(list.prefix);
  const std::string_view after = this->after(list.page_token);
  const std::string start = list.start_offset.empty() ? "" : root().full_name(list.start_offset);
  bool is_last = false;
  page.erase_if([&](std::string_view name) {
    const bool is_before = name < prefix;
    is_last = is_last || (!is_before && !name.starts_with(prefix));
    return is_before || name < start || name <= after || !name.starts_with(prefix);
  });
  if (is_last) page.next_page_token.clear();
  // All of this page is left out, and perhaps some of the next one.
  if (page.empty() && !after.empty() && !page.next_page_token.empty()) {
    page.next_page_token = token_after(after, page.next_page_token);
  }
  if (!list.delimiter.empty()) {
    const std::string_view told = after.ends_with(kLastCharacter)
                                      ? after.substr(0, after.size() - kLastCharacter.size())
                                      : "";
    const std::string last = group(page, prefix, list.delimiter, told);
    // The next page is not to have the rest of the names that the last prefix stands for.
    if (!last.empty() && !page.next_page_token.empty()) {
      page.next_page_token = token_after(cat(last, kLastCharacter), page.next_page_token);
    }
  }
  if (list.max_results > 0) {
    const std::string last = shorten(page, list.max_results);
    if (!last.empty()) page.next_page_token = token_after(last, list.page_token);
  }
  return page;
}

void AisProtocol::build_stat(HttpRequest& request, std::string_view name) const {
  paths_.begin(request, "HEAD", name);
}

Result<ObjectInfo> AisProtocol::parse_stat(const Response& response, std::string_view name) const {
  const AisFacts facts(response.head);
  if (!facts.from_ais) return fail(Code::kInvalidArgument, kForeign);
  // The server leaves out the length of an empty object.
  if (!response.head.content_length && facts.version.empty() && facts.checksum_value.empty()) {
    return corrupt("the answer to HEAD has no Content-Length");
  }
  ObjectInfo info = info_of(facts);
  info.name = root().full_name(name);
  info.size_bytes = response.head.content_length.value_or(0);
  info.last_use = last_use(facts.last_use_ns);
  return info;
}

void AisProtocol::build_write(HttpRequest& request, const WriteRequest& write,
                              std::span<const std::span<const std::byte>> bytes,
                              const SentSums& sums, std::string&) const {
  paths_.begin(request, "PUT", write.name);
  const Checksum sum = sums.of(ChecksumKind::kCrc32c);
  request.add_header("ais-checksum-type", ais_checksum_type(sum.kind()));
  request.add_header("ais-checksum-value", to_hex(sum));
  // Both, also where one is empty: what is replaced leaves its own.
  request.add_header("ais-custom-md",
                     cat(kAisContentType, "=", ais_custom_value(write.content_type)));
  request.add_header("ais-custom-md",
                     cat(kAisContentEncoding, "=", ais_custom_value(write.content_encoding)));
  request.body.assign(bytes.begin(), bytes.end());
  request.has_body = true;
  request.waits_for_continue = true;
}

Result<ObjectInfo> AisProtocol::parse_written(const Response& response, const WriteRequest& write,
                                              uint64_t size_bytes) const {
  ObjectInfo info = info_of(AisFacts(response.head));
  info.name = root().full_name(write.name);
  info.size_bytes = size_bytes;
  info.content_type = write.content_type;
  info.content_encoding = write.content_encoding;
  return info;
}

bool AisProtocol::tells_written(const ResponseHead& head) const { return AisFacts(head).from_ais; }

Result<void> AisProtocol::check_new_name(std::string_view name) const {
  if (name.empty()) return invalid_argument(kEmptyName);
  const std::string wrong = AisPaths::wrong_with(name);
  if (wrong.empty()) return {};
  return invalid_argument("AIStore has no objects of such a name: ", wrong);
}

void AisProtocol::build_remove(HttpRequest& request, std::string_view name,
                               const Precondition&) const {
  paths_.begin(request, "DELETE", name);
}

std::unique_ptr<Signer> AisProtocol::make_signer() const {
  return std::make_unique<BearerSigner>();
}

Refusal AisProtocol::refusal(const ErrorResponse& response) const {
  const ResponseHead& head = response.head;
  const std::string_view location = head.find("location").value_or("");
  if (head.status == 301 || head.status == 302 || head.status == 307 || head.status == 308) {
    Result<Elsewhere> to = elsewhere(location);
    if (to && tls_ && !to->endpoint.tls) {
      to = fail(Code::kUnavailable, "the proxy sends to ", to->endpoint.authority(),
                ", which does not use TLS");
    }
    if (!to) return {.error = std::move(to.error()).with_http_status(head.status)};
    Refusal refusal{.error = Error(Code::kUnavailable,
                                   cat("the proxy sends to the target ", to->endpoint.authority()))
                                 .with_http_status(head.status)};
    refusal.elsewhere = std::make_shared<const Elsewhere>(std::move(*to));
    return refusal;
  }
  const AisError said =
      parse_ais_error(response.body, head.find("hdr-error").value_or(std::string_view()));
  Code code = ais_code_of(head.status, said.type);
  std::string message = said.message;
  // Objects are files, and what no file system takes is no fault of the server's.
  if (response.body.contains("file name too long")) code = Code::kInvalidArgument;
  if (message.empty()) message = to_string(code);
  if (!said.node.empty() && !message.contains(said.node)) message += cat(" [", said.node, "]");
  if (message.contains("expected INTRA-CONTROL") || message.contains("to be redirected")) {
    message += "; is the endpoint a target? It must be a proxy, or a gateway before the proxies";
  }
  if (code == Code::kNotFound && is_ais_bucket_missing(said)) {
    message = cat("there is no such bucket [", message, "]");
  }
  Refusal refusal{.error =
                      Error(code, std::move(message))
                          .with_http_status(head.status)
                          .with_retry_after(parse_retry_after(head.find("retry-after").value_or(""),
                                                              std::chrono::system_clock::now()))};
  refusal.stale_credentials = head.status == 401;
  return refusal;
}

Result<Provider> ais_provider(const Url& url, const StoreOptions& options) {
  if (options.endpoint.empty()) {
    return invalid_argument(url.to_string(), ": where is the cluster? Set AIS_ENDPOINT or pass ",
                            "endpoint=, such as http://host:51080 (of a proxy, or of the gateway "
                            "before the proxies)");
  }
  Result<Endpoint> endpoint = parse_endpoint(options.endpoint, /*default_tls=*/false);
  if (!endpoint) return std::unexpected(std::move(endpoint.error()));
  if (const Root root(url.name); !root.is_bucket()) {
    const std::string wrong =
        AisPaths::wrong_with(std::string_view(root.text()).substr(0, root.text().size() - 1));
    if (!wrong.empty()) {
      return invalid_argument(url.to_string(), ": AIStore has no objects of such names: ", wrong);
    }
  }
  return Provider{.endpoint = *endpoint,
                  .protocol_at = [url, tls = endpoint->tls, ais = options.ais](Root root) {
                    return std::make_unique<AisProtocol>(url, tls, ais, std::move(root));
                  }};
}

}  // namespace headrace
