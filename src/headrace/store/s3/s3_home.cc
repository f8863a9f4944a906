#include "headrace/store/s3/s3_home.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/http/message.h"

namespace headrace {
namespace {

// Requests to an unknown region are signed for this one: it answers for all others, and says where
// the bucket is.
constexpr std::string_view kAnyRegion = "us-east-1";

// A label of a host's name, which is also how regions are written.
bool is_label(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

// The domain of AWS's hosts in a region; each part of AWS that is apart from the others has its
// own.
std::string_view amazon_domain(std::string_view region) {
  constexpr std::pair<std::string_view, std::string_view> kDomains[] = {
      {"cn-", "amazonaws.com.cn"},   {"eusc-", "amazonaws.eu"},      {"us-iso-", "c2s.ic.gov"},
      {"us-isob-", "sc2s.sgov.gov"}, {"us-isof-", "csp.hci.ic.gov"}, {"eu-isoe-", "cloud.adc-e.uk"},
  };
  for (const auto& [prefix, domain] : kDomains) {
    if (region.starts_with(prefix)) return domain;
  }
  return "amazonaws.com";
}

}  // namespace

S3Home::S3Home(std::string bucket, S3Options options, std::string region)
    : bucket_(std::move(bucket)), options_(std::move(options)), region_(std::move(region)) {}

Result<std::shared_ptr<S3Home>> S3Home::create(std::string_view bucket, const std::string& endpoint,
                                               const S3Options& options) {
  if (!options.region.empty() && !is_label(options.region)) {
    return invalid_argument("region is '", options.region, "'; it must be a name like 'eu-west-1'");
  }
  if (bucket.ends_with("--x-s3")) {
    return invalid_argument("directory buckets (S3 Express One Zone) are not supported; ", bucket,
                            " is one");
  }
  for (const auto& [name, text] :
       {std::pair("expected_bucket_owner", &options.expected_bucket_owner),
        std::pair("encryption", &options.encryption),
        std::pair("kms_key_id", &options.kms_key_id)}) {
    if (!is_printable_ascii(*text)) return std::unexpected(HttpRequest::not_printable(name));
  }
  if (!options.customer_key.empty() && options.customer_key.size() != 32) {
    return invalid_argument("customer_key has ", options.customer_key.size(),
                            " bytes; it must have 32");
  }
  std::string region = options.region.empty() ? std::string(kAnyRegion) : options.region;
  std::shared_ptr<S3Home> home(new S3Home(std::string(bucket), options, region));
  home->is_amazon_ = endpoint.empty();
  // The certificates of a domain cover one label before it, so names with dots stay in the path.
  const bool fits_host = is_label(bucket);
  switch (options.addressing) {
    case S3Addressing::kAuto: home->in_path_ = !home->is_amazon_ || !fits_host; break;
    case S3Addressing::kPath: home->in_path_ = true; break;
    case S3Addressing::kVirtual:
      if (!fits_host) {
        return invalid_argument("bucket '", bucket,
                                "' cannot be part of a host's name; use addressing 'path'");
      }
      home->in_path_ = false;
      break;
  }
  if (home->is_amazon_) {
    home->first_endpoint_ = home->amazon_endpoint(region);
    return home;
  }
  if (options.dual_stack || options.fips) {
    return invalid_argument("dual_stack and fips choose an endpoint of AWS; ", endpoint,
                            " was given");
  }
  Result<Endpoint> parsed = parse_endpoint(endpoint, /*default_tls=*/true);
  if (!parsed) return std::unexpected(std::move(parsed.error()));
  if (!home->in_path_) parsed->host = cat(bucket, ".", parsed->host);
  home->first_endpoint_ = std::move(*parsed);
  return home;
}

Endpoint S3Home::amazon_endpoint(std::string_view region) const {
  return {
      .tls = true,
      .host = cat(in_path_ ? "" : cat(bucket_, "."), options_.fips ? "s3-fips" : "s3",
                  options_.dual_stack ? ".dualstack." : ".", region, ".", amazon_domain(region)),
      .port = 443};
}

std::shared_ptr<const Endpoint> S3Home::moved_to() const {
  if (version() == 1) return nullptr;
  const Lock lock(mutex_);
  return moved_to_;
}

std::string S3Home::region() const {
  const Lock lock(mutex_);
  return region_;
}

bool S3Home::learn(std::string_view region, std::string_view endpoint) {
  std::string to_region;
  std::optional<Endpoint> to;
  if (is_label(region)) {
    to_region = region;
    if (is_amazon_) to = amazon_endpoint(region);
  } else if (is_amazon_) {
    Result<Endpoint> parsed = parse_endpoint(endpoint, /*default_tls=*/true);
    // Only AWS is followed to where a response says: what requests are signed with is for nobody
    // else.
    if (!parsed || !parsed->tls || !parsed->host.ends_with(".amazonaws.com")) return false;
    const std::string prefix = cat(bucket_, ".");
    if (!in_path_ && !parsed->host.starts_with(prefix)) parsed->host = prefix + parsed->host;
    to = std::move(*parsed);
  } else {
    return false;
  }
  const Lock lock(mutex_);
  bool changes = false;
  if (!to_region.empty() && to_region != region_) {
    region_ = std::move(to_region);
    changes = true;
  }
  if (to && *to != (moved_to_ ? *moved_to_ : first_endpoint_)) {
    moved_to_ = std::make_shared<const Endpoint>(std::move(*to));
    changes = true;
  }
  if (changes) version_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

}  // namespace headrace
