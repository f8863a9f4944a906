#include "headrace/store/s3/s3_protocol.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/amz_checksum.h"
#include "headrace/format/http_date.h"
#include "headrace/format/http_range.h"
#include "headrace/format/s3_xml.h"
#include "headrace/format/sigv4.h"
#include "headrace/format/xml_error.h"
#include "headrace/store/name_before.h"
#include "headrace/store/s3/s3_errors.h"

namespace headrace {
namespace {

// A request that was signed so long before or after the service's time is refused.
constexpr std::chrono::minutes kMaxSkew{15};

// What the head of a response says about an object.
ObjectInfo info_of(const ResponseHead& head) {
  ObjectInfo info;
  const auto is = same_ignoring_case;
  for (const HeaderField& field : head.fields()) {
    if (is(field.name, "etag")) {
      info.generation = unquoted_etag(field.value);
    } else if (is(field.name, "content-type")) {
      info.content_type = field.value;
    } else if (is(field.name, "content-encoding")) {
      info.content_encoding = field.value;
    } else if (is(field.name, "x-amz-storage-class")) {
      info.storage_class = field.value;
    } else if (is(field.name, "last-modified")) {
      // Answers to writes have none. Their Date is no substitute: it is that of the answer.
      info.updated = parse_http_date(field.value).value_or(info.updated);
    }
  }
  return info;
}

// False if this field is about something else than sums.
bool take_sum(ToldSums& sums, const HeaderField& field) {
  const std::string_view suffix = amz_checksum_suffix(field.name);
  if (suffix.empty()) return false;
  if (same_ignoring_case(suffix, "type")) {
    sums.set_type(field.value);
  } else {
    sums.add(kind_of_amz_suffix(suffix), field.value);
  }
  return true;
}

// Of the whole object; of no kind if those that are told are of parts, or malformed.
Result<Checksum> whole_sum(const ResponseHead& head) {
  ToldSums sums;
  for (const HeaderField& field : head.fields()) take_sum(sums, field);
  return sums.whole();
}

// Whether the ETag is no MD5 of the object, though it looks like one.
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html
bool hides_md5(const HeaderField& field) {
  return same_ignoring_case(field.name, "x-amz-server-side-encryption-customer-algorithm") ||
         (same_ignoring_case(field.name, "x-amz-server-side-encryption") &&
          field.value.starts_with("aws:"));
}

// https://developers.cloudflare.com/r2/objects/multipart-objects/#limitations
constexpr std::string_view kR2Domain = ".r2.cloudflarestorage.com";

std::optional<bool> equal_parts_of(const S3Home& home, const S3Options& options) {
  if (options.equal_parts) return options.equal_parts;
  if (home.first_endpoint().host.ends_with(kR2Domain)) return true;
  return std::nullopt;
}

UploadSums first_sums_of(const S3Options& options) {
  if (!options.checksum) return {};
  const SumLevel level = *options.checksum;
  return {.level = level,
          .known = true,
          .fixed = true,
          .sends_whole = level == SumLevel::kCrc32c || level == SumLevel::kCrc64Nvme};
}

class SigV4Signer final : public Signer {
 public:
  explicit SigV4Signer(std::shared_ptr<const S3Home> home) : home_(std::move(home)) {}

  void sign(HttpRequest& request, const Credential& credential, const Destination& destination,
            std::chrono::system_clock::time_point now) override {
    if (!key_ || !key_->covers(now) || home_version_ != home_->version() ||
        credential.access_key != access_key_ || credential.secret_key != secret_key_ ||
        credential.session_token != key_->session_token()) {
      key_.reset();
      home_version_ = home_->version();
      access_key_ = credential.access_key;
      secret_key_ = credential.secret_key;
      Result<SigV4Key> key = SigV4Key::derive({.access_key_id = credential.access_key,
                                               .secret_access_key = credential.secret_key,
                                               .session_token = credential.session_token},
                                              home_->region(), "s3", now);
      if (!key) {
        if (!request.refused) request.refused = std::move(key.error());
        return;
      }
      key_ = std::move(*key);
    }
    std::string_view target = request.target;
    if (!destination.base_path.empty()) {
      scratch_.assign(destination.base_path).append(request.target);
      target = scratch_;
    }
    sign_headers({.method = request.method, .target = target, .authority = destination.authority},
                 kUnsignedPayload, *key_, now, request.header_lines);
  }

 private:
  const std::shared_ptr<const S3Home> home_;
  uint64_t home_version_ = 0;
  std::string access_key_, secret_key_;
  std::optional<SigV4Key> key_;
  std::string scratch_;
};

}  // namespace

S3Protocol::S3Protocol(std::string bucket, std::shared_ptr<S3Home> home, const S3Options& options,
                       Root root, Verify verify)
    : Protocol(std::move(root)),
      compares_etags_(compares(verify, ChecksumKind::kMd5)),
      first_sums_(first_sums_of(options)),
      home_(std::move(home)),
      paths_(std::move(bucket), home_->in_path(), options, this->root()),
      multipart_(paths_, equal_parts_of(*home_, options)),
      copies_(paths_),
      urls_(home_, paths_, options),
      proof_(paths_.bucket(), home_->in_path(), options),
      looks_before_writes_(options.conditional_writes == ConditionalWrites::kLook),
      keeps_conditions_(home_->is_amazon() || looks_before_writes_) {}

std::string S3Protocol::url_of(std::string_view name) const {
  return cat("s3://", paths_.bucket(), "/", root().text(), name);
}

void S3Protocol::build_read(HttpRequest& request, std::string_view name,
                            std::string_view generation, std::optional<ByteRange> range) const {
  paths_.begin(request, "GET", name);
  if (!generation.empty()) request.add_header("If-Match", quoted_etag(generation));
  if (range) {
    request.header_lines.append("Range: ");
    append_range(request.header_lines, *range);
    request.header_lines.append("\r\n");
  }
  S3Paths::add_checksum_mode(request);
  paths_.add_customer_key(request);
}

ReadFacts S3Protocol::read_facts(const ResponseHead& head) const {
  ReadFacts facts;
  const auto is = same_ignoring_case;
  ToldSums sums;
  bool md5_hidden = false;
  // In one pass: a read uses four of a dozen fields.
  for (const HeaderField& field : head.fields()) {
    if (is(field.name, "etag")) {
      facts.generation.assign(unquoted_etag(field.value));
    } else if (is(field.name, "content-encoding")) {
      facts.stored_gzip = field.value == "gzip";
    } else if (!take_sum(sums, field) && compares_etags_ && hides_md5(field)) {
      md5_hidden = true;
    }
  }
  if (head.status == 206) return facts;  // a sum would be that of a part
  const Result<Checksum> whole = sums.whole();
  facts.sums_differ = !whole;
  if (whole) facts.checksum = *whole;
  if (facts.checksum.empty() && compares_etags_ && !md5_hidden) {
    facts.checksum = md5_of_etag(facts.generation.view()).value_or(Checksum());
  }
  return facts;
}

void S3Protocol::build_list(HttpRequest& request, const ListRequest& list) const {
  paths_.begin_bucket(request);
  request.target.append("?list-type=2&encoding-type=url");
  S3Paths::append_parameter(request.target, "continuation-token", list.page_token);
  S3Paths::append_parameter(request.target, "delimiter", list.delimiter);
  if (list.max_results > 0) {
    S3Paths::append_parameter(request.target, "max-keys",
                              std::to_string(std::min(list.max_results, 1000u)));
  }
  paths_.append_below(request.target, "prefix", list.prefix);
  if (!list.start_offset.empty() && list.page_token.empty()) {
    paths_.append_below(request.target, "start-after", name_before(list.start_offset));
  }
}

Result<ColumnPage> S3Protocol::parse_list(const Response& response, const ListRequest&) const {
  return parse_s3_list(response.body);
}

void S3Protocol::build_stat(HttpRequest& request, std::string_view name) const {
  paths_.begin(request, "HEAD", name);
  S3Paths::add_checksum_mode(request);
  paths_.add_customer_key(request);
}

Result<ObjectInfo> S3Protocol::parse_stat(const Response& response, std::string_view name) const {
  ObjectInfo info = info_of(response.head);
  info.name = root().full_name(name);
  if (!response.head.content_length) return corrupt("the answer to HEAD has no Content-Length");
  info.size_bytes = *response.head.content_length;
  // Where two contradict each other, none is told; a read of the object is an error.
  info.checksum = whole_sum(response.head).value_or(Checksum());
  return info;
}

void S3Protocol::build_write(HttpRequest& request, const WriteRequest& write,
                             std::span<const std::span<const std::byte>> bytes,
                             const SentSums& sums, std::string&) const {
  paths_.begin(request, "PUT", write.name);
  paths_.add_new_object(request, write);
  S3Paths::add_sums(request, sums);
  paths_.add_write_precondition(request, write.precondition);
  request.body.assign(bytes.begin(), bytes.end());
  request.has_body = true;
}

Result<ObjectInfo> S3Protocol::parse_written(const Response& response, const WriteRequest& write,
                                             uint64_t size_bytes) const {
  ObjectInfo info = info_of(response.head);
  if (info.generation.empty()) return corrupt("the answer to a write has no ETag");
  info.name = root().full_name(write.name);
  info.size_bytes = size_bytes;
  info.content_type = content_type_or_default(write.content_type);
  info.content_encoding = write.content_encoding;
  Result<Checksum> sum = whole_sum(response.head);
  if (!sum) return std::unexpected(std::move(sum.error()));
  info.checksum = *sum;
  return info;
}

Checksum S3Protocol::told_sum(const ResponseHead& head, ChecksumKind kind) const {
  if (kind == ChecksumKind::kNone) return {};
  for (const HeaderField& field : head.fields()) {
    const std::string_view suffix = amz_checksum_suffix(field.name);
    if (suffix.empty() || kind_of_amz_suffix(suffix) != kind) continue;
    if (const Result<Checksum> sum = checksum_from_base64(kind, field.value)) return *sum;
  }
  return {};
}

Checksum S3Protocol::told_md5(const ResponseHead& head) const {
  std::string_view etag;
  for (const HeaderField& field : head.fields()) {
    if (hides_md5(field)) return {};
    if (same_ignoring_case(field.name, "etag")) etag = field.value;
  }
  return md5_of_etag(etag).value_or(Checksum());
}

Result<void> S3Protocol::check_new_name(std::string_view relative) const {
  if (relative.empty()) return invalid_argument(kEmptyName);
  constexpr size_t kMaxNameBytes = 1024;
  const size_t size = root().text().size() + relative.size();
  if (size > kMaxNameBytes) {
    return invalid_argument("the name has ", size, " bytes; the service takes at most ",
                            kMaxNameBytes);
  }
  return {};
}

void S3Protocol::build_remove(HttpRequest& request, std::string_view name,
                              const Precondition& precondition) const {
  paths_.begin(request, "DELETE", name);
  paths_.add_write_precondition(request, precondition);
}

// Services that speak S3 as it was, or leave out what they do not need, refuse these (501), or all
// that they do not know (400). Which sums they take is another matter (upload_sums.h).
std::span<const OptionalHeaders> S3Protocol::optional_headers() const {
  static constexpr std::string_view kLater =
      "a change whose answer was lost, and that is sent again, may replace what another writer has "
      "put there meanwhile";
  static constexpr OptionalHeaders kOurCreate{"if-none-match", kLater};
  static constexpr OptionalHeaders kOurReplace{"if-match", kLater};
  static constexpr std::array kGroups = {
      OptionalHeaders{"x-amz-mp-object-size",
                      "it does not compare the size of an upload with what was sent"},
      OptionalHeaders{"x-amz-checksum-mode",
                      "what is read is compared only by size, and by ETag "
                      "where verify= says so"},
      kOurCreate,
      kOurReplace,  // S3Change::kWrite
      kOurCreate,
      kOurReplace,  // kEndOfUpload
      kOurCreate,
      kOurReplace,  // kCopy
  };
  static_assert(S3Headers::kReplaceByCopy == header_group(kGroups.size() - 1));
  return kGroups;
}

std::unique_ptr<Signer> S3Protocol::make_signer() const {
  return std::make_unique<SigV4Signer>(home_);
}

Refusal S3Protocol::refusal(const ErrorResponse& response) const {
  const XmlError said = parse_xml_error(response.body);
  const ResponseHead& head = response.head;
  const int status = head.status;
  Code code = s3_code_of(status, said.code);
  std::string message = said.code.empty() ? said.message : cat(said.code, ": ", said.message);
  Refusal refusal{.error = Error(code, "")};
  // A response to HEAD has no body, and so no code. 400 is what an expired token gets, 403 what a
  // wrong clock gets: both are worth one more attempt, the second where the clocks differ.
  const bool is_bare = response.body.empty();
  const auto date = parse_http_date(head.find("date").value_or(""));
  const auto now = std::chrono::system_clock::now();
  const bool is_skewed =
      said.code == "RequestTimeTooSkewed" ||
      (is_bare && status == 403 && date && std::chrono::abs(*date - now) > kMaxSkew);
  if (is_skewed) refusal.server_time = said.server_time ? said.server_time : date;
  refusal.stale_credentials =
      is_skewed || status == 401 || (is_bare && status == 400) ||
      is_one_of(said.code, {"ExpiredToken", "InvalidToken", "RequestExpired",
                            "TokenRefreshRequired", "InvalidAccessKeyId"});
  // What is wrong with the bytes, or forbidden, is about no header.
  const bool is_bad_request = status == 400 && code == Code::kInvalidArgument &&
                              said.code != "InvalidDigest" &&
                              // Of a sum or a size with what came.
                              !said.message.contains(" match") && !said.message.contains("ismatch");
  // In words that nobody knows, or in none: about anything.
  const bool is_unknown = is_bad_request && (said.code == "BadRequest" || !s3_status_of(said.code));
  const std::string words = ascii_lower(said.message);
  const bool names_sum =
      is_bad_request && (words.contains("x-amz-checksum") || words.contains("x-amz-sdk-checksum") ||
                         words.contains("content-md5"));
  refusal.blames_taken = status == 501 || is_unknown || names_sum;
  refusal.blames_headers =
      refusal.blames_taken || (is_bad_request && words.contains("x-amz-")) ||
      (is_bad_request &&
       is_one_of(said.code,
                 {"InvalidArgument", "InvalidRequest", "NotImplemented", "UnsupportedHeader",
                  "InvalidHeader", "NotSupported", "UnsupportedOperation"}));
  // A bucket of another region: the header comes even with answers to HEAD, which have no body.
  std::string_view region = head.find("x-amz-bucket-region").value_or("");
  if (region.empty()) region = said.region;
  const bool misdirected =
      status / 100 == 3 ||
      is_one_of(said.code, {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
                            "PermanentRedirect", "TemporaryRedirect"}) ||
      (status == 400 && said.code.empty() && !region.empty() && region != home_->region());
  if (misdirected && status != 304) {
    // An answer to HEAD has no body; where it goes is in the header that browsers follow.
    const std::string_view location = head.find("location").value_or("");
    const std::string_view endpoint = said.endpoint.empty() ? location : said.endpoint;
    refusal.moved = home_->learn(region, said.endpoint);
    message += cat(message.empty() ? "" : " ", "[the bucket is",
                   region.empty() ? "" : cat(" in region ", region),
                   endpoint.empty() ? "" : cat(" at ", endpoint), "]");
  }
  if (status == 501) message += " [this server does not implement it]";
  if (code == Code::kThrottled) {
    message +=
        " [a request-rate limit: fewer or larger objects, a gradual ramp-up, or names that "
        "spread over more prefixes help]";
  }
  if (code == Code::kNotFound && response.of_replacement && said.code == "NoSuchKey") {
    code = Code::kPreconditionFailed;  // what is not there is in no generation
  }
  if (code == Code::kPreconditionFailed) {
    message = cat("the object is not in the expected generation",
                  message.empty() ? "" : cat(" [", message, "]"));
  }
  refusal.object_bytes = said.object_bytes;
  if (message.empty()) message = to_string(code);
  refusal.error = Error(code, std::move(message))
                      .with_http_status(status)
                      .with_request_id(std::string(head.find("x-amz-request-id").value_or("")))
                      .with_retry_after(parse_retry_after(head.find("retry-after").value_or(""),
                                                          std::chrono::system_clock::now()));
  return refusal;
}

std::optional<Refusal> S3Protocol::late_refusal(const ErrorResponse& response) const {
  const std::optional<XmlError> said = parse_late_xml_error(response.body);
  if (!said) return std::nullopt;
  ResponseHead head = response.head;
  head.status = s3_status_of(said->code).value_or(500);
  return refusal({.head = head,
                  .body = response.body,
                  .of_removal = response.of_removal,
                  .of_replacement = response.of_replacement});
}

Result<Provider> s3_provider(const Url& url, const StoreOptions& options) {
  Result<std::shared_ptr<S3Home>> home = S3Home::create(url.bucket, options.endpoint, options.s3);
  if (!home) return std::unexpected(std::move(home.error()));
  return Provider{.endpoint = (*home)->first_endpoint(),
                  .protocol_at = [bucket = url.bucket, home = *home, s3 = options.s3,
                                  verify = options.verify](Root root) {
                    return std::make_unique<S3Protocol>(bucket, home, s3, std::move(root), verify);
                  }};
}

}  // namespace headrace
