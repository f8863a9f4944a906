#include "headrace/store/listing/list_attempt.h"

#include <utility>

namespace headrace {
namespace {

// Drops the names outside of [start_offset, end_offset). Once one is beyond the end, no later page
// has any within.
void trim(ColumnPage& page, const ListRequest& request) {
  if (!request.start_offset.empty()) {
    page.erase_if([&](std::string_view name) { return name < request.start_offset; });
  }
  if (request.end_offset.empty()) return;
  const auto is_beyond = [&](std::string_view name) { return name >= request.end_offset; };
  // Some of the names below a common prefix may be within.
  const size_t erased = page.erase_if(is_beyond) + std::erase_if(page.prefixes, is_beyond);
  if (erased > 0) page.next_page_token.clear();
}

}  // namespace

ListAttempt::ListAttempt(const Protocol& protocol, const TemporaryNames& temporaries,
                         ListRequest request, std::atomic<uint64_t>& largest_page_bytes)
    : TextAttempt(protocol),
      temporaries_(temporaries),
      request_(std::move(request)),
      long_page_(protocol.long_page(request_)),
      largest_page_bytes_(largest_page_bytes) {}

void ListAttempt::build(HttpRequest& request) {
  if (long_page_) {
    long_page_->build_next(request, most_bytes());
  } else {
    protocol().build_list(request, request_);
  }
}

Result<std::span<std::byte>> ListAttempt::body_space(uint64_t outstanding_bytes) {
  Result<std::span<std::byte>> space = TextAttempt::body_space(outstanding_bytes);
  const bool is_too_large = !space && long_page_ && long_page_->ask_for_less(most_bytes());
  if (is_too_large) return std::unexpected(take_no_body(Verdict::kAgain).error());
  return space;
}

std::optional<ExpectedAnswer> ListAttempt::hedgeable() const {
  if (long_page_) return std::nullopt;
  return ExpectedAnswer{.kind = AnswerKind::kPage,
                        .bytes = largest_page_bytes_.load(std::memory_order_relaxed)};
}

std::string ListAttempt::url() const {
  if (!no_bucket_) return protocol().url_of(request_.prefix);
  std::string url = protocol().url_of("");  // ends with the root
  url.resize(url.size() - protocol().root().text().size());
  if (url.ends_with('/')) url.pop_back();
  return url;
}

// A prefix that nothing begins with is an empty page: only the bucket can be missing. Google says
// so, emulators and proxies only "Not Found".
Result<Attempt::Verdict> ListAttempt::refused(Error error) {
  if (error.code() != Code::kNotFound) return std::unexpected(std::move(error));
  no_bucket_ = true;
  const bool says_what = !error.message().starts_with("Not Found");
  if (says_what && (error.message().contains("bucket") || error.message().contains("Bucket"))) {
    return std::unexpected(std::move(error));
  }
  return std::unexpected(std::move(error).with_message("there is no such bucket"));
}

Result<Attempt::Verdict> ListAttempt::finish() {
  uint64_t largest = largest_page_bytes_.load(std::memory_order_relaxed);
  while (text().size() > largest &&
         !largest_page_bytes_.compare_exchange_weak(largest, text().size())) {
  }
  Result<ColumnPage> page = ColumnPage();
  if (long_page_) {
    Result<std::optional<ColumnPage>> taken = long_page_->take(response());
    if (!taken) return std::unexpected(std::move(taken.error()));
    if (!*taken) return Verdict::kAgain;
    page = std::move(**taken);
  } else {
    page = protocol().parse_list(response(), request_);
  }
  if (!page) return std::unexpected(std::move(page.error()));
  if (!request_.page_token.empty() && page->next_page_token == request_.page_token) {
    return corrupt("a page of the listing says that it is followed by itself");
  }
  temporaries_.hide(*page, protocol().root().full_name(request_.prefix));
  if (Result<void> below = protocol().root().strip(*page); !below) {
    return std::unexpected(std::move(below.error()));
  }
  if (protocol().list_bounds() == ListBounds::kLoose) trim(*page, request_);
  result = std::move(page);
  return Verdict::kDone;
}

}  // namespace headrace
