// headrace-bench-formats NAME [SECONDS]: does one thing over and over for so long (half a second)
// on one thread, and prints {"objects": how often, "wall_s": ..., "cpu_s": ...}. With TIMESx in the
// place of the seconds ("100x"), it does it so often: what callgrind counts. bench/README.md says
// what is measured.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/format/ais_list.h"
#include "headrace/format/ais_owner.h"
#include "headrace/format/ais_test_support.h"
#include "headrace/format/column_page.h"
#include "headrace/format/gcs_json.h"
#include "headrace/format/http_head.h"
#include "headrace/format/percent.h"
#include "headrace/format/running_sum.h"
#include "headrace/format/s3_xml.h"
#include "headrace/format/sigv4.h"
#include "headrace/format/url.h"
#include "headrace/store/gcs/gcs_protocol.h"
#include "headrace/store/s3/s3_protocol.h"

namespace {

using namespace headrace;
using Clock = std::chrono::steady_clock;

// Does it some times, and returns how many objects that were.
using Work = std::function<size_t()>;

volatile uint64_t g_result;  // so that the compiler leaves nothing out
void use(uint64_t value) { g_result = value; }

// GET requests like those of a read: a new line of headers for each, into memory that is kept, and
// a hundred in each second.
Work signatures(size_t token_size) {
  auto now = std::chrono::system_clock::now();
  const AwsKeys keys{.access_key_id = "AKIAIOSFODNN7EXAMPLE",
                     .secret_access_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                     .session_token = std::string(token_size, 't')};
  return [key = SigV4Key::derive(keys, "eu-west-1", "s3", now).value(), now,
          lines = std::string()]() mutable {
    constexpr size_t kCount = 100;
    now += std::chrono::seconds(1);
    if (!key.covers(now)) now -= std::chrono::days(1);
    for (size_t i = 0; i < kCount; ++i) {
      lines = "Range: bytes=0-102399\r\n";
      sign_headers({.target = "/training/images/part-00001/000123456.jpg",
                    .authority = "bucket.s3.eu-west-1.amazonaws.com"},
                   kUnsignedPayload, key, now, lines);
      use(lines.size());
    }
    return kCount;
  };
}

constexpr size_t kPageSize = 1000;

std::string name_of(size_t i) {
  return cat("training/images/part-00001/", 100'000'000 + i, ".jpg");
}

// As S3 sends it, some 400 bytes a key.
Work s3_page() {
  std::string xml =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>"
      "<Prefix></Prefix><NextContinuationToken>token</NextContinuationToken>"
      "<KeyCount>1000</KeyCount><MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType>"
      "<IsTruncated>true</IsTruncated>";
  for (size_t i = 0; i < kPageSize; ++i) {
    xml += cat("<Contents><Key>", percent_encode_path(name_of(i)),
               "</Key><LastModified>2026-11-21T10:00:00.000Z</LastModified>"
               "<ETag>&quot;25f9e794323b453885f5181f1b624d0b&quot;</ETag>"
               "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm>"
               "<ChecksumType>FULL_OBJECT</ChecksumType><Size>",
               102400 + i, "</Size><StorageClass>STANDARD</StorageClass></Contents>");
  }
  xml += "</ListBucketResult>";
  return [xml] {
    const Result<ColumnPage> page = parse_s3_list(xml);
    if (!page) std::abort();
    use(page->size());
    return page->size();
  };
}

// With the fields that a listing of gs:// asks for.
Work gcs_page() {
  std::string json = "{\"nextPageToken\": \"token\", \"items\": [";
  for (size_t i = 0; i < kPageSize; ++i) {
    json += cat(i == 0 ? "" : ",", "{\"name\": \"", name_of(i), "\", \"size\": \"", 102400 + i,
                "\", \"generation\": \"1763719200000000\", \"metageneration\": \"1\", "
                "\"crc32c\": \"4waSgw==\", \"contentType\": \"image/jpeg\", "
                "\"updated\": \"2026-11-21T10:00:00.000Z\", \"storageClass\": \"STANDARD\"}");
  }
  json += "]}";
  return [json] {
    const Result<ColumnPage> page = parse_gcs_list(json);
    if (!page) std::abort();
    use(page->size());
    return page->size();
  };
}

// A page of AIStore is ten times as long as those of the others.
std::vector<AisTestEntry> ais_entries() {
  std::vector<AisTestEntry> entries;
  for (size_t i = 0; i < 10 * kPageSize; ++i) {
    entries.push_back({.name = name_of(i),
                       .size_bytes = 102400 + i,
                       .checksum = "8cb841db40e6ae83",
                       .version = "1",
                       .flags = 64});
  }
  return entries;
}

Work ais_page(const std::string& text, Result<ColumnPage> (*parse)(std::string_view, AisRows)) {
  return [text, parse] {
    const Result<ColumnPage> page = parse(text, AisRows::kObjects);
    if (!page) std::abort();
    use(page->size());
    return page->size();
  };
}

Work ais_owners(size_t target_count) {
  AisMap map;
  for (size_t i = 0; i < target_count; ++i) map.targets.push_back({.id = cat("t", 8080 + i)});
  return [owners = AisOwners(map), bucket = ais_bucket_uname("ais", "", "", "bucket"),
          name = name_of(1)]() mutable {
    constexpr size_t kCount = 100;
    for (size_t i = 0; i < kCount; ++i) {
      name.back() = static_cast<char>('0' + i % 10);
      use(owners.owner(bucket, name).value());
    }
    return kCount;
  };
}

// The head of the answer to a read, as the services send it, and what the store takes from it.
Work head_of(std::string_view url, std::string_view fields) {
  const Result<Url> parsed = parse_url(url);
  if (!parsed) std::abort();
  const auto make = parsed->scheme == Scheme::kS3 ? s3_provider : gcs_provider;
  const Result<Provider> provider = make(*parsed, {.s3 = {.region = "eu-west-1"}});
  if (!provider) std::abort();
  return [protocol = std::shared_ptr(provider->protocol_at(Root())), head = ResponseHead(),
          text = cat("HTTP/1.1 200 OK\r\n", fields, "\r\n")]() mutable {
    constexpr size_t kCount = 100;
    for (size_t i = 0; i < kCount; ++i) {
      if (!parse_response_head(text, head)) std::abort();
      use(protocol->read_facts(head).generation.view().size());
    }
    return kCount;
  };
}

constexpr std::string_view kS3Head =
    "x-amz-id-2: eftixk72aD6Ap51TnqcoF8eFidJG9Z/2mkiDFu8yU9AS1ed4OpIszj7UDNEHGran\r\n"
    "x-amz-request-id: 318BC8BC148832E5\r\nDate: Sat, 21 Nov 2026 10:00:01 GMT\r\n"
    "Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\n"
    "ETag: \"25f9e794323b453885f5181f1b624d0b\"\r\nx-amz-checksum-crc32c: 4waSgw==\r\n"
    "x-amz-checksum-type: FULL_OBJECT\r\nx-amz-server-side-encryption: AES256\r\n"
    "Accept-Ranges: bytes\r\nContent-Type: image/jpeg\r\nContent-Length: 102400\r\n"
    "Server: AmazonS3\r\n";
constexpr std::string_view kGcsHead =
    "X-GUploader-UploadID: AFiumC7cNFnOnuGQ0wT2bKkyX3RXlBR7Xv9cQkGLo5sdHXjyJwKU6ZcI\r\n"
    "Date: Sat, 21 Nov 2026 10:00:01 GMT\r\nCache-Control: private, max-age=0\r\n"
    "Expires: Sat, 21 Nov 2026 10:00:01 GMT\r\nLast-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\n"
    "ETag: \"25f9e794323b453885f5181f1b624d0b\"\r\nx-goog-generation: 1763719200000000\r\n"
    "x-goog-metageneration: 1\r\nx-goog-stored-content-encoding: identity\r\n"
    "x-goog-stored-content-length: 102400\r\nx-goog-hash: crc32c=4waSgw==\r\n"
    "x-goog-storage-class: STANDARD\r\nAccept-Ranges: bytes\r\nContent-Type: image/jpeg\r\n"
    "Content-Length: 102400\r\nServer: UploadServer\r\n";

// Of 100 KiB, which lie in the cache, as those of a read do.
Work sum_of_100_kib(ChecksumKind kind) {
  return [kind, bytes = std::vector<std::byte>(102400, std::byte{0x5A})] {
    use(static_cast<uint64_t>(sum_of(kind, bytes).bytes()[0]));
    return size_t{1};
  };
}

double cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string_view, std::function<Work()>> all = {
      {"sign", [] { return signatures(0); }},
      {"sign-with-token", [] { return signatures(800); }},
      {"list-s3", s3_page},
      {"list-gcs", gcs_page},
      {"list-ais-json",
       [] { return ais_page(ais_json_page("uuid", "token", ais_entries()), parse_ais_list); }},
      {"list-ais-msgpack",
       [] {
         return ais_page(ais_msgpack_page("uuid", "token", ais_entries()), parse_ais_list_msgpack);
       }},
      {"owner-of-16", [] { return ais_owners(16); }},
      {"head-s3", [] { return head_of("s3://bucket", kS3Head); }},
      {"head-gcs", [] { return head_of("gs://bucket", kGcsHead); }},
      {"sum-crc32", [] { return sum_of_100_kib(ChecksumKind::kCrc32); }},
      {"sum-crc32c", [] { return sum_of_100_kib(ChecksumKind::kCrc32c); }},
      {"sum-crc64nvme", [] { return sum_of_100_kib(ChecksumKind::kCrc64Nvme); }},
      {"sum-sha1", [] { return sum_of_100_kib(ChecksumKind::kSha1); }},
      {"sum-sha256", [] { return sum_of_100_kib(ChecksumKind::kSha256); }},
      {"sum-md5", [] { return sum_of_100_kib(ChecksumKind::kMd5); }},
      {"sum-xxh64", [] { return sum_of_100_kib(ChecksumKind::kXxh64); }},
  };
  const auto found = argc > 1 ? all.find(argv[1]) : all.end();
  if (found == all.end()) {
    std::fprintf(stderr, "usage: headrace-bench-formats NAME [SECONDS|TIMESx]; one of");
    for (const auto& [name, make] : all) std::fprintf(stderr, " %s", std::string(name).c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  const std::string amount = argc > 2 ? argv[2] : "0.5";
  const double duration_s = std::atof(amount.c_str());
  const Work work = found->second();
  if (amount.ends_with('x')) {
    size_t objects = 0;
    for (int i = 0; i < std::atoi(amount.c_str()); ++i) objects += work();
    std::printf("{\"objects\": %zu}\n", objects);
    return 0;
  }
  for (const Clock::time_point begin = Clock::now(); seconds_since(begin) < duration_s / 4;) work();
  const Clock::time_point begin = Clock::now();
  const double cpu_before_s = cpu_s();
  size_t objects = 0;
  while (seconds_since(begin) < duration_s) objects += work();
  std::printf("{\"objects\": %zu, \"wall_s\": %.6f, \"cpu_s\": %.6f}\n", objects,
              seconds_since(begin), cpu_s() - cpu_before_s);
  return 0;
}
