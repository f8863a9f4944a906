// Buckets: making, asking, changing, deleting, listing them.
#include <algorithm>

#include "s3/checksum.h"
#include "s3/s3.h"
#include "s3/sigv4.h"
#include "s3/xml.h"
#include "text.h"

namespace faultserver::s3 {
namespace {

constexpr std::string_view kHomeRegion = "us-east-1";

std::string_view region_of(const Bucket& bucket) {
  return bucket.s3.region.empty() ? kHomeRegion : std::string_view(bucket.s3.region);
}

// https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
bool is_bucket_name(std::string_view name) {
  const auto alphanumeric = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return name.size() >= 3 && name.size() <= 63 && alphanumeric(name.front()) &&
         alphanumeric(name.back()) && !name.contains("..") &&
         std::ranges::all_of(name, [&](char c) { return alphanumeric(c) || c == '-' || c == '.'; });
}

std::optional<S3Bucket::Support> support_from(std::string_view text) {
  if (text == "yes") return S3Bucket::Support::kYes;
  if (text == "ignored") return S3Bucket::Support::kIgnored;
  if (text == "refused") return S3Bucket::Support::kRefused;
  if (text == "refused_400") return S3Bucket::Support::kRefused400;
  return std::nullopt;
}

std::optional<S3Bucket::Sums> sums_from(std::string_view text) {
  if (text == "all") return S3Bucket::Sums::kAll;
  if (text == "ignored") return S3Bucket::Sums::kIgnored;
  if (text == "refused") return S3Bucket::Sums::kRefused;
  if (text == "refused_400") return S3Bucket::Sums::kRefused400;
  if (text == "crc64_only") return S3Bucket::Sums::kCrc64Only;
  if (text == "composite_only") return S3Bucket::Sums::kCompositeOnly;
  return std::nullopt;
}

std::optional<S3Bucket::ListFault> list_fault_from(std::string_view text) {
  if (text == "none") return S3Bucket::ListFault::kNone;
  if (text == "repeats_page") return S3Bucket::ListFault::kRepeatsPage;
  if (text == "repeats_token") return S3Bucket::ListFault::kRepeatsToken;
  if (text == "unordered") return S3Bucket::ListFault::kUnordered;
  return std::nullopt;
}

std::optional<Response::Ends> ends_from(const Json& value) {
  if (value.text() == "reset") return Response::Ends::kResets;
  if (value.text() == "reset_next") return Response::Ends::kResetsNext;
  if (value.is_string()) return std::nullopt;
  return value.boolean() ? Response::Ends::kCloses : Response::Ends::kNot;
}

}  // namespace

std::string set_bucket_member(S3Bucket& bucket, const std::string& member, const Json& value) {
  const std::string text = value.text();
  const auto wrong_value = [&] { return member + " cannot be " + value.dump(); };
  if (member == "region") {
    bucket.region = text;
  } else if (member == "redirect_to") {
    bucket.redirect_to = lower(text);
  } else if (member == "redirect_status") {
    bucket.redirect_status = static_cast<int>(value.integer());
    if (bucket.redirect_status != 301 && bucket.redirect_status != 307) return wrong_value();
  } else if (member == "public") {
    bucket.is_public = value.boolean();
  } else if (member == "access_keys") {
    bucket.access_keys.clear();
    for (const Json& key : value.array()) bucket.access_keys.insert(key.text());
  } else if (member == "conditional_writes" || member == "conditional_deletes") {
    const std::optional<S3Bucket::Support> support = support_from(text);
    if (!support) return wrong_value();
    (member == "conditional_writes" ? bucket.conditional_writes : bucket.conditional_deletes) =
        *support;
  } else if (member == "checksums") {
    // True and false are "all" and "ignored".
    const std::optional<S3Bucket::Sums> sums = sums_from(value.is_string() ? text
                                                         : value.boolean() ? "all"
                                                                           : "ignored");
    if (!sums) return wrong_value();
    bucket.sums = *sums;
  } else if (member == "copy_checksums") {
    bucket.has_copy_sums = value.boolean();
  } else if (member == "refused_headers") {
    bucket.refused_headers.clear();
    for (const auto& [name, status] : value.object()) {
      bucket.refused_headers[lower(name)] = static_cast<int>(status.integer());
    }
  } else if (member == "equal_parts") {
    bucket.equal_parts = value.boolean();
  } else if (member == "delete_many") {
    bucket.deletes_many = value.boolean();
  } else if (member == "parent_conflict") {
    bucket.parent_conflict = text;
  } else if (member == "closes") {
    const std::optional<Response::Ends> ends = ends_from(value);
    if (!ends) return wrong_value();
    bucket.ends = *ends;
  } else if (member == "idle_close_ms") {
    bucket.idle_close_s = value.number() / 1000;
  } else if (member == "reasons") {
    bucket.has_reasons = value.boolean();
  } else if (member == "stray_ranges") {
    bucket.has_stray_ranges = value.boolean();
  } else if (member == "xml") {
    bucket.xml_forms.clear();
    for (const Json& form : value.array()) {
      const std::string name = form.text();
      if (name != "short_root" && name != "no_namespace" && name != "prefix" && name != "cdata") {
        return wrong_value();
      }
      bucket.xml_forms.insert(name);
    }
  } else if (member == "encoding_type") {
    bucket.has_encoding_type = value.boolean();
  } else if (member == "default_checksum") {
    if (text != "none" && !algorithm_from(text)) return wrong_value();
    bucket.default_checksum = text == "none" ? "" : algorithm_name(*algorithm_from(text));
  } else if (member == "list_fault") {
    const std::optional<S3Bucket::ListFault> fault = list_fault_from(text);
    if (!fault) return wrong_value();
    bucket.list_fault = *fault;
  } else if (member == "completes_again") {
    bucket.completes_again = value.boolean();
  } else if (member == "version_id_bytes") {
    bucket.version_id_bytes = static_cast<uint64_t>(std::clamp<int64_t>(value.integer(), 8, 1024));
  } else {
    return "no such member of a bucket: " + member;
  }
  return {};
}

Response create_bucket(World& world, const Request& request, const Route& route) {
  if (!is_bucket_name(route.bucket)) {
    return error(route, 400, "InvalidBucketName", "The specified bucket is not valid.");
  }
  if (world.storage.find(route.bucket)) {
    return error(route, 409, "BucketAlreadyOwnedByYou",
                 "Your previous request to create the named bucket succeeded and you already own "
                 "it.");
  }
  Bucket& bucket = world.storage.create(route.bucket);
  bucket.s3.region = inner(request.body, "LocationConstraint");
  Response response;
  response.set("Location", "/" + route.bucket);
  return response;
}

Response list_all_buckets(const World& world, const Request& request) {
  const std::string key = credential_of(request).access_key;
  std::string buckets;
  for (const auto& [name, bucket] : world.storage.buckets()) {
    const S3Bucket& facts = bucket->s3;
    if (!facts.access_keys.empty() && !facts.access_keys.contains(key)) continue;
    buckets += wrapped("Bucket", element("Name", name) +
                                     element("CreationDate", iso_time(bucket->created_us)) +
                                     element("BucketRegion", region_of(*bucket)));
  }
  return document("ListAllMyBucketsResult",
                  wrapped("Owner", element("ID", "headrace")) + wrapped("Buckets", buckets));
}

Response read_bucket(const Call& call) {
  const Bucket& bucket = call.bucket;
  if (call.request.method == "GET" && call.request.has_parameter("location")) {
    // The oldest region goes without a name.
    const std::string_view region = region_of(bucket);
    return document("LocationConstraint", region == kHomeRegion ? "" : escape(region));
  }
  if (call.request.method == "GET") {
    return document("VersioningConfiguration",
                    bucket.versioning ? element("Status", "Enabled") : "");
  }
  Response response;
  response.set("x-amz-bucket-region", std::string(region_of(bucket)));
  response.set("Content-Type", "application/xml");
  return response;
}

Response change_bucket(const Call& call) {
  const std::string status = inner(call.request.body, "Status");
  if (status != "Enabled" && status != "Suspended") {
    return error(call.route, 400, "MalformedXML", "The XML you provided was not well-formed.");
  }
  call.bucket.versioning = status == "Enabled";
  return {};
}

Response delete_bucket(const Call& call) {
  if (!call.bucket.empty() || !call.bucket.noncurrent().empty()) {
    return error(call.route, 409, "BucketNotEmpty", "The bucket you tried to delete is not empty");
  }
  call.storage.erase(call.bucket.name);
  return Response{.status = 204};
}

}  // namespace faultserver::s3
