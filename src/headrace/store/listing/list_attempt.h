// The attempt behind a page of a listing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/store/temporary_names.h"
#include "headrace/store/transfer/attempt.h"

namespace headrace {

class ListAttempt final : public TextAttempt {
 public:
  // Borrows `temporaries`. Raises `largest_page_bytes` to the size of the answer.
  ListAttempt(const Protocol& protocol, const TemporaryNames& temporaries, ListRequest request,
              std::atomic<uint64_t>& largest_page_bytes);
  void build(HttpRequest& request) override;
  // Not a page of a long listing, for which the server keeps a state.
  std::optional<ExpectedAnswer> hedgeable() const override;
  // The bucket's, if it is what is missing.
  std::string url() const override;
  Result<ColumnPage> result;

 private:
  Result<std::span<std::byte>> body_space(uint64_t outstanding_bytes) override;
  Result<Verdict> finish() override;
  Result<Verdict> refused(Error error) override;
  const TemporaryNames& temporaries_;
  bool no_bucket_ = false;
  const ListRequest request_;
  const std::unique_ptr<LongPage> long_page_;
  std::atomic<uint64_t>& largest_page_bytes_;
};

}  // namespace headrace
