#include "store_options.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "headrace/store/upload_sums.h"

#include "bind_credentials.h"

namespace headrace::python {
namespace {

using std::chrono::milliseconds;

// What Python calls an enum's values, in their order. Any other text stands for the first.
constexpr std::array<const char*, 2> words_of(OnChange) { return {"error", "reread"}; }
constexpr std::array<const char*, 2> words_of(ContentEncoding) { return {"stored", "decompress"}; }
constexpr std::array<const char*, 2> words_of(ConditionalWrites) { return {"service", "look"}; }
constexpr std::array<const char*, 3> words_of(S3Addressing) { return {"auto", "path", "virtual"}; }
constexpr std::array<const char*, 3> words_of(GetBatchMode) { return {"auto", "always", "never"}; }
template <class Enum>
concept HasWords = requires(Enum value) { words_of(value); };

double to_seconds(milliseconds duration) { return static_cast<double>(duration.count()) / 1e3; }

void read(nb::handle value, milliseconds& field) {
  // Rounded up, so that a timeout of 0.1 ms does not become 0.
  field = milliseconds(static_cast<int64_t>(std::ceil(nb::cast<double>(value) * 1e3)));
}
template <HasWords Enum>
void read(nb::handle value, Enum& field) {
  const auto words = words_of(field);
  const auto at = std::ranges::find(words, nb::cast<std::string_view>(value));
  field = static_cast<Enum>(at != words.end() ? at - words.begin() : 0);
}
void read(nb::handle value, Verify& field) {
  const bool all = nb::isinstance<nb::str>(value);
  field = all ? Verify::kAll : nb::cast<bool>(value) ? Verify::kCrcs : Verify::kNone;
}
void read(nb::handle value, std::optional<SumLevel>& field) {
  field = sum_level(nb::cast<std::string_view>(value));
}
void read(nb::handle value, std::shared_ptr<Credentials>& field) {
  if (!value.is_none()) field = nb::cast<const CredentialsHandle&>(value).shared();
}
void read(nb::handle value, std::vector<std::byte>& field) {
  const auto bytes = nb::cast<nb::bytes>(value);
  const auto* const begin = static_cast<const std::byte*>(bytes.data());
  field.assign(begin, begin + bytes.size());
}
template <class T>
void read(nb::handle value, T& field) {
  field = nb::cast<T>(value);
}

nb::object show(milliseconds field) { return nb::float_(to_seconds(field)); }
template <HasWords Enum>
nb::object show(const Enum& field) {
  return nb::str(words_of(field)[static_cast<size_t>(field)]);
}
nb::object show(Verify field) {
  if (field == Verify::kAll) return nb::str("all");
  return nb::bool_(field == Verify::kCrcs);
}
nb::object show(const std::optional<SumLevel>& field) {
  const std::string_view text = field ? to_string(*field) : "auto";
  return nb::str(text.data(), text.size());
}
nb::object show(const std::vector<std::byte>& field) {
  return nb::bytes(field.data(), field.size());
}
nb::object show(const std::shared_ptr<Credentials>&) { return nb::none(); }
template <class T>
nb::object show(const T& field) {
  return nb::cast(field);
}

// Calls `visit(key, field)` for every field. The only list of the options' names.
template <class Visit>
void visit_fields(StoreOptions& options, Visit&& visit) {
  visit("endpoint", options.endpoint);
  visit("credentials", options.credentials);
  visit("user_project", options.gcs.user_project);
  visit("s3_region", options.s3.region);
  visit("s3_addressing", options.s3.addressing);
  visit("s3_dual_stack", options.s3.dual_stack);
  visit("s3_fips", options.s3.fips);
  visit("s3_requester_pays", options.s3.requester_pays);
  visit("s3_expected_bucket_owner", options.s3.expected_bucket_owner);
  visit("s3_encryption", options.s3.encryption);
  visit("s3_kms_key_id", options.s3.kms_key_id);
  visit("s3_customer_key", options.s3.customer_key);
  visit("s3_conditional_writes", options.s3.conditional_writes);
  visit("s3_equal_parts", options.s3.equal_parts);
  visit("s3_checksum", options.s3.checksum);
  visit("ais_direct", options.ais.direct);
  visit("ais_etl_name", options.ais.etl_name);
  visit("ais_etl_args", options.ais.etl_args);
  visit("ais_get_batch", options.get_batch.mode);
  visit("max_attempts", options.retry.max_attempts);
  visit("initial_backoff_s", options.retry.initial_backoff);
  visit("max_backoff_s", options.retry.max_backoff);
  visit("backoff_multiplier", options.retry.backoff_multiplier);
  visit("budget_tokens", options.retry.budget_tokens);
  visit("connect_s", options.timeout.connect);
  visit("tls_s", options.timeout.tls);
  visit("first_byte_s", options.timeout.first_byte);
  visit("stall_s", options.timeout.stall);
  visit("total_s", options.timeout.total);
  visit("ca_file", options.tls.ca_file);
  visit("client_cert_file", options.tls.client_cert_file);
  visit("client_key_file", options.tls.client_key_file);
  visit("skip_verify", options.tls.skip_verify);
  visit("http_proxy", options.proxy.http_proxy);
  visit("https_proxy", options.proxy.https_proxy);
  visit("no_proxy", options.proxy.no_proxy);
  visit("max_in_flight", options.max_in_flight);
  visit("initial_in_flight", options.initial_in_flight);
  visit("range_threshold_bytes", options.range_threshold_bytes);
  visit("range_bytes", options.range_bytes);
  visit("max_gap_bytes", options.max_gap_bytes);
  visit("hedge", options.hedge);
  visit("on_change", options.on_change);
  visit("content_encoding", options.content_encoding);
  visit("verify", options.verify);
  visit("max_copy_bytes", options.write_limits.max_copy_bytes);
  visit("copied_part_bytes", options.write_limits.copied_part_bytes);
  visit("min_multipart_part_bytes", options.write_limits.min_multipart_part_bytes);
  visit("max_multipart_parts", options.write_limits.max_multipart_parts);
  visit("user_agent_suffix", options.user_agent_suffix);
  visit("temporary_prefix", options.temporary_prefix);
  visit("compose_small_objects", options.compose_small_objects);
  visit("compose_max_size_bytes", options.compose.max_size_bytes);
  visit("compose_max_objects", options.compose.max_objects);
  visit("compose_max_in_flight", options.compose.max_in_flight);
  visit("compose_pause_s", options.compose.pause);
  visit("compose_sweep_age_s", options.compose.sweep_age);
}

template <class Visit>
void visit_fields(EngineOptions& options, Visit&& visit) {
  visit("io_threads", options.io_threads);
  visit("file_threads", options.file_threads);
  visit("memory_budget_bytes", options.memory_budget_bytes);
}

template <class Options>
Options to_options(const nb::dict& given) {
  Options options;
  size_t known = 0;
  visit_fields(options, [&given, &known](const char* key, auto& field) {
    if (!given.contains(key)) return;
    ++known;
    try {
      read(given[key], field);
    } catch (const nb::cast_error&) {
      throw nb::type_error(cat("option ", key, " has a value of the wrong type or size").c_str());
    }
  });
  if (known != given.size()) throw nb::type_error("an option is not known");
  return options;
}

}  // namespace

StoreOptions to_store_options(const nb::dict& options) { return to_options<StoreOptions>(options); }
EngineOptions to_engine_options(const nb::dict& options) {
  return to_options<EngineOptions>(options);
}

nb::dict default_options() {
  nb::dict defaults;
  const auto show_field = [&defaults](const char* key, const auto& field) {
    defaults[key] = show(field);
  };
  StoreOptions store;
  EngineOptions engine;
  visit_fields(store, show_field);
  visit_fields(engine, show_field);
  return defaults;
}

}  // namespace headrace::python
